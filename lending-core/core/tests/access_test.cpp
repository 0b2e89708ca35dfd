// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/access.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace {

int Set(pcilend_access& access, const std::vector<u32>& nodes, const char** why) {
  return pcilend_access_set(&access, nodes.data(), nodes.size(), why);
}

TEST(Access, FreshOnesLetAllIn) {
  pcilend_access access = {};
  EXPECT_TRUE(pcilend_access_allows(&access, 1));
  EXPECT_TRUE(pcilend_access_allows(&access, 65535));
}

TEST(Access, OnlyThoseNamed) {
  pcilend_access access = {};
  const char* why = nullptr;
  ASSERT_EQ(Set(access, {12, 8, 65535, 8, 1}, &why), 0);
  EXPECT_EQ(why, nullptr);
  EXPECT_EQ(std::vector<u16>(access.node, access.node + access.count),
            (std::vector<u16>{1, 8, 12, 65535}));
  for (const u32 node : {1u, 8u, 12u, 65535u}) EXPECT_TRUE(pcilend_access_allows(&access, node));
  for (const u32 node : {0u, 2u, 9u, 65534u, 65536u + 8u})
    EXPECT_FALSE(pcilend_access_allows(&access, node));
  pcilend_access_all(&access);
  EXPECT_TRUE(pcilend_access_allows(&access, 2));
}

TEST(Access, NobodyIsASetToo) {
  pcilend_access access = {};
  const char* why = nullptr;
  ASSERT_EQ(pcilend_access_set(&access, nullptr, 0, &why), 0);
  EXPECT_FALSE(pcilend_access_allows(&access, 8));
}

TEST(Access, RefusalsChangeNothing) {
  pcilend_access access = {};
  const char* why = nullptr;
  ASSERT_EQ(Set(access, {8}, &why), 0);
  for (const u32 bad : {0u, 65536u, ~0u}) {
    EXPECT_EQ(Set(access, {12, bad}, &why), -EINVAL);
    EXPECT_NE(why, nullptr);
  }
  EXPECT_EQ(Set(access, std::vector<u32>(PCILEND_ACCESS_NODES + 1, 12), &why), -E2BIG);
  EXPECT_TRUE(pcilend_access_allows(&access, 8));
  EXPECT_FALSE(pcilend_access_allows(&access, 12));
}

TEST(Access, SameAsASet) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<u32> nodes(random() % (PCILEND_ACCESS_NODES + 1));
    for (u32& node : nodes) node = 1 + random() % 400;
    const std::set<u32> expected(nodes.begin(), nodes.end());
    pcilend_access access = {};
    const char* why = nullptr;
    ASSERT_EQ(Set(access, nodes, &why), 0);
    ASSERT_EQ(access.count, expected.size());
    ASSERT_TRUE(std::is_sorted(access.node, access.node + access.count));
    for (u32 node = 0; node <= 401; ++node)
      ASSERT_EQ(pcilend_access_allows(&access, node), expected.count(node) == 1) << node;
  }
}

}  // namespace
