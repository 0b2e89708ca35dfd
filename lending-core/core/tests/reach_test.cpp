// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/reach.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>

namespace {

constexpr u64 kPage = PCILEND_PAGE;
constexpr u64 kBar = 0x8000000000;  // of the target, on the borrower
constexpr u64 kMiB = 1 << 20;
constexpr u32 kLease = 5;  // on the target

class Reach : public testing::Test {
 protected:
  void SetUp() override { pcilend_reach_init(table_.get()); }

  // The address; 0 on failure.
  u64 add(u32 from, u32 to, u32 bar, u64 phys, u64 size) {
    u64 address = 0;
    error_ = pcilend_reach_add(table_.get(), from, to, bar, phys, size, &address);
    return error_ == 0 ? address : 0;
  }
  // What DMA of `from` to that uses; 0: nothing.
  [[nodiscard]] u64 find(u32 from, u64 phys, u64 size) const {
    u64 address = 0;
    const int error = pcilend_reach_find(table_.get(), from, phys, size, &address);
    EXPECT_TRUE(error == 0 || error == -ENOENT);
    EXPECT_EQ(error == 0, address != 0);
    return address;
  }
  void open(u32 from, u32 to) { (void)pcilend_reach_open(table_.get(), from, to); }
  void close(u32 from, u32 to) { pcilend_reach_close(table_.get(), from, to); }
  void drop(u32 from, u32 to) { pcilend_reach_drop(table_.get(), from, to); }
  void end(u32 id) { pcilend_reach_end(table_.get(), id); }

