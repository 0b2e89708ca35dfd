// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "ntb_rules.h"
#include "pcilend/layout.h"

namespace layout_check {

// What must hold of any plan; the driver accepts each translation.
inline std::string Wrong(const ntb_rules::Link& link, const pcilend_layout& l) {
  const u64 hole = std::min(link.self.hole != 0 ? link.self.hole : PCILEND_HOLE_DEFAULT,
                            link.peer.hole != 0 ? link.peer.hole : PCILEND_HOLE_DEFAULT);
  const u64 iova_end = link.self.iova_end != 0 ? link.self.iova_end : ~0ULL;
  if (l.windows > link.self.windows) return "more windows than there are";
  for (u32 i = 0; i < l.windows; ++i) {
    const auto& window = l.window[i];
    const auto& rules = link.self.window[i];
    if (window.size == 0) continue;
    const u64 seen = link.peer.windows != 0 ? link.peer.window[i].size : rules.size;
    if (rules.addr_align != 0 && window.translation % rules.addr_align != 0) return "alignment";
    if (rules.size_align != 0 && window.size % rules.size_align != 0) return "size alignment";
    if (rules.size_max != 0 && window.size > rules.size_max) return "larger than allowed";
    if (seen != 0 && window.size > seen) return "larger than the peer sees";
    if (rules.end != 0 && window.translation + window.size > rules.end) return "32-bit window";
    if (window.translation + window.size > iova_end) return "past the end of the IOMMU";
    if (!link.accepts(i, window.translation, window.size)) return "the driver refuses it";
  }
  struct Named {
    const char* name;
    u64 start;
    u64 size;
    u32 window;
  };
  std::vector<Named> regions = {{"dma", 0, l.dma_limit, l.dma_window}};
  for (const auto& [name, region] :
       {std::pair{"msi", l.interrupts}, {"exports", l.exports}, {"slots", l.slots}}) {
    if (region.size != 0) regions.push_back({name, region.iova, region.size, region.window});
  }
  for (const Named& r : regions) {
    const auto& window = l.window[r.window];
    if (r.window >= l.windows || r.start < window.translation ||
        r.start + r.size > window.translation + window.size) {
      return std::string(r.name) + " outside its window";
    }
    if (r.start % PCILEND_PAGE != 0 || r.size % PCILEND_PAGE != 0) return "unaligned region";
    if (std::string(r.name) != "msi" && r.start < 1ULL << 32 && r.start + r.size > hole) {
      return std::string(r.name) + " in the PCI hole";
    }
    for (const Named& other : regions) {
      if (&r != &other && r.start < other.start + other.size && other.start < r.start + r.size) {
        return std::string(r.name) + " overlaps " + other.name;
      }
    }
  }
  for (u32 i = 0; i < l.windows; ++i) {
    bool used = false;
    for (const Named& r : regions) used = used || r.window == i;
    if (used != (l.window[i].size != 0)) return "window open for nothing, or closed in use";
  }
  if (l.dma_limit < PCILEND_DMA_LEAST || l.exports.size < PCILEND_EXPORT_LEAST) return "too small";
  if (l.slots.size != 0 && l.slots.size < PCILEND_SLOTS_LEAST) return "slots too small";
  if (l.interrupts.size != 0 &&
      (l.interrupts.iova != PCILEND_MSI_IOVA || l.interrupts.size != PCILEND_MSI_BYTES)) {
    return "not the interrupt range";
  }
  if (link.self.relay && l.interrupts.size != 0) return "a window for relayed interrupts";
  u32 degraded = 0;
  if (l.interrupts.size == 0 && !link.self.relay) degraded |= PCILEND_DEGRADED_INTERRUPTS;
  if (l.dma_limit < std::min<u64>(hole, PCILEND_MSI_IOVA) / PCILEND_PAGE * PCILEND_PAGE) {
    degraded |= PCILEND_DEGRADED_DMA;
  }
  if (l.slots.size == 0) {
    degraded |= PCILEND_DEGRADED_NO_GUESTS;
  } else if (l.slots.size < PCILEND_SLOTS_FULL) {
    degraded |= PCILEND_DEGRADED_GUESTS;
  }
  if (l.exports.size < PCILEND_EXPORT_FULL) degraded |= PCILEND_DEGRADED_EXPORT;
  if (degraded != l.degraded) return "not all that is degraded is said";
  return "";
}

}  // namespace layout_check
