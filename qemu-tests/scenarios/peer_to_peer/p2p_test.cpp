// SPDX-License-Identifier: GPL-2.0-or-later
// Peer-to-peer between functions of one lender, and with one of the borrower.
#include "scenarios/peer_to_peer/peer_to_peer.h"

namespace pcilend::scenarios {
namespace {

using nlohmann::json;

/*
 *   host1 (lender, node 4)                      host2 (borrower, node 8)
 *   edu ── root port ───┐
 *                       ├── IOMMU ── NTB ══════ NTB ── virtual functions of edu and nvme, which no
 *   nvme, BAR 2: CMB ───┘                        │     driver has but pcilend_edu
 *                                                └──── nvme, BAR 2: CMB
 */
class P2p : public PeerToPeer {
 protected:
  static void SetUpTestSuite() { start("p2p", 1); }
  static void TearDownTestSuite() { end(); }

  void expect_traffic_of_copies(const lab::Counters& once,
                                const lab::Counters& often) const override;
};

void P2p::expect_traffic_of_copies(const lab::Counters& once, const lab::Counters& often) const {
  const lab::PathCounters a = once.path(1, 2);
  const lab::PathCounters b = often.path(1, 2);
  EXPECT_EQ(a.memory.read_bytes, kPage) << "edu reads memory of host2 once";
  EXPECT_EQ(b.memory.read_bytes, kPage);
  EXPECT_GE(a.memory.write_bytes, kPage) << "and writes to it once";
  // The rest is the heartbeat, and the control messages around it.
  EXPECT_LT(b.memory.write_bytes, a.memory.write_bytes + kMore * kPage / 4);
  for (const lab::PathCounters& path : {a, b}) {
    EXPECT_EQ(path.bar.read_bytes, 0u) << "to a BAR of host2, or through it";
    EXPECT_EQ(path.bar.write_bytes, 0u);
    EXPECT_EQ(path.all_ones_reads, 0u);
    EXPECT_EQ(path.dropped_writes, 0u);
  }
}

/*
 *   host1                                       host2
 *   edu ══ IOMMU ══ CMB                         the CPU fills the CMB before, and reads it after
 *
 * However often edu copies, what crosses the fabric is what the CPU itself does: it starts each
 * copy.
 */
TEST_F(P2p, AFunctionReachesAnotherOfItsLender) {
  ASSERT_NO_FATAL_FAILURE(expect_refused());
  EXPECT_EQ(reached(), json::array());
  ASSERT_OK(borrower().run(p2p()));
  ASSERT_OK(borrower().run(p2p()));
  EXPECT_EQ(reached(), json::array({target_}));
  expect_copied_directly();
}

/*
 *   host1                                       host2 ── guest, which has both by PCI address
 *   edu ══ IOMMU ══ CMB                         nobody asks for it
 *
 * Where the guest has the CMB, and where it moves it to.
 */
TEST_F(P2p, InAGuestByPciAddressNothingIsAskedFor) {
  ASSERT_NO_FATAL_FAILURE(start_guest({edu_, target_}));
  ASSERT_NO_FATAL_FAILURE(await_both_reached());
  ASSERT_NO_FATAL_FAILURE(expect_copied_directly_in_guest());
  lab::Counters counters;
  ASSERT_NO_FATAL_FAILURE(expect_copied_in_guest(1, &counters));
  EXPECT_EQ(function(lender(), edu_).at("faults"), 0);
  expect_failure(p2p(), "without being told to");
  expect_failure(p2p("--end"), "without being told to");
  ASSERT_OK(target_lender().run("pcilend unavailable --force " + target_));
  ASSERT_OK(await_nothing_reached());
}

/*
 *   host1                                       host2 ── guest
 *   edu ══ IOMMU ══ CMB                         the drive leaves it, and comes back
 *
 * (An edu is no PCI Express device, which libvirt has no slot to plug into.)
 */
TEST_F(P2p, InAGuestByPciAddressOneIsPluggedInLater) {
  ASSERT_NO_FATAL_FAILURE(start_guest({edu_, target_}));
  ASSERT_NO_FATAL_FAILURE(await_both_reached());
  ASSERT_NO_FATAL_FAILURE(unplug_by_address(target_));
  for (const std::string& id : {edu_, target_})
    EXPECT_EQ(function(borrower(), id).at("p2p_targets"), json::array());
  ASSERT_NO_FATAL_FAILURE(plug_in_by_address(target_));
  lab::Counters counters;
  ASSERT_NO_FATAL_FAILURE(expect_copied_in_guest(1, &counters));
  EXPECT_EQ(function(lender(), edu_).at("faults"), 0);
}

/*
 *   host1: edu ══ CMB                           host2: --end; return; the lease is taken
 *
 * What is over is refused on host2, and nothing is left of it on host1.
 */
TEST_F(P2p, ItEndsWithTheCommandAndWithEitherLease) {
  expect_end_with_command_and_leases();
}

/*
 *   host1                                       host2
 *   edu ══ IOMMU ══ NTB ═══════════════════════ NTB ══ IOMMU ══ CMB of the drive in host2
 */
TEST_F(P2p, ATargetInTheBorrowerNeedsNoCommand) {
  const auto local = borrower().address("local");
  ASSERT_OK(local);
  lab::Counters counters;
  expect_copied(*local, 1, kAsMemory, &counters);
  EXPECT_EQ(counters.path(1, 2).bar.read_bytes, 2 * kPage);
  EXPECT_EQ(counters.path(1, 2).bar.write_bytes, kPage);
  EXPECT_EQ(reached(), json::array());
}

/*
 *   host1                                       host2 ── guest with edu, and the drive in host2
 *   edu ══ IOMMU ══ NTB ═══════════════════════ NTB ══ IOMMU ══ CMB, by vfio-pci
 */
TEST_F(P2p, InAGuestATargetOfTheBorrowerNeedsNoCommand) {
  ASSERT_NO_FATAL_FAILURE(start_guest({edu_}));
  ASSERT_NO_FATAL_FAILURE(plug_in("local"));
  lab::Counters counters;
  ASSERT_NO_FATAL_FAILURE(expect_copied_in_guest(1, &counters));
  EXPECT_EQ(counters.path(1, 2).bar.read_bytes, 2 * kPage);
  EXPECT_EQ(counters.path(1, 2).bar.write_bytes, kPage);
  EXPECT_EQ(reached(), json::array());
  // Unplugged, and plugged in again. By managed='yes' it is told from edu, which stays.
  ASSERT_OK(borrower().run("virsh detach-device peers /tmp/local.xml --live"));
  ASSERT_OK(borrower().until("virsh dumpxml peers | grep \"hostdev .*type='pci' managed='yes'\"",
                             [](const lab::Output& output) { return output.code != 0; }));
  ASSERT_NO_FATAL_FAILURE(plug_in("local"));
  ASSERT_NO_FATAL_FAILURE(expect_copied_in_guest(1, &counters));
}

/*
 *   host2: pcilend p2p of what can't be: each refusal says what to do
 */
TEST_F(P2p, RefusalsNameTheCure) {
  expect_failure(fmt::format("pcilend p2p {0} {0}", edu_), "name another one");
  expect_failure(fmt::format("pcilend p2p {} 40009", edu_), "no function 40009");
  ASSERT_OK(borrower().run("pcilend return " + edu_));
  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + edu_));
  expect_failure(p2p(), "without being told to");
  ASSERT_OK(borrower().run("pcilend return " + edu_));
  expect_failure(p2p(), "run 'pcilend borrow " + edu_ + "'");
  ASSERT_OK(borrower().run(p2p("--end")));
}

}  // namespace
}  // namespace pcilend::scenarios
