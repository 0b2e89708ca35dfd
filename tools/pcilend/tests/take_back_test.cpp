// SPDX-License-Identifier: GPL-2.0-or-later
// `unavailable`: how a function that is lent is taken back.
#include "cli_fixture.h"

namespace pcilend::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TakeBackTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    kernel_.functions[1].state = PCILEND_FUNCTION_BORROWED;
    kernel_.functions[1].borrower = 12;
  }
  // The function as it will be announced.
  Event announced(uint32_t state, uint32_t id = 0x80001) {
    Event event;
    event.kind = PCILEND_EVENT_FUNCTION;
    event.function = nvme(id, state);
    return event;
  }
};

TEST_F(TakeBackTest, ByForceAtOnce) {
  EXPECT_EQ(run({"unavailable", "--force", "80001"}).status, 0);
  EXPECT_THAT(kernel_.log, ElementsAre("take 0000:00:05.0"));
}

TEST_F(TakeBackTest, TheBorrowerIsGivenTime) {
  terminal_ = true;
  kernel_.events = {Wake::Timeout, announced(PCILEND_FUNCTION_ADDED, 0x80002), Wake::Timeout,
                    announced(PCILEND_FUNCTION_FENCING), announced(PCILEND_FUNCTION_ADDED)};
  const Outcome result = run({"unavailable", "--grace", "12", "80001"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[added]"));
  EXPECT_THAT(result.err, HasSubstr("node 12 has 12 s left"));
  EXPECT_THAT(result.err, HasSubstr("node 12 has 10 s left"));
  EXPECT_TRUE(result.err.ends_with("\r\033[K")) << "the line is cleared";
  EXPECT_THAT(kernel_.log, ElementsAre("recall 0000:00:05.0 12000"));
}

TEST_F(TakeBackTest, WithoutATerminalNothingIsSaidMeanwhile) {
  kernel_.events = {Wake::Timeout, announced(PCILEND_FUNCTION_ADDED)};
  EXPECT_EQ(run({"unavailable", "--grace", "12", "80001"}).err, "");
}

TEST_F(TakeBackTest, NobodyHasItSoNothingIsWaitedFor) {
  kernel_.functions[1].state = PCILEND_FUNCTION_AVAILABLE;
  EXPECT_EQ(run({"unavailable", "--grace", "12", "80001"}).status, 0);
  EXPECT_EQ(kernel_.clock.time_since_epoch().count(), 0);
}

TEST_F(TakeBackTest, LostEventsMakeItLookAgain) {
  kernel_.events = {Wake::Lost, announced(PCILEND_FUNCTION_ADDED)};
  EXPECT_EQ(run({"unavailable", "--grace", "12", "80001"}).status, 0);
}

TEST_F(TakeBackTest, CtrlCLeavesTheRecallGoing) {
  kernel_.events = {Wake::Timeout, Wake::Stopped};
  const Outcome result = run({"unavailable", "--grace", "12", "80001"});
  EXPECT_EQ(result.status, static_cast<int>(ErrorClass::State));
  EXPECT_EQ(result.err,
            "pcilend: 0000:00:05.0: not waited for: the recall goes on, and this host takes it "
            "from node 12 in 11 s\n");
}

TEST_F(TakeBackTest, AFunctionThatDoesNotSurviveIsSaid) {
  Event end = announced(PCILEND_FUNCTION_QUARANTINED);
  end.function->reason = "it does not answer";
  kernel_.events = {end};
  const Outcome result = run({"unavailable", "--grace", "12", "80001"});
  EXPECT_EQ(result.status, static_cast<int>(ErrorClass::State));
  EXPECT_THAT(result.err, HasSubstr("quarantined: it does not answer"));
}

TEST_F(TakeBackTest, TheWaitHasAnEnd) {
  const Outcome result = run({"unavailable", "--grace", "12", "80001"});
  EXPECT_EQ(result.status, static_cast<int>(ErrorClass::Unreachable));
  EXPECT_THAT(result.err, HasSubstr("still is not back"));
}

}  // namespace
}  // namespace pcilend::test
