// SPDX-License-Identifier: GPL-2.0-or-later
#include "made_devices.h"

#include "device_tree.h"

namespace pcilend {
namespace {

constexpr uint64_t kSectorBytes = 512;  // of /sys/class/block/*/size, whatever the disk's are

}  // namespace

MadeDevices find_made_devices(const Environment& environment, const PciAddress& address) {
  MadeDevices made;
  const auto trees = dependent_trees(environment, address);
  if (!trees) return made;
  const auto controllers = class_members(environment, "nvme", *trees);
  for (const auto& name : class_members(environment, "block", *trees)) {
    const std::string block = "/sys/class/block/" + name;
    // A hidden one is a path to a disk, and no disk.
    if (environment.exists(block + "/partition") ||
        first_line(environment.read(block + "/hidden")) == "1")
      continue;
    const auto sectors =
        std::strtoull(first_line(environment.read(block + "/size")).c_str(), nullptr, 10);
    made.disks.push_back(
        {name, controllers.empty() ? "" : controllers.front(), sectors * kSectorBytes});
  }
  made.interfaces = class_members(environment, "net", *trees);
  return made;
}

}  // namespace pcilend
