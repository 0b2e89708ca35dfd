// SPDX-License-Identifier: GPL-2.0-or-later
// A function that several processes have at once: one manages it (docs/device-api.md).
#include "scenarios/lending/shared_lease.h"

#include "scenarios/lending/stand_still.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::json;
using testing::HasSubstr;

/*
 *   manager serves; two clients copy at the same time, each between segments of its own
 */
TEST_F(SharedLease, TwoClientsHaveItAtOnce) {
  auto keeper = manager("2");
  ASSERT_OK(keeper);
  auto a = running(lender(), "a");
  ASSERT_OK(a);
  auto b = running(lender(), "b");
  ASSERT_OK(b);
  ASSERT_OK(keeper->await("joined", 2));
  EXPECT_NE(a->said("joined")->at("slice"), b->said("joined")->at("slice"));
  EXPECT_NE(a->said("joined")->at("pages"), b->said("joined")->at("pages"));

  const auto listed = function_on(lender(), id_);
  ASSERT_OK(listed);
  EXPECT_EQ(listed->at("state"), "borrowed");
  EXPECT_EQ(listed->at("borrower"), lender().node()) << "its manager";
  EXPECT_EQ(listed->at("shared"), true);
  const json client = {
      {"node", lender().node()}, {"lease", a->said("joined")->at("lease")}, {"state", "active"}};
  EXPECT_EQ(listed->at("clients").at(0), client);
  EXPECT_EQ(listed->at("clients").size(), 2U);
  EXPECT_OK(lender().run("pcilend list | grep ', shared by 2'"));
  EXPECT_OK(lender().run("pcilend show " + id_ + " | grep 'client: *node 4 (this host), lease'"));
  EXPECT_OK(lab_->host(2).until("pcilend list | grep ', shared'"));

  ASSERT_OK(lender().run("touch /run/end-a /run/end-b"));
  for (auto* user : {&*a, &*b}) {
    ASSERT_OK(user->end());
    EXPECT_EQ(user->said("copy")->at("same"), true);
    EXPECT_GT(user->said("run")->at("copies"), 0);
    EXPECT_EQ(user->said("run")->at("wrong"), 0);
  }
  ASSERT_OK(keeper->await("gone", 2));
  EXPECT_OK(await_clients(lender(), id_, 0));
  ASSERT_OK(keeper->kill());
  for (const char* action : {"borrow", "share", "join", "leave", "return"})
    EXPECT_OK(lender().run(
        fmt::format("dmesg | grep 'audit: uid=0 action={} function={} result=0'", action, id_)));
}

/*
 *   client a, while it copies ── kill -9; b goes on. Then the next one has its place
 */
TEST_F(SharedLease, AClientThatIsKilledDisturbsNobody) {
  auto keeper = manager("2");
  ASSERT_OK(keeper);
  auto b = running(lender(), "b", "state");
  ASSERT_OK(b);
  for (size_t gone = 1; gone < 6; gone += 2) {
    auto a = running(lender(), "a");
    ASSERT_OK(a);
    const json had = *a->said("joined");
    EXPECT_OK(await_clients(lender(), id_, 2));
    ASSERT_OK(a->kill());
    ASSERT_OK(keeper->await("gone", gone));
    EXPECT_EQ(keeper->said("gone")->at("lease"), had.at("lease"));
    EXPECT_OK(await_clients(lender(), id_, 1));
    auto next = ShareUser::start(lender(), "join", id_, "map 4096 copy");
    ASSERT_OK(next);
    ASSERT_OK(next->end());
    EXPECT_EQ(next->said("joined")->at("slice"), had.at("slice"));
    EXPECT_EQ(next->said("joined")->at("piece"), had.at("piece"));
    EXPECT_EQ(next->said("copy")->at("same"), true);
    EXPECT_OK(await_clients(lender(), id_, 1));
  }
  ASSERT_OK(lender().run("touch /run/end-b"));
  ASSERT_OK(b->end());
  EXPECT_GT(b->said("run")->at("copies"), 0);
  EXPECT_EQ(b->said("run")->at("wrong"), 0);
  EXPECT_EQ(b->said("state")->at("epoch"), 0);
  EXPECT_OK(await_clients(lender(), id_, 0));
  ASSERT_OK(keeper->kill());
}

