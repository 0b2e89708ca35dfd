// SPDX-License-Identifier: GPL-2.0-or-later
#include "simulation.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace {

using pcilend::sim::Counts;
using pcilend::sim::Options;
using pcilend::sim::Sabotage;
using pcilend::sim::Simulation;

u64 Seed() {
  const char* seed = std::getenv("PCILEND_SEED");
  return seed != nullptr ? std::strtoull(seed, nullptr, 0) : 1;
}

TEST(Simulation, KeepsItsPromises) {
  Options options;
  options.nodes = 12;
  options.functions = 4;
  options.degree = 5;
  options.events = 600000;
  options.seed = Seed();
  Simulation simulation(options);
  EXPECT_EQ(simulation.Run(), "") << "to repeat it: PCILEND_SEED=" << options.seed;
  const Counts counts = simulation.counts();
  // All of it happened.
  EXPECT_GT(counts.granted, 1000u);
  EXPECT_GT(counts.declined, 1000u);
  EXPECT_GT(counts.refused, 1000u);
  EXPECT_GT(counts.lost, 100u);
  EXPECT_GT(counts.recovered, 10u);
  EXPECT_GT(counts.expired, 0u);
  EXPECT_GT(counts.late, 0u);
  EXPECT_GT(counts.stalls, 0u);
  EXPECT_GT(counts.deaths, 0u);
  EXPECT_GT(counts.flaps, 10u);
  EXPECT_GT(simulation.ListAll(), 12u * 4 * 40);
}

// Bugs put in on purpose are found.
class SimulationTest : public ::testing::TestWithParam<std::pair<Sabotage, const char*>> {};

TEST_P(SimulationTest, FindsBugs) {
  Options options;
  options.nodes = 6;
  options.functions = 4;
  options.degree = 3;
  options.events = 200000;
  options.pace = GetParam().first == Sabotage::kDeafBorrower ? 5000 : 40;
  options.sabotage = GetParam().first;
  Simulation simulation(options);
  const std::string wrong = simulation.Run();
  EXPECT_EQ(wrong.substr(0, wrong.find(" (")), GetParam().second);
}

INSTANTIATE_TEST_SUITE_P(
    Sabotage, SimulationTest,
    ::testing::Values(
        std::pair{Sabotage::kNoFence, "fenced before it is reset"},
        std::pair{Sabotage::kNoReset, "reset since the last lease"},
        std::pair{Sabotage::kStaleLease, "only the lease in force is obeyed"},
        std::pair{Sabotage::kLeakExports, "no bytes of an aperture are leaked"},
        std::pair{Sabotage::kDeafBorrower, "a borrower learns in time that its lease is over"},
        std::pair{Sabotage::kEarlySlot, "no function reaches memory that is not lent to it"},
        std::pair{Sabotage::kDmaThroughLoss, "no DMA over a link that is lost"},
        std::pair{Sabotage::kNoRecovery,
                  "what did DMA when its link was lost is reset before it does more"}));

}  // namespace
