// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/swept.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kMiB = 1 << 20;

uint64_t slot_bytes(const lab::Output& link_json) {
  const auto links = nlohmann::json::parse(link_json.out, nullptr, false);
  if (links.is_discarded()) return UINT64_MAX;
  return links.at("links").at(0).at("slot_bytes");
}

/*
 *   host1 (lender) <── reads all of it ── host2 (borrower)
 *   host1 (lender) ── reads all of it ──> host2 (borrower)
 *
 * At each stage of a lease each host reaches the other's control area, its interrupts, and what is
 * lent or leased: the borrower the BARs, the lender's drive the guest's memory. Not a page more.
 */
TEST_F(TwoHosts, APeerReachesWhatIsLentAndNoPageMore) {
  for (const char* fault : kSweepFaults) expect_in_log(fault);
  expect_stopped_accesses();
  const auto sweep = [&](const char* stage, uint64_t exports, uint64_t slots) {
    const uint64_t roms = exports ? kRomBarBytes : 0;
    SCOPED_TRACE(stage);
    for (const int victim : {1, 2}) {
      const auto report = lab_->fabric().sweep(victim, 3 - victim, sweep_ranges());
      ASSERT_OK(report);
      const bool lends = victim == 1;
      const Reach expected{kControlBytes,    kMiB, lends ? 0 : slots, lends ? exports : 0,
                           lends ? roms : 0, {}};
      EXPECT_EQ(sorted(*report), expected) << lab::host_name(victim) << " is the victim";
      const auto links = lab_->host(victim).json("pcilend link --json");
      ASSERT_OK(links);
      EXPECT_EQ(links->at("links").at(0).at("export_bytes"), expected.exports + expected.roms);
      // Slots are reserved in units of 2 MiB, until QEMU lets go of the drive; what is not memory
      // in them did not answer.
      ASSERT_OK(lab_->host(victim).until("pcilend link --json", [&](const lab::Output& output) {
        const uint64_t reserved = slot_bytes(output);
        return expected.slots ? reserved >= expected.slots : reserved == 0;
      }));
      fmt::print(stderr, "{}: {} probes in {} s\n", stage, report->json.at("probes").dump(),
                 report->json.at("seconds").dump());
    }
  };

  ASSERT_OK(lender().run(fmt::format("pcilend connect {}", borrower().node())));
  sweep("connected", 0, 0);
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  sweep("available", 0, 0);

  const auto function = job().function_on(borrower());
  ASSERT_OK(function);
  uint64_t bars = 0;
  for (const auto& bar : function->at("bars"))
    if (bar.at("index") != 6) bars += bar.at("size").get<uint64_t>();
  ASSERT_GT(bars, 0U);
  ASSERT_OK(borrower().run("pcilend borrow --frontend mdev " + job().id()));
  sweep("borrowed", bars, 0);
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  ASSERT_OK(job().await_state(borrower(), "available"));
  sweep("returned", 0, 0);

  ASSERT_OK(job().start_guest());
  ASSERT_OK(job().await_guest_disk());
  const auto used = job().function_on(borrower());
  ASSERT_OK(used);
  const auto guest = used->at("guest_bytes").get<uint64_t>();
  EXPECT_GE(guest, 200 * kMiB) << "the guest has 256 MiB";
  EXPECT_LE(guest, 256 * kMiB);
  sweep("in use", bars, guest);
  EXPECT_OK(job().guest().run("dd if=/dev/nvme0n1 of=/dev/null bs=16k count=4 iflag=direct"));

  ASSERT_OK(lender().run("pcilend unavailable --force " + *lender().address(0)));
  ASSERT_OK(job().await_state(borrower(), "added"));
  sweep("revoked", 0, 0);
  EXPECT_OK(job().guest().run("true"));
  ASSERT_OK(job().guest().destroy());
}

}  // namespace
}  // namespace pcilend::scenarios