/*
 *   manager is told of the end of client a, and confirms nothing for 5 s: all lose the function
 */
TEST_F(SharedLease, AManagerThatIsSilentCostsTheFunction) {
  expected_.emplace_back("has not confirmed in time");
  auto keeper = manager("2", "mute");
  ASSERT_OK(keeper);
  auto b = ShareUser::start(lender(), "join", id_, "map 4096 copy over ones");
  ASSERT_OK(b);
  ASSERT_OK(b->await("waiting"));
  auto a = ShareUser::start(lender(), "join", id_, "map 4096 copy wait /run/end-a");
  ASSERT_OK(a);
  ASSERT_OK(a->await("waiting"));
  ASSERT_OK(a->kill());
  ASSERT_OK(keeper->await("gone"));
  const auto clearing = await_clients(lender(), id_, 2);
  ASSERT_OK(clearing);
  ASSERT_OK(b->end());
  EXPECT_EQ(b->said("over")->at("over"), true);
  EXPECT_EQ(b->said("ones")->at("ones"), true);
  for (const char* request : {"map", "bar"})
    EXPECT_THAT(b->said("ones")->at(request).get<std::string>(), HasSubstr("the lease is over"));
  ASSERT_OK(keeper->end());
  EXPECT_EQ(keeper->said("mute")->at("over"), true);
  ASSERT_OK(await_state(lender(), id_, "available"));
  EXPECT_OK(await_clients(lender(), id_, 0));
}

/*
 *   manager ── kill -9: nobody could confirm anything, so all lose the function
 */
TEST_F(SharedLease, WhenItsManagerDiesAllLoseIt) {
  auto keeper = manager("2");
  ASSERT_OK(keeper);
  auto a = ShareUser::start(lender(), "join", id_, "map 4096 copy over ones");
  ASSERT_OK(a);
  ASSERT_OK(a->await("waiting"));
  ASSERT_OK(keeper->kill());
  ASSERT_OK(a->end());
  EXPECT_EQ(a->said("over")->at("over"), true);
  EXPECT_EQ(a->said("ones")->at("ones"), true);
  ASSERT_OK(await_state(lender(), id_, "available"));
  // And it can be managed anew.
  auto next = manager("1");
  ASSERT_OK(next);
  auto b = ShareUser::start(lender(), "join", id_, "map 4096 copy");
  ASSERT_OK(b);
  ASSERT_OK(b->end());
  EXPECT_EQ(b->said("copy")->at("same"), true);
  EXPECT_OK(await_clients(lender(), id_, 0));
  ASSERT_OK(next->kill());
}

/*
 *   host1 (lender): manager         host2 (node 8): client ══ NTB ══╗
 *   edu ── IOMMU ── a slice each    host3 (node 12): client ══ NTB ═╩═> pages of edu's BAR
 *
 * Three hosts hold one function at once. To map takes no message, as its slice is the window's.
 */
