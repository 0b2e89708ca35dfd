// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/swept.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kMiB = 1 << 20;

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
    expect_reach(*lab_, stage, exports, slots);
  };

  ASSERT_OK(lender().run(fmt::format("pcilend connect {}", borrower().node())));
  sweep("connected", 0, 0);
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  sweep("available", 0, 0);

  const auto function = job().function_on(borrower());
  ASSERT_OK(function);
  const uint64_t bars = bar_bytes(*function);
  ASSERT_GT(bars, 0U);
  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + job().id()));
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
  EXPECT_LE(guest, 264 * kMiB) << "and its firmware some ROM";
  sweep("in use", bars, guest);
  EXPECT_OK(job().guest().run("dd if=/dev/nvme0n1 of=/dev/null bs=16k count=4 iflag=direct"));

  ASSERT_OK(lender().run("pcilend unavailable --force " + *lender().address(0)));
  ASSERT_OK(job().await_state(borrower(), "added"));
  // VFIO has the guest's memory mapped until QEMU, which is asked, lets go.
  ASSERT_OK(lab::eventually("QEMU lets go", lab::kPatience, [&] {
    const auto links = borrower().json("pcilend link --json");
    return links && links->at("links").at(0).at("slot_bytes") == 0;
  }));
  sweep("revoked", 0, 0);
  EXPECT_OK(job().guest().run("true"));
  ASSERT_OK(job().guest().destroy());
}

}  // namespace
}  // namespace pcilend::scenarios
