// SPDX-License-Identifier: GPL-2.0-or-later
// Which of a host's devices sits where, and on which drive.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/layout.h"
#include "lab/options.h"

namespace pcilend::lab {

// What QEMU says of a driver.
struct DriverTraits {
  bool pci = false;    // it has an address on a PCI bus
  bool drive = false;  // it can have a drive
};

using DriverCatalog = std::function<Result<DriverTraits>(const std::string& driver)>;

// Reads the output of QEMU's `-device DRIVER,help`.
DriverTraits parse_driver_help(std::string_view text);
// Asks a QEMU program. Usage for a driver that it does not have.
DriverCatalog qemu_catalog(const std::string& qemu);

struct Drive {
  std::string id;
  std::string file;
  uint64_t size = 0;  // bytes
};

struct PlacedDevice {
  std::string id;
  std::string asked;                // as the user gave it, without the lab's own properties
  std::string argument;             // for -device
  std::optional<std::string> slot;  // on the host's bus 0, as "10.0"; none on another bus
  std::optional<Drive> drive;
  std::optional<std::string> port;  // for -device: the root port that the lab puts before it
};

// A size for the drive of a device that needs one and was given none.
inline constexpr uint64_t kDefaultDriveSize = 256ULL << 20;

// Gives each device an id, a slot of its own on bus 0 (from 0x10 up: an IOMMU group of its own),
// there a root port if it is asked for, and a drive, where the user did not.
Result<std::vector<PlacedDevice>> place_devices(const std::vector<DeviceString>& devices, int host,
                                                const Layout& layout, const DriverCatalog& catalog);

}  // namespace pcilend::lab