TEST_F(SharedLease, ThreeHostsHaveItAtOnce) {
  auto keeper = manager("3");
  ASSERT_OK(keeper);
  std::vector<ShareUser> clients;
  for (int number : {1, 2, 3}) {
    ASSERT_OK(await_state(lab_->host(number), id_, "borrowed"));
    auto client = ShareUser::start(lab_->host(number), "join", id_,
                                   "map 8192 copy wait /run/again map 4096 copy denied");
    ASSERT_OK(client);
    ASSERT_OK(client->await("waiting"));
    clients.push_back(std::move(*client));
  }
  const auto listed = await_clients(lender(), id_, 3);
  ASSERT_OK(listed);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(listed->at(i).at("node"), lab_->host(static_cast<int>(i) + 1).node());
    EXPECT_EQ(listed->at(i).at("state"), "active");
    EXPECT_EQ(clients[i].said("copy")->at("same"), true);
  }
  EXPECT_OK(lab_->host(2).run("pcilend list | grep ', shared'"));
  // What a node has it keeps the right to.
  const int other = lab_->host(2).node();
  const std::pair<std::string, const char*> refusals[] = {
      {fmt::format("pcilend disconnect {}", other), "it borrows functions of this host"},
      {fmt::format("pcilend allow {} {}", address_, lab_->host(3).node()), "of node 8 share it"},
  };
  for (const auto& [command, text] : refusals) {
    const auto refused = lender().exec(command);
    ASSERT_OK(refused);
    EXPECT_EQ(refused->code, static_cast<int>(ErrorClass::State)) << command;
    EXPECT_THAT(refused->err, HasSubstr(text));
  }
  // One after the other: edu has one set of registers.
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_OK(lab_->host(static_cast<int>(i) + 1).run("touch /run/again"));
    ASSERT_OK(clients[i].end());
    EXPECT_EQ(clients[i].said("copy")->at("same"), true);
    const json denied = *clients[i].said("denied");
    EXPECT_EQ(denied.at("its own pages"), "not refused");
    EXPECT_THAT(denied.at("another's pages").get<std::string>(), HasSubstr("other pages of BARs"));
    EXPECT_THAT(denied.at("a page of nobody").get<std::string>(), HasSubstr("other pages of BARs"));
    if (i == 0)
      EXPECT_THAT(denied.at("one client more").get<std::string>(),
                  HasSubstr("as many clients as it may have"));
  }
  EXPECT_OK(await_clients(lender(), id_, 0));
  ASSERT_OK(keeper->kill());
}

/*
 *   host2: client ── kill -9, three times; host3: client copies all the time
 */
TEST_F(SharedLease, AClientOfAnotherHostThatIsKilledDisturbsNobody) {
  auto keeper = manager("2");
  ASSERT_OK(keeper);
  ASSERT_OK(await_state(lab_->host(3), id_, "borrowed"));
  auto b = running(lab_->host(3), "b", "state");
  ASSERT_OK(b);
  for (size_t gone = 1; gone <= 3; ++gone) {
    auto a = ShareUser::start(lab_->host(2), "join", id_, "map 4096 wait /run/end-a");
    ASSERT_OK(a);
    ASSERT_OK(a->await("waiting"));
    EXPECT_OK(await_clients(lender(), id_, 2));
    ASSERT_OK(a->kill());
    ASSERT_OK(keeper->await("gone", gone));
    EXPECT_EQ(keeper->said("gone")->at("node"), lab_->host(2).node());
    EXPECT_OK(await_clients(lender(), id_, 1));
  }
  ASSERT_OK(lab_->host(3).run("touch /run/end-b"));
  ASSERT_OK(b->end());
  EXPECT_GT(b->said("run")->at("copies"), 0);
  EXPECT_EQ(b->said("run")->at("wrong"), 0);
  EXPECT_EQ(b->said("state")->at("epoch"), 0);
  EXPECT_OK(await_clients(lender(), id_, 0));
  ASSERT_OK(keeper->kill());
}

/*
 *   host2: client ══╳══ NTB: quarantined, and readmitted when the link is back; host3 goes on
 */
TEST_F(SharedLease, AFlapCostsOneClientAnEpochAndTheOthersNothing) {
  auto keeper = manager("2");
  ASSERT_OK(keeper);
  ASSERT_OK(await_state(lab_->host(3), id_, "borrowed"));
  auto a = ShareUser::start(lab_->host(2), "join", id_, "map 4096 copy wait /run/end-a state copy");
  ASSERT_OK(a);
  ASSERT_OK(a->await("waiting"));
  auto b = running(lab_->host(3), "b", "state");
  ASSERT_OK(b);
  ASSERT_OK(lab_->fabric().link_down(1, 2));
  ASSERT_OK(keeper->await("quarantined"));
  EXPECT_EQ(keeper->said("quarantined")->at("node"), lab_->host(2).node());
  ASSERT_OK(lab_->fabric().link_up(1, 2));
  ASSERT_OK(lender().until("pcilend list --json", [&](const lab::Output&) {
    const auto function = function_on(lender(), id_);
    return function && std::ranges::all_of(function->at("clients"), [](const json& client) {
             return client.at("state") == "active";
           });
  }));
  ASSERT_OK(lab_->host(3).run("touch /run/end-b"));
  ASSERT_OK(b->end());
  EXPECT_EQ(b->said("run")->at("wrong"), 0);
  EXPECT_EQ(b->said("state")->at("epoch"), 0);
  ASSERT_OK(lab_->host(2).run("touch /run/end-a"));
  ASSERT_OK(a->end());
  EXPECT_GT(a->said("state")->at("epoch"), 0);
  EXPECT_EQ(a->said("state")->at("over"), false);
  EXPECT_EQ(a->said("copy")->at("same"), true);
  EXPECT_EQ(a->times("copy"), 2U);
  EXPECT_OK(await_clients(lender(), id_, 0));
  ASSERT_OK(keeper->kill());
}

