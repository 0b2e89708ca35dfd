// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/granules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

namespace {

constexpr u64 kPage = PCILEND_PAGE;
constexpr u64 kMiB = 1ULL << 20;
constexpr u64 kGiB = 1ULL << 30;
constexpr u64 kTiB = 1ULL << 40;
constexpr u64 kFirst = PCILEND_GRANULE_FIRST;
constexpr u64 kFirstBar = PCILEND_GRANULE_FIRST_BAR;
constexpr u64 kBarsStart = PCILEND_BARS_START;
constexpr u64 kBarsEnd = PCILEND_BARS_END;
constexpr u32 kMoreHoles = 4;
constexpr u64 kEnd = (1ULL << 48) - 1;
constexpr u64 kUntouched = 7;

using Block = std::pair<u64, u64>;  // start, size

// Where a PC's interrupts are.
const std::vector<pcilend_hole> kPcHoles = {{0xfee00000, kMiB}, {0xfe000000, kMiB}};

struct Space {
  explicit Space(std::vector<pcilend_hole> reserved = {}, u64 end = kEnd, u32 capacity = 64)
      : entries(capacity), holes(std::move(reserved)) {
    const u32 count = static_cast<u32>(holes.size());
    holes.resize(count + kMoreHoles);
    pcilend_granules_init(&granules, entries.data(), capacity, holes.data(), count,
                          count + kMoreHoles, end);
  }
  int Plan(u64 iova, u64 limit, Block* block) {
    *block = {kUntouched, kUntouched};
    const int error = pcilend_granules_plan(&granules, iova, limit, &block->first, &block->second);
    if (error != 0) {
      EXPECT_EQ(*block, Block(kUntouched, kUntouched)) << "touched on failure";
    }
    return error;
  }
  Block Planned(u64 iova, u64 limit = ~0ULL) {
    Block block;
    EXPECT_EQ(Plan(iova, limit, &block), 0) << iova;
    return block;
  }
  int Refused(u64 iova, u64 limit = ~0ULL) {
    Block block;
    return Plan(iova, limit, &block);
  }
  int Add(u64 start, u64 size, u64 slot = 0) {
    return pcilend_granules_add(&granules, start, size, slot);
  }
  // As a user of the granules does: a granule where there is none, then the mapping.
  void Map(u64 iova, u64 size) {
    if (pcilend_granules_find(&granules, iova) == nullptr) {
      const auto [start, bytes] = Planned(iova);
      ASSERT_EQ(Add(start, bytes, start), 0);
    }
    ASSERT_EQ(pcilend_granules_mapped(&granules, iova, size), 0) << iova;
  }
  int Mapped(u64 iova, u64 size) { return pcilend_granules_mapped(&granules, iova, size); }
  int Unmapped(u64 iova, u64 size) { return pcilend_granules_unmapped(&granules, iova, size); }
  int Remove(u64 start) { return pcilend_granules_remove(&granules, start); }
  int Reserve(u64 start, u64 size) { return pcilend_granules_reserve(&granules, start, size); }
  int Unreserve(u64 start, u64 size) { return pcilend_granules_unreserve(&granules, start, size); }

