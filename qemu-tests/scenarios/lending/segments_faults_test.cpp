// SPDX-License-Identifier: GPL-2.0-or-later
// Segments whose owner, user or link goes away while they are used.
#include <gmock/gmock.h>

#include <cstdlib>
#include <random>

#include "scenarios/lending/segments.h"

namespace pcilend::scenarios {
namespace {

using json = nlohmann::json;
using namespace std::chrono_literals;
using testing::HasSubstr;

class SegmentFaults : public Segments {
 protected:
  // What is still loaded when a segment is unmapped is stopped by the owner's IOMMU.
  void expect_stopped_loads() {
    expect_in_log("^DMAR: DRHD: handling fault status reg");
    expect_in_log(
        "^DMAR: \\[DMA (Read|Write) NO_PASID\\] Request device \\[(0000:)?00:04\\.0\\] fault addr "
        "0x2[0-9a-f]{8} ");
  }

  // A program that goes on, once it has said `word`.
  static std::optional<lab::Running> begin(const lab::Host& host, const std::string& what,
                                           const std::string& word) {
    auto started = host.start(fmt::format("exec {} {}", kSegmentUser, what), {{}, kLong});
    EXPECT_OK(started);
    if (!started) return {};
    const auto there = host.until("true", [&](const lab::Output&) {
      return started->ended() || started->output_so_far().find(word) != std::string::npos;
    });
    EXPECT_OK(there);
    EXPECT_FALSE(started->ended()) << what << ": " << started->output_so_far();
    if (started->ended()) return {};
    return std::move(*started);
  }
  // An owner of 64 KiB that are offered to the other host.
  static std::optional<lab::Running> own(const lab::Host& host, const lab::Host& other,
                                         const std::string& steps) {
    return begin(host, fmt::format("create {},65536 {}", other.node(), steps), "\"id\"");
  }
  static std::string id_of(const lab::Running& owner) {
    return lines(owner.output_so_far()).front().at("id");
  }
  static std::optional<lab::Running> use_under_traffic(const lab::Host& host, const std::string& id,
                                                       uint64_t seed) {
    return begin(host, fmt::format("connect {} traffic {} lost", id, seed), "\"traffic\"");
  }
  // It was lost under traffic, and nothing that was through was wrong.
  static uint64_t expect_traffic_ended(lab::Running& user) {
    const auto ended = user.wait();
    EXPECT_OK(ended);
    if (!ended) return 0;
    EXPECT_EQ(ended->code, 0) << ended->err << ended->out;
    uint64_t checked = 0;
    bool lost = false;
    for (const auto& line : lines(ended->out)) {
      if (!line.contains("step")) continue;
      if (line.at("step") == "lost") lost = line.at("lost");
      if (line.at("step") != "traffic") continue;
      EXPECT_EQ(line.at("wrong"), 0) << line;
      checked = line.at("checked");
    }
    EXPECT_TRUE(lost) << ended->out;
    return checked;
  }
  static Result<> kill(const lab::Host& host, const std::string& pattern) {
    PCILEND_TRY(host.run("pkill -KILL -f '" + pattern + "'"));
    return {};
  }
  // What of a host's metrics is about segments, and its aperture.
  static std::string metrics_of(const lab::Host& host) {
    const auto text =
        host.run("pcilend metrics | grep -E '^pcilend_(segment|aperture_used|link_leases|links)'");
    EXPECT_OK(text);
    return text.value_or("");
  }
  // Nothing of segments is left on either, sooner or later.
  void expect_as_before(const std::string& before1, const std::string& before2) const {
    const std::pair<const lab::Host*, const std::string*> both[] = {{&lender(), &before1},
                                                                    {&borrower(), &before2}};
    for (const auto& one : both) {
      EXPECT_OK(lab::eventually(one.first->name() + " is as before", lab::kPatience,
                                [&] { return metrics_of(*one.first) == *one.second; }));
      EXPECT_EQ(metrics_of(*one.first), *one.second);
    }
  }
};

/*
 *   host1, owner ── power cut ──    host2: traffic, then all-ones
 *   boots, owns again ────────────> connects the new one
 */
TEST_F(SegmentFaults, AnOwnersHostMayDie) {
  auto owner = own(lender(), borrower(), "stay");
  ASSERT_TRUE(owner);
  const std::string id = id_of(*owner);
  auto user = use_under_traffic(borrower(), id, 1);
  ASSERT_TRUE(user);
  ASSERT_OK(lender().power_off());
  expect_traffic_ended(*user);
  expect_listed(borrower(), 0);
  const auto refused = borrower().exec(fmt::format("{} connect {} epoch", kSegmentUser, id));
  ASSERT_OK(refused);
  EXPECT_EQ(refused->code, 6) << refused->err;
  lender().forget_log();
  ASSERT_OK(lender().power_on());
  for (const auto* host : {&lender(), &borrower()}) ASSERT_OK(await_links_up(*host));

  auto next = own(lender(), borrower(), "stay");
  ASSERT_TRUE(next);
  ASSERT_OK(
      borrower().until(fmt::format("{} connect {} fill 2 check 2", kSegmentUser, id_of(*next))));
  next->interrupt();
  ASSERT_OK(next->wait());
  expect_listed(borrower(), 0);
}

/*
 *   host1, owner: offers it again <── boots ── host2: power cut under traffic, connects again
 */
TEST_F(SegmentFaults, AUsersHostMayBoot) {
  auto owner = own(lender(), borrower(), "booted stay");
  ASSERT_TRUE(owner);
  const std::string id = id_of(*owner);
  auto user = use_under_traffic(borrower(), id, 1);
  ASSERT_TRUE(user);
  borrower().forget_log();
  ASSERT_OK(borrower().reset());
  user.reset();
  ASSERT_OK(await_links_up(lender()));
  ASSERT_OK(lender().until("true", [&](const lab::Output&) {
    return owner->ended() || owner->output_so_far().find("booted") != std::string::npos;
  }));
  EXPECT_THAT(owner->output_so_far(), HasSubstr("\"booted\":true")) << owner->output_so_far();
  ASSERT_OK(borrower().until(fmt::format("{} connect {} fill 2 check 2", kSegmentUser, id)));
  owner->interrupt();
  ASSERT_OK(owner->wait());
  expect_listed(lender(), 0);
}

/*
 *   one host owns, the other has traffic; then, at random: kill -9 of the user, of the owner,
 *   withdrawn, the link flaps; PCILEND_SEGMENT_ROUNDS times
 */
TEST_F(SegmentFaults, RoundsLeaveNothingBehind) {
  const char* const wanted = std::getenv("PCILEND_SEGMENT_ROUNDS");
  const int rounds = wanted ? std::atoi(wanted) : 20;
  constexpr unsigned kSeed = 26;
  expect_stopped_loads();
  const std::string before1 = metrics_of(lender());
  const std::string before2 = metrics_of(borrower());
  std::minstd_rand random(kSeed);
  uint64_t checked = 0;
  int kinds[4] = {};
  for (int round = 1; round <= rounds && !HasFailure(); ++round) {
    SCOPED_TRACE(fmt::format("round {} of seed {}", round, kSeed));
    const bool swapped = random() % 2;
    const lab::Host& owners = swapped ? borrower() : lender();
    const lab::Host& users = swapped ? lender() : borrower();
    auto owner = own(owners, users, "stay");
    ASSERT_TRUE(owner);
    const std::string id = id_of(*owner);
    auto user = use_under_traffic(users, id, random());
    ASSERT_TRUE(user);
    const unsigned kind = random() % 4;
    ++kinds[kind];
    if (kind == 0) {
      ASSERT_OK(kill(users, "segment-use[r] connect"));
      ASSERT_OK(user->wait());
    } else if (kind == 1) {
      ASSERT_OK(kill(owners, "segment-use[r] create"));
      checked += expect_traffic_ended(*user);
    } else if (kind == 2) {
      ASSERT_OK(owners.run("pcilend segment withdraw " + id));
      checked += expect_traffic_ended(*user);
    } else {
      ASSERT_OK(lab_->fabric().flap(1, 2, std::chrono::milliseconds(20 + random() % 200)));
      checked += expect_traffic_ended(*user);
      for (const auto* host : {&owners, &users}) ASSERT_OK(await_links_up(*host));
    }
    if (kind != 1) owner->interrupt();
    ASSERT_OK(owner->wait());
  }
  expect_as_before(before1, before2);
  EXPECT_GT(checked, 0U);
  fmt::print(stderr,
             "-- {} rounds: {} users killed, {} owners killed, {} withdrawn, {} flaps; {} blocks "
             "were through and right\n",
             rounds, kinds[0], kinds[1], kinds[2], kinds[3], checked);
}

/*
 *   host1, owner, and host2, user: neither sleeps
 */
TEST_F(SegmentFaults, NobodySleepsMeanwhile) {
  auto owner = own(lender(), borrower(), "stay");
  ASSERT_TRUE(owner);
  auto user = begin(borrower(), fmt::format("connect {} lost", id_of(*owner)), "\"lost\"");
  ASSERT_TRUE(user);
  for (const auto* host : {&lender(), &borrower()}) {
    const auto sleep = host->exec("echo freeze >/sys/power/state");
    ASSERT_OK(sleep);
    EXPECT_NE(sleep->code, 0);
    EXPECT_THAT(host->log(), HasSubstr("no sleep while segments are offered or connected"));
  }
  owner->interrupt();
  ASSERT_OK(owner->wait());
  ASSERT_OK(user->wait());
}

}  // namespace
}  // namespace pcilend::scenarios