/*
 *   host2: client ══╳══ NTB, and host1's manager dies meanwhile: the client hears of it when the
 *   link is back, long before its lease time is over
 */
TEST_F(SharedLease, AClientHearsOfItsEndWhenTheLinkIsBack) {
  auto keeper = manager("2");
  ASSERT_OK(keeper);
  ASSERT_OK(await_state(lab_->host(2), id_, "borrowed"));
  auto a = ShareUser::start(lab_->host(2), "join", id_, "map 4096 copy over ones");
  ASSERT_OK(a);
  ASSERT_OK(a->await("waiting"));
  ASSERT_OK(lab_->fabric().link_down(1, 2));
  ASSERT_OK(keeper->await("quarantined"));
  ASSERT_OK(keeper->kill());
  ASSERT_OK(await_state(lender(), id_, "available"));
  ASSERT_OK(lab_->fabric().link_up(1, 2));
  ASSERT_OK(a->end());
  EXPECT_EQ(a->said("over")->at("over"), true);
  EXPECT_EQ(a->said("ones")->at("ones"), true);
  EXPECT_OK(await_state(lab_->host(2), id_, "available"));
}

/*
 *   manager: admits nobody any more ── client: unmaps, and frees ── manager, which has not
 * confirmed the client's end yet: has the device write there, which the IOMMU stops
 */
TEST_F(SharedLease, WhatAClientUnmapsIsNotReachedWhenItsLeaseIsOver) {
  constexpr const char* kFault =
      R"(DMAR: \[DMA Write NO_PASID\] Request device \[[0-9a-f:.]*\] fault addr )";
  expected_.emplace_back("DMAR: DRHD: handling fault status reg");
  expected_.emplace_back(kFault);
  auto keeper = ShareUser::start(lender(), "manage", id_,
                                 "share 2 wait /run/end-k share 0 wait /run/again probe");
  ASSERT_OK(keeper);
  ASSERT_OK(keeper->await("waiting"));
  auto a = ShareUser::start(lender(), "join", id_, "map 4096 copy over unmap wait /run/end-a");
  ASSERT_OK(a);
  ASSERT_OK(a->await("waiting"));
  ASSERT_OK(lender().run("touch /run/end-k"));
  ASSERT_OK(a->await("unmap"));
  ASSERT_OK(lender().run("touch /run/again"));
  ASSERT_OK(keeper->await("probed"));
  EXPECT_OK(lender().until(fmt::format("dmesg | grep '{}{:#x}'", kFault,
                                       keeper->said("probed")->at("address").get<uint64_t>())));
  ASSERT_OK(lender().run("touch /run/end-a"));
  ASSERT_OK(a->end());
  EXPECT_OK(await_clients(lender(), id_, 0));
  ASSERT_OK(keeper->kill());
}

/*
 *   host1: manager ── kill -9: the clients on host2 and host3 find all-ones
 */
