// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/swept.h"

#include <fmt/ranges.h>

namespace pcilend::scenarios {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kGiB = 1 << 30;

// The plan for the lab's adapters (docs/architecture.md, "One aperture each way"), and the sizes of
// their windows.
constexpr uint64_t kDmaEnd = 2 * kGiB;
constexpr uint64_t kInterrupts = 0xfee00000;
constexpr uint64_t kSlots = 8 * kGiB;
constexpr uint64_t kExports = uint64_t{1} << 40;
constexpr uint64_t kWindow0 = 64 * kGiB;
constexpr uint64_t kWindow1 = 16 * kGiB;

}  // namespace

const std::vector<lab::SweepRange>& sweep_ranges() {
  static const std::vector<lab::SweepRange> list = {
      {0, 0, 4 * kMiB},
      {0, kDmaEnd - 16 * kMiB, 17 * kMiB},
      {0, kInterrupts - kMiB, 3 * kMiB},
      {0, kSlots - kMiB, 9 * kMiB},
      {0, kWindow0 - kMiB, kMiB},
      {1, 0, 16 * kMiB},
      {1, kWindow1 - kMiB, kMiB},
      {0, 0, kWindow0, 4 * kMiB},
      {1, 0, kWindow1, 4 * kMiB},
  };
  return list;
}

std::ostream& operator<<(std::ostream& out, const Reach& reach) {
  return out << fmt::format(
             "control {:#x}, interrupts {:#x}, slots {:#x}, exports {:#x}, roms {:#x}{}{}",
             reach.control, reach.interrupts, reach.slots, reach.exports, reach.roms,
             reach.elsewhere.empty() ? "" : ", and ", fmt::join(reach.elsewhere, ", "));
}

Reach sorted(const lab::SweepReport& report) {
  Reach reach;
  for (const lab::SweepHit& hit : report.answered) {
    const uint64_t end = hit.address + hit.length;
    if (hit.window == 0 && hit.target == "memory" && end <= kDmaEnd)
      reach.control += hit.length;
    else if (hit.window == 0 && hit.target == "interrupt" && hit.address >= kInterrupts &&
             end <= kInterrupts + kMiB)
      reach.interrupts += hit.length;
    else if (hit.window == 0 && hit.target == "memory" && hit.address >= kSlots)
      reach.slots += hit.length;
    else if (hit.window == 1 && hit.target == "bar" && hit.address >= kExports)
      reach.exports += hit.length;
    else if (hit.window == 1 && hit.target == "memory" && hit.address >= kExports)
      reach.roms += hit.length;
    else
      reach.elsewhere.push_back(
          fmt::format("{} at {:#x}+{:#x}", hit.target, hit.address, hit.length));
  }
  return reach;
}

}  // namespace pcilend::scenarios
