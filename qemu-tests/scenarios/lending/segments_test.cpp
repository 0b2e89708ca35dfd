// SPDX-License-Identifier: GPL-2.0-or-later
// Memory that processes of two hosts share.
#include "scenarios/lending/segments.h"

#include <gmock/gmock.h>

#include "testing/swept.h"

namespace pcilend::scenarios {
namespace {

using json = nlohmann::json;
using testing::HasSubstr;

/*
 *   host1                                      host2
 *   pcilend segment create 64 MiB ── offer ──> a program connects it
 *   checks what the other has stored <──────── checks each page, stores to each page
 *
 * No message goes between the two meanwhile.
 */
TEST_F(Segments, AreReadAndWrittenWithoutAMessage) {
  ASSERT_NO_FATAL_FAILURE(create(lender(), "--size 64M --name shared 8"));
  use(lender(), fmt::format("own {} fill 1 fill-all 2 65536", pid_));
  const auto steps = use(borrower(), fmt::format("connect {} check-all 2 65536 fill 3 check 3 "
                                                 "fill-all 4 65536 private epoch",
                                                 id_));
  ASSERT_EQ(steps.size(), 6U);
  EXPECT_EQ(steps[0].at("wrong"), 0);
  EXPECT_EQ(steps[2].at("wrong"), 0);
  EXPECT_EQ(steps[2].at("looked"), 16384);
  EXPECT_EQ(steps[4].at("private"), false);
  EXPECT_EQ(steps[4].at("writable"), true);
  for (const auto& step : steps) {
    EXPECT_EQ(step.at("messages"), 0) << step;
    EXPECT_EQ(step.at("complete"), true) << step;
  }
  const auto stored = use(lender(), fmt::format("own {} check-all 4 65536", pid_));
  ASSERT_EQ(stored.size(), 1U);
  EXPECT_EQ(stored[0].at("wrong"), 0);
  const auto gathered =
      use(borrower(), fmt::format("connect {},wc fill-all 5 65536 check-all 5 65536", id_));
  ASSERT_EQ(gathered.size(), 2U);
  EXPECT_EQ(gathered[1].at("wrong"), 0);
  ASSERT_NO_FATAL_FAILURE(end_owner(lender()));
}

/*
 *   64 MiB of host1 <── stores of host2, all of its words ── the same checksum on both
 *   64 MiB of host2 <── stores of host1 ──────────────────── the same
 *
 * What the fabric counts is these stores, and what links say of themselves meanwhile.
 */
TEST_F(Segments, SixtyFourMebibytesGoEachWayWithoutAMessage) {
  constexpr uint64_t kBytes = 64 << 20;
  constexpr uint64_t kWords = kBytes / 8;
  for (const auto& [owner, other] :
       {std::pair{&lender(), &borrower()}, std::pair{&borrower(), &lender()}}) {
    SCOPED_TRACE(owner->name());
    ASSERT_NO_FATAL_FAILURE(create(*owner, fmt::format("--size 64M {}", other->node())));
    ASSERT_OK(lab_->fabric().counters(true));
    const auto sent =
        use(*other, fmt::format("connect {} fill-all 9 {}", id_, kBytes), std::chrono::minutes(10));
    ASSERT_EQ(sent.size(), 1U);
    const auto counters = lab_->fabric().counters();
    ASSERT_OK(counters);
    EXPECT_EQ(sent[0].at("stored"), kWords);
    EXPECT_EQ(sent[0].at("messages"), 0);
    EXPECT_EQ(sent[0].at("complete"), true);
    const auto path = counters->path(other->number(), owner->number());
    EXPECT_GE(path.memory.write_bytes, kBytes);
    EXPECT_LT(path.memory.write_bytes, kBytes + kBytes / 1000);
    EXPECT_EQ(path.all_ones_reads, 0U);
    EXPECT_EQ(path.dropped_writes, 0U);
    fmt::print(stderr, "-- {} stores of {} bytes\n", path.memory.writes, path.memory.write_bytes);
    const auto got =
        use(*owner, fmt::format("own {} check-all 9 {}", pid_, kBytes), std::chrono::minutes(10));
    ASSERT_EQ(got.size(), 1U);
    EXPECT_EQ(got[0].at("looked"), kWords);
    EXPECT_EQ(got[0].at("wrong"), 0);
    EXPECT_EQ(got[0].at("sum"), sent[0].at("sum"));
    ASSERT_NO_FATAL_FAILURE(end_owner(*owner));
  }
}

/*
 *   host1                                   host2
 *   create --read-only ── offer ──> can read it, and connect it read-only only
 */
TEST_F(Segments, AreReadOnlyWhereTheyAreOfferedSo) {
  ASSERT_NO_FATAL_FAILURE(create(lender(), "--size 64K --read-only 8"));
  use(lender(), fmt::format("own {} fill 1", pid_));
  const auto refused = borrower().exec(fmt::format("{} connect {} epoch", kSegmentUser, id_));
  ASSERT_OK(refused);
  EXPECT_EQ(refused->code, 5) << refused->out;
  EXPECT_THAT(refused->err, HasSubstr("connect it with --read-only"));
  const auto steps = use(borrower(), fmt::format("connect {},ro check 1 private", id_));
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].at("wrong"), 0);
  EXPECT_EQ(steps[1].at("private"), false);
  EXPECT_EQ(steps[1].at("writable"), false);
  ASSERT_NO_FATAL_FAILURE(end_owner(lender()));
}