TEST_F(SharedLease, WhenItsManagerDiesOtherHostsLoseItToo) {
  auto keeper = manager("2");
  ASSERT_OK(keeper);
  std::vector<ShareUser> clients;
  for (int number : {2, 3}) {
    ASSERT_OK(await_state(lab_->host(number), id_, "borrowed"));
    auto client = ShareUser::start(lab_->host(number), "join", id_, "map 4096 copy over ones");
    ASSERT_OK(client);
    ASSERT_OK(client->await("waiting"));
    clients.push_back(std::move(*client));
  }
  ASSERT_OK(keeper->kill());
  for (auto& client : clients) {
    ASSERT_OK(client.end());
    EXPECT_EQ(client.said("over")->at("over"), true);
    EXPECT_EQ(client.said("ones")->at("ones"), true);
  }
  ASSERT_OK(await_state(lender(), id_, "available"));
}

/*
 *   host2: client ── power off: over when its lease time is; host3 goes on; host2 boots, and joins
 * anew
 */
TEST_F(SharedLease, AHostThatDiesDisturbsNobodyAndMayComeBack) {
  auto keeper = manager("2");
  ASSERT_OK(keeper);
  ASSERT_OK(await_state(lab_->host(3), id_, "borrowed"));
  auto a = ShareUser::start(lab_->host(2), "join", id_, "map 4096 copy wait /run/end-a");
  ASSERT_OK(a);
  ASSERT_OK(a->await("waiting"));
  auto b = running(lab_->host(3), "b", "state");
  ASSERT_OK(b);
  ASSERT_OK(lab_->host(2).power_off());
  ASSERT_OK(keeper->await("gone"));
  EXPECT_EQ(keeper->said("gone")->at("node"), lab_->host(2).node());
  EXPECT_OK(await_clients(lender(), id_, 1));
  ASSERT_OK(lab_->host(2).power_on());
  ASSERT_OK(await_state(lab_->host(2), id_, "borrowed"));
  ASSERT_OK(lab_->host(3).run("touch /run/end-b"));
  ASSERT_OK(b->end());
  EXPECT_GT(b->said("run")->at("copies"), 0);
  EXPECT_EQ(b->said("run")->at("wrong"), 0);
  EXPECT_EQ(b->said("state")->at("epoch"), 0);
  auto again = ShareUser::start(lab_->host(2), "join", id_, "map 4096 copy");
  ASSERT_OK(again);
  ASSERT_OK(again->end());
  EXPECT_EQ(again->said("copy")->at("same"), true);
  EXPECT_OK(await_clients(lender(), id_, 0));
  ASSERT_OK(keeper->kill());
}

/*
 *   host2: JOIN ── host1, whose CPUs stand still: host2's process gives up ── they go on: host1
 *   grants it, once, is asked again, and gets it back
 */
TEST_F(SharedLease, AJoinThatIsGrantedTooLateIsReturned) {
  auto keeper = manager("2");
  ASSERT_OK(keeper);
  ASSERT_OK(await_state(lab_->host(2), id_, "borrowed"));
  auto still = StandStill::start(lender(), 12s);
  ASSERT_OK(still);
  // The host stands still 100 ms after it has said so.
  const auto late =
      lab_->host(2).exec(fmt::format("sleep 0.5; {} join {} state", kShareUser, id_), {{}, 1min});
  ASSERT_OK(late);
  EXPECT_NE(late->code, 0);
  EXPECT_THAT(late->out + late->err, HasSubstr("its lender does not answer"));
  EXPECT_FALSE(still->is_over());
  ASSERT_OK(still->end());
  ASSERT_OK(keeper->await("gone"));
  EXPECT_OK(await_clients(lender(), id_, 0));
  // A manager that is late to look is told of the end only.
  EXPECT_LE(keeper->times("joined"), 1U);
  EXPECT_EQ(keeper->times("gone"), 1U);
  auto next = ShareUser::start(lab_->host(2), "join", id_, "map 4096 copy");
  ASSERT_OK(next);
  ASSERT_OK(next->end());
  EXPECT_EQ(next->said("copy")->at("same"), true);
  EXPECT_OK(await_clients(lender(), id_, 0));
  ASSERT_OK(keeper->kill());
}

/*
 *   manager and client a map piece after piece ── what is left is client b's
 */
