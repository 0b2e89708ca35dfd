// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/range.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <random>
#include <vector>

namespace {

constexpr u64 kPage = PCILEND_PAGE;

struct Space {
  explicit Space(u64 start, u64 size, u32 capacity = 8) : entries(capacity) {
    EXPECT_EQ(pcilend_range_init(&range, start, size, entries.data(), capacity), 0);
  }
  std::optional<u64> Alloc(u64 size, u64 align = kPage) {
    u64 start = ~0ULL;
    const int error = pcilend_range_alloc(&range, size, align, &start);
    if (error != 0) {
      EXPECT_EQ(error, -ENOSPC);
      EXPECT_EQ(start, ~0ULL) << "touched on failure";
      return std::nullopt;
    }
    return start;
  }
  std::vector<pcilend_range_entry> entries;
  pcilend_range range = {};
};

TEST(Range, TakesTheLowestGap) {
  Space space(16 * kPage, 8 * kPage);
  EXPECT_EQ(space.Alloc(2 * kPage), 16 * kPage);
  EXPECT_EQ(space.Alloc(kPage), 18 * kPage);
  EXPECT_EQ(space.Alloc(kPage), 19 * kPage);
  EXPECT_EQ(pcilend_range_free(&space.range, 18 * kPage, kPage), 0);
  EXPECT_EQ(space.Alloc(2 * kPage), 20 * kPage);
  EXPECT_EQ(space.Alloc(kPage), 18 * kPage);
  EXPECT_EQ(space.range.allocated, 6 * kPage);
  EXPECT_EQ(pcilend_range_largest(&space.range), 2 * kPage);
}

TEST(Range, Aligns) {
  Space space(kPage, 63 * kPage);
  EXPECT_EQ(space.Alloc(kPage), kPage);
  EXPECT_EQ(space.Alloc(kPage, 16 * kPage), 16 * kPage);
  EXPECT_EQ(space.Alloc(kPage, 32 * kPage), 32 * kPage);
  EXPECT_EQ(space.Alloc(kPage, 32 * kPage), std::nullopt);
  EXPECT_EQ(space.Alloc(31 * kPage), 33 * kPage);
}

TEST(Range, BecomesAnotherSpaceOnlyWhenNothingIsInUse) {
  Space space(0, 8 * kPage);
  EXPECT_EQ(space.Alloc(kPage), 0u);
  const auto init = [&] {
    return pcilend_range_init(&space.range, 16 * kPage, kPage, space.entries.data(), 8);
  };
  EXPECT_EQ(init(), -EBUSY);
  EXPECT_EQ(pcilend_range_free(&space.range, 0, kPage), 0) << "as it was";
  EXPECT_EQ(init(), 0);
  EXPECT_EQ(space.Alloc(kPage), 16 * kPage);
}

TEST(Range, RefusesNonsense) {
  Space space(0, 8 * kPage);
  u64 start = 7;
  EXPECT_EQ(pcilend_range_alloc(&space.range, 0, kPage, &start), -EINVAL);
  EXPECT_EQ(pcilend_range_alloc(&space.range, kPage + 1, kPage, &start), -EINVAL);
  EXPECT_EQ(pcilend_range_alloc(&space.range, kPage, 0, &start), -EINVAL);
  EXPECT_EQ(pcilend_range_alloc(&space.range, kPage, kPage / 2, &start), -EINVAL);
  EXPECT_EQ(pcilend_range_alloc(&space.range, kPage, 3 * kPage, &start), -EINVAL);
  EXPECT_EQ(start, 7u);
  pcilend_range_entry entry;
  pcilend_range range = {};
  EXPECT_EQ(pcilend_range_init(&range, 1, kPage, &entry, 1), -EINVAL);
  EXPECT_EQ(pcilend_range_init(&range, kPage, 1, &entry, 1), -EINVAL);
  EXPECT_EQ(pcilend_range_init(&range, ~0ULL - kPage + 1, kPage, &entry, 1), -EINVAL);
}

TEST(Range, RefusesDoubleAndForeignFree) {
  Space space(0, 8 * kPage);
  ASSERT_EQ(space.Alloc(4 * kPage), 0u);
  EXPECT_EQ(pcilend_range_free(&space.range, kPage, kPage), -ENOENT);
  EXPECT_EQ(pcilend_range_free(&space.range, 6 * kPage, kPage), -ENOENT);
  EXPECT_EQ(pcilend_range_free(&space.range, 0, kPage), -EINVAL);
  EXPECT_EQ(space.range.allocated, 4 * kPage);
  EXPECT_EQ(pcilend_range_free(&space.range, 0, 4 * kPage), 0);
  EXPECT_EQ(pcilend_range_free(&space.range, 0, 4 * kPage), -ENOENT);
  EXPECT_EQ(space.range.allocated, 0u);
}

TEST(Range, FullTableIsNoSpace) {
  Space space(0, 8 * kPage, 2);
  ASSERT_TRUE(space.Alloc(kPage));
  ASSERT_TRUE(space.Alloc(kPage));
  EXPECT_EQ(pcilend_range_largest(&space.range), 0u);
  EXPECT_EQ(space.Alloc(kPage), std::nullopt);
  EXPECT_EQ(pcilend_range_free(&space.range, 0, kPage), 0);
  EXPECT_EQ(space.Alloc(kPage), 0u);
}

TEST(Range, EmptySpaceAndNoStorage) {
  Space empty(kPage, 0);
  EXPECT_EQ(empty.Alloc(kPage), std::nullopt);
  pcilend_range range = {};
  ASSERT_EQ(pcilend_range_init(&range, 0, kPage, nullptr, 0), 0);
  u64 start;
  EXPECT_EQ(pcilend_range_alloc(&range, kPage, kPage, &start), -ENOSPC);
  EXPECT_EQ(pcilend_range_free(&range, 0, kPage), -ENOENT);
}

TEST(Range, TopOfSixtyFourBits) {
  const u64 start = ~0ULL - 16 * kPage + 1;
  Space space(start, 15 * kPage);
  EXPECT_EQ(space.Alloc(kPage, 1ULL << 63), std::nullopt);
  EXPECT_EQ(space.Alloc(16 * kPage), std::nullopt);
  EXPECT_EQ(space.Alloc(kPage), start);
  EXPECT_EQ(space.Alloc(kPage, 8 * kPage), start + 8 * kPage);
  EXPECT_EQ(space.Alloc(8 * kPage), std::nullopt);
  EXPECT_EQ(space.Alloc(7 * kPage), start + kPage);
}

// The allocator against a map of pages, with every kind of call, also wrong ones.
class RangeProperty : public ::testing::TestWithParam<u64> {};

class Model {
 public:
  Model(u64 first, u64 pages) : first_(first), used_(pages, false) {}

