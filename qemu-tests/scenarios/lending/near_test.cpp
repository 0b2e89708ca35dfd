// SPDX-License-Identifier: GPL-2.0-or-later
// Memory beside a function for a process of another host that has it alone.
#include "scenarios/lending/targets.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/*
 *   host1 (lender, node 4)                                      host2 (node 8)
 *   edu ── IOMMU ──> near memory, of pcilend.ko <── NTB ═══════ NTB ── stores of the process
 *      └──────────────────────────────────────────> NTB ═══════ NTB ── its own memory
 *                          └── NTB ═══════ NTB ── host3 (node 12), a stranger
 */
class Near : public Targets {
 protected:
  void start_giver(const std::string& then) {
    ASSERT_NO_FATAL_FAILURE(start_user(host(2), "near 16384 give 1 wait /run/go " + then));
  }

  // The near segments that the lender has; its words for them. Those whose place a host keeps that
  // is silent have no pages any more.
  static std::vector<nlohmann::json> segments() {
    const auto said = host(1).json("pcilend segment list --json");
    EXPECT_OK(said);
    std::vector<nlohmann::json> near;
    if (!said) return near;
    for (const auto& segment : said->at("segments"))
      if (segment.value("name", "").starts_with("near-") &&
          segment.value("state", "") != "withdrawn")
        near.push_back(segment);
    return near;
  }
  static void expect_no_segments() {
    EXPECT_OK(lab::eventually("it is let go", lab::kPatience, [] { return segments().empty(); }));
  }

  // For how much of the lender's memory.
  void lend(const std::string& options) const {
    ASSERT_OK(host(1).run("pcilend unavailable " + id_));
    ASSERT_OK(host(1).run(fmt::format("pcilend available {} {}", options, id_)));
    ASSERT_OK(await_state(host(2), id_, "available"));
  }

  // A process has some until it is killed, and edu is stopped or not.
  void kill_giver() {
    ASSERT_OK(host(2).run("kill -9 $(pidof target-user)"));
    ASSERT_OK(user_->wait());
    user_.reset();
    ASSERT_OK(await_state(host(1), id_, "available"));
    ASSERT_OK(await_state(host(2), id_, "available"));
  }
};

/*
 *   process ── stores ──> near memory ── edu ──> the process's own; no read crosses the NTB
 *
 * edu can't write there. What the process has left is not what the next one gets.
 */
TEST_F(Near, WhatTheFunctionReadsIsBesideIt) {
  expect_stopped_dma();
  ASSERT_OK(lab_->fabric().counters(true));
  auto steps = use(host(2), "near 16384 give 1 give 2 state");
  const auto counters = lab_->fabric().counters();
  ASSERT_OK(counters);
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_EQ(steps[0].at("beside"), true);
  EXPECT_EQ(steps[0].at("remark"), "");
  EXPECT_EQ(steps[1].at("given"), true);
  EXPECT_EQ(steps[2].at("given"), true);
  EXPECT_EQ(counters->path(host(1).number(), 2).memory.reads, 0U);
  EXPECT_GE(counters->path(2, host(1).number()).memory.writes, 2U * 16384 / 8) << "its stores";

  steps = use(host(2), "near 16384 poke drop near 16384 state");
  ASSERT_EQ(steps.size(), 5U);
  EXPECT_EQ(steps[0].at("zeroed"), true);
  EXPECT_EQ(steps[1].at("changed"), false) << "it is read-only for the function";
  EXPECT_EQ(steps[3].at("zeroed"), true);
  EXPECT_EQ(steps[4].at("epoch"), 0);
  expect_no_segments();
}

/*
 *   pcilend available --near 32K: two of 16 KiB, the third one is in the process's host, and it
 * says so; what it lets go it may have again; --near 0: none
 */
TEST_F(Near, IsLimitedByItsLender) {
  ASSERT_NO_FATAL_FAILURE(lend("--near 32K"));
  auto steps = use(
      host(2), "near 16384 near 16384 near 16384 give 1 insist 4096 drop drop near 16384 give 2");
  ASSERT_EQ(steps.size(), 9U);
  EXPECT_EQ(steps[1].at("beside"), true);
  EXPECT_EQ(steps[2].at("beside"), false);
  EXPECT_THAT(steps[2].at("remark").get<std::string>(),
              HasSubstr("node 4 gives no more for it: pcilend available --near there"));
  EXPECT_EQ(steps[3].at("given"), true) << "though it is not beside it";
  EXPECT_THAT(steps[4].at("said").get<std::string>(), HasSubstr("gives no more"));
  EXPECT_EQ(steps[7].at("beside"), true);
  EXPECT_EQ(steps[8].at("given"), true);

  ASSERT_NO_FATAL_FAILURE(start_giver("state"));
  const auto shown = host(1).run("pcilend show " + id_);
  ASSERT_OK(shown);
  EXPECT_THAT(*shown, HasSubstr("16 KiB of this host's memory, of 32"));
  ASSERT_OK(host(2).run("touch /run/go"));
  EXPECT_EQ(end_of_user().size(), 4U);

  ASSERT_NO_FATAL_FAILURE(lend("--near 0"));
  steps = use(host(2), "near 16384 give 1");
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_THAT(steps[0].at("remark").get<std::string>(), HasSubstr("gives none for this function"));
  EXPECT_EQ(steps[1].at("given"), true);
  const auto refused = host(1).exec("pcilend available --near 5000 " + id_);
  ASSERT_OK(refused);
  EXPECT_THAT(refused->err, HasSubstr("--near 5000: give whole pages of 4 KiB"));
}