/*
 *   host1 ── reads all of it ──> host2, two pages of which are offered; then withdrawn
 */
TEST_F(Segments, APeerReachesWhatIsOfferedAndNoPageMore) {
  for (const char* fault : kSweepFaults) expect_in_log(fault);
  ASSERT_NO_FATAL_FAILURE(create(borrower(), "--size 8K 4"));
  expect_reach(*lab_, "offered", 0, 8192);
  ASSERT_OK(borrower().run("pcilend segment withdraw " + id_));
  expect_reach(*lab_, "withdrawn", 0, 0);
  ASSERT_NO_FATAL_FAILURE(end_owner(borrower()));
}

/*
 *   host1                               host2
 *   withdraws it, with its process alive ──> all-ones, and nothing that a process notices by force
 *   offers it again ───────────────────────> another connection has it
 *   kill -9 ────────────────────────────────> all-ones
 */
TEST_F(Segments, TurnToAllOnesWhenTheyEnd) {
  ASSERT_NO_FATAL_FAILURE(create(lender(), "--size 1M --name ends 8"));
  use(lender(), fmt::format("own {} fill 1", pid_));
  const std::string steps = fmt::format("connect {} check 1 lost ones scribble", id_);
  ASSERT_NO_FATAL_FAILURE(start_user(borrower(), steps));
  ASSERT_OK(lender().run("pcilend segment withdraw " + id_ + " 8"));
  ASSERT_NO_FATAL_FAILURE(expect_user_lost_it());
  EXPECT_EQ(use(lender(), fmt::format("own {} check 1", pid_)).at(0).at("wrong"), 0)
      << "what was stored afterwards went nowhere";

  ASSERT_OK(lender().run("pcilend segment offer " + id_ + " 8"));
  ASSERT_NO_FATAL_FAILURE(start_user(borrower(), steps));
  ASSERT_OK(lender().run("kill -9 " + pid_));
  ASSERT_NO_FATAL_FAILURE(expect_user_lost_it());
  ASSERT_OK(owner_->wait());
  owner_.reset();
  expect_listed(lender(), 0);
  expect_listed(borrower(), 0);
}

/*
 *   host1 ──×── host2: the link is down for a moment
 *
 * The epoch tells of it, the program finds all-ones, and connects again.
 */
