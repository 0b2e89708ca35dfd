// SPDX-License-Identifier: GPL-2.0-or-later
// The command line of a host VM's QEMU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/devices.h"
#include "lab/layout.h"
#include "lab/options.h"

namespace pcilend::lab {

// Ports of the agent in a host, and so commands that can run in it at the same time.
inline constexpr int kAgentPorts = 8;

// Slots of bus 0. Slot 1 stays free for the AMD IOMMU's own function.
inline constexpr int kRootSlot = 2;
inline constexpr int kSerialSlot = 3;
inline constexpr int kFirstAdapterSlot = 4;

// The slot of an adapter that host `a` of a lab has towards host `b`: in the order of the peers,
// and of the paths to each, of which there are `paths`.
constexpr int adapter_slot(int a, int b, int path = 1, int paths = 1) {
  return kFirstAdapterSlot + ((b < a ? b : b - 1) - 1) * paths + path - 1;
}

// QEMU's id of an adapter in that slot, where it stands behind a port of its own.
inline std::string adapter_id(int slot) {
  return "adapter" + std::to_string(slot);
}

struct QemuFiles {
  std::string qemu;
  std::string kernel;
  std::string initrd;
};

// `tsc_khz`: the rate of the time stamp counter that the host will see.
std::vector<std::string> qemu_command(const Options& options, int host, const QemuFiles& files,
                                      uint64_t tsc_khz, const Layout& layout,
                                      const std::vector<PlacedDevice>& devices);

}  // namespace pcilend::lab
