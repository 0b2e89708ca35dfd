// SPDX-License-Identifier: GPL-2.0-or-later
// What this host would lose if a PCI function were taken from its driver.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pcilend/environment.h"
#include "pcilend/ids.h"

namespace pcilend {

struct DeviceUse {
  // Reasons not to take it, each with its cure: "/dev/nvme0n1p1 is mounted on /data: umount /data".
  std::vector<std::string> block;
  // The same of networks: "network interface eth0 has addresses: ...".
  std::vector<std::string> network;
  // The same of programs that have its device nodes open, but for VFIO.
  std::vector<std::string> programs;
  // Network interfaces that are up, in use or not.
  std::vector<std::string> interfaces;
  // The user of VFIO that has it, such as a VM. The kernel would wait for that one's end, with its
  // driver half removed: so it is not taken by force either.
  std::optional<std::string> vfio;
};

// Looks at block devices (mounts, swap, holders, exclusive openers), network interfaces, and open
// device nodes of the function and of whatever hangs below it.
Result<DeviceUse> find_device_use(const Environment& environment, const PciAddress& address);

// The same of a disk of this host, such as nvme0n1, and of its partitions: reasons not to take it.
Result<std::vector<std::string>> find_disk_use(const Environment& environment,
                                               const std::string& name);

struct Host;

// Refuses to take what is in use, unless by force; what a VM has, always. Else how it is in use.
Result<DeviceUse> check_unused(const Host& host, const PciAddress& address, bool force);

// Warns of what was lost, once it was taken.
void warn_of_loss(const Host& host, const DeviceUse& use);

}  // namespace pcilend