TEST_F(Segments, AFlapChangesTheEpochAndLosesTheConnection) {
  ASSERT_NO_FATAL_FAILURE(create(lender(), "--size 64K 8"));
  use(lender(), fmt::format("own {} fill 1", pid_));
  ASSERT_NO_FATAL_FAILURE(
      start_user(borrower(), fmt::format("connect {} check 1 epoch lost epoch ones", id_)));
  ASSERT_OK(lab_->fabric().link_down(1, 2));
  const auto ended = user_->wait();
  ASSERT_OK(lab_->fabric().link_up(1, 2));
  ASSERT_OK(ended);
  ASSERT_EQ(ended->code, 0) << ended->err;
  std::vector<json> steps;
  for (const auto& line : lines(ended->out))
    if (line.contains("step")) steps.push_back(line);
  ASSERT_EQ(steps.size(), 5U) << ended->out;
  EXPECT_EQ(steps[0].at("complete"), true);
  EXPECT_EQ(steps[2].at("lost"), true);
  EXPECT_EQ(steps[2].at("complete"), false);
  EXPECT_GT(steps[3].at("epoch"), steps[1].at("epoch"));
  EXPECT_EQ(steps[4].at("wrong"), 0);
  user_.reset();

  ASSERT_OK(borrower().until(fmt::format("{} connect {} check 1", kSegmentUser, id_)));
  ASSERT_OK(lender().until("pcilend segment list --json", [&](const lab::Output& output) {
    return output.out.find("\"connections\": 0") != std::string::npos;
  }));
  ASSERT_NO_FATAL_FAILURE(end_owner(lender()));
}

/*
 *   host1: waits for its eventfd <── one posted write ── host2: stores, then notifies
 */
TEST_F(Segments, AnOwnerIsNotifiedByOneWrite) {
  // It ends when it has been, and what the other one loads after that is stopped by its IOMMU.
  expect_in_log("^DMAR: DRHD: handling fault status reg");
  expect_in_log(
      "^DMAR: \\[DMA Read NO_PASID\\] Request device \\[(0000:)?00:04\\.0\\] fault addr "
      "0x2[0-9a-f]{8} ");
  auto started =
      lender().start(fmt::format("exec {} create 8 notified check 5 notified", kSegmentUser));
  ASSERT_OK(started);
  ASSERT_OK(lender().until("true", [&](const lab::Output&) {
    return started->ended() || !lines(started->output_so_far()).empty();
  }));
  ASSERT_FALSE(started->ended());
  id_ = lines(started->output_so_far()).front().at("id");
  ASSERT_OK(lab_->fabric().counters(true));
  const auto steps = use(borrower(), fmt::format("connect {} fill 5 notify", id_));
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[1].at("messages"), 0);
  ASSERT_OK(lender().until(
      "true", [&](const lab::Output&) { return lines(started->output_so_far()).size() >= 3; }));
  const auto counters = lab_->fabric().counters();
  ASSERT_OK(counters);
  EXPECT_EQ(counters->path(2, 1).interrupt.writes, 1U);
  use(borrower(), fmt::format("connect {} notify", id_));
  const auto ended = started->wait();
  ASSERT_OK(ended);
  const auto said = lines(ended->out);
  ASSERT_EQ(said.size(), 4U) << ended->out << ended->err;
  EXPECT_EQ(said[1].at("count"), 1);
  EXPECT_EQ(said[2].at("wrong"), 0);
  EXPECT_EQ(said[3].at("count"), 1);
  expect_listed(lender(), 0);
}

/*
 *   host1: create, offer ──> host2: is listed there, connected, closed; withdrawn
 *
 * Events and metrics of both tell of each step.
 */
