// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/slice.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

namespace {

constexpr u64 kLast48 = (1ULL << 48) - 1;
constexpr u64 kMiB = 1 << 20;

std::unique_ptr<pcilend_slices> Slices(u64 last = kLast48) {
  auto slices = std::make_unique<pcilend_slices>();
  EXPECT_EQ(pcilend_slices_init(slices.get(), last), 0);
  return slices;
}

u64 Place(pcilend_slices& slices, u64 bytes) {
  u64 address = 0;
  EXPECT_EQ(pcilend_slice_place(&slices, bytes, &address), 0);
  return address;
}

TEST(Slice, BeginsAt64GiBAndIsAlignedToItsSize) {
  auto slices = Slices();
  EXPECT_EQ(Place(*slices, 4096), 1ULL << 36);
  EXPECT_EQ(Place(*slices, 64 * kMiB), (1ULL << 36) + 64 * kMiB);
  EXPECT_EQ(Place(*slices, PCILEND_SLICE_MAX), 1ULL << 37);
  for (const u64 bytes : {u64{4096}, u64{1 << 14}, u64{1 << 21}, u64{1} << 30}) {
    EXPECT_EQ(Place(*slices, bytes) % bytes, 0u);
  }
}

TEST(Slice, AnIommuThatTranslatesAllAddressesHasPlaces) {
  auto slices = Slices(~0ULL);
  EXPECT_EQ(Place(*slices, 64 * kMiB), 1ULL << 36);
}

TEST(Slice, SizesArePowersOfTwo) {
  auto slices = Slices();
  u64 address = 7;
  for (const u64 bytes : {u64{0}, u64{1}, u64{2048}, u64{4096 * 3}, PCILEND_SLICE_MAX * 2, ~0ULL}) {
    EXPECT_FALSE(pcilend_slice_size_valid(bytes));
    EXPECT_EQ(pcilend_slice_place(slices.get(), bytes, &address), -EINVAL);
  }
  EXPECT_EQ(address, 7u);
}

TEST(Slice, StaysTakenUntilItIsReleased) {
  auto slices = Slices();
  std::set<u64> places;
  for (int i = 0; i <= PCILEND_SLICES; ++i) places.insert(Place(*slices, 64 * kMiB));
  EXPECT_EQ(places.size(), size_t{PCILEND_SLICES} + 1) << "the clients', and the manager's";
  u64 address = 0;
  EXPECT_EQ(pcilend_slice_place(slices.get(), 4096, &address), -ENOSPC);
  const u64 given = (1ULL << 36) + 5 * 64 * kMiB;
  EXPECT_EQ(pcilend_slice_release(slices.get(), given, 4096), -EINVAL);
  EXPECT_EQ(pcilend_slice_release(slices.get(), given + 4096, 64 * kMiB), -ENOENT);
  EXPECT_EQ(pcilend_slice_release(slices.get(), given, 64 * kMiB), 0);
  EXPECT_EQ(pcilend_slice_release(slices.get(), given, 64 * kMiB), -ENOENT) << "once";
  EXPECT_EQ(Place(*slices, 64 * kMiB), given);
}

TEST(Slice, EndsWhereTheIommuDoes) {
  auto slices = Slices((1ULL << 37) - 1);
  EXPECT_EQ(Place(*slices, 1ULL << 36), 1ULL << 36);
  u64 address = 0;
  EXPECT_EQ(pcilend_slice_place(slices.get(), 4096, &address), -ENOSPC);
  for (const u64 last : {u64{0}, u64{0xffffffff}, (1ULL << 36) - 1}) {
    EXPECT_EQ(pcilend_slices_init(slices.get(), last), -ERANGE);
    EXPECT_EQ(pcilend_slice_place(slices.get(), 4096, &address), -ENOSPC);
  }
}

// Trap 35.
TEST(Alias, OneMiBForEachHostAndNeverTheLendersOwn) {
  auto slices = Slices();
  std::set<u64> all;
  for (u32 node = 1; node <= PCILEND_SLICES; ++node) {
    u64 alias = 0;
    ASSERT_EQ(pcilend_alias_get(slices.get(), node, 77, &alias), 0);
    EXPECT_EQ(alias, 0xfe000000 - (node - 1) * kMiB);
    EXPECT_NE(alias, 0xfee00000u);
    EXPECT_GE(alias, 0x80000000u) << "above the DMA area";
    all.insert(alias);
  }
  EXPECT_EQ(all.size(), size_t{PCILEND_SLICES});
  u64 alias = 1;
  EXPECT_EQ(pcilend_alias_get(slices.get(), 65, 77, &alias), -ENOSPC);
  EXPECT_EQ(alias, 1u);
}

TEST(Alias, IsSharedByTheClientsOfOneBoot) {
  auto slices = Slices();
  u64 first = 0, second = 0, other = 0;
  ASSERT_EQ(pcilend_alias_get(slices.get(), 8, 77, &first), 0);
  ASSERT_EQ(pcilend_alias_get(slices.get(), 8, 77, &second), 0);
  ASSERT_EQ(pcilend_alias_get(slices.get(), 8, 78, &other), 0);
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other) << "another boot";
  EXPECT_FALSE(pcilend_alias_put(slices.get(), 8, 77));
  EXPECT_TRUE(pcilend_alias_put(slices.get(), 8, 77));
  EXPECT_FALSE(pcilend_alias_put(slices.get(), 8, 77)) << "there is none any more";
  ASSERT_EQ(pcilend_alias_get(slices.get(), 9, 1, &second), 0);
  EXPECT_EQ(second, first) << "free again";
}

}  // namespace