  std::vector<pcilend_granule> entries;
  std::vector<pcilend_hole> holes;
  pcilend_granules granules;
};

void ExpectAligned(const Space& space) {
  for (u32 i = 0; i < space.granules.count; ++i) {
    const pcilend_granule& granule = space.entries[i];
    EXPECT_EQ(granule.size & (granule.size - 1), 0u) << granule.start;
    EXPECT_EQ(granule.start & (granule.size - 1), 0u) << granule.start;
  }
}

TEST(Granules, BeginEmpty) {
  Space space;
  EXPECT_EQ(space.granules.count, 0u);
  EXPECT_EQ(space.granules.mapped, 0u);
  EXPECT_EQ(pcilend_granules_find(&space.granules, 0), nullptr);
  EXPECT_EQ(pcilend_granules_find(&space.granules, ~0ULL), nullptr);
  EXPECT_EQ(pcilend_granules_empty(&space.granules), nullptr);
  EXPECT_EQ(space.Remove(0), -ENOENT);
}

TEST(Granules, TheFirstIsAlignedAroundTheAddress) {
  Space space;
  EXPECT_EQ(space.Planned(0), Block(0, kFirst));
  EXPECT_EQ(space.Planned(5 * kFirst + 12345), Block(5 * kFirst, kFirst));
  EXPECT_EQ(space.Planned(6 * kFirst - 1), Block(5 * kFirst, kFirst));
}

TEST(Granules, LimitIsKept) {
  Space space;
  EXPECT_EQ(space.Planned(kFirst - 1, kFirst / 2), Block(kFirst / 2, kFirst / 2));
  EXPECT_EQ(space.Planned(kFirst - 1, kFirst - 1), Block(kFirst / 2, kFirst / 2));
  EXPECT_EQ(space.Planned(3 * kPage + 1, 3 * kPage - 1), Block(2 * kPage, 2 * kPage));
  EXPECT_EQ(space.Planned(3 * kPage + 1, 2 * kPage - 1), Block(3 * kPage, kPage));
  EXPECT_EQ(space.Planned(3 * kPage + 1, kPage), Block(3 * kPage, kPage));
  EXPECT_EQ(space.Refused(3 * kPage, kPage - 1), -EINVAL);
  EXPECT_EQ(space.Refused(3 * kPage, 0), -EINVAL);
}

TEST(Granules, SizeFollowsWhatIsMapped) {
  Space space;
  ASSERT_EQ(space.Add(0, kTiB), 0);
  EXPECT_EQ(space.Planned(kTiB), Block(kTiB, kFirst)) << "an empty granule counts for nothing";
  ASSERT_EQ(space.Mapped(0, 2 * kFirst - kPage), 0);
  EXPECT_EQ(space.Planned(kTiB), Block(kTiB, kFirst));
  ASSERT_EQ(space.Mapped(2 * kFirst - kPage, kPage), 0);
  EXPECT_EQ(space.Planned(kTiB), Block(kTiB, 2 * kFirst));
  EXPECT_EQ(space.Planned(kTiB, kFirst), Block(kTiB, kFirst));
  ASSERT_EQ(space.Mapped(2 * kFirst, 40 * kGiB), 0);
  EXPECT_EQ(space.Planned(kTiB + 33 * kGiB), Block(kTiB + 32 * kGiB, 32 * kGiB));
  ASSERT_EQ(space.Unmapped(kGiB, 39 * kGiB), 0);
  EXPECT_EQ(space.Planned(kTiB), Block(kTiB, kGiB)) << "also back";
}

TEST(Granules, TheNextOnesFitBetweenThoseThatAreThere) {
  Space space;
  ASSERT_EQ(space.Add(kFirst / 4, kFirst / 4), 0);
  ASSERT_EQ(space.Add(kFirst - kPage, kPage), 0);
  EXPECT_EQ(space.Planned(0), Block(0, kFirst / 4));
  EXPECT_EQ(space.Planned(kFirst / 2), Block(kFirst / 2, kFirst / 4));
  EXPECT_EQ(space.Planned(kFirst - 2 * kPage), Block(kFirst - 2 * kPage, kPage));
  EXPECT_EQ(space.Planned(kFirst), Block(kFirst, kFirst));
  EXPECT_EQ(space.Refused(kFirst / 4), -EEXIST);
  EXPECT_EQ(space.Refused(kFirst / 2 - 1), -EEXIST);
  EXPECT_EQ(space.Refused(kFirst - 1), -EEXIST);
}

TEST(Granules, FindKnowsTheEdges) {
  Space space;
  for (u64 i = 8; i-- > 0;) ASSERT_EQ(space.Add(i * 4 * kPage + kPage, 2 * kPage, i * kFirst), 0);
  for (u64 i = 0; i < 8; ++i) {
    const u64 start = i * 4 * kPage + kPage;
    EXPECT_EQ(pcilend_granules_find(&space.granules, start - 1), nullptr);
    for (const u64 iova : {start, start + kPage, start + 2 * kPage - 1}) {
      ASSERT_EQ(pcilend_granules_find(&space.granules, iova), &space.entries[i]);
    }
    EXPECT_EQ(pcilend_granules_find(&space.granules, start + 2 * kPage), nullptr);
    EXPECT_EQ(space.entries[i].slot, i * kFirst) << "sorted, with its slot";
  }
}

TEST(Granules, AddRefuses) {
  Space space({{16 * kPage, kPage}}, 64 * kPage - 1, 3);
  EXPECT_EQ(space.Add(0, 0), -ERANGE);
  EXPECT_EQ(space.Add(1, kPage), -ERANGE);
  EXPECT_EQ(space.Add(0, kPage + 1), -ERANGE);
  EXPECT_EQ(space.Add(0, kPage, 1), -ERANGE);
  EXPECT_EQ(space.Add(0, 2 * kPage, 0 - kPage), -ERANGE) << "the slot wraps";
  EXPECT_EQ(space.Add(15 * kPage, 2 * kPage), -ERANGE) << "hole";
  EXPECT_EQ(space.Add(16 * kPage, kPage), -ERANGE) << "hole";
  EXPECT_EQ(space.Add(63 * kPage, 2 * kPage), -ERANGE) << "end";
  EXPECT_EQ(space.Add(64 * kPage, kPage), -ERANGE) << "end";
  EXPECT_EQ(space.Add(63 * kPage, 0 - kPage), -ERANGE) << "wraps";
  ASSERT_EQ(space.Add(32 * kPage, 4 * kPage), 0);
  for (const auto& [start, size] : {Block(32, 4), {33, 1}, {31, 2}, {35, 2}, {30, 9}}) {
    EXPECT_EQ(space.Add(start * kPage, size * kPage), -EEXIST) << start;
  }
  EXPECT_EQ(space.granules.count, 1u);
  EXPECT_EQ(space.Add(31 * kPage, kPage), 0);
  EXPECT_EQ(space.Add(36 * kPage, kPage, 0 - kPage), 0) << "the last page there can be of a slot";
  EXPECT_EQ(space.Add(0, kPage), -ENOSPC);
  EXPECT_EQ(space.Add(36 * kPage, kPage), -EEXIST) << "said before that it is full";
}

TEST(Granules, FullIsSaid) {
  Space space({{kGiB, kGiB}}, kEnd, 2);
  space.Map(0, kPage);
  space.Map(4 * kGiB, kPage);
  EXPECT_EQ(space.Refused(8 * kGiB), -ENOSPC);
  EXPECT_EQ(space.Refused(0), -EEXIST);
  EXPECT_EQ(space.Refused(kGiB), -ERANGE) << "room would not help";
  ASSERT_EQ(space.Unmapped(0, kPage), 0);
  ASSERT_EQ(space.Remove(0), 0);
  EXPECT_EQ(space.Planned(8 * kGiB), Block(8 * kGiB, kFirst));

  Space none({}, kEnd, 0);
  EXPECT_EQ(none.Refused(0), -ENOSPC);
  EXPECT_EQ(none.Add(0, kPage), -ENOSPC);
}

TEST(Granules, HolesAreNeverCovered) {
  Space space(kPcHoles);
  for (const pcilend_hole& hole : kPcHoles) {
    EXPECT_EQ(space.Refused(hole.start), -ERANGE);
    EXPECT_EQ(space.Refused(hole.start + hole.size - 1), -ERANGE);
  }
  ASSERT_EQ(space.Add(kBarsStart, kFirst), 0);
  ASSERT_EQ(space.Mapped(kBarsStart, kFirst), 0);
  EXPECT_EQ(space.Planned(0xfe000000 - 1), Block(0xfc000000, 32 * kMiB));
  EXPECT_EQ(space.Planned(0xfe100000), Block(0xfe100000, kMiB));
  EXPECT_EQ(space.Planned(0xfe5ff000), Block(0xfe400000, 4 * kMiB));
  EXPECT_EQ(space.Planned(0xfedff000), Block(0xfec00000, 2 * kMiB));
  EXPECT_EQ(space.Planned(0xfef00000), Block(0xfef00000, kMiB));
  EXPECT_EQ(space.Planned(0xffffffff), Block(0xff000000, 16 * kMiB));
  EXPECT_EQ(space.Planned(4 * kGiB), Block(4 * kGiB, kFirst));
  // All that is not a hole can be had.
  for (u64 iova = 0xf0000000; iova < 4 * kGiB; iova += kMiB) {
    if (iova != 0xfe000000 && iova != 0xfee00000) space.Map(iova, kMiB);
  }
  EXPECT_EQ(space.granules.mapped, 2 * kFirst - 2 * kMiB);
  ExpectAligned(space);
}

TEST(Granules, AmongBarsTheyBeginSmall) {
  Space space;
  EXPECT_EQ(space.Planned(kBarsStart), Block(kBarsStart, kFirstBar));
  EXPECT_EQ(space.Planned(kBarsEnd - 1), Block(kBarsEnd - kFirstBar, kFirstBar));
  EXPECT_EQ(space.Planned(kBarsStart - 1), Block(kBarsStart - kFirst, kFirst));
  EXPECT_EQ(space.Planned(kBarsEnd), Block(kBarsEnd, kFirst));
  EXPECT_EQ(space.Planned(kBarsStart, kPage), Block(kBarsStart, kPage));
  // What is mapped elsewhere counts for nothing, and stays on its side.
  ASSERT_EQ(space.Add(kTiB, kTiB), 0);
  ASSERT_EQ(space.Mapped(kTiB, kTiB), 0);
  EXPECT_EQ(space.Planned(kBarsStart), Block(kBarsStart, kFirstBar));
  EXPECT_EQ(space.Planned(0), Block(0, 2 * kGiB));
  EXPECT_EQ(space.Planned(kBarsStart - 1), Block(2 * kGiB, kGiB));
  EXPECT_EQ(space.Planned(kBarsEnd), Block(kBarsEnd, 4 * kGiB));
  // The memory of a display takes what it has and no more.
  for (u64 offset = 0; offset < 16 * kMiB; offset += kMiB) space.Map(0xfd000000 + offset, kMiB);
  EXPECT_EQ(space.granules.count, 1 + 4u) << "2, 2, 4 and 8 MiB";
  EXPECT_EQ(pcilend_granules_find(&space.granules, 0xfd000000 - 1), nullptr);
  EXPECT_EQ(pcilend_granules_find(&space.granules, 0xfe000000), nullptr);
  EXPECT_EQ(space.Planned(kBarsStart), Block(kBarsStart, 16 * kMiB));
  ExpectAligned(space);
}

// Of a pc that has memory up to 3.5 GiB, page by page, before and after that of a display.
TEST(Granules, MemoryAmongBarsNeedsFew) {
  for (const bool up : {true, false}) {
    Space space(kPcHoles);
    for (u64 done = 0; done < 2 * kFirst; done += kPage) {
      space.Map(kBarsStart + (up ? done : 2 * kFirst - done - kPage), kPage);
      if (HasFatalFailure()) return;
    }
    EXPECT_LE(space.granules.count, 9u) << up;
    space.Map(0xfd000000, kPage);
    ExpectAligned(space);
  }
}

TEST(Granules, ReservedRangesAreHoles) {
  Space space({{16 * kPage, kPage}}, 64 * kPage - 1);
  EXPECT_EQ(space.Reserve(0, 0), -ERANGE);
  EXPECT_EQ(space.Reserve(1, kPage), -ERANGE);
  EXPECT_EQ(space.Reserve(0, kPage + 1), -ERANGE);
  EXPECT_EQ(space.Reserve(15 * kPage, 2 * kPage), -ERANGE) << "hole";
  EXPECT_EQ(space.Reserve(63 * kPage, 2 * kPage), -ERANGE) << "end";
  EXPECT_EQ(space.Reserve(63 * kPage, 0 - kPage), -ERANGE) << "wraps";
  ASSERT_EQ(space.Add(32 * kPage, 4 * kPage), 0);
  EXPECT_EQ(space.Reserve(35 * kPage, kPage), -EEXIST);
  EXPECT_EQ(space.Reserve(31 * kPage, 2 * kPage), -EEXIST);

  ASSERT_EQ(space.Reserve(8 * kPage, 2 * kPage), 0);
  EXPECT_EQ(space.Reserve(9 * kPage, kPage), -ERANGE);
  EXPECT_EQ(space.Refused(9 * kPage), -ERANGE);
  EXPECT_EQ(space.Add(9 * kPage, kPage), -ERANGE);
  EXPECT_EQ(space.Planned(7 * kPage), Block(0, 8 * kPage));
  EXPECT_EQ(space.Planned(10 * kPage), Block(10 * kPage, 2 * kPage));
  for (u64 i = 1; i < kMoreHoles; ++i) ASSERT_EQ(space.Reserve(i * kPage, kPage), 0);
  EXPECT_EQ(space.Reserve(0, kPage), -ENOSPC);
  EXPECT_EQ(space.Reserve(9 * kPage, kPage), -ERANGE) << "said before that there are too many";

  EXPECT_EQ(space.Unreserve(8 * kPage, kPage), -ENOENT);
  EXPECT_EQ(space.Unreserve(9 * kPage, kPage), -ENOENT);
  ASSERT_EQ(space.Unreserve(8 * kPage, 2 * kPage), 0);
  EXPECT_EQ(space.Unreserve(8 * kPage, 2 * kPage), -ENOENT);
  EXPECT_EQ(space.Planned(9 * kPage), Block(8 * kPage, 8 * kPage));
  EXPECT_EQ(space.Refused(3 * kPage), -ERANGE) << "the others stay";
  EXPECT_EQ(space.Refused(16 * kPage), -ERANGE);
}

TEST(Granules, BesideHolesTheyAreSmallDownToAPage) {
  // Pages 4 and 5 are free, and half of page 6. One hole is empty, one wraps.
  Space space({{7 * kPage - kPage / 2, kPage}, {5 * kPage, 0}, {0, 4 * kPage}, {1ULL << 63, ~0ULL}},
              ~0ULL);
  EXPECT_EQ(space.Planned(4 * kPage), Block(4 * kPage, 2 * kPage));
  EXPECT_EQ(space.Planned(5 * kPage, kPage), Block(5 * kPage, kPage));
  EXPECT_EQ(space.Refused(6 * kPage), -ERANGE) << "the page overlaps a hole";
  EXPECT_EQ(space.Refused(7 * kPage), -ERANGE);
  EXPECT_EQ(space.Refused(8 * kPage - 1), -ERANGE) << "the page overlaps a hole";
  EXPECT_EQ(space.Planned(8 * kPage), Block(8 * kPage, 8 * kPage));
  EXPECT_EQ(space.Planned((1ULL << 63) - 1), Block((1ULL << 63) - kFirst, kFirst));
  EXPECT_EQ(space.Refused(1ULL << 63), -ERANGE);
  EXPECT_EQ(space.Refused(~0ULL), -ERANGE);
  EXPECT_EQ(space.Add((1ULL << 63) - kPage, 2 * kPage), -ERANGE);
  ASSERT_EQ(space.Add(4 * kPage, kPage), 0);
  EXPECT_EQ(space.Planned(5 * kPage), Block(5 * kPage, kPage));
}

TEST(Granules, HolesOfOneByte) {
  Space space({{kPage - 1, 1}, {2 * kPage, 1}});
  EXPECT_EQ(space.Refused(0), -ERANGE);
  EXPECT_EQ(space.Planned(kPage), Block(kPage, kPage));
  EXPECT_EQ(space.Refused(2 * kPage + 1), -ERANGE);
  EXPECT_EQ(space.Planned(3 * kPage), Block(3 * kPage, kPage));
  EXPECT_EQ(space.Add(0, kPage), -ERANGE);
  EXPECT_EQ(space.Add(2 * kPage, kPage), -ERANGE);
  EXPECT_EQ(space.Add(kPage, kPage), 0);
}

TEST(Granules, EndOfTheAddressSpace) {
  Space space({}, 5 * kFirst + 3 * kPage - 1);
  EXPECT_EQ(space.Planned(5 * kFirst - 1), Block(4 * kFirst, kFirst));
  EXPECT_EQ(space.Planned(5 * kFirst), Block(5 * kFirst, 2 * kPage));
  EXPECT_EQ(space.Planned(5 * kFirst + 2 * kPage), Block(5 * kFirst + 2 * kPage, kPage));
  EXPECT_EQ(space.Refused(5 * kFirst + 3 * kPage), -ERANGE);
  EXPECT_EQ(space.Refused(~0ULL), -ERANGE);

  Space uneven({}, 3 * kPage - 2);
  EXPECT_EQ(uneven.Planned(kPage), Block(0, 2 * kPage));
  EXPECT_EQ(uneven.Refused(2 * kPage), -ERANGE) << "not a whole page";
  EXPECT_EQ(Space({}, 0).Refused(0), -ERANGE);
}

TEST(Granules, SixtyFourBits) {
  Space space({}, ~0ULL);
  EXPECT_EQ(space.Planned(~0ULL), Block(0 - kFirst, kFirst));
  EXPECT_EQ(space.Add(0, 0), -ERANGE) << "empty";
  EXPECT_EQ(space.Add(0 - kPage, 2 * kPage), -ERANGE) << "wraps";
  ASSERT_EQ(space.Add(0, 1ULL << 63), 0);
  ASSERT_EQ(space.Mapped(0, 1ULL << 63), 0);
  EXPECT_EQ(space.Planned(~0ULL), Block(1ULL << 63, 1ULL << 63));
  EXPECT_EQ(space.Planned(~0ULL, kPage), Block(0 - kPage, kPage));
  ASSERT_EQ(space.Add(0 - kPage, kPage), 0);
  EXPECT_EQ(space.Planned(0 - kPage - 1), Block(0 - 2 * kPage, kPage));
  EXPECT_EQ(space.Planned(1ULL << 63), Block(1ULL << 63, 1ULL << 62));
  EXPECT_EQ(space.Mapped(0 - kPage, 2 * kPage), -ERANGE);
  EXPECT_EQ(space.Mapped(0 - kPage, kPage), 0);
  EXPECT_EQ(space.granules.mapped, (1ULL << 63) + kPage);
  EXPECT_EQ(pcilend_granules_find(&space.granules, ~0ULL), &space.entries[1]);
}

TEST(Granules, CountsWhatIsMapped) {
  Space space;
  ASSERT_EQ(space.Add(kFirst, 4 * kPage), 0);
  ASSERT_EQ(space.Add(kFirst + 4 * kPage, 4 * kPage), 0);
  EXPECT_EQ(space.Mapped(kFirst, 0), -ERANGE);
  EXPECT_EQ(space.Mapped(kFirst + 1, kPage), -ERANGE);
  EXPECT_EQ(space.Mapped(kFirst, kPage - 1), -ERANGE);
  EXPECT_EQ(space.Mapped(kFirst - kPage, kPage), -ERANGE) << "in no granule";
  EXPECT_EQ(space.Mapped(kFirst + 3 * kPage, 2 * kPage), -ERANGE) << "in two granules";
  EXPECT_EQ(space.Mapped(kFirst + 7 * kPage, 0 - kPage), -ERANGE);
  EXPECT_EQ(space.Mapped(kFirst, 3 * kPage), 0);
  EXPECT_EQ(space.Mapped(kFirst + 2 * kPage, 2 * kPage), -ERANGE) << "more than its size";
  EXPECT_EQ(space.Mapped(kFirst + 4 * kPage, 4 * kPage), 0);
  EXPECT_EQ(space.granules.mapped, 7 * kPage);
  EXPECT_EQ(space.entries[0].mapped, 3 * kPage);
  EXPECT_EQ(space.entries[1].mapped, 4 * kPage);
  EXPECT_EQ(space.Unmapped(kFirst, 4 * kPage), -ERANGE) << "more than was mapped";
  EXPECT_EQ(space.Unmapped(kFirst + 3 * kPage, 2 * kPage), -ERANGE) << "in two granules";
  EXPECT_EQ(space.Unmapped(kFirst, 0), -ERANGE);
  EXPECT_EQ(space.Unmapped(kFirst + 1, kPage), -ERANGE);
  EXPECT_EQ(space.Unmapped(0, kPage), -ERANGE);
  EXPECT_EQ(space.granules.mapped, 7 * kPage) << "refusals have counted nothing";
  EXPECT_EQ(space.Unmapped(kFirst, kPage), 0);
  EXPECT_EQ(space.Unmapped(kFirst + kPage, 2 * kPage), 0);
  EXPECT_EQ(space.Unmapped(kFirst, kPage), -ERANGE);
  EXPECT_EQ(space.granules.mapped, 4 * kPage);
}

TEST(Granules, EmptyOnesCanGo) {
  Space space;
  for (const u64 i : {0, 2, 1}) space.Map(i * kFirst, kPage);
  EXPECT_EQ(pcilend_granules_empty(&space.granules), nullptr);
  EXPECT_EQ(space.Remove(kFirst), -EBUSY);
  EXPECT_EQ(space.Remove(kFirst + kPage), -ENOENT);
  EXPECT_EQ(space.Remove(3 * kFirst), -ENOENT);
  ASSERT_EQ(space.Unmapped(2 * kFirst, kPage), 0);
  ASSERT_EQ(space.Unmapped(kFirst, kPage), 0);
  ASSERT_EQ(pcilend_granules_empty(&space.granules), &space.entries[1]);
  EXPECT_EQ(space.Remove(kFirst), 0);
  EXPECT_EQ(space.Remove(kFirst), -ENOENT);
  EXPECT_EQ(space.granules.count, 2u);
  EXPECT_EQ(space.entries[0].start, 0u);
  ASSERT_EQ(pcilend_granules_empty(&space.granules), &space.entries[1]);
  EXPECT_EQ(space.entries[1].start, 2 * kFirst);
  EXPECT_EQ(space.Remove(2 * kFirst), 0);
  EXPECT_EQ(pcilend_granules_empty(&space.granules), nullptr);
  EXPECT_EQ(space.Planned(2 * kFirst - 1), Block(kFirst, kFirst)) << "what it covered is free";
}

// The bounds that granules.h states, with memory below 4 GiB as QEMU's pc and q35 divide it.
TEST(Granules, GuestOfOneTebibyteNeedsFew) {
  for (const auto& [below, from_the_top] :
       {std::pair{3 * kGiB, false}, {3 * kGiB, true}, {2 * kGiB, false}, {2 * kGiB, true}}) {
    Space space(kPcHoles);
    for (u64 mapped = 0; mapped < kTiB; mapped += 2 * kMiB) {
      const u64 offset = from_the_top ? kTiB - mapped - 2 * kMiB : mapped;
      space.Map(offset < below ? offset : offset - below + 4 * kGiB, 2 * kMiB);
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(space.granules.mapped, kTiB);
    EXPECT_LE(space.granules.count, 22u) << below << ' ' << from_the_top;
    ExpectAligned(space);
    u64 covered = 0;
    for (u32 i = 0; i < space.granules.count; ++i) covered += space.entries[i].size;
    EXPECT_LE(covered, kTiB + kTiB / 2) << below << ' ' << from_the_top;
  }
}

TEST(Granules, SparsePagesTakeLittle) {
  Space space;
  for (u64 i = 0; i < 56; ++i) {
    const u64 iova = 0x7fb800000000 + i * (kGiB + 37 * kPage);
    space.Map(iova, kPage);
    EXPECT_EQ(pcilend_granules_find(&space.granules, iova)->size, kFirst);
  }
  EXPECT_EQ(space.granules.count, 56u);
  ExpectAligned(space);
}

// Against maps of what is there and of pages that are mapped, with every kind of call, also wrong
// ones. Numbers are wider than addresses, so that nothing in here wraps.
using Wide = unsigned __int128;

class Model {
 public:
  struct Granule {
    Wide size;
    u64 slot;
    Wide mapped = 0;
  };
  struct Mapping {
    u64 size;
    u64 target;
  };

  Model(const std::vector<pcilend_hole>& holes, u64 end, u32 capacity)
      : holes_(holes), end_(Wide(end) + 1), capacity_(capacity) {}

  int Plan(u64 iova, u64 limit, Block* block) const {
    if (limit < kPage) return -EINVAL;
    if (At(iova) != granules_.end()) return -EEXIST;
    Wide size = 1;
    const Wide most = AmongBars(iova) ? std::max<Wide>(kFirstBar, MappedAmongBars())
                                      : std::max<Wide>(kFirst, mapped());
    while (size * 2 <= most) size *= 2;
    for (; size >= kPage; size /= 2) {
      const Wide start = iova / size * size;
      if (size > limit || !Allowed(start, size) || Overlapped(start, size)) continue;
      if (Crosses(start, size, kBarsStart) || Crosses(start, size, kBarsEnd)) continue;
      if (granules_.size() == capacity_) return -ENOSPC;
      *block = {static_cast<u64>(start), static_cast<u64>(size)};
      return 0;
    }
    return -ERANGE;
  }
  int Add(u64 start, u64 size, u64 slot) {
    if (size == 0 || start % kPage != 0 || size % kPage != 0 || slot % kPage != 0) return -ERANGE;
    if (Wide(slot) + size > Wide(1) << 64 || !Allowed(start, size)) return -ERANGE;
    if (Overlapped(start, size)) return -EEXIST;
    if (granules_.size() == capacity_) return -ENOSPC;
    granules_[start] = {size, slot};
    return 0;
  }
  int Reserve(u64 start, u64 size) {
    if (size == 0 || start % kPage != 0 || size % kPage != 0 || !Allowed(start, size)) {
      return -ERANGE;
    }
    if (Overlapped(start, size)) return -EEXIST;
    if (reserved_.size() == kMoreHoles) return -ENOSPC;
    reserved_[start] = size;
    return 0;
  }
  int Unreserve(u64 start, u64 size) {
    const auto it = reserved_.find(start);
    if (it == reserved_.end() || it->second != size) return -ENOENT;
    reserved_.erase(it);
    return 0;
  }
  int Remove(u64 start) {
    const auto it = granules_.find(start);
    if (it == granules_.end()) return -ENOENT;
    if (it->second.mapped != 0) return -EBUSY;
    granules_.erase(it);
    return 0;
  }
  int Count(u64 iova, u64 size, bool unmap) {
    const auto it = Inside(iova, size);
    if (it == granules_.end()) return -ERANGE;
    Wide& mapped = it->second.mapped;
    if (size > (unmap ? mapped : it->second.size - mapped)) return -ERANGE;
    mapped += unmap ? -Wide(size) : size;
    return 0;
  }
  std::map<u64, Granule>::iterator Inside(u64 iova, u64 size) {
    const auto it = At(iova);
    if (it == granules_.end() || size == 0 || iova % kPage != 0 || size % kPage != 0) {
      return granules_.end();
    }
    return iova + Wide(size) <= it->first + it->second.size ? it : granules_.end();
  }
  bool IsMapped(u64 iova, u64 size) const {
    return std::any_of(pages_.begin(), pages_.end(), [&](const auto& piece) {
      return iova < piece.first + Wide(piece.second.size) && piece.first < iova + Wide(size);
    });
  }
  std::optional<u64> FirstEmpty() const {
    for (const auto& [start, granule] : granules_) {
      if (granule.mapped == 0) return start;
    }
    return std::nullopt;
  }
  static bool AmongBars(u64 iova) { return iova >= kBarsStart && iova < kBarsEnd; }
  static bool Crosses(Wide start, Wide size, u64 edge) {
    return start < edge && edge < start + size;
  }
  Wide MappedAmongBars() const {
    Wide sum = 0;
    for (const auto& [start, granule] : granules_) {
      if (AmongBars(start)) sum += granule.mapped;
    }
    return sum;
  }
  Wide mapped() const {
    Wide sum = 0;
    for (const auto& [start, granule] : granules_) sum += granule.mapped;
    return sum;
  }
  const std::map<u64, u64>& reserved() const { return reserved_; }
  const std::map<u64, Granule>& granules() const { return granules_; }
  std::map<u64, Mapping>& pages() { return pages_; }

  std::map<u64, Granule>::iterator At(u64 iova) {
    auto it = granules_.upper_bound(iova);
    if (it == granules_.begin()) return granules_.end();
    --it;
    return iova < it->first + it->second.size ? it : granules_.end();
  }
  std::map<u64, Granule>::const_iterator At(u64 iova) const {
    return const_cast<Model*>(this)->At(iova);
  }

 private:
  bool Allowed(Wide start, Wide size) const {
    return start + size <= end_ &&
           std::none_of(holes_.begin(), holes_.end(),
                        [&](const auto& hole) {
                          return hole.size != 0 && start < hole.start + Wide(hole.size) &&
                                 hole.start < start + size;
                        }) &&
           std::none_of(reserved_.begin(), reserved_.end(), [&](const auto& range) {
             return start < range.first + Wide(range.second) && range.first < start + size;
           });
  }
  bool Overlapped(Wide start, Wide size) const {
    return std::any_of(granules_.begin(), granules_.end(), [&](const auto& entry) {
      return start < entry.first + entry.second.size && entry.first < start + size;
    });
  }

  std::vector<pcilend_hole> holes_;
  std::map<u64, u64> reserved_;  // start, size
  Wide end_;
  u32 capacity_;
  std::map<u64, Granule> granules_;
  std::map<u64, Mapping> pages_;  // by IOVA: pieces that were mapped at once
};

class GranulesProperty : public testing::TestWithParam<u64> {
 protected:
  u64 Below(u64 end) { return random_() % end; }

  // Within some GiB of the base, seldom anywhere.
  u64 Address() {
    if (Below(32) == 0) return random_();
    if (Below(4) == 0) return base_ + Below(8 * kGiB);
    return base_ + Below(64) * kPage + (Below(4) == 0 ? Below(kPage) : 0);
  }
  u64 Size() { return Below(2) == 0 ? kPage << Below(20) : (1 + Below(8)) * kPage; }

  std::vector<pcilend_hole> Holes() {
    std::vector<pcilend_hole> holes(Below(5));
    for (auto& hole : holes) {
      hole = {Address(), Size()};
      if (Below(4) != 0) hole.start -= hole.start % kPage;
      if (Below(8) == 0) hole.size = Below(2) == 0 ? 0 : ~0ULL - Below(kGiB);
    }
    return holes;
  }

  std::mt19937_64 random_{GetParam()};
  const u64 base_ = std::array<u64, 5>{0, 0 - 4 * kGiB, 0x7fb8ff000000, kBarsStart - 32 * kPage,
                                       kBarsEnd - 32 * kPage}[GetParam() % 5];
};

TEST_P(GranulesProperty, EqualTheModel) {
  const u64 end = Below(2) == 0 ? ~0ULL : base_ + kGiB + Below(7 * kGiB);
  const u32 capacity = static_cast<u32>(1 + Below(24));
  const auto holes = Holes();
  Space space(holes, end, capacity);
  Model model(holes, end, capacity);
  for (int step = 0; step < 2000; ++step) {
    switch (Below(10)) {
      case 0:
      case 1: {  // plan, and do it
        const u64 iova = Address();
        const u64 limit = Below(2) == 0 ? ~0ULL : Size() - Below(2);
        Block block, expected = {kUntouched, kUntouched};
        ASSERT_EQ(space.Plan(iova, limit, &block), model.Plan(iova, limit, &expected));
        ASSERT_EQ(block, expected);
        if (block.second == kUntouched) break;
        const u64 slot = Below(1ULL << 40) * kPage;
        ASSERT_EQ(space.Add(block.first, block.second, slot), 0);
        ASSERT_EQ(model.Add(block.first, block.second, slot), 0);
        break;
      }
      case 2: {  // add anything
        u64 start = Address();
        if (Below(8) != 0) start -= start % kPage;
        const u64 size = Below(8) == 0 ? random_() >> Below(64) : Size();
        const u64 slot = Below(8) == 0 ? random_() : Below(1ULL << 40) * kPage;
        ASSERT_EQ(space.Add(start, size, slot), model.Add(start, size, slot));
        break;
      }
      case 3:
      case 4: {  // map what is not mapped, in a granule if there is one
        u64 iova = Address();
        iova -= iova % kPage;
        u64 size = Size();
        const auto it = model.At(iova);
        if (it != model.granules().end() && Below(2) == 0) {
          iova = it->first;
          size = static_cast<u64>(it->second.size);
        }
        if (model.IsMapped(iova, size)) break;
        const int expected = model.Count(iova, size, false);
        ASSERT_EQ(space.Mapped(iova, size), expected);
        if (expected == 0) {
          model.pages()[iova] = {size, model.At(iova)->second.slot + iova - model.At(iova)->first};
        }
        break;
      }
      case 5: {  // unmap, most often what was mapped
        if (Below(4) == 0 || model.pages().empty()) {
          const u64 iova = Address(), size = Size() + Below(2);
          if (model.Inside(iova, size) != model.granules().end()) break;
          ASSERT_EQ(space.Unmapped(iova, size), -ERANGE);
          ASSERT_EQ(space.Mapped(iova, size), -ERANGE);
          break;
        }
        const auto it = std::next(model.pages().begin(), Below(model.pages().size()));
        ASSERT_EQ(model.Count(it->first, it->second.size, true), 0);
        ASSERT_EQ(space.Unmapped(it->first, it->second.size), 0);
        model.pages().erase(it);
        break;
      }
      case 6: {  // more than was mapped, or than there is
        if (model.granules().empty()) break;
        const auto& [start, granule] =
            *std::next(model.granules().begin(), Below(model.granules().size()));
        if (granule.mapped == granule.size) {
          ASSERT_EQ(space.Mapped(start, kPage), -ERANGE);
        } else {
          ASSERT_EQ(space.Unmapped(start, static_cast<u64>(granule.mapped) + kPage), -ERANGE);
        }
        break;
      }
      case 7: {
        u64 start = Address();
        if (Below(8) != 0) start -= start % kPage;
        const u64 size = Below(8) == 0 ? random_() >> Below(64) : Size();
        ASSERT_EQ(space.Reserve(start, size), model.Reserve(start, size));
        break;
      }
      case 8: {
        u64 start = Address(), size = Size();
        if (Below(4) != 0 && !model.reserved().empty()) {
          std::tie(start, size) =
              *std::next(model.reserved().begin(), Below(model.reserved().size()));
        }
        const bool given = std::any_of(holes.begin(), holes.end(), [&](const auto& hole) {
          return hole.start == start && hole.size == size;
        });
        if (!given) ASSERT_EQ(space.Unreserve(start, size), model.Unreserve(start, size));
        break;
      }
      default: {  // remove an empty one, any, or what is not there
        u64 start = Address();
        if (Below(2) == 0 && !model.granules().empty()) {
          start = std::next(model.granules().begin(), Below(model.granules().size()))->first;
        } else if (Below(4) != 0 && model.FirstEmpty()) {
          start = *model.FirstEmpty();
        }
        ASSERT_EQ(space.Remove(start), model.Remove(start));
      }
    }
    ASSERT_EQ(space.granules.mapped, static_cast<u64>(model.mapped()));
    ASSERT_EQ(space.granules.count, model.granules().size());
    u32 i = 0;
    for (const auto& [start, granule] : model.granules()) {
      const pcilend_granule& entry = space.entries[i++];
      ASSERT_EQ(entry.start, start);
      ASSERT_EQ(entry.size, static_cast<u64>(granule.size));
      ASSERT_EQ(entry.slot, granule.slot);
      ASSERT_EQ(entry.mapped, static_cast<u64>(granule.mapped));
    }
    const pcilend_granule* empty = pcilend_granules_empty(&space.granules);
    ASSERT_EQ(empty != nullptr ? std::optional(empty->start) : std::nullopt, model.FirstEmpty());
    const u64 iova = Address();
    const pcilend_granule* found = pcilend_granules_find(&space.granules, iova);
    const auto it = model.At(iova);
    ASSERT_EQ(found != nullptr, it != model.granules().end());
    if (found != nullptr) {
      ASSERT_EQ(found->start, it->first);
    }
  }
  for (const auto& [iova, mapping] : model.pages()) {
    const pcilend_granule* granule = pcilend_granules_find(&space.granules, iova);
    ASSERT_NE(granule, nullptr) << "it went with pages mapped";
    EXPECT_EQ(granule->slot + (iova - granule->start), mapping.target);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, GranulesProperty, testing::Range<u64>(1, 41));

}  // namespace
