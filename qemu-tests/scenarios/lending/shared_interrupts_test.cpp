// SPDX-License-Identifier: GPL-2.0-or-later
// Interrupts of a shared function's clients, on whatever hosts they are.
#include "scenarios/lending/shared_drive.h"

namespace pcilend::scenarios {
namespace {

using json = nlohmann::json;
using testing::HasSubstr;

/*
 *   host1 (lender): nvme ── MSI-X 1, 2 ── eventfds of a client here
 *                        ── MSI-X 3, 4 ── IOMMU: alias ── NTB ══> host2: eventfds of a client
 *                        ── MSI-X 5, 6 ── IOMMU: alias ── NTB ══> host3: eventfds of a client
 */
TEST_F(SharedLease, InterruptsGoToTheClientsOwnHosts) {
  SharedDrive drive(*lab_);
  drive.begin("3,2");
  if (HasFatalFailure()) return;
  std::vector<ShareUser> clients;
  for (int host : {1, 2, 3}) {
    const auto before = lab_->fabric().counters();
    ASSERT_OK(before);
    auto client = drive.client(host,
                               "2 listen 0 listen 1 raise 0 raise 1 raise 1 counts wait /run/again "
                               "raise 0 deafen 0 raise 0 raise 1 counts listen 0 raise 0 refused");
    ASSERT_OK(client);
    ASSERT_OK(client->await("waiting"));
    const json counts = {{"step", "counts"}, {"0", 1}, {"1", 2}};
    EXPECT_EQ(*client->said("counts"), counts);
    EXPECT_EQ(client->said("joined")->at("vector"), 1 + 2 * (host - 1));
    const auto after = lab_->fabric().counters();
    ASSERT_OK(after);
    if (host != 1)
      EXPECT_GE(after->path(1, host).interrupt.writes - before->path(1, host).interrupt.writes, 3U);
    clients.push_back(std::move(*client));
  }
  // Side by side with the others, and after these have joined.
  for (size_t i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    ASSERT_OK(lab_->host(static_cast<int>(i) + 1).run("touch /run/again"));
    ASSERT_OK(clients[i].end());
    const json counts = {{"step", "counts"}, {"0", 2}, {"1", 3}};
    EXPECT_EQ(*clients[i].said("counts"), counts) << "one that nobody wants does not count";
    EXPECT_EQ(clients[i].said("raise")->at("wanted"), true) << "it is wanted again";
    const json refused = *clients[i].said("refused");
    EXPECT_THAT(refused.at("one more").get<std::string>(), HasSubstr("joined with 2 interrupts"));
    EXPECT_THAT(refused.at("more than allowed").get<std::string>(), HasSubstr("fewer"));
    EXPECT_THAT(refused.at("more than there may be").get<std::string>(),
                HasSubstr(i == 0 ? "fewer vectors" : "at most 32 interrupts"));
    EXPECT_THAT(refused.at("registers").get<std::string>(), HasSubstr("other pages of BARs"));
  }
  ASSERT_OK(drive.manager().await("gone", 3));
  drive.end();
}

/*
 *   host2: client ── killed: nothing is sent any more; the next one has its interrupts, and what
 *          came meanwhile
 *          next ══╳══ NTB: nothing is sent until it is back; then as before. host3 goes on
 */
TEST_F(SharedLease, InterruptsOutliveAFlapAndNotTheirClient) {
  SharedDrive drive(*lab_);
  drive.begin("2,1");
  if (HasFatalFailure()) return;
  auto other = drive.client(3, "1 listen 0 raise 0 wait /run/again raise 0 counts");
  ASSERT_OK(other);
  ASSERT_OK(other->await("waiting"));
  auto killed = drive.client(2, "1 listen 0 raise 0 wait /run/never");
  ASSERT_OK(killed);
  ASSERT_OK(killed->await("waiting"));
  const json had = *killed->said("joined");
  const auto sent = [&] {
    const auto counters = lab_->fabric().counters();
    EXPECT_OK(counters);
    return counters ? counters->path(1, 2).interrupt.writes : 0;
  };
  const uint64_t before = sent();
  ASSERT_OK(killed->kill());
  ASSERT_OK(drive.manager().await("raised"));
  EXPECT_EQ(sent(), before) << "it is nobody's";

  auto next = drive.client(2, "1 listen 0 raise 0 wait /run/again raise 0 raise 0 await 5 counts");
  ASSERT_OK(next);
  ASSERT_OK(next->await("waiting"));
  EXPECT_EQ(next->said("joined")->at("vector"), had.at("vector"));
  ASSERT_OK(lab_->fabric().link_down(1, 2));
  ASSERT_OK(drive.manager().await("quarantined"));
  ASSERT_OK(drive.manager().await("raised", 2));
  ASSERT_OK(lab_->fabric().link_up(1, 2));
  ASSERT_OK(lab_->host(2).run("touch /run/again"));
  ASSERT_OK(next->end());
  EXPECT_EQ(next->said("counts")->at("0"), 5) << "none was lost with the link";
  ASSERT_OK(lab_->host(3).run("touch /run/again"));
  ASSERT_OK(other->end());
  EXPECT_EQ(other->said("counts")->at("0"), 2);
  ASSERT_OK(drive.manager().await("gone", 3));
  drive.end();
}

/*
 *   host1 (lender): nvme ── somebody resets it, and takes his time: its table does not decode
 *                           meanwhile; clients here and on host2 want one more interrupt: try again
 *                        ── is reset: both have that, and what they had
 */
TEST_F(SharedLease, NoInterruptIsSetWhileSomebodyResetsIt) {
  SharedDrive drive(*lab_);
  drive.begin("2,2");
  if (HasFatalFailure()) return;
  const auto resets = [&]() -> int {
    const auto function = function_on(lender(), drive.id());
    EXPECT_OK(function);
    return function ? function->at("resets").get<int>() : -1;
  };
  std::vector<ShareUser> clients;
  for (int host : {1, 2}) {
    auto client = drive.client(host,
                               "2 listen 0 raise 0 wait /run/end-calm try 1 wait /run/again "
                               "listen 1 raise 1 raise 0 counts");
    ASSERT_OK(client);
    ASSERT_OK(client->await("waiting"));
    clients.push_back(std::move(*client));
  }
  const int before = resets();
  ASSERT_OK(lender().run("modprobe pcilend_hold reset=1 device=" + *lender().address(1)));
  for (size_t i = 0; i < clients.size(); ++i) {
    EXPECT_OK(lab_->host(static_cast<int>(i) + 1).run("touch /run/end-calm"));
    EXPECT_OK(clients[i].await("try"));
  }
  EXPECT_OK(lender().run("rmmod pcilend_hold"));
  EXPECT_OK(
      lab::eventually("it was reset once more", lab::kPatience, [&] { return resets() > before; }));
  const json counts = {{"step", "counts"}, {"0", 2}, {"1", 1}};
  for (size_t i = 0; i < clients.size(); ++i) {
    SCOPED_TRACE(i);
    const auto tried = clients[i].said("try");
    ASSERT_TRUE(tried);
    EXPECT_THAT(tried->at("said").get<std::string>(), HasSubstr("try again"));
    ASSERT_OK(lab_->host(static_cast<int>(i) + 1).run("touch /run/again"));
    ASSERT_OK(clients[i].end());
    EXPECT_EQ(*clients[i].said("counts"), counts);
  }
  ASSERT_OK(drive.manager().await("gone", 2));
  drive.end();
}

}  // namespace
}  // namespace pcilend::scenarios
