// SPDX-License-Identifier: GPL-2.0-or-later
// What answers when a peer reads a host's whole aperture.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "lab/lab.h"

namespace pcilend::scenarios {

// Of the plan for the lab's adapters (docs/architecture.md, "One aperture each way").
inline constexpr uint64_t kControlBytes = 5 * 4096;
inline constexpr uint64_t kInterruptBytes = 1 << 20;

// Where the planner puts what, in the lab. With exports in the window that has all the rest, their
// addresses are offsets in it, guest slots come behind them, and the other window is closed, but
// for the adapter's look-up table.
struct SweepPlan {
  unsigned memory = 0;  // window of the DMA area, interrupts and guest slots
  uint64_t memory_bytes = uint64_t{64} << 30;
  unsigned exports = 1;  // window, as the peer sees it, like the next
  uint64_t exports_offset = 0;
  uint64_t exports_bytes = uint64_t{16} << 30;
  uint64_t shared_bytes = 0;  // of each host, as its NTB driver's scratchpads
};

// To the page at the ends of each range of the plan, where things are mapped first, and around the
// interrupts; what is memory is found to the page everywhere.
std::vector<lab::SweepRange> sweep_ranges(const SweepPlan& plan = {});

struct Reach {
  uint64_t control = 0;     // bytes of memory in the DMA area
  uint64_t interrupts = 0;  // bytes of the interrupt range
  uint64_t slots = 0;       // bytes of memory in guest slots
  uint64_t exports = 0;     // bytes of BARs in the export region
  uint64_t roms = 0;        // bytes of memory there
  uint64_t shared = 0;      // bytes of the NTB driver's own memory
  std::vector<std::string> elsewhere;

  bool operator==(const Reach&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Reach& reach);

Reach sorted(const lab::SweepReport& report, const SweepPlan& plan = {});

// What a host lists of a function, without the ROM.
uint64_t bar_bytes(const nlohmann::json& function);

// Hosts 1 and 2 read each other's whole aperture. Each reaches the other's control area, its
// interrupts, and what is lent or leased: host 2, which borrows, BARs of so many bytes and their
// ROM, host 1 so much of its memory. Not a page more.
void expect_reach(lab::Lab& lab, const char* stage, uint64_t exports, uint64_t slots,
                  const SweepPlan& plan = {});

// Patterns of what the victim's kernel says: each probe that is refused is a fault of the adapter.
inline constexpr const char* kSweepFaults[] = {"^DMAR: DRHD: handling fault status reg",
                                               "^DMAR: \\[DMA Read NO_PASID\\] Request device "
                                               "\\[(0000:)?0[0-9a-f]:0[0-9a-f]\\.0\\] fault addr "};

}  // namespace pcilend::scenarios
