// SPDX-License-Identifier: GPL-2.0-or-later
// A shared function whose clients come, go, die and lose their links while others use it.
#include <cstdlib>
#include <random>

#include "scenarios/lending/shared_lease.h"

namespace pcilend::scenarios {
namespace {

using json = nlohmann::json;

constexpr int kHosts[] = {1, 2, 3};

// What a host has now, without what only counts up.
std::string metrics_of(const lab::Host& host) {
  const auto text = host.run(
      "pcilend metrics | grep -E '^pcilend_(segment|aperture_used|link_leases|links|functions)'");
  EXPECT_OK(text);
  return text.value_or("");
}

// A client of that host that copies, in turns with all others, until it is told to end.
Result<ShareUser> start_turns(const lab::Host& host, const std::string& id) {
  auto client = ShareUser::start(host, "join", id, "map 4096 turns /run/end-turns");
  if (!client) return client;
  if (const auto going = client->await("copied"); !going) return tl::unexpected(going.error());
  return client;
}

Result<> end_turns(const lab::Host& host, ShareUser& client) {
  PCILEND_TRY(host.run("touch /run/end-turns"));
  PCILEND_TRY(client.end());
  PCILEND_TRY(host.run("rm /run/end-turns"));
  EXPECT_EQ(client.said("turns")->at("wrong"), 0);
  return {};
}

// It copies once more from now on, as it should.
void expect_goes_on(const ShareUser& client, uint64_t disturbed) {
  // One may be under way since before.
  ASSERT_OK(client.await("copied", client.times("copied") + 2));
  EXPECT_EQ(client.said("copied")->at("wrong"), 0);
  EXPECT_EQ(client.said("copied")->at("disturbed").get<uint64_t>(), disturbed);
}

/*
 *   host1, 2 and 3: a client each, which copy by turns that the manager gives them, by mail; then,
 *   at random: one is killed, returns, loses its link for a while, or a fourth one comes and goes.
 *   The others go on; PCILEND_ROUNDS times
 */
TEST_F(SharedLease, SeededRoundsLeaveNothing) {
  const char* const wanted = std::getenv("PCILEND_ROUNDS");
  const int rounds = wanted ? std::atoi(wanted) : 10;
  constexpr unsigned kSeed = 26;
  std::string before[3];
  for (int host : kHosts) before[host - 1] = metrics_of(lab_->host(host));

  auto keeper = manager("4");
  ASSERT_OK(keeper);
  std::map<int, ShareUser> clients;
  std::map<int, uint64_t> disturbed;
  for (int host : kHosts) {
    ASSERT_OK(await_state(lab_->host(host), id_, "borrowed"));
    auto client = start_turns(lab_->host(host), id_);
    ASSERT_OK(client);
    clients.emplace(host, std::move(*client));
  }
  const auto all_are_active = [&] {
    return lender().until("true", [&](const lab::Output&) {
      const auto listed = await_clients(lender(), id_, 3);
      return listed && std::ranges::all_of(*listed, [](const json& client) {
               return client.at("state") == "active";
             });
    });
  };
  std::minstd_rand random(kSeed);
  int kinds[4] = {};
  for (int round = 1; round <= rounds && !HasFailure(); ++round) {
    const int host = kHosts[random() % 3];
    // No link leads to the lender's own.
    const unsigned kind = random() % (host == 1 ? 3 : 4);
    SCOPED_TRACE(fmt::format("round {} of seed {}: {} on host{}", round, kSeed, kind, host));
    ++kinds[kind];
    ShareUser& client = clients.at(host);
    const size_t gone = keeper->times("gone");
    if (kind == 0 || kind == 1) {
      ASSERT_OK(kind == 0 ? client.kill() : end_turns(lab_->host(host), client));
      ASSERT_OK(keeper->await("gone", gone + 1));
      ASSERT_OK(await_clients(lender(), id_, 2));
      clients.erase(host);
      disturbed[host] = 0;
      auto next = start_turns(lab_->host(host), id_);
      ASSERT_OK(next);
      clients.emplace(host, std::move(*next));
    } else if (kind == 2) {
      auto fourth =
          ShareUser::start(lab_->host(host), "join", id_, "map 8192 turns /run/end-fourth");
      ASSERT_OK(fourth);
      ASSERT_OK(fourth->await("copied"));
      ASSERT_OK(fourth->kill());
      ASSERT_OK(keeper->await("gone", gone + 1));
    } else {
      const size_t quarantined = keeper->times("quarantined");
      ASSERT_OK(lab_->fabric().flap(1, host, std::chrono::milliseconds(50 + random() % 500)));
      ASSERT_OK(keeper->await("quarantined", quarantined + 1));
      ASSERT_OK(all_are_active());
      ASSERT_OK(client.await("copied", client.times("copied") + 2));
      disturbed[host] = client.said("copied")->at("disturbed").get<uint64_t>();
    }
    ASSERT_OK(all_are_active());
    for (const auto& [number, each] : clients) expect_goes_on(each, disturbed[number]);
  }
  for (auto& [host, client] : clients) EXPECT_OK(end_turns(lab_->host(host), client));
  EXPECT_OK(await_clients(lender(), id_, 0));
  ASSERT_OK(keeper->kill());
  ASSERT_OK(await_state(lender(), id_, "available"));
  for (int host : kHosts) {
    const std::string& was = before[host - 1];
    EXPECT_OK(lab::eventually(lab_->host(host).name() + " is as before", lab::kPatience,
                              [&] { return metrics_of(lab_->host(host)) == was; }));
    EXPECT_EQ(metrics_of(lab_->host(host)), was);
  }
  fmt::print(stderr, "-- {} rounds: {} killed, {} returned, {} came and were killed, {} flaps\n",
             rounds, kinds[0], kinds[1], kinds[2], kinds[3]);
}

}  // namespace
}  // namespace pcilend::scenarios
