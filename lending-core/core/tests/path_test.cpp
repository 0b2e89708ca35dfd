// SPDX-License-Identifier: GPL-2.0-or-later
// Several links to one node: who is let in, and which link a lease takes.
#include "pcilend/path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace {

constexpr u32 kNode = 8;

pcilend_path_verdict Judge(pcilend_path_claim claim) {
  claim.node = kNode;
  return pcilend_path_judge(&claim);
}

TEST(PathJudge, TheFirstLinkToANodeIsBelieved) {
  EXPECT_EQ(Judge({}), PCILEND_PATH_FIRST);
}

TEST(PathJudge, AFurtherOneIsAskedAboutOverATrustedOne) {
  EXPECT_EQ(Judge({.trusted_up = 1, .trusted = 1}), PCILEND_PATH_ASK);
  EXPECT_EQ(Judge({.trusted_up = 1, .trusted = 3}), PCILEND_PATH_ASK);
}

TEST(PathJudge, WhileTheTrustedOneIsDownNobodyGetsInInItsPlace) {
  EXPECT_EQ(Judge({.trusted_up = 0, .trusted = 1}), PCILEND_PATH_WAIT);
}

TEST(PathJudge, APinDecidesWhateverElseIsKnown) {
  EXPECT_EQ(Judge({.pinned = kNode}), PCILEND_PATH_PINNED);
  EXPECT_EQ(Judge({.pinned = kNode, .pinned_elsewhere = true, .trusted_up = 1, .trusted = 1}),
            PCILEND_PATH_PINNED);
  EXPECT_EQ(Judge({.pinned = 12}), PCILEND_PATH_OTHER_NODE);
  EXPECT_EQ(Judge({.pinned = 12, .trusted_up = 1, .trusted = 1}), PCILEND_PATH_OTHER_NODE);
  EXPECT_EQ(Judge({.pinned_elsewhere = true}), PCILEND_PATH_OTHER_ADAPTER);
  EXPECT_EQ(Judge({.pinned_elsewhere = true, .trusted_up = 1, .trusted = 1}),
            PCILEND_PATH_OTHER_ADAPTER);
}

TEST(PathIsOwn, OnlyTheLinkThatBothSeeAlike) {
  const pcilend_path_end end = {kNode, 0x11, 0x22};
  EXPECT_TRUE(pcilend_path_is_own(&end, kNode, 0x22, 0x11));
  EXPECT_FALSE(pcilend_path_is_own(&end, kNode, 0x11, 0x22)) << "the ends are not exchangeable";
  EXPECT_FALSE(pcilend_path_is_own(&end, 12, 0x22, 0x11)) << "another node behind it";
  EXPECT_FALSE(pcilend_path_is_own(&end, kNode, 0x23, 0x11)) << "it sees somebody else there";
  EXPECT_FALSE(pcilend_path_is_own(&end, kNode, 0x22, 0x12)) << "somebody else shows himself";
}

TEST(PathIsOwn, NobodyIsThereBeforeTheHandshake) {
  const pcilend_path_end end = {kNode, 0x11, 0};
  EXPECT_FALSE(pcilend_path_is_own(&end, kNode, 0, 0x11));
}

int Choose(const std::vector<pcilend_path_choice>& paths) {
  return pcilend_path_choose(paths.data(), static_cast<unsigned>(paths.size()));
}

TEST(PathChoose, FewestLeasesThenFreeApertureThenTheLowestAddress) {
  EXPECT_EQ(Choose({{true, 2, 900, 0x20}, {true, 1, 100, 0x28}}), 1);
  EXPECT_EQ(Choose({{true, 1, 100, 0x20}, {true, 1, 900, 0x28}}), 1);
  EXPECT_EQ(Choose({{true, 1, 900, 0x28}, {true, 1, 900, 0x20}}), 1);
  EXPECT_EQ(Choose({{true, 1, 900, 0x20}, {true, 1, 900, 0x28}}), 0);
}

TEST(PathChoose, OnlyOfThoseThatCanBeUsed) {
  EXPECT_EQ(Choose({{false, 0, 900, 0x20}, {true, 7, 1, 0x28}}), 1);
  EXPECT_EQ(Choose({{false, 0, 900, 0x20}, {false, 0, 1, 0x28}}), -ENETDOWN);
  EXPECT_EQ(Choose({}), -ENETDOWN);
}

TEST(PathChoose, DoesNotDependOnTheirOrder) {
  std::mt19937 dice(1);
  for (int round = 0; round < 1000; ++round) {
    std::vector<pcilend_path_choice> paths;
    for (u32 address = 0; address < 6; ++address)
      paths.push_back({dice() % 4 != 0, static_cast<u32>(dice() % 3), dice() % 3, address});
    const int chosen = Choose(paths);
    const u32 address = chosen < 0 ? 99 : paths[static_cast<size_t>(chosen)].address;
    std::shuffle(paths.begin(), paths.end(), dice);
    const int again = Choose(paths);
    EXPECT_EQ(again < 0 ? 99 : paths[static_cast<size_t>(again)].address, address);
  }
}

}  // namespace