/*
 *   host3 ── connects it by its id: refused. The lender's administrator can't offer it to others,
 *   and can take it: then its process finds all-ones, and edu nothing
 */
TEST_F(Near, IsNobodyElses) {
  expect_stopped_dma();
  ASSERT_NO_FATAL_FAILURE(start_giver("poke"));
  const auto has = segments();
  ASSERT_EQ(has.size(), 1U);
  const std::string segment = has[0].at("id");
  const auto stranger =
      host(3).exec(fmt::format("/usr/lib/pcilend-lab/segment-user connect {} epoch", segment));
  ASSERT_OK(stranger);
  EXPECT_THAT(stranger->err, HasSubstr("offers this host no segment with that id"));
  const auto offered = host(1).exec(fmt::format("pcilend segment offer {} 12", segment));
  ASSERT_OK(offered);
  EXPECT_THAT(offered->err, HasSubstr("only its host is offered it"));
  ASSERT_OK(host(1).run("pcilend segment withdraw " + segment));
  expect_no_segments();
  ASSERT_OK(host(2).run("touch /run/go"));
  EXPECT_EQ(end_of_user().size(), 4U);
}

/*
 *   process ── kill -9; the function is taken back; its host loses power: no page is left, and the
 *   next process has zeroes
 */
TEST_F(Near, EndsWithItsProcess) {
  expect_stopped_dma();
  for (int round = 0; round < 3; ++round) {
    ASSERT_NO_FATAL_FAILURE(start_giver("state"));
    ASSERT_NO_FATAL_FAILURE(kill_giver());
    expect_no_segments();
  }
  ASSERT_NO_FATAL_FAILURE(start_giver("state"));
  ASSERT_OK(host(1).run("pcilend unavailable --force " + id_));
  expect_no_segments();
  ASSERT_OK(host(2).run("touch /run/go"));
  const auto steps = end_of_user();
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_EQ(steps[3].at("over"), true);
  ASSERT_OK(host(1).run("pcilend available " + id_));
  ASSERT_OK(await_state(host(2), id_, "available"));
  const auto next = use(host(2), "near 16384 give 3");
  ASSERT_EQ(next.size(), 2U);
  EXPECT_EQ(next[0].at("zeroed"), true);
  EXPECT_EQ(next[1].at("given"), true);
}

/*
 *   host1 ──×── host2: edu is stopped and reset, and the epoch of its lease changes; what was
 * beside it is gone, and can be had anew when the link is back
 */
TEST_F(Near, IsMadeAnewBehindALostLink) {
  expect_stopped_dma();
  ASSERT_NO_FATAL_FAILURE(
      start_user(host(2), "near 16384 give 1 disturbed wait /run/go drop near 16384 give 2 state"));
  ASSERT_OK(lab_->fabric().flap(1, 2, 500ms));
  ASSERT_NO_FATAL_FAILURE(await_waiting(host(2), 2));
  ASSERT_OK(await_state(host(1), id_, "borrowed"));
  ASSERT_OK(host(2).until("pcilend link --json | grep -q '\"up\"'"));
  ASSERT_OK(host(2).run("sleep 3; touch /run/go"));
  const auto steps = end_of_user();
  ASSERT_EQ(steps.size(), 8U);
  EXPECT_GE(steps[2].at("epoch"), 1);
  EXPECT_EQ(steps[5].at("beside"), true) << steps[5];
  EXPECT_EQ(steps[5].at("zeroed"), true);
  EXPECT_EQ(steps[6].at("given"), true);
  EXPECT_EQ(steps[7].at("over"), false);
  expect_no_segments();
}

/*
 *   host2 loses power while a process has some: the lender lets it go with the lease
 */
TEST_F(Near, EndsWithItsHost) {
  expect_stopped_dma();
  ASSERT_NO_FATAL_FAILURE(start_giver("state"));
  ASSERT_EQ(segments().size(), 1U);
  ASSERT_OK(host(2).power_off());
  ASSERT_OK(await_state(host(1), id_, "available"));
  expect_no_segments();
  const auto shown = host(1).run("pcilend show " + id_);
  ASSERT_OK(shown);
  EXPECT_THAT(*shown, testing::Not(HasSubstr("of this host's memory")));
  user_.reset();
  ASSERT_OK(host(2).power_on());
  ASSERT_OK(host(2).mark_log());
  ASSERT_OK(await_state(host(2), id_, "available"));
}

}  // namespace
}  // namespace pcilend::scenarios