TEST_F(SharedLease, AClientThatMapsAllItMayLeavesTheOthersTheirs) {
  auto keeper = manager("2", "fill serve");
  ASSERT_OK(keeper);
  EXPECT_EQ(keeper->said("fill")->at("pieces"), 128);
  EXPECT_THAT(keeper->said("fill")->at("refused").get<std::string>(),
              HasSubstr("a manager has at most 128 pieces"));
  auto a = ShareUser::start(lender(), "join", id_, "map 4096 fill wait /run/end-a fill copy");
  ASSERT_OK(a);
  ASSERT_OK(a->await("waiting"));
  // Of 128 pieces half are kept for the second; two are the segments of its copies.
  EXPECT_EQ(a->said("fill")->at("pieces"), 62);
  EXPECT_THAT(a->said("fill")->at("refused").get<std::string>(),
              HasSubstr("64 pieces are mapped, 64 are kept for each client"));
  auto b = ShareUser::start(lender(), "join", id_, "map 4096 fill copy");
  ASSERT_OK(b);
  ASSERT_OK(b->end());
  EXPECT_EQ(b->said("fill")->at("pieces"), 62);
  EXPECT_EQ(b->said("copy")->at("same"), true);
  ASSERT_OK(lender().run("touch /run/end-a"));
  ASSERT_OK(a->end());
  EXPECT_EQ(a->said("fill")->at("pieces"), 62) << "those of before are free again";
  EXPECT_EQ(a->said("copy")->at("same"), true);
  EXPECT_OK(await_clients(lender(), id_, 0));
  ASSERT_OK(keeper->kill());
}

TEST_F(SharedLease, NobodyGetsMoreThanTheManagerAllows) {
  auto refused = ShareUser::start(lender(), "manage", id_, "refused");
  ASSERT_OK(refused);
  ASSERT_OK(refused->end());
  const std::pair<const char*, const char*> of_managers[] = {
      {"a client without a manager", "it is not shared"},
      {"65 clients", "at most 64 clients"},
      {"an odd slice", "a power of two"},
      {"pages past the end", "past the end of the BAR"},
      {"pages named twice", "named twice"},
      {"no node id", "node ids are 1 to 65535"},
      {"nobody's end", "not asked to clear"},
      {"no lease", "is no lease"},
      {"a second manager", "has borrowed it already"},
      {"an unknown function", "function with that id"},
  };
  const json said = *refused->said("refused");
  for (const auto& [what, text] : of_managers)
    EXPECT_THAT(said.at(what).get<std::string>(), HasSubstr(text)) << what;

  ASSERT_OK(await_state(lender(), id_, "available"));
  auto keeper = manager("1");
  ASSERT_OK(keeper);
  auto client = ShareUser::start(lender(), "join", id_, "denied");
  ASSERT_OK(client);
  ASSERT_OK(client->end());
  const json denied = *client->said("denied");
  for (const char* own : {"its own pages", "a page of its own"})
    EXPECT_EQ(denied.at(own), "not refused") << own;
  const std::pair<const char*, const char*> of_clients[] = {
      {"another's pages", "other pages of BARs"},
      {"a page more", "other pages of BARs"},
      {"a page of nobody", "other pages of BARs"},
      {"a policy", "only the manager"},
      {"news", "only the manager"},
      {"an end", "only the manager"},
      {"interrupt 0", "joined with 0 interrupts"},
      {"one client more", "as many clients as it may have"},
      {"too large a slice", "no slice of this size"},
      {"interrupts", "fewer vectors"},
  };
  for (const auto& [what, text] : of_clients)
    EXPECT_THAT(denied.at(what).get<std::string>(), HasSubstr(text)) << what;
  EXPECT_OK(await_clients(lender(), id_, 0));
  ASSERT_OK(keeper->kill());

  // Only processes of node 8 may join.
  ASSERT_OK(await_state(lender(), id_, "available"));
  auto other = manager("2,8");
  ASSERT_OK(other);
  const auto stranger = lender().exec(fmt::format("{} join {} state", kShareUser, id_));
  ASSERT_OK(stranger);
  EXPECT_NE(stranger->code, 0);
  EXPECT_THAT(stranger->err, HasSubstr("not shared with this node"));
  ASSERT_OK(other->kill());
}

}  // namespace
}  // namespace pcilend::scenarios
