// SPDX-License-Identifier: GPL-2.0-or-later
// The memory window rules of the upstream NTB hardware drivers, as their mw_get_align(),
// mw_set_trans() and peer_mw_get_addr() have them in Linux 6.12 (drivers/ntb/hw).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pcilend/layout.h"

namespace ntb_rules {

struct Link {
  std::string driver;
  pcilend_layout_host self = {};
  pcilend_layout_host peer = {};
  // What mw_set_trans() accepts beyond what mw_get_align() tells.
  std::function<bool(u32 window, u64 address, u64 size)> accepts = [](u32, u64, u64) {
    return true;
  };

  // get_align's answers here, and how far the peer's peer_mw_get_addr() says it sees.
  void Add(u64 addr_align, u64 size_align, u64 size_max, u64 seen, u64 end = 0) {
    if (self.windows == PCILEND_LAYOUT_WINDOWS) return;
    self.window[self.windows++] = {seen, size_max, addr_align, size_align, end};
    peer.window[peer.windows++].size = seen;
  }
};

using Bars = std::vector<u64>;

// ntb_hw_amd: 2 windows (1022:148b: BAR 2, 4) or 3 (1022:145b: BAR 1, 2, 4).
inline Link Amd(const Bars& bars) {
  Link link{"amd"};
  for (const u64 bar : bars) link.Add(0x1000, 1, bar, bar);
  return link;
}

// ntb_hw_gen1, gen3: translations aligned to the BAR. With b2b_share the last window is half of a
// BAR; split BARs are 32-bit and so are their translations.
inline Link Intel(const std::string& name, const Bars& bars, bool b2b_share = false,
                  bool split = false) {
  Link link{name};
  for (size_t i = 0; i < bars.size(); ++i) {
    const bool shared = b2b_share && i + 1 == bars.size();
    const u64 size = shared ? bars[i] / 2 : bars[i];
    link.Add(bars[i], 1, size, size, split && i > 0 ? 0xfffff000 : 0);
  }
  link.accepts = [bars, split](u32 window, u64 address, u64 size) {
    if (window >= bars.size()) return true;  // not one of its own
    if (split && window > 0 && address + size >= 1ULL << 32) return false;
    return (address & (bars[window] - 1)) == 0;
  };
  return link;
}

// ntb_hw_gen4: page aligned, unless the BAR alignment erratum is there.
inline Link IntelGen4(const Bars& bars) {
  Link link = Amd(bars);
  link.driver = "intel-gen4";
  return link;
}

// ntb_hw_switchtec: the first direct window shares its BAR with LUT windows of 64 KiB; the peer
// looks no further than its max_mw_size; translations must be aligned to the size.
inline Link Switchtec(const Bars& bars, u64 luts, u64 max_mw_size) {
  constexpr u64 kLut = 0x10000;
  Link link{"switchtec"};
  for (size_t i = 0; i < bars.size(); ++i) {
    u64 size = bars[i];
    u64 seen = bars[i];
    if (i == 0 && luts != 0) {
      size = std::min(size, kLut * luts);
      seen = std::min(bars[i] - kLut * luts, kLut * luts);
    }
    link.Add(0x1000, 0x1000, size, std::min(seen, max_mw_size));
  }
  for (u64 i = 1; i < luts; ++i) link.Add(kLut, kLut, kLut, kLut);  // one is the driver's own
  link.accepts = [](u32, u64 address, u64 size) {
    if (size < 0x1000) return false;
    u64 order = 0x1000;
    while (order * 2 <= size) order *= 2;
    return address % order == 0;
  };
  return link;
}

// ntb_hw_idt: direct windows of a whole BAR, or 12 or 24 look-up table windows that share one.
inline Link Idt(const Bars& direct, u64 lut_bar = 0, int luts = 0) {
  Link link{"idt"};
  for (const u64 bar : direct) link.Add(4, 1, bar, bar);
  const u64 part = luts == 12 ? lut_bar / 16 : lut_bar / 32;
  for (int i = 0; i < luts; ++i) link.Add(4, part, part, part);
  return link;
}

// ntb_hw_epf: up to four BARs; the first holds the doorbells before its window.
inline Link Epf(const Bars& bars, u64 first_offset) {
  Link link{"epf"};
  for (size_t i = 0; i < bars.size(); ++i) {
    link.Add(0x1000, 1, bars[i], bars[i] - (i == 0 ? first_offset : 0));
  }
  return link;
}

}  // namespace ntb_rules