  std::optional<u64> Alloc(u64 pages, u64 align) {
    for (u64 at = 0; at + pages <= used_.size(); ++at) {
      if ((first_ + at) % align != 0) continue;
      bool free = true;
      for (u64 i = 0; i < pages; ++i) free = free && !used_[at + i];
      if (!free) continue;
      for (u64 i = 0; i < pages; ++i) used_[at + i] = true;
      live_[first_ + at] = pages;
      return first_ + at;
    }
    return std::nullopt;
  }
  int Free(u64 start, u64 pages) {
    const auto it = live_.find(start);
    if (it == live_.end()) return -ENOENT;
    if (it->second != pages) return -EINVAL;
    for (u64 i = 0; i < pages; ++i) used_[start - first_ + i] = false;
    live_.erase(it);
    return 0;
  }
  u64 Used() const {
    u64 used = 0;
    for (const auto& [start, pages] : live_) used += pages;
    return used;
  }
  u64 LargestGap() const {
    u64 largest = 0;
    u64 gap = 0;
    for (const bool used : used_) {
      gap = used ? 0 : gap + 1;
      largest = std::max(largest, gap);
    }
    return largest;
  }
  const std::map<u64, u64>& live() const { return live_; }

 private:
  u64 first_;
  std::vector<bool> used_;
  std::map<u64, u64> live_;
};

TEST_P(RangeProperty, EqualsBruteForce) {
  std::mt19937_64 random(GetParam());
  const u64 first = random() % 64;
  const u64 pages = 1 + random() % 96;
  const u32 capacity = 1 + random() % 24;
  Space space(first * kPage, pages * kPage, capacity);
  Model model(first, pages);
  for (int step = 0; step < 2000; ++step) {
    if (random() % 2 == 0) {
      const u64 size = 1 + random() % 12;
      const u64 align = 1ULL << (random() % 5);
      const bool full = model.live().size() == capacity;
      const std::optional<u64> got = space.Alloc(size * kPage, align * kPage);
      const std::optional<u64> expected = full ? std::nullopt : model.Alloc(size, align);
      ASSERT_EQ(got.has_value(), expected.has_value());
      if (got) {
        ASSERT_EQ(*got, *expected * kPage);
      }
    } else {
      u64 start = first + random() % (pages + 4);
      u64 size = 1 + random() % 12;
      if (random() % 4 != 0 && !model.live().empty()) {
        auto it = model.live().begin();
        std::advance(it, random() % model.live().size());
        start = it->first;
        size = random() % 8 != 0 ? it->second : size;
      }
      ASSERT_EQ(pcilend_range_free(&space.range, start * kPage, size * kPage),
                model.Free(start, size));
    }
    ASSERT_EQ(space.range.allocated, model.Used() * kPage);
    ASSERT_EQ(space.range.count, model.live().size());
    const u64 largest = model.live().size() == capacity ? 0 : model.LargestGap();
    ASSERT_EQ(pcilend_range_largest(&space.range), largest * kPage);
    u32 i = 0;
    for (const auto& [start, size] : model.live()) {
      ASSERT_EQ(space.entries[i].start, start * kPage);
      ASSERT_EQ(space.entries[i].size, size * kPage);
      ++i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RangeProperty, ::testing::Range<u64>(1, 41));

}  // namespace
