// SPDX-License-Identifier: GPL-2.0-or-later
#include "fence/agent.h"

#include <gtest/gtest.h>

#include <optional>

namespace pcilend::nvme {
namespace {

class FenceAgent : public testing::Test {
 protected:
  Result<FenceResult> run(std::string_view lines) {
    asked_.reset();
    FenceOptions options;
    read_options(lines, options);
    return run_fence(options, [this](FunctionId drive, const mail::Fence& fence) -> Result<bool> {
      asked_ = {drive, fence};
      if (refused_) return tl::unexpected(*refused_);
      return fence.what == mail::Fencing::Ask ? fenced_ : fence.what == mail::Fencing::Off;
    });
  }

  std::optional<std::pair<FunctionId, mail::Fence>> asked_;
  std::optional<Error> refused_;
  bool fenced_ = false;
};

TEST_F(FenceAgent, DoesWhatAClusterManagerSays) {
  // dlm_controld's way, and Pacemaker's; without an action it is the one that a node is fenced by.
  for (const char* lines : {"function=40001\nport=8\nfail_time=12\n",
                            "nodename=host2\naction=off\nfunction=40001\nplug=8"}) {
    const auto done = run(lines);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(done->code, 0);
    EXPECT_EQ(done->said, "Success: 8 is off\n");
    ASSERT_TRUE(asked_);
    EXPECT_EQ(asked_->first.value, 0x40001U);
    EXPECT_EQ(asked_->second.what, mail::Fencing::Off);
    EXPECT_EQ(asked_->second.node, 8U);
  }
  ASSERT_TRUE(run("action=on\nfunction=40001\nplug=8\n"));
  EXPECT_EQ(asked_->second.what, mail::Fencing::On);
}

TEST_F(FenceAgent, TellsWhetherANodeIsFenced) {
  EXPECT_EQ(run("action=status\nfunction=40001\nplug=8\n")->code, 0);
  fenced_ = true;
  EXPECT_EQ(run("action=status\nfunction=40001\nplug=8\n")->code, 2);
  EXPECT_EQ(run("action=monitor\nfunction=40001\n")->code, 0);
  EXPECT_EQ(asked_->second.what, mail::Fencing::Ask);
}

TEST_F(FenceAgent, SaysWhatItIs) {
  const auto said = run("action=metadata\n");
  ASSERT_TRUE(said);
  EXPECT_NE(said->said.find("<resource-agent name=\"fence_pcilend\""), std::string::npos);
  EXPECT_FALSE(asked_);
}

TEST_F(FenceAgent, NothingIsAskedForWhatMakesNoSense) {
  for (const char* lines :
       {"action=reboot\nfunction=40001\nplug=8\n", "action=off\nplug=8\n",
        "action=off\nfunction=40001\n", "action=off\nfunction=40001\nplug=0\n",
        "action=off\nfunction=40001\nplug=8x\n", "action=off\nfunction=drive\nplug=8\n"}) {
    const auto done = run(lines);
    ASSERT_FALSE(done) << lines;
    EXPECT_EQ(done.error().kind, ErrorClass::Usage) << done.error().message;
    EXPECT_FALSE(asked_);
  }
  ASSERT_TRUE(run("action=validate-all\nfunction=40001\nplug=8\n"));
  EXPECT_FALSE(asked_);
}

TEST_F(FenceAgent, ANodeThatIsNotFencedIsAnError) {
  refused_ = Error{ErrorClass::Unreachable, "no answer"};
  const auto done = run("action=off\nfunction=40001\nplug=8\n");
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "no answer");
}

}  // namespace
}  // namespace pcilend::nvme
