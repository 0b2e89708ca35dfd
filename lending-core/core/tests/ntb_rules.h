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

// ntb_hw_amd.c: 2 windows (1022:148b: BAR 2, 4) or 3 (1022:145b: BAR 1, 2, 4), as
// ndev_mw_to_bar() counts them. amd_ntb_mw_get_align(): 4 KiB, any size up to the BAR;
// amd_ntb_peer_mw_get_addr(): all of the BAR. amd_ntb_mw_set_trans() writes 32 bits of BAR 1's
// limit and compares it, so BAR 1 is below 4 GiB.
inline Link Amd(const Bars& bars) {
  Link link{"amd"};
  for (const u64 bar : bars) link.Add(0x1000, 1, bar, bar);
  return link;
}

// ntb_hw_gen1.c: intel_ntb_mw_get_align() and intel_ntb_mw_set_trans() want translations aligned to
// the BAR. xeon_setup_b2b_mw() takes the last window for the peer's registers, or with
// b2b_mw_share (@b2b_share) half of it: intel_ntb_peer_mw_get_addr() tells the other half. Split
// BARs are 32-bit, and intel_ntb_mw_set_trans() refuses what ends beyond 4 GiB.
// ntb_hw_gen3.c: intel_ntb3_mw_set_trans() has the same rules; there is nothing to share or split.
inline Link Intel(const std::string& name, const Bars& bars, bool b2b_share = false,
                  bool split = false) {
  Link link{name};
  for (size_t i = 0; i < bars.size(); ++i) {
    const bool shared = b2b_share && i + 1 == bars.size();
    const u64 size = shared ? bars[i] / 2 : bars[i];
    link.Add(bars[i], 1, size, size, split && i > 0 ? 0xfffff000 : 0);
  }
  link.accepts = [bars, split, b2b_share](u32 window, u64 address, u64 size) {
    if (window >= bars.size()) return true;  // not one of its own
    const u64 half = b2b_share && window + 1 == bars.size() ? 2 : 1;
    if (size > bars[window] / half) return false;
    if (split && window > 0 && address + size >= 1ULL << 32) return false;
    return (address & (bars[window] - 1)) == 0;
  };
  return link;
}

// ntb_hw_gen4.c: intel_ntb4_mw_get_align() and intel_ntb4_mw_set_trans() want pages, and with the
// erratum NTB_HWERR_BAR_ALIGN (all Ice Lakes: gen4_init_dev()) the alignment of the BAR.
inline Link IntelGen4(const Bars& bars, bool erratum = false) {
  Link link = erratum ? Intel("intel-gen4", bars) : Amd(bars);
  link.driver = "intel-gen4";
  return link;
}

// ntb_hw_switchtec.c. switchtec_ntb_init_shared(): a side tells the sizes of its windows, the first
// direct one no larger than all LUT windows together, which lie before it in its BAR.
// switchtec_ntb_mw_get_align(): direct windows 4 KiB, LUT windows their 64 KiB.
// switchtec_ntb_direct_get_addr(): the peer sees no more than what is left of the BAR, than the
// LUTs' size, and than its max_mw_size (2 MiB unless set). switchtec_ntb_mw_count(): LUT windows
// are used with use_lut_mws (@use_luts) only, and switchtec_ntb_init_shared_mw() keeps one; so
// there is always one at least. switchtec_ntb_mw_set_trans(): aligned to the size rounded down to a
// power of two, which mw_get_align() doesn't say.
inline Link Switchtec(const Bars& bars, u64 luts, u64 max_mw_size, bool use_luts) {
  constexpr u64 kLut = 0x10000;
  Link link{"switchtec"};
  for (size_t i = 0; i < bars.size(); ++i) {
    u64 size = bars[i];
    u64 seen = bars[i];
    if (i == 0) {
      const u64 before = kLut * luts;
      size = std::min(size, before);
      seen = bars[i] > before ? std::min(bars[i] - before, before) : 0;
    }
    link.Add(0x1000, 0x1000, size, std::min(seen, max_mw_size));
  }
  for (u64 i = 1; use_luts && i < luts; ++i) link.Add(kLut, kLut, kLut, kLut);
  link.accepts = [](u32, u64 address, u64 size) {
    if (size < 0x1000) return false;
    u64 order = 0x1000;
    while (order * 2 <= size) order *= 2;
    return address % order == 0;
  };
  return link;
}

// ntb_hw_idt.c: idt_scan_mws() makes a direct window of a whole BAR (any size, addresses by 4
// bytes), or 12 or 24 look-up table windows of a 16th or 32nd of the BAR, and of that size only;
// idt_ntb_peer_mw_set_trans() holds it to that.
inline Link Idt(const Bars& direct, u64 lut_bar = 0, int luts = 0) {
  Link link{"idt"};
  for (const u64 bar : direct) link.Add(4, 1, bar, bar);
  const u64 part = luts == 12 ? lut_bar / 16 : lut_bar / 32;
  for (int i = 0; i < luts; ++i) link.Add(4, part, part, part);
  const size_t first = direct.size();
  const size_t end = first + static_cast<size_t>(luts);
  link.accepts = [first, end, part](u32 window, u64 address, u64 size) {
    return address % 4 == 0 && (window < first || window >= end || size == part);
  };
  return link;
}

// ntb_hw_epf.c: up to four BARs. ntb_epf_mw_get_align(): 4 KiB, any size up to the BAR;
// ntb_epf_peer_mw_get_addr(): the first one begins NTB_EPF_MW1_OFFSET (@first_offset) into its BAR,
// behind the doorbells, though ntb_epf_mw_set_trans() takes a size up to the BAR's.
inline Link Epf(const Bars& bars, u64 first_offset) {
  Link link{"epf"};
  for (size_t i = 0; i < bars.size(); ++i) {
    link.Add(0x1000, 1, bars[i], bars[i] - (i == 0 ? first_offset : 0));
  }
  return link;
}

}  // namespace ntb_rules