  std::unique_ptr<pcilend_reach_table> table_ = std::make_unique<pcilend_reach_table>();
  int error_ = 0;
};

TEST_F(Reach, NothingIsFoundBeforeItIsOpen) {
  const u64 address = add(1, 2, 0, kBar, kMiB);
  ASSERT_EQ(address, PCILEND_REACH_START);
  EXPECT_EQ(find(1, kBar, kPage), 0u);
  open(1, 2);
  EXPECT_EQ(find(1, kBar, kPage), address);
  EXPECT_EQ(find(2, kBar, kPage), 0u) << "the other way round";
  EXPECT_EQ(find(3, kBar, kPage), 0u);
  close(1, 2);
  EXPECT_EQ(find(1, kBar, kPage), 0u);
}

TEST_F(Reach, WhatWasClosedIsNotOpenedAgainButAddedAgain) {
  const u64 address = add(1, 2, 0, kBar, kMiB);
  close(1, 2);
  EXPECT_FALSE(pcilend_reach_open(table_.get(), 1, 2));
  EXPECT_EQ(find(1, kBar, kPage), 0u);
  EXPECT_EQ(add(1, 2, 0, kBar, kMiB), address);
  EXPECT_TRUE(pcilend_reach_open(table_.get(), 1, 2));
  EXPECT_EQ(find(1, kBar, kPage), address);
}

TEST_F(Reach, TellsWhetherANodesFunctionsUseATarget) {
  const u32 one = 0x40001;
  const u32 other = 0x40002;
  const u32 target = 0x80001;
  add(one, target, 0, kBar, kPage);
  add(other, target, 0, kBar, kPage);
  EXPECT_TRUE(pcilend_reach_used(table_.get(), 4, target)) << "already before it is open";
  EXPECT_FALSE(pcilend_reach_used(table_.get(), 8, target));
  EXPECT_FALSE(pcilend_reach_used(table_.get(), 4, one));
  open(one, target);
  close(one, target);
  EXPECT_TRUE(pcilend_reach_used(table_.get(), 4, target)) << "by the other one";
  end(other);
  EXPECT_FALSE(pcilend_reach_used(table_.get(), 4, target));
}

TEST_F(Reach, OnlyWhatLiesInTheBarIsFound) {
  const u64 address = add(1, 2, 0, kBar, kMiB);
  open(1, 2);
  EXPECT_EQ(find(1, kBar + 5, 1), address + 5);
  EXPECT_EQ(find(1, kBar, kMiB), address);
  EXPECT_EQ(find(1, kBar + kMiB - 1, 1), address + kMiB - 1);
  EXPECT_EQ(find(1, kBar - 1, 1), 0u);
  EXPECT_EQ(find(1, kBar - 1, 2), 0u);
  EXPECT_EQ(find(1, kBar + kMiB - 1, 2), 0u);
  EXPECT_EQ(find(1, kBar, kMiB + 1), 0u);
  EXPECT_EQ(find(1, kBar, ~0ull), 0u);
  EXPECT_EQ(find(1, ~0ull, 1), 0u);
  EXPECT_EQ(find(1, 0, 1), 0u);
}

TEST_F(Reach, ABarBelowAPageKeepsItsPlaceInThePage) {
  const u64 address = add(1, 2, 0, kBar + 0x400, 0x100);
  EXPECT_EQ(address % kPage, 0u);
  open(1, 2);
  EXPECT_EQ(find(1, kBar + 0x410, 4), address + 0x410);
  EXPECT_EQ(find(1, kBar, 4), 0u) << "the rest of the page";
  EXPECT_EQ(find(1, kBar + 0x500, 4), 0u);
}

TEST_F(Reach, AddressesAreAlignedAndNobodyElses) {
  const u64 small = add(1, 2, 0, kBar, kPage);
  const u64 large = add(1, 2, 2, kBar + kMiB, kMiB);
  const u64 other = add(3, 2, 0, kBar, kPage);
  EXPECT_EQ(large % kMiB, 0u);
  EXPECT_GE(large, small + kPage);
  EXPECT_NE(other, small) << "functions of a set share their addresses";
}

TEST_F(Reach, AskedForTwiceItIsThere) {
  add(1, 2, 0, kBar, kMiB);
  open(1, 2);
  EXPECT_EQ(add(1, 2, 0, kBar, kMiB), 0u);
  EXPECT_EQ(error_, -EALREADY);
}

TEST_F(Reach, TheTargetsEndKeepsTheAddressFromOthers) {
  const u64 address = add(1, 2, 0, kBar, kMiB);
  open(1, 2);
  end(2);
  EXPECT_EQ(find(1, kBar, kPage), 0u);
  EXPECT_NE(add(1, 3, 0, kBar, kMiB), address) << "the driver of 1 may still use it";
  // Borrowed again, and placed elsewhere.
  EXPECT_EQ(add(1, 2, 0, kBar + kMiB, kMiB), address);
  EXPECT_EQ(find(1, kBar + kMiB, kPage), 0u);
  open(1, 2);
  EXPECT_EQ(find(1, kBar + kMiB, kPage), address);
  EXPECT_EQ(find(1, kBar, kPage), 0u);
}

TEST_F(Reach, WhatTheTargetNoLongerHasIsNotFoundAgain) {
  add(1, 2, 0, kBar, kPage);
  add(1, 2, 2, kBar + kMiB, kMiB);
  open(1, 2);
  end(2);
  // Another device has its id now, with other BARs.
  const u64 address = add(1, 2, 0, kBar + kMiB, kPage);
  open(1, 2);
  EXPECT_EQ(find(1, kBar + kMiB, kPage), address);
  EXPECT_EQ(find(1, kBar + kMiB + kPage, kPage), 0u);
  EXPECT_EQ(find(1, kBar, kPage), 0u);
}

TEST_F(Reach, TheSourcesEndAndADropFreeTheAddress) {
  const u64 address = add(1, 2, 0, kBar, kMiB);
  open(1, 2);
  end(1);
  EXPECT_EQ(find(1, kBar, kPage), 0u);
  EXPECT_EQ(add(1, 3, 0, kBar, kMiB), address);
  drop(1, 3);
  EXPECT_EQ(add(4, 2, 0, kBar, kMiB), address);
  EXPECT_EQ(table_->count, 1u);
}

TEST_F(Reach, AFunctionHasItsLimit) {
  for (u32 i = 0; i < PCILEND_REACHES; i++) EXPECT_NE(add(1, 2 + i, 0, kBar, kPage), 0u);
  EXPECT_EQ(add(1, 99, 0, kBar, kPage), 0u);
  EXPECT_EQ(error_, -ENOSPC);
  EXPECT_NE(add(2, 99, 0, kBar, kPage), 0u);
  EXPECT_EQ(add(2, 99, 2, kBar, PCILEND_REACH_END), 0u) << "larger than all there is";
  EXPECT_EQ(error_, -ENOSPC);
}

TEST_F(Reach, TheTableHasItsLimit) {
  u32 added = 0;
  for (u32 from = 1; from < 100; from++) {
    for (u32 bar = 0; bar < 6; bar++) added += add(from, 1000, bar, kBar, kPage) != 0;
  }
  EXPECT_EQ(added, u32{PCILEND_REACHES_MAX});
  for (u32 from = 1; from < 100; from++) end(from);
  EXPECT_EQ(table_->count, 0u);
  EXPECT_EQ(table_->range.count, 0u);
}

TEST_F(Reach, TellsWhatIsReached) {
  add(1, 2, 0, kBar, kPage);
  add(1, 3, 0, kBar + kPage, kPage);
  add(1, 2, 2, kBar + kMiB, kMiB);
  std::set<std::pair<u32, u32>> seen;
  const pcilend_reach* reach = nullptr;
  while ((reach = pcilend_reach_next(table_.get(), 1, 0, reach)) != nullptr)
    seen.emplace(reach->to, reach->bar);
  EXPECT_EQ(seen, (std::set<std::pair<u32, u32>>{{2, 0}, {2, 2}, {3, 0}}));
  reach = pcilend_reach_next(table_.get(), 1, 3, nullptr);
  ASSERT_NE(reach, nullptr);
  EXPECT_EQ(reach->to, 3u);
  EXPECT_EQ(pcilend_reach_next(table_.get(), 1, 3, reach), nullptr);
  EXPECT_EQ(pcilend_reach_next(table_.get(), 2, 0, nullptr), nullptr);
}

TEST_F(Reach, WhatAUserMapsIsWhereHeHasIt) {
  const auto map = [&](u32 from, u32 to, u32 bar, u64 address) {
    return pcilend_reach_add_mapped(table_.get(), from, to, kLease, bar, kBar, kMiB, address);
  };
  const auto unmap = [&](u32 from, u32 to, u32 bar, u64 address) {
    return pcilend_reach_drop_mapped(table_.get(), from, to, kLease, bar, address);
  };
  ASSERT_EQ(map(1, 2, 0, kMiB), 0);
  ASSERT_EQ(map(1, 2, 0, kMiB), 0);
  ASSERT_EQ(map(1, 2, 0, 3 * kMiB), 0) << "the same BAR twice";
  EXPECT_EQ(table_->count, 2u);
  EXPECT_EQ(table_->range.count, 0u) << "it takes no place of others";
  const auto live = [&] {
    u32 count = 0;
    for (u32 i = 0; i < table_->count; ++i) count += table_->entry[i].live;
    return count;
  };
  open(1, 2);
  EXPECT_EQ(live(), 0u) << "each is opened by itself";
  ASSERT_TRUE(pcilend_reach_open_mapped(table_.get(), 1, 2, kLease, 0, kMiB));
  EXPECT_FALSE(pcilend_reach_open_mapped(table_.get(), 1, 2, kLease, 0, 2 * kMiB));
  EXPECT_EQ(live(), 1u);
  EXPECT_EQ(find(1, kBar, kPage), 0u) << "its drivers look up nothing";
  close(1, 2);
  EXPECT_EQ(live(), 1u) << "nobody but the user ends it";
  pcilend_reach_doubt_mapped(table_.get(), 1, 3);
  EXPECT_EQ(live(), 1u);
  pcilend_reach_doubt_mapped(table_.get(), 1, 2);
  EXPECT_EQ(live(), 0u);
  EXPECT_TRUE(pcilend_reach_used(table_.get(), 0, 2));
  EXPECT_EQ(add(1, 2, 0, kBar, kMiB), PCILEND_REACH_START) << "another one";
  drop(3, 2);
  EXPECT_FALSE(unmap(1, 2, 0, 2 * kMiB));
  EXPECT_FALSE(unmap(1, 2, 1, kMiB));
  EXPECT_FALSE(unmap(2, 1, 0, kMiB));
  EXPECT_TRUE(unmap(1, 2, 0, kMiB));
  EXPECT_FALSE(unmap(1, 2, 0, kMiB));
  EXPECT_EQ(table_->count, 2u);

  // The end of the target's lease leaves it to the user to unmap it, that of the source's does not.
  end(2);
  EXPECT_FALSE(pcilend_reach_used(table_.get(), 0, 2));
  EXPECT_FALSE(pcilend_reach_open_mapped(table_.get(), 1, 2, kLease, 0, 3 * kMiB));
  EXPECT_TRUE(unmap(1, 2, 0, 3 * kMiB));
  ASSERT_EQ(map(1, 2, 0, kMiB), 0);
  end(1);
  EXPECT_FALSE(unmap(1, 2, 0, kMiB));
  EXPECT_EQ(table_->count, 0u);
  EXPECT_EQ(table_->range.count, 0u);
  for (u64 i = 0; i < PCILEND_REACHES; ++i) ASSERT_EQ(map(1, 2, 0, i * kMiB), 0);
  EXPECT_EQ(map(1, 3, 0, kMiB), -ENOSPC);
  EXPECT_EQ(map(2, 3, 0, kMiB), 0);
}

TEST_F(Reach, WhatWasMappedByALeaseIsOfThatLeaseOnly) {
  const auto map = [&](u32 lease) {
    return pcilend_reach_add_mapped(table_.get(), 1, 2, lease, 0, kBar, kMiB, kMiB);
  };
  const auto open = [&](u32 lease) {
    return pcilend_reach_open_mapped(table_.get(), 1, 2, lease, 0, kMiB);
  };
  const auto unmap = [&](u32 lease) {
    return pcilend_reach_drop_mapped(table_.get(), 1, 2, lease, 0, kMiB);
  };
  ASSERT_EQ(map(kLease), 0);
  EXPECT_EQ(table_->entry[0].lease, kLease);
  end(2);
  // Somebody has it again, and maps it, while what was there before is not unmapped yet.
  ASSERT_EQ(map(kLease + 1), 0);
  EXPECT_EQ(table_->count, 2u);
  EXPECT_FALSE(open(kLease)) << "its lease is over";
  EXPECT_TRUE(open(kLease + 1));
  EXPECT_TRUE(unmap(kLease));
  EXPECT_FALSE(unmap(kLease));
  EXPECT_TRUE(unmap(kLease + 1));
  EXPECT_EQ(table_->count, 0u);
}

// Whatever happens, no two places overlap, and what has ended is not found.
TEST_F(Reach, ManyComeAndGo) {
  std::mt19937 random(1);
  const auto pick = [&](u32 below) { return static_cast<u32>(random() % below); };
  for (int i = 0; i < 20000; i++) {
    const u32 from = 1 + pick(8), to = 1 + pick(8);
    switch (pick(6)) {
      case 0:
        end(from);
        EXPECT_EQ(find(from, kBar + to * kMiB, 1), 0u);
        break;
      case 1:
        drop(from, to);
        break;
      case 2:
        open(from, to);
        break;
      default:
        add(from, to, pick(6), kBar + to * kMiB, kPage << pick(8));
    }
    ASSERT_EQ(table_->count, table_->range.count);
  }
  for (u32 a = 0; a < table_->count; a++) {
    const pcilend_reach& one = table_->entry[a];
    EXPECT_EQ(one.address % one.size, 0u);
    for (u32 b = 0; b < a; b++) {
      const pcilend_reach& other = table_->entry[b];
      EXPECT_TRUE(one.address + one.size <= other.address ||
                  other.address + other.size <= one.address);
    }
  }
}

}  // namespace