TEST_F(Segments, AreListedWhereTheyAreOffered) {
  auto monitor = lender().start("exec pcilend monitor --json --timeout 120");
  ASSERT_OK(monitor);
  ASSERT_OK(lender().until(
      "true", [&](const lab::Output&) { return !lines(monitor->output_so_far()).empty(); }));
  ASSERT_NO_FATAL_FAILURE(create(lender(), "--size 64K --name input --read-only 8"));
  const auto listed = borrower().json("pcilend segment list --json");
  ASSERT_OK(listed);
  ASSERT_EQ(listed->at("segments").size(), 1U);
  const json& offered = listed->at("segments").at(0);
  EXPECT_EQ(offered.at("id"), id_);
  EXPECT_EQ(offered.at("name"), "input");
  EXPECT_EQ(offered.at("size"), 65536);
  EXPECT_EQ(offered.at("state"), "offered");
  EXPECT_EQ(offered.at("read_only"), true);
  const auto metric = [&](const lab::Host& host, const std::string& line) {
    const auto found = host.exec("pcilend metrics | grep -xF '" + line + "'");
    ASSERT_OK(found);
    EXPECT_EQ(found->code, 0) << host.name() << ": " << line;
  };
  metric(lender(), "pcilend_segment_offered_bytes{node=\"8\"} 65536");
  ASSERT_NO_FATAL_FAILURE(start_user(borrower(), fmt::format("connect {},ro lost ones", id_)));
  metric(lender(), "pcilend_segment_users{node=\"8\"} 1");
  metric(borrower(), "pcilend_segment_connections{node=\"4\"} 1");
  ASSERT_OK(lender().run("pcilend segment withdraw " + id_));
  ASSERT_NO_FATAL_FAILURE(expect_user_lost_it());
  ASSERT_NO_FATAL_FAILURE(end_owner(lender()));
  metric(lender(), "pcilend_segments 0");
  monitor->interrupt();
  const auto ended = monitor->wait();
  ASSERT_OK(ended);
  std::vector<std::string> states;
  for (const auto& line : lines(ended->out)) {
    if (line.at("event") == "segment-gone") states.emplace_back("gone");
    if (line.at("event") == "segment") states.push_back(line.at("segment").at("state"));
  }
  states.erase(std::unique(states.begin(), states.end()), states.end());
  EXPECT_THAT(states, testing::ElementsAre("created", "offered", "connected", "withdrawn", "gone"));
}

TEST_F(Segments, BadInputIsRefused) {
  ASSERT_NO_FATAL_FAILURE(create(lender(), "--size 64K --name some"));
  const auto refused = [&](const lab::Host& host, const std::string& command, int code,
                           const char* text) {
    const auto said = host.exec("pcilend segment " + command);
    ASSERT_OK(said);
    EXPECT_EQ(said->code, code) << command << ": " << said->err;
    EXPECT_THAT(said->err, HasSubstr(text)) << command;
  };
  refused(lender(), "create --size 0", 2, "--size 0");
  // Newer kernels have none, unless somebody sets one.
  constexpr const char* kLimit = "/sys/module/udmabuf/parameters/size_limit_mb";
  const auto limit = lender().run(fmt::format("cat {0} && echo 64 >{0}", kLimit));
  ASSERT_OK(limit);
  refused(lender(), "create --size 65M", 2, "size_limit_mb");
  ASSERT_OK(lender().run(fmt::format("echo {} >{}", std::stoi(*limit), kLimit)));
  refused(lender(), "offer " + id_ + " 4", 2, "another node");
  refused(lender(), "offer " + id_ + " 12", 6, "no link to node 12");
  refused(lender(), "offer 4ffff 8", 3, "no segment with that id");
  refused(lender(), "withdraw " + id_ + " 8", 4, "not offered to node 8");
  refused(lender(), "connect " + id_, 2, "of another node");
  refused(borrower(), "connect " + id_, 3, "node 4 offers this host no segment");
  refused(borrower(), "connect c0001", 6, "no link to its owner, node 12");
  ASSERT_OK(lender().run("pcilend segment offer " + id_ + " 8"));
  refused(lender(), "offer --read-only " + id_ + " 8", 4, "another right");
  ASSERT_NO_FATAL_FAILURE(end_owner(lender()));
}

}  // namespace
}  // namespace pcilend::scenarios
