// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/devices.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "lab/process.h"

namespace pcilend::lab {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kFirstSlot = 0x10;
// Beyond those that users count from 1.
constexpr unsigned kFirstChassis = 0x80;
// 0x1f holds the chipset's own functions.
constexpr unsigned kLastSlot = 0x1e;

// Drivers that QEMU refuses to start without a drive.
constexpr std::array kNeedDrive = {"nvme",    "virtio-blk-pci", "ide-hd",
                                   "scsi-hd", "usb-storage",    "virtio-blk-pci-non-transitional",
                                   "nvme-ns"};

// Slot and function of QEMU's addr property: SLOT[.FUNCTION], both hexadecimal.
std::optional<std::pair<unsigned, unsigned>> parse_slot(std::string_view text) {
  std::pair<unsigned, unsigned> place{0, 0};
  if (text.starts_with("0x")) text.remove_prefix(2);
  const char* end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, place.first, 16);
  if (error != std::errc()) return std::nullopt;
  if (at != end) {
    if (*at != '.') return std::nullopt;
    const auto [last, bad] = std::from_chars(at + 1, end, place.second, 16);
    if (bad != std::errc() || last != end) return std::nullopt;
  }
  if (place.first > 0x1f || place.second > 7) return std::nullopt;
  return place;
}

bool on_other_bus(const DeviceString& device) {
  const std::string* bus = device.property("bus");
  return bus && *bus != "pcie.0";
}

}  // namespace

DriverTraits parse_driver_help(std::string_view text) {
  const auto has = [text](std::string_view property) {
    return text.find(fmt::format("\n  {}=", property)) != std::string_view::npos;
  };
  return {has("addr"), has("drive")};
}

DriverCatalog qemu_catalog(const std::string& qemu) {
  return [qemu](const std::string& driver) -> Result<DriverTraits> {
    const auto help = run_program({qemu, "-device", driver + ",help"}, Deadline(60s));
    if (!help) return fail(ErrorClass::Usage, "device '{}': {}", driver, help.error().message);
    return parse_driver_help(*help);
  };
}

Result<std::vector<PlacedDevice>> place_devices(const std::vector<DeviceString>& devices, int host,
                                                const Layout& layout,
                                                const DriverCatalog& catalog) {
  std::set<unsigned> taken;
  std::set<std::string> ids;
  for (const DeviceString& device : devices) {
    if (const std::string* id = device.property("id"); id && !ids.insert(*id).second)
      return fail(ErrorClass::Usage, "{}: two devices have the id '{}'", host_name(host), *id);
    if (const std::string* address = device.property("addr"); address && !on_other_bus(device)) {
      const auto place = parse_slot(*address);
      if (!place)
        return fail(ErrorClass::Usage, "{}: addr={} is not SLOT or SLOT.FUNCTION (hexadecimal)",
                    host_name(host), *address);
      taken.insert(place->first);
    }
  }

  std::vector<PlacedDevice> placed;
  unsigned next_id = 0;
  unsigned slot = kFirstSlot;
  for (const DeviceString& device : devices) {
    const auto traits = catalog(device.driver);
    if (!traits) return tl::unexpected(traits.error());
    DeviceString full = device;
    PlacedDevice result;
    result.asked = device.text();

    if (const std::string* id = device.property("id")) {
      result.id = *id;
    } else {
      do result.id = fmt::format("device{}", next_id++);
      while (ids.contains(result.id));
      full.properties.emplace_back("id", result.id);
    }

    const bool behind_port = device.root_port.value_or(false);
    if (behind_port && !traits->pci)
      return fail(ErrorClass::Usage, "{}: {} is no PCI device; leave root-port out",
                  host_name(host), device.driver);
    if (traits->pci && !device.property("addr") && !device.property("bus")) {
      while (taken.contains(slot)) ++slot;
      if (slot > kLastSlot)
        return fail(ErrorClass::Usage, "{}: no slot left on bus 0 for {}; use root ports",
                    host_name(host), result.asked);
      taken.insert(slot);
      if (behind_port) {
        const std::string port = result.id + "-port";
        result.port = fmt::format("pcie-root-port,id={},addr={:x}.0,chassis={}", port, slot,
                                  kFirstChassis + slot);
        full.properties.emplace_back("bus", port);
      } else {
        full.properties.emplace_back("addr", fmt::format("{:x}.0", slot));
      }
    }
    if (const std::string* address = full.property("addr"); address && !on_other_bus(full))
      if (const auto place = parse_slot(*address))
        result.slot = fmt::format("{:02x}.{:x}", place->first, place->second);

    const bool needs_drive =
        std::find(kNeedDrive.begin(), kNeedDrive.end(), device.driver) != kNeedDrive.end();
    if (device.drive_size && !traits->drive)
      return fail(ErrorClass::Usage, "{}: {} has no drive; leave drive-size out", host_name(host),
                  device.driver);
    if (device.drive_size || (needs_drive && !device.property("drive"))) {
      result.drive = Drive{result.id + "-drive", layout.drive(host, result.id),
                           device.drive_size.value_or(kDefaultDriveSize)};
      full.properties.emplace_back("drive", result.drive->id);
    }
    result.argument = full.text();
    placed.push_back(std::move(result));
  }
  return placed;
}

}  // namespace pcilend::lab
