// SPDX-License-Identifier: GPL-2.0-or-later
#include "bench/bench.h"

#include <gtest/gtest.h>

#include "fake_controller.h"
#include "pcilend/nvme/controller.h"

namespace pcilend::nvme {
namespace {

using namespace std::chrono_literals;
using test::FakeController;

class Benches : public testing::Test {
 protected:
  void SetUp() override {
    auto controller = Controller::start(drive_, 20ms);
    ASSERT_TRUE(controller) << controller.error().message;
    controller_ = std::move(*controller);
  }
  void TearDown() override { EXPECT_FALSE(drive_.fatal); }

  Result<BenchReport> run(const BenchOptions& options) {
    return run_bench({drive_, *controller_, controller_->name_space(1).value(), 1}, options);
  }

  FakeController drive_;
  std::unique_ptr<Controller> controller_;
};

TEST_F(Benches, WriteAndCompare) {
  const auto report = run({.block = 8,
                           .transfer = 12 * 1024,
                           .commands = 20,
                           .depth = 7,
                           .rounds = 2,
                           .write = true,
                           .interrupts = true});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->rounds, 2U);
  EXPECT_EQ(report->reads, 40U);
  EXPECT_EQ(report->writes, 40U);
  EXPECT_EQ(report->compared, 40U);
  EXPECT_EQ(report->flushes, 2U);
  uint64_t word = 0;
  std::memcpy(&word, drive_.medium.data() + 8 * 512, sizeof word);
  EXPECT_EQ(word, content(1, 8 * 512));
  EXPECT_EQ(drive_.io_queues(), 0U);
  // Another run, another depth, and what is around it is as it was.
  EXPECT_TRUE(run({.block = 8, .transfer = 4096, .commands = 60, .verify = true}));
  EXPECT_FALSE(run({.block = 7, .transfer = 4096, .commands = 1, .verify = true}));
  EXPECT_FALSE(run({.block = 8, .transfer = 4096, .commands = 61, .verify = true}));
}

TEST_F(Benches, WriteNothingUnlessTold) {
  const auto before = drive_.medium;
  const auto report = run({.commands = 16});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->reads, 16U);
  EXPECT_EQ(report->compared, 0U);
  EXPECT_EQ(drive_.medium, before);
  EXPECT_EQ(drive_.data_writes, 0U);
}

TEST_F(Benches, FindASingleBit) {
  ASSERT_TRUE(run({.commands = 16, .depth = 4, .write = true}));
  drive_.medium[5 * 4096 + 513] ^= std::byte{0x10};
  const auto report = run({.commands = 16, .depth = 4, .verify = true});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().message,
            "block 41 of namespace 1 of 40001, byte 1: it has not what seed 1 has written");
  EXPECT_FALSE(run({.seed = 2, .verify = true})) << "another seed";
}

TEST_F(Benches, RefuseWhatDoesNotFit) {
  for (const BenchOptions& options :
       {BenchOptions{.transfer = 0}, BenchOptions{.transfer = 1000}, BenchOptions{.commands = 0},
        BenchOptions{.commands = 257}, BenchOptions{.block = 2048, .commands = 1},
        BenchOptions{.block = ~uint64_t{0}}, BenchOptions{.depth = 0}, BenchOptions{.depth = 64},
        BenchOptions{.transfer = 512 * 1024, .commands = 1}}) {
    const auto report = run(options);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorClass::Usage) << report.error().message;
  }
  EXPECT_TRUE(run({.commands = 256}));
}

// Data that the drive only reads is in other memory than what it writes.
TEST_F(Benches, StageWhatTheyWrite) {
  const auto report = run({.commands = 16, .depth = 4, .write = true, .staged = true});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->compared, 16U);
  EXPECT_EQ(drive_.data_writes, 16U);
}

TEST_F(Benches, EndWithTheRoundWhenTheyAreTold) {
  const auto report =
      run_bench({drive_, *controller_, controller_->name_space(1).value(), {}}, {.rounds = 100},
                [](const BenchReport& so_far) { return so_far.rounds < 3; });
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->rounds, 3U);
}

TEST_F(Benches, PollWhereNoInterruptReachesThem) {
  const auto report = run_bench({drive_, *controller_, controller_->name_space(1).value(), {}},
                                {.interrupts = true});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().kind, ErrorClass::Unsupported);
}

// What cksum(1) says of the first two blocks.
TEST_F(Benches, SumAsCksumDoes) {
  const auto report = run({.transfer = 512, .commands = 2, .write = true});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->cksum, 2145841003U);
}

}  // namespace
}  // namespace pcilend::nvme
