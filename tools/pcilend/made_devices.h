// SPDX-License-Identifier: GPL-2.0-or-later
// What the driver of a PCI function has made of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pcilend/environment.h"
#include "pcilend/ids.h"

namespace pcilend {

struct MadeDevices {
  struct Disk {
    std::string name;        // nvme0n1
    std::string controller;  // nvme0; empty if the kernel has no name for it
    uint64_t bytes = 0;
  };

  std::vector<Disk> disks;  // whole ones, without partitions
  std::vector<std::string> interfaces;
};

// Nothing of a function that is not there, or has no driver.
MadeDevices find_made_devices(const Environment& environment, const PciAddress& address);

}  // namespace pcilend
