// SPDX-License-Identifier: GPL-2.0-or-later
#include "scenarios/faults/fault.h"

#include <gtest/gtest.h>

#include <set>

namespace pcilend::scenarios {
namespace {

TEST(FaultMatrix, HasEveryCaseOnce) {
  std::set<std::string> names;
  for (const FaultCase& one : all_fault_cases()) names.insert(name_of(one));
  EXPECT_EQ(names.size(), all_fault_cases().size());
  EXPECT_EQ(names.size(), (2U * 5 + 1 + 3) * 4);
  EXPECT_EQ(names.count("LenderPanicUnderIo"), 1U);
  EXPECT_EQ(names.count("BorrowerUnloadReturning"), 1U);
  EXPECT_EQ(names.count("LinkFlapBorrowing"), 1U);
}

TEST(FaultMatrix, OnlyStepsHaveTriggers) {
  EXPECT_TRUE(triggers(Moment::Idle).empty());
  EXPECT_TRUE(triggers(Moment::UnderIo).empty());
  EXPECT_FALSE(triggers(Moment::Borrowing).empty());
  EXPECT_FALSE(triggers(Moment::Returning).empty());
}

}  // namespace
}  // namespace pcilend::scenarios
