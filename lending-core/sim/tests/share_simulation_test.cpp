// SPDX-License-Identifier: GPL-2.0-or-later
#include "share_simulation.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace {

using pcilend::sim::Plant;
using pcilend::sim::ShareCounts;
using pcilend::sim::ShareOptions;
using pcilend::sim::ShareSimulation;

u64 Seed() {
  const char* seed = std::getenv("PCILEND_SEED");
  return seed != nullptr ? std::strtoull(seed, nullptr, 0) : 1;
}

TEST(ShareSimulation, KeepsItsPromises) {
  ShareOptions options;
  options.events = 400000;
  options.seed = Seed();
  ShareSimulation simulation(options);
  EXPECT_EQ(simulation.Run(), "") << "to repeat it: PCILEND_SEED=" << options.seed;
  const ShareCounts counts = simulation.counts();
  // All of it happened.
  EXPECT_GT(counts.joined, 1000u);
  EXPECT_EQ(counts.most, 64u) << "a function has as many clients as it may";
  EXPECT_GT(counts.refused, 1000u);
  EXPECT_GT(counts.fences, 10u);
  EXPECT_GT(counts.audits, 100u);
  EXPECT_GT(counts.quarantines, 10u);
  EXPECT_GT(counts.readmitted, 10u);
  EXPECT_GT(counts.answered, 1000u);
  EXPECT_GT(counts.flaps, 10u);
  EXPECT_GT(counts.deaths, 5u);
}

// Bugs put in on purpose are found.
class SharePlantTest : public ::testing::TestWithParam<std::pair<Plant, const char*>> {};

TEST_P(SharePlantTest, IsFound) {
  ShareOptions options;
  options.nodes = 20;
  options.events = 300000;
  options.plant = GetParam().first;
  ShareSimulation simulation(options);
  const std::string wrong = simulation.Run();
  EXPECT_EQ(wrong.substr(0, wrong.find(" (")), GetParam().second) << wrong;
}

INSTANTIATE_TEST_SUITE_P(
    Planted, SharePlantTest,
    ::testing::Values(
        std::pair{Plant::kUnmapBeforeCleared, "nothing is unmapped before it is cleared"},
        std::pair{Plant::kReuseSlice, "no slice is given twice"},
        std::pair{Plant::kSecondManager, "only the manager makes the policy"},
        std::pair{Plant::kClearedByAnybody, "nothing is unmapped before it is cleared"},
        std::pair{Plant::kMasterOffForAll, "one client's loss stops nobody else"},
        std::pair{Plant::kNoTimeout, "a manager that says nothing costs the function in time"},
        std::pair{Plant::kNoRights, "nobody is admitted without a right"},
        std::pair{Plant::kEarlyReboot, "no new boot is admitted before the old one is over"},
        std::pair{Plant::kToldTooEarly, "memory is not freed while the function may reach it"},
        std::pair{Plant::kPagesStayOpen, "who is over rings no doorbell"},
        std::pair{Plant::kRecallOfTheManagerOnly, "a recall reaches every client"},
        std::pair{Plant::kMailOutlivesTheLink, "who is readmitted has no queues of before"}));

}  // namespace
