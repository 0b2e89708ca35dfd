// SPDX-License-Identifier: GPL-2.0-or-later
// What a client of a shared function can do to the others, and what it can't (docs/device-api.md).
#include "scenarios/lending/shared_lease.h"
#include "testing/swept.h"

namespace pcilend::scenarios {
namespace {

using json = nlohmann::json;
using testing::HasSubstr;

constexpr const char* kIntruder = "/usr/lib/pcilend-lab/nvme-intruder";

// Of the function's addresses, that of the first host with clients (slice.h).
constexpr uint64_t kAlias = 0xfe000000;

// Bytes of BARs that host2 finds at these offsets of what host1 exports to it.
uint64_t bars_in_reach(lab::Lab& lab, std::initializer_list<std::pair<uint64_t, uint64_t>> where) {
  constexpr SweepPlan kPlan;
  std::vector<lab::SweepRange> ranges;
  for (const auto& [offset, length] : where)
    ranges.push_back(
        {.window = kPlan.exports, .offset = kPlan.exports_offset + offset, .length = length});
  const auto swept = lab.fabric().sweep(1, 2, ranges);
  EXPECT_OK(swept);
  uint64_t bytes = 0;
  for (const lab::SweepHit& hit : swept ? swept->answered : std::vector<lab::SweepHit>())
    bytes += hit.target == "bar" ? hit.length : 0;
  return bytes;
}

/*
 *   host2: client ── kill -9 ── manager: is told, and before it confirms
 *                                 has edu write to the slice ── no fault on any host
 *                                 joins itself ──────────────── gets another slice, other pages
 *                                 answers its question ──────── refused
 *          its kernel, and any other way there, reach none of the pages that it had
 */
TEST_F(SharedLease, WhatAClientHadIsNobodysUntilItsEndIsConfirmed) {
  for (const char* fault : kSweepFaults) expected_.emplace_back(fault);
  auto keeper = manager("3", "late /run/again");
  ASSERT_OK(keeper);
  ASSERT_OK(await_state(lab_->host(2), id_, "borrowed"));
  // The manager has to confirm within 5 s, so what is looked at may come too late.
  bool in_time = false;
  for (size_t round = 1; round <= 5 && !in_time && !HasFailure(); ++round) {
    auto client = ShareUser::start(lab_->host(2), "join", id_, "map 4096 ask what");
    ASSERT_OK(client);
    ASSERT_OK(keeper->await("asked", round));
    // One page that all clients have, and its own four; no others: a fault that nobody expects may
    // not be told behind many.
    EXPECT_EQ(bars_in_reach(*lab_, {{0, 0x1000}, {0x4000, 0x4000}}), 0x5000U);
    const json had = *client->said("joined");
    ASSERT_OK(client->kill());
    ASSERT_OK(keeper->await("pried", round));
    const uint64_t reached = bars_in_reach(*lab_, {{0, 1 << 20}});
    in_time = keeper->times("confirmed") < round;
    ASSERT_OK(lender().run("touch /run/again"));
    ASSERT_OK(keeper->await("confirmed", round));
    const json pried = *keeper->said("pried");
    EXPECT_NE(pried.at("slice"), had.at("slice"));
    EXPECT_NE(pried.at("piece"), had.at("piece"));
    EXPECT_THAT(pried.at("answer").get<std::string>(), HasSubstr("waits for no answer"));
    if (in_time) EXPECT_EQ(reached, 0U);
    EXPECT_OK(await_clients(lender(), id_, 0));
    ASSERT_OK(lender().run("rm /run/again"));
  }
  EXPECT_TRUE(in_time);
  ASSERT_OK(keeper->kill());
}

/*
 *   host1: manager ── nvme ──┬── queue, page, interrupt of a client of host2
 *                            └── queue of an intruder, on host3
 *
 *   intruder: a command with the address of the other's page ── it is written to
 *             commands with addresses of host2's interrupts ─── the other's is raised
 *             rings the other's doorbell ── its queue is lost, and no command of it is repeated
 *             registers, the table of interrupts, configuration ── can't be had
 */
TEST_F(SharedLease, AClientDoesToOthersWhatNothingPreventsAndNoMore) {
  // Messages to interrupts of host2 that there are not.
  expected_.emplace_back("DMAR: DRHD: handling fault status reg");
  expected_.emplace_back(R"(DMAR: \[INTR-REMAP\] Request device)");
  const auto address = lender().address(1);
  ASSERT_OK(address);
  const auto offered = offer(lender(), *address);
  ASSERT_OK(offered);
  const std::string drive = offered->at("id");
  auto manager = lender().start(
      fmt::format("echo $$ >/run/manager; exec pcilend-nvme-manager {} 2>&1", *address),
      {{}, std::chrono::minutes(10)});
  ASSERT_OK(manager);
  ASSERT_OK(lender().until("true", [&](const lab::Output&) {
    return manager->ended() || manager->output_so_far().find("is shared") != std::string::npos;
  }));
  for (int host : {2, 3}) ASSERT_OK(await_state(lab_->host(host), drive, "borrowed"));

  auto victim = ShareUser::start(lab_->host(2), "join", drive,
                                 "buffer changed wait /run/again changed struck write 100 1 "
                                 "wait /run/end-rung lost",
                                 kIntruder);
  ASSERT_OK(victim);
  ASSERT_OK(victim->await("waiting"));
  EXPECT_EQ(victim->said("changed")->at("changed"), false);
  std::string steps = fmt::format("write 8 7 strike 8 {} wait /run/again",
                                  victim->said("buffer")->at("address").get<uint64_t>());
  // 512 bytes of zeroes, again and again: all that could be messages of 16 interrupts each.
  for (uint64_t at = 0; at < 0x2000; at += 512) steps += fmt::format(" strike 9 {}", kAlias + at);
  // QEMU looks at a doorbell after it was rung: two of one queue, without a command between them
  // that is waited for, can count as the last one, which changes nothing here.
  steps += " wait /run/end-struck write 100 2 ring 1 0 write 101 3 ring 1 1";
  steps += " wait /run/end-lost check 100 2";
  auto intruder = ShareUser::start(lab_->host(3), "join", drive, steps, kIntruder);
  ASSERT_OK(intruder);

  ASSERT_OK(intruder->await("waiting"));
  ASSERT_OK(lab_->host(2).run("touch /run/again"));
  ASSERT_OK(victim->await("waiting", 2));
  EXPECT_EQ(victim->said("changed")->at("changed"), true) << "its page, by a command";
  ASSERT_OK(lab_->host(3).run("touch /run/again"));
  ASSERT_OK(victim->await("struck"));
  EXPECT_GT(victim->said("struck")->at("more"), 0) << "its interrupt, by a command";

  ASSERT_OK(victim->await("waiting", 3));
  ASSERT_OK(intruder->await("waiting", 2));
  ASSERT_OK(lab_->host(3).run("touch /run/end-struck"));
  ASSERT_OK(intruder->await("waiting", 3));
  ASSERT_OK(lab_->host(2).run("touch /run/end-rung"));
  ASSERT_OK(victim->end());
  EXPECT_THAT(victim->said("lost")->at("lost").get<std::string>(),
              HasSubstr("was reset by others, taken back, or its link was lost"));
  ASSERT_OK(lab_->host(3).run("touch /run/end-lost"));
  ASSERT_OK(intruder->end());
  EXPECT_EQ(intruder->said("check")->at("same"), true) << "the other's write is not repeated";

  for (int host : {1, 3}) {
    auto curious = ShareUser::start(lab_->host(host), "client", drive, "4", kIntruder);
    ASSERT_OK(curious);
    ASSERT_OK(curious->end());
    const json pages = curious->said("pages")->at("pages");
    EXPECT_EQ(pages.at("1"), "not refused") << "doorbells";
    for (const char* page : {"0", "2", "3"})
      EXPECT_THAT(pages.at(page).get<std::string>(), HasSubstr("other pages of BARs")) << page;
  }
  EXPECT_OK(lab_->host(3).run("! grep 0x010802 /sys/bus/pci/devices/*/class"));

  ASSERT_OK(lender().run("kill $(cat /run/manager)"));
  const auto ended = manager->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->out;
  ASSERT_OK(await_state(lender(), drive, "available"));
  ASSERT_OK(lender().run(fmt::format("pcilend unavailable {0} && pcilend remove {0}", drive)));
}

}  // namespace
}  // namespace pcilend::scenarios
