// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/layout.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "golden.h"
#include "layout_check.h"
#include "ntb_rules.h"

namespace {

using ntb_rules::Link;

constexpr u64 K = 1ULL << 10;
constexpr u64 M = 1ULL << 20;
constexpr u64 G = 1ULL << 30;
constexpr u64 T = 1ULL << 40;

std::string Size(u64 bytes) {
  for (const auto& [unit, name] : {std::pair{T, "T"}, {G, "G"}, {M, "M"}, {K, "K"}}) {
    if (bytes != 0 && bytes % unit == 0) return std::to_string(bytes / unit) + name;
  }
  return std::to_string(bytes);
}

struct Plan {
  int error = 0;
  std::string why;
  pcilend_layout layout = {};
};

Plan Make(const pcilend_layout_host& self, const pcilend_layout_host& peer) {
  Plan plan;
  char why[PCILEND_LAYOUT_TEXT_BYTES] = "";
  plan.error = pcilend_layout_plan(&self, &peer, &plan.layout, why, sizeof(why));
  plan.why = why;
  EXPECT_EQ(plan.error == 0, plan.why.empty());
  EXPECT_LT(plan.why.size(), sizeof(why) - 1) << "cut off";
  return plan;
}

std::string Region(const char* name, const pcilend_layout_region& region) {
  if (region.size == 0) return std::string(" no-") + name;
  std::ostringstream text;
  text << " " << name << " " << Size(region.size) << "@w" << region.window << ":" << std::hex
       << region.iova;
  return text.str();
}

std::string Text(const Plan& plan) {
  if (plan.error != 0) return std::string(strerrorname_np(-plan.error)) + " " + plan.why;
  const pcilend_layout& l = plan.layout;
  std::ostringstream text;
  text << "dma " << Size(l.dma_limit) << "@w" << l.dma_window << Region("msi", l.interrupts)
       << Region("exports", l.exports) << Region("slots", l.slots);
  const char* names[] = {"interrupts", "dma", "guests", "no-guests", "exports"};
  for (int bit = 0; bit < PCILEND_DEGRADED_BITS; ++bit) {
    if ((l.degraded >> bit & 1) != 0) text << " -" << names[bit];
  }
  return text.str();
}

Plan Checked(const Link& link) {
  const Plan plan = Make(link.self, link.peer);
  if (plan.error == 0) {
    EXPECT_EQ(layout_check::Wrong(link, plan.layout), "") << link.driver << " " << Text(plan);
  }
  return plan;
}

TEST(Layout, WithoutIommuTheDmaAreaHasAllMemory) {
  Link link = ntb_rules::Amd({64 * G, 16 * G});
  link.self.memory_end = 1536 * M;
  const Plan fits = Make(link.self, link.peer);
  ASSERT_EQ(fits.error, 0) << fits.why;
  EXPECT_EQ(fits.layout.dma_limit, 2 * G);
  EXPECT_EQ(fits.layout.slots.size, 0u);
  EXPECT_EQ(fits.layout.degraded, static_cast<u32>(PCILEND_DEGRADED_NO_GUESTS));

  link.self.memory_end = 2 * G;
  EXPECT_EQ(Make(link.self, link.peer).error, 0);
  link.self.memory_end = 2 * G + 4 * K;
  EXPECT_EQ(Make(link.self, link.peer).error, -ENOSPC);
  link.self.memory_end = 1536 * M;
  link.peer.hole = 1 * G;
  const Plan refused = Make(link.self, link.peer);
  EXPECT_EQ(refused.error, -ENOSPC);
  EXPECT_NE(refused.why.find("the first 1024 MiB of memory, and this host has memory up to 1536"),
            std::string::npos)
      << refused.why;
}

TEST(Layout, WithoutIommuTheWindowGoesToTheBars) {
  Link link = ntb_rules::Amd({64 * G, 16 * G});
  link.self.memory_end = 1536 * M;
  link.self.bars = 0xe123456000;
  Plan plan = Make(link.self, link.peer);
  ASSERT_EQ(plan.error, 0) << plan.why;
  EXPECT_EQ(plan.layout.window[1].translation, 0xe000000000) << "a multiple of its size";
  EXPECT_EQ(plan.layout.exports.window, 1u);
  link.self.bars = 8 * G;
  plan = Make(link.self, link.peer);
  ASSERT_EQ(plan.error, 0) << plan.why;
  EXPECT_EQ(plan.layout.window[1].translation, 64 * G) << "the first window reaches them";
}

TEST(Layout, TheLabs) {
  const Plan plan = Checked(ntb_rules::Amd({64 * G, 16 * G}));
  ASSERT_EQ(plan.error, 0);
  EXPECT_EQ(plan.layout.window[0].translation, 0u);
  EXPECT_EQ(plan.layout.window[0].size, 64 * G);
  EXPECT_EQ(plan.layout.window[1].translation, T);
  EXPECT_EQ(plan.layout.window[1].size, 16 * G);
  EXPECT_EQ(plan.layout.dma_window, 0u);
  EXPECT_EQ(plan.layout.dma_limit, 2 * G);
  EXPECT_EQ(plan.layout.interrupts.window, 0u);
  EXPECT_EQ(plan.layout.exports.window, 1u);
  EXPECT_EQ(plan.layout.exports.iova, T);
  EXPECT_EQ(plan.layout.exports.size, 16 * G);
  EXPECT_EQ(plan.layout.slots.window, 0u);
  EXPECT_EQ(plan.layout.slots.iova, 8 * G);
  EXPECT_EQ(plan.layout.slots.size, 56 * G);
  EXPECT_EQ(plan.layout.degraded, 0u);
}

// The plan for every upstream driver, from windows of 1 MiB to 512 GiB.
TEST(Layout, UpstreamDrivers) {
  std::ostringstream text;
  const auto print = [&text](const std::string& what, const Link& link) {
    text << link.driver << " " << what << ": " << Text(Checked(link)) << "\n";
  };
  const std::vector<u64> sizes = {M,     2 * M, 16 * M, 64 * M, 256 * M, G,
                                  2 * G, 4 * G, 8 * G,  64 * G, 512 * G};
  for (const u64 s : sizes) {
    print(Size(s) + "x2", ntb_rules::Amd({s, s}));
    if (s <= 2 * G) {
      print(Size(s) + "+64Gx2 (145b)", ntb_rules::Amd({s, 64 * G, 64 * G}));
    }
    print(Size(s) + "x2", ntb_rules::Intel("intel-gen1", {s, s}));
    print(Size(s) + "x1 (b2b)", ntb_rules::Intel("intel-gen1", {s}));
    print(Size(s) + "x2 b2b_mw_share", ntb_rules::Intel("intel-gen1", {s, s}, true));
    if (s <= 2 * G) {
      print("64G+" + Size(s) + "x2 split",
            ntb_rules::Intel("intel-gen1", {64 * G, s, s}, false, true));
      print(Size(s) + "x3 split", ntb_rules::Intel("intel-gen1", {s, s, s}, false, true));
      print("64G+" + Size(s) + " split (b2b)",
            ntb_rules::Intel("intel-gen1", {64 * G, s}, false, true));
      print("64G+" + Size(s) + "x2 split b2b_mw_share",
            ntb_rules::Intel("intel-gen1", {64 * G, s, s}, true, true));
    }
    print(Size(s) + "x2", ntb_rules::Intel("intel-gen3", {s, s}));
    print(Size(s) + "x2", ntb_rules::IntelGen4({s, s}));
    print(Size(s) + "x2, Ice Lake", ntb_rules::IntelGen4({s, s}, true));
    print(Size(s) + "x2 direct, 4 LUTs, max_mw_size 2M",
          ntb_rules::Switchtec({s, s}, 4, 2 * M, false));
    print(Size(s) + "x2 direct, 4 LUTs", ntb_rules::Switchtec({s, s}, 4, ~0ULL, false));
    print(Size(s) + "x2, 4 LUTs", ntb_rules::Switchtec({s, s}, 4, ~0ULL, true));
    if (s >= 64 * M) {
      print(Size(s) + "x2 direct, 256 LUTs", ntb_rules::Switchtec({s, s}, 256, ~0ULL, false));
      print(Size(s) + "x2, 256 LUTs", ntb_rules::Switchtec({s, s}, 256, ~0ULL, true));
      print(Size(s) + "x3, 512 LUTs", ntb_rules::Switchtec({s, s, s}, 512, ~0ULL, true));
    }
    if (s <= G) {
      print(Size(s) + "x2 direct", ntb_rules::Idt({s, s}));
      print(Size(s) + " direct, LUT12", ntb_rules::Idt({s}, s, 12));
      print(Size(s) + " LUT24", ntb_rules::Idt({}, s, 24));
    }
    print(Size(s) + "x1", ntb_rules::Epf({s}, 4 * K));
    print(Size(s) + "x4", ntb_rules::Epf({s, s, s, s}, 4 * K));
    text << "\n";
  }
  ExpectGolden("layouts.txt", text.str());
}

TEST(Layout, UnequalWindows) {
  std::ostringstream text;
  const std::vector<ntb_rules::Bars> sets = {
      {16 * G, 64 * G}, {64 * G, M},        {M, 64 * G}, {M, 64 * G, 16 * G}, {4 * G, 512 * G},
      {512 * G, 4 * G}, {256 * K, 256 * K}, {512 * K},   {256 * K, 512 * K},  {3 * G, 3 * G},
      {5 * G},          {6 * G, 64 * K, M},
  };
  for (const ntb_rules::Bars& bars : sets) {
    for (const u64 bar : bars) text << Size(bar) << " ";
    text << ": " << Text(Checked(ntb_rules::Amd(bars))) << "\n";
  }
  ExpectGolden("layouts_unequal.txt", text.str());
}

TEST(Layout, RefusalsSayHowMuch) {
  EXPECT_EQ(Text(Checked(ntb_rules::Amd({}))),
            "ENOSPC the NTB adapter has no memory window: one of at least 512 KiB is needed; "
            "enable its BARs in the firmware");
  EXPECT_EQ(Text(Checked(ntb_rules::Amd({64 * K, 100 * K}))),
            "ENOSPC memory windows too small: the largest has 100 KiB, 412 KiB more are needed; "
            "enlarge the NTB's BARs in the firmware");
  EXPECT_EQ(Text(Checked(ntb_rules::Idt({}, 4 * M, 24))),
            "ENOSPC memory windows too small: the largest has 128 KiB, 384 KiB more are needed; "
            "enlarge the NTB's BARs in the firmware");
}

TEST(Layout, NonsenseIsRefused) {
  Link link = ntb_rules::Amd({G, G});
  link.self.window[1].addr_align = 3;
  EXPECT_EQ(Text(Checked(link)),
            "EINVAL memory window 1: its driver names an alignment that is not a power of two");
  link = ntb_rules::Amd({G, G});
  link.self.window[0].size_align = 0x3000;
  EXPECT_EQ(Checked(link).error, -EINVAL);
  // ntb_hw_idt keeps a BAR's size in an int: 2 GiB become 0xffffffff80000000.
  link = ntb_rules::Idt({0xffffffff80000000});
  EXPECT_EQ(Text(Checked(link)),
            "EINVAL memory window 0: its driver names an impossible size or alignment of "
            "0xffffffff80000000 bytes; choose a smaller BAR");
  link = ntb_rules::Amd({G, G});
  link.peer.hole = 0x10000;
  EXPECT_EQ(Text(Checked(link)),
            "EINVAL the lowest PCI hole starts at 0x10000, too low for a DMA area: check the "
            "firmware's memory map");
  link = ntb_rules::Amd({G, G});
  link.self.iova_end = 2 * G;
  EXPECT_EQ(Text(Checked(link)),
            "EINVAL the NTB's IOMMU ends at 0x80000000, below 4 GiB: choose translated mode "
            "(no iommu=pt) or another IOMMU");
}

TEST(Layout, SmallTextBufferIsEnough) {
  const Link link = ntb_rules::Amd({});
  pcilend_layout layout;
  char why[8];
  EXPECT_EQ(pcilend_layout_plan(&link.self, &link.peer, &layout, why, sizeof(why)), -ENOSPC);
  EXPECT_STREQ(why, "the NTB");
}

TEST(Layout, LowestHoleOfBothCounts) {
  Link link = ntb_rules::Amd({64 * G, 16 * G});
  link.self.hole = 3 * G;
  EXPECT_EQ(Checked(link).layout.dma_limit, 2 * G) << "the peer's isn't known: 2 GiB";
  link.peer.hole = 0xe0000000;
  EXPECT_EQ(Checked(link).layout.dma_limit, 3 * G);
  link.peer.hole = G + 0x123;
  EXPECT_EQ(Checked(link).layout.dma_limit, G);
  link.self.hole = link.peer.hole = 0xff000000;
  EXPECT_EQ(Checked(link).layout.dma_limit, PCILEND_MSI_IOVA);
  EXPECT_EQ(Checked(link).layout.degraded, 0u);
}

TEST(Layout, NarrowIommu) {
  Link link = ntb_rules::Amd({64 * G, 16 * G});
  link.self.iova_end = 1ULL << 39;
  Plan plan = Checked(link);
  EXPECT_EQ(plan.layout.exports.iova, 64 * G) << "right behind the first window";
  EXPECT_EQ(plan.layout.degraded, 0u);
  link = ntb_rules::Amd({T, T});
  link.self.iova_end = 1ULL << 39;
  plan = Checked(link);
  ASSERT_EQ(plan.error, 0);
  EXPECT_EQ(plan.layout.window[0].size, 1ULL << 39) << "cut";
  EXPECT_EQ(plan.layout.degraded, 0u);
}

TEST(Layout, PeerDecidesHowFarItSees) {
  Link link = ntb_rules::Amd({64 * G, 16 * G});
  link.peer.window[0].size = 4 * G;
  Plan plan = Checked(link);
  EXPECT_LE(plan.layout.window[0].size, 4 * G);
  link.peer.windows = 1;
  plan = Checked(link);
  EXPECT_EQ(plan.layout.windows, 1u);
  link.peer.windows = 0;
  plan = Checked(link);
  EXPECT_EQ(plan.layout.slots.size, 56 * G) << "not known: as told here";
  link.self.window[0].size = link.self.window[1].size = 0;
  EXPECT_EQ(Checked(link).layout.slots.size, 56 * G) << "size_max alone";
}

TEST(Layout, InterruptsThroughAWindowOfTheirOwn) {
  const Plan plan = Checked(ntb_rules::Amd({M, M, M}));
  EXPECT_EQ(plan.layout.interrupts.window, 2u);
  EXPECT_EQ(plan.layout.window[2].translation, PCILEND_MSI_IOVA);
  Link low = ntb_rules::Amd({M, M, M});
  low.self.window[0].end = low.self.window[2].end = 0x80000000;
  EXPECT_EQ(Checked(low).layout.exports.window, 1u) << "the only one that reaches above 4 GiB";
  EXPECT_EQ(Checked(low).layout.interrupts.size, 0u) << "out of its reach";
  const Plan large = Checked(ntb_rules::Intel("intel", {G, G, G, G}));
  ASSERT_NE(large.layout.interrupts.size, 0u);
  EXPECT_EQ(large.layout.window[large.layout.interrupts.window].translation, 3 * G);
  EXPECT_EQ(large.layout.window[large.layout.interrupts.window].size, G) << "a power of two";
  const Plan small = Checked(ntb_rules::Amd({32 * M, 32 * M, 32 * M}));
  ASSERT_NE(small.layout.interrupts.size, 0u);
  EXPECT_EQ(small.layout.window[small.layout.interrupts.window].translation, 0xfe000000u);
  EXPECT_EQ(small.layout.window[small.layout.interrupts.window].size, 16 * M);
}

TEST(Layout, NoWindowForInterruptsThatAreRelayed) {
  Link link = ntb_rules::Amd({64 * G, 16 * G});
  link.self.relay = true;
  EXPECT_EQ(Checked(link).layout.interrupts.size, 0u) << "though the first reaches them";
  EXPECT_EQ(Checked(link).layout.degraded, 0u) << "as asked for";
  link = ntb_rules::Amd({M, M, M});
  link.self.relay = true;
  EXPECT_EQ(Checked(link).layout.interrupts.size, 0u);
  EXPECT_EQ(Checked(link).layout.degraded & PCILEND_DEGRADED_INTERRUPTS, 0u);
  EXPECT_EQ(Checked(link).layout.window[2].size, 0u) << "closed";
}

TEST(Layout, MoreWindowsThanCounted) {
  Link link = ntb_rules::Amd(ntb_rules::Bars(PCILEND_LAYOUT_WINDOWS, 16 * M));
  link.self.windows = 500;
  link.peer.windows = 500;
  const Plan plan = Make(link.self, link.peer);
  EXPECT_EQ(plan.error, 0);
  EXPECT_EQ(plan.layout.windows, u32{PCILEND_LAYOUT_WINDOWS});
}

TEST(Layout, EachDegradationHasItsText) {
  for (int bit = 0; bit < PCILEND_DEGRADED_BITS; ++bit) {
    EXPECT_GT(std::string(pcilend_layout_degraded_text(1u << bit)).size(), 40u);
  }
  EXPECT_STREQ(pcilend_layout_degraded_text(1u << PCILEND_DEGRADED_BITS), "unknown");
}

// Random links: plans are sound, and more space never makes anything worse.
class LayoutProperty : public ::testing::TestWithParam<u64> {};

Link Random(std::mt19937_64& random) {
  ntb_rules::Bars bars(1 + random() % 5);
  for (u64& bar : bars) bar = 1ULL << (16 + random() % 24);
  switch (random() % 6) {
    case 0:
      return ntb_rules::Intel("intel", bars, random() % 2 == 0);
    case 1:
      bars[0] = std::max(bars[0], 2 * M);
      return ntb_rules::Switchtec(bars, 2ULL << random() % 4, 1ULL << (18 + random() % 20),
                                  random() % 2 == 0);
    case 2:
      for (u64& bar : bars) bar = std::min(bar, G);
      return ntb_rules::Idt(bars, bars[0], static_cast<int>(random() % 3) * 12);
    case 3:
      return ntb_rules::Epf(bars, (random() % 16) * 0x1000);
    case 4:
      for (size_t i = 1; i < bars.size(); ++i) bars[i] = std::min(bars[i], 2 * G);
      return ntb_rules::Intel("split", bars, false, true);
    default:
      for (u64& bar : bars) bar += random() % 3 * 0x1000;
      return ntb_rules::Amd(bars);
  }
}

// What the stated order of degradation compares: guests at all, exports, slots, DMA area,
// interrupts; sizes as powers of two with an eighth to spare.
std::tuple<bool, bool, int, int, int, bool> Worth(const Plan& plan) {
  if (plan.error != 0) return {};
  const auto power = [](u64 size, u64 full) {
    size = std::min(size, full);
    return 64 - std::countl_zero(size + size / 8);
  };
  const pcilend_layout& l = plan.layout;
  return {true,
          l.slots.size != 0,
          power(l.exports.size, PCILEND_EXPORT_FULL),
          power(l.slots.size, PCILEND_SLOTS_FULL),
          power(l.dma_limit, 4 * G),
          l.interrupts.size != 0};
}

TEST_P(LayoutProperty, SoundAndMonotonic) {
  std::mt19937_64 random(GetParam());
  for (int round = 0; round < 150; ++round) {
    Link link = Random(random);
    if (random() % 2 == 0) link.self.hole = 0x40000000 + random() % 0xc0000000;
    if (random() % 2 == 0) link.peer.hole = 0x40000000 + random() % 0xc0000000;
    if (random() % 4 == 0) link.self.iova_end = 1ULL << (32 + random() % 17);
    const Plan plan = Checked(link);
    ASSERT_FALSE(::testing::Test::HasFailure());
    if (plan.error != 0) {
      ASSERT_EQ(plan.error, -ENOSPC);
      for (u32 i = 0; i < link.self.windows; ++i) {
        const u64 size = std::min(link.peer.window[i].size, link.self.window[i].size_max);
        ASSERT_LT(size, PCILEND_DMA_LEAST + PCILEND_EXPORT_LEAST + PCILEND_PAGE);
      }
    }
    if (link.driver == "split") continue;
    Link wider = link;
    wider.Add(0x1000, 1, 1ULL << 30, 1ULL << 30);
    ASSERT_GE(Worth(Checked(wider)), Worth(plan)) << "a window more made it worse";
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, LayoutProperty, ::testing::Range<u64>(1, 17));

// A plan made without knowing the peer, and what the peer then says.
TEST(Layout, ReachedByThePeer) {
  const u64 gib = 1ULL << 30;
  pcilend_layout_host self = {};
  self.windows = 2;
  self.window[0] = {64 * gib, 64 * gib, 4096, 1, 0};
  self.window[1] = {16 * gib, 16 * gib, 4096, 1, 0};
  pcilend_layout_host peer = {};
  pcilend_layout layout;
  char why[PCILEND_LAYOUT_TEXT_BYTES] = "";
  ASSERT_EQ(pcilend_layout_plan(&self, &peer, &layout, why, sizeof(why)), 0) << why;

  peer.windows = 2;
  peer.window[0].size = 64 * gib;
  peer.window[1].size = 16 * gib;
  EXPECT_EQ(pcilend_layout_reached(&layout, &peer, why, sizeof(why)), 0) << why;
  peer.hole = 0x80000000;
  EXPECT_EQ(pcilend_layout_reached(&layout, &peer, why, sizeof(why)), 0) << why;

  peer.hole = 0x60000000;
  EXPECT_EQ(pcilend_layout_reached(&layout, &peer, why, sizeof(why)), -ERANGE);
  EXPECT_STREQ(why,
               "the last 524288 KiB of the DMA area are in the peer's PCI hole at 0x60000000: "
               "the area has to end there");
  ASSERT_EQ(pcilend_layout_plan(&self, &peer, &layout, why, sizeof(why)), 0) << why;
  EXPECT_EQ(layout.dma_limit, 0x60000000u);
  EXPECT_EQ(pcilend_layout_reached(&layout, &peer, why, sizeof(why)), 0) << why;

  peer.window[1].size = 8 * gib;
  EXPECT_EQ(pcilend_layout_reached(&layout, &peer, why, sizeof(why)), -ERANGE);
  EXPECT_STREQ(why,
               "the peer does not see the last 8388608 KiB of memory window 1: give both NTB "
               "adapters windows of the same size");
  peer.windows = 1;
  EXPECT_EQ(pcilend_layout_reached(&layout, &peer, why, sizeof(why)), -ERANGE);
}

}  // namespace
