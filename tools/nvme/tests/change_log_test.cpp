// SPDX-License-Identifier: GPL-2.0-or-later
#include "manager/change_log.h"

#include <gtest/gtest.h>

namespace pcilend::nvme {
namespace {

using Ids = std::vector<uint32_t>;

TEST(ChangeLog, TellsWhatHasChangedSince) {
  ChangeLog log;
  EXPECT_TRUE(log.since(log.now()).empty());
  log.note({.all = false, .ids = {1, 7}});
  const uint64_t then = log.now();
  EXPECT_EQ(log.since(0).ids, (Ids{1, 7}));
  EXPECT_TRUE(log.since(then).empty());
  log.note({.all = false, .ids = {7, 9}});
  EXPECT_EQ(log.since(0).ids, (Ids{1, 7, 9}));
  EXPECT_EQ(log.since(then).ids, (Ids{7, 9}));
  log.note({});
  EXPECT_EQ(log.now(), then + 1);
}

TEST(ChangeLog, OfAllOfThemItTellsThat) {
  ChangeLog log;
  log.note({.all = false, .ids = {1}});
  const uint64_t then = log.now();
  log.note({.all = true, .ids = {}});
  EXPECT_TRUE(log.since(then).all);
  EXPECT_TRUE(log.since(0).all);
  EXPECT_TRUE(log.since(log.now()).empty());
  log.note({.all = false, .ids = {2}});
  EXPECT_TRUE(log.since(then).all);
  EXPECT_EQ(log.since(then + 1).ids, Ids{2});
}

// Whoever asks so was a client of another manager.
TEST(ChangeLog, OfATimeThatNeverWasAllHaveChanged) {
  EXPECT_TRUE(ChangeLog().since(1).all);
}

TEST(ChangeLog, IsBounded) {
  ChangeLog log;
  for (uint32_t id = 1; id <= 5000; ++id) log.note({.all = false, .ids = {id}});
  EXPECT_TRUE(log.since(0).all);
  EXPECT_LE(log.since(log.now() - 10).ids.size(), 10U);
  EXPECT_TRUE(log.since(log.now() - 10).has(5000));
}

}  // namespace
}  // namespace pcilend::nvme
