// SPDX-License-Identifier: GPL-2.0-or-later
// What this host would lose if a PCI function were taken from its driver.
#pragma once

#include <string>
#include <vector>

#include "pcilend/environment.h"
#include "pcilend/ids.h"

namespace pcilend {

struct DeviceUse {
  // Reasons not to take it, each with its cure: "/dev/nvme0n1p1 is mounted on /data: umount /data".
  std::vector<std::string> block;
  // Who has it open through VFIO, such as QEMU for a guest. By force it is not to be had either:
  // the kernel, which would have to wait for them, refuses.
  std::vector<std::string> vfio;
  // Network interfaces that are up.
  std::vector<std::string> interfaces;
};

// Looks at block devices (mounts, swap, holders, exclusive openers) and network interfaces of the
// function and of whatever hangs below it, and at users of VFIO.
Result<DeviceUse> find_device_use(const Environment& environment, const PciAddress& address);

struct Host;

// Refuses to take storage that is in use, or what is used through VFIO, unless by force; warns of
// networks that go.
Result<> check_unused(const Host& host, const PciAddress& address, bool force);

}  // namespace pcilend
