// SPDX-License-Identifier: GPL-2.0-or-later
// Segments of other hosts, mapped for a function.
#include "scenarios/lending/targets.h"

namespace pcilend::scenarios {
namespace {

using testing::HasSubstr;

// Where the process is that leases the function of host1.
enum class Where { Lender, Borrower };

class FarSegments : public Targets, public testing::WithParamInterface<Where> {
 protected:
  static const lab::Host& process() { return host(GetParam() == Where::Lender ? 1 : 2); }
  // Those whom host3 offers its segment to, each with that option.
  static std::string nodes(const std::string& option = {}) {
    return GetParam() == Where::Lender ? option + " 4" : option + " 4 8";
  }
};

/*
 *   process: own segment ── edu ──> segment of host3, and back; unmapped, edu reaches it no more
 */
TEST_P(FarSegments, OfAThirdHostAreReachedWhileTheyAreMapped) {
  expect_stopped_dma();
  ASSERT_NO_FATAL_FAILURE(create(host(3), nodes()));
  const auto steps = use(process(), fmt::format("connect {} map copy 1 unmap write 2 look 1 "
                                                "map write 3 look 3 state",
                                                segment_));
  ASSERT_EQ(steps.size(), 10U);
  EXPECT_EQ(steps[2].at("there"), true);
  EXPECT_EQ(steps[2].at("back"), true);
  EXPECT_EQ(steps[5].at("there"), true) << "it was written to after it was unmapped";
  EXPECT_EQ(steps[8].at("there"), true) << "mapped again";
  EXPECT_EQ(steps[9].at("epoch"), 0);
}

/*
 *   host3 ── offers it read-only ──> host1 (and host2): for the function it is read-only, too
 */
TEST_P(FarSegments, ThatAreReadOnlyAreSoForTheFunction) {
  expect_stopped_dma();
  ASSERT_NO_FATAL_FAILURE(create(host(3), nodes("--read-only")));
  const auto steps =
      use(process(), fmt::format("connect {},ro map write 1 look 1 state", segment_));
  ASSERT_EQ(steps.size(), 5U);
  EXPECT_EQ(steps[3].at("there"), false) << "it has written to a read-only segment";
}

/*
 *   process: edu writes to it ── host3 withdraws it: edu reaches it no more, and the process knows;
 *   host3 offers it again: what was written before is there, and what was written meanwhile is not
 */
TEST_P(FarSegments, ThatAreWithdrawnAreNotReachedAnyMore) {
  expect_stopped_dma();
  ASSERT_NO_FATAL_FAILURE(create(host(3), nodes()));
  ASSERT_NO_FATAL_FAILURE(start_user(
      process(), fmt::format("connect {0} map copy 1 lost wait /run/go write 2 wait /run/again "
                             "connect {0} look 1 map copy 3 state",
                             segment_)));
  ASSERT_OK(host(3).run("pcilend segment withdraw " + segment_));
  ASSERT_NO_FATAL_FAILURE(await_waiting(process(), 2));
  ASSERT_OK(process().run("touch /run/go"));
  ASSERT_NO_FATAL_FAILURE(await_waiting(process(), 3));
  for (const char* node : {"4", "8"})
    ASSERT_OK(host(3).run(fmt::format("pcilend segment offer {} {}", segment_, node)));
  ASSERT_OK(process().run("touch /run/again"));
  const auto steps = end_of_user();
  ASSERT_OK(process().run("rm /run/again"));
  ASSERT_EQ(steps.size(), 12U);
  EXPECT_EQ(steps[3].at("lost"), true);
  EXPECT_EQ(steps[8].at("there"), true) << "it was written to after it was withdrawn";
  EXPECT_EQ(steps[10].at("there"), true);
  EXPECT_EQ(steps[10].at("back"), true);
}

/*
 *   process: edu has it mapped ── kill -9 of its owner, on host3 ── kill -9 of the process
 */
TEST_P(FarSegments, WhoseOwnersDieLeaveNothing) {
  expect_stopped_dma();
  ASSERT_NO_FATAL_FAILURE(create(host(3), nodes()));
  ASSERT_NO_FATAL_FAILURE(
      start_user(process(), fmt::format("connect {} map copy 1 lost write 2 try state", segment_)));
  ASSERT_NO_FATAL_FAILURE(kill_owner());
  const auto steps = end_of_user();
  ASSERT_EQ(steps.size(), 7U);
  EXPECT_EQ(steps[3].at("lost"), true);
  EXPECT_THAT(steps[5].at("said").get<std::string>(),
              testing::AnyOf(HasSubstr("taken away"), HasSubstr("does not offer it")));

  ASSERT_NO_FATAL_FAILURE(create(host(3), nodes()));
  ASSERT_NO_FATAL_FAILURE(
      start_user(process(), fmt::format("connect {} map copy 1 wait /run/go", segment_)));
  ASSERT_OK(process().run("kill -9 $(pidof target-user)"));
  ASSERT_OK(user_->wait());
  user_.reset();
}

/*
 *   host1 ──×── host3: the function's DMA is lost with the link: it is stopped and reset, and the
 *   epoch of its lease changes; when the link is back it is mapped anew
 */
TEST_P(FarSegments, BehindALinkThatIsLostCostAReset) {
  expect_stopped_dma();
  ASSERT_NO_FATAL_FAILURE(create(host(3), nodes()));
  ASSERT_NO_FATAL_FAILURE(start_user(
      process(),
      fmt::format("connect {0} map copy 1 disturbed wait /run/go connect {0} unmap map copy 2",
                  segment_)));
  ASSERT_OK(lab_->fabric().link_down(1, 3));
  ASSERT_NO_FATAL_FAILURE(await_waiting(process(), 2));
  ASSERT_OK(lab_->fabric().link_up(1, 3));
  // It is offered still, as host1 has not booted.
  for (const lab::Host* reached : {&process(), static_cast<const lab::Host*>(&host(1))})
    ASSERT_OK(reached->until(
        fmt::format("/usr/lib/pcilend-lab/segment-user connect {} epoch", segment_)));
  ASSERT_OK(process().run("touch /run/go"));
  const auto steps = end_of_user();
  ASSERT_EQ(steps.size(), 9U);
  EXPECT_GE(steps[3].at("epoch"), 1);
  EXPECT_EQ(steps[3].at("over"), false);
  EXPECT_EQ(steps[8].at("there"), true);
  EXPECT_EQ(steps[8].at("back"), true);
}

INSTANTIATE_TEST_SUITE_P(By, FarSegments, testing::Values(Where::Lender, Where::Borrower),
                         [](const auto& where) {
                           return where.param == Where::Lender ? "Loopback" : "Borrower";
                         });

/*
 *   host1: edu ──> segment of a process there <── NTB ── process of host2, whose function edu is
 */
TEST_F(Targets, ASegmentBesideTheFunctionIsReachedWhileItIsOffered) {
  expect_stopped_dma();
  ASSERT_NO_FATAL_FAILURE(create(host(1), "8"));
  const auto steps =
      use(host(2), fmt::format("connect {} map copy 1 unmap write 2 look 1 map state", segment_));
  ASSERT_EQ(steps.size(), 8U);
  EXPECT_EQ(steps[2].at("there"), true);
  EXPECT_EQ(steps[2].at("back"), true);
  EXPECT_EQ(steps[5].at("there"), true) << "it was written to after it was unmapped";

  ASSERT_NO_FATAL_FAILURE(
      start_user(host(2), fmt::format("connect {} map copy 1 lost write 2 try", segment_)));
  ASSERT_NO_FATAL_FAILURE(kill_owner());
  EXPECT_EQ(end_of_user().size(), 6U);
}

/*
 *   host3 ── offers its segment to host2 only, to host1 read-only: edu of host1 gets no more of it
 */
TEST_F(Targets, WhatTheLenderIsNotOfferedIsRefused) {
  ASSERT_NO_FATAL_FAILURE(create(host(3), "8"));
  auto steps = use(host(2), fmt::format("connect {} try", segment_));
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_THAT(steps[1].at("said").get<std::string>(),
              HasSubstr("node 12 does not offer it to the function's lender, node 4"));
  ASSERT_OK(host(3).run(fmt::format("pcilend segment offer --read-only {} 4", segment_)));
  steps = use(host(2), fmt::format("connect {} try", segment_));
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_THAT(steps[1].at("said").get<std::string>(), HasSubstr("read-only: map it read-only"));
}

}  // namespace
}  // namespace pcilend::scenarios
