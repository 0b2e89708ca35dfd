// SPDX-License-Identifier: GPL-2.0-or-later
// Peer-to-peer between functions of different lenders, over the link that these have.
#include "scenarios/peer_to_peer/peer_to_peer.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

/*
 *   host1 (lender, node 4)      host2 (lender, node 8)
 *   edu ── IOMMU ── NTB ═══════ NTB ── IOMMU ── nvme, BAR 2: CMB
 *                    NTB         NTB
 *                     ╚═══ NTB  NTB ═══╝
 *                     host3 (borrower, node 12): virtual functions of edu and nvme
 */
class P2pLenders : public PeerToPeer {
 protected:
  static void SetUpTestSuite() { start("lenders", 2); }
  static void TearDownTestSuite() { end(); }

  void expect_traffic_of_copies(const lab::Counters& once,
                                const lab::Counters& often) const override;

  // Bytes of BARs of host2 that host1 may reach, the places that are kept included.
  static uint64_t exposed() {
    const auto links = target_lender().json("pcilend link --json");
    EXPECT_OK(links);
    for (const auto& link : links ? links->at("links") : json::array())
      if (link.at("node") == lender().node()) return link.at("export_bytes");
    return ~0ull;
  }
  void expect_nothing_exposed() const override {
    EXPECT_OK(
        lab::eventually("host2 exposes nothing", lab::kPatience, [] { return exposed() == 0; }));
  }
  [[nodiscard]] Result<> await_reached() const {
    return lab::eventually("edu reaches the drive", lab::kPatience,
                           [&] { return reached() == json::array({target_}); });
  }
  static void await_link(const std::string& state) {
    await_link_of(lender(), target_lender(), state);
    await_link_of(target_lender(), lender(), state);
  }
  static void await_link_of(const lab::Host& host, const lab::Host& peer,
                            const std::string& state) {
    EXPECT_OK(lab::eventually(fmt::format("{}'s link to {} is {}", host.name(), peer.name(), state),
                              lab::kPatience, [&] {
                                const auto links = host.json("pcilend link --json");
                                if (!links) return false;
                                for (const auto& link : links->at("links"))
                                  if (link.at("node") == peer.node())
                                    return link.at("state") == state;
                                return false;
                              }));
  }
};

void P2pLenders::expect_traffic_of_copies(const lab::Counters& once,
                                          const lab::Counters& often) const {
  EXPECT_EQ(once.path(1, 2).bar.read_bytes, 2 * kPage);
  EXPECT_EQ(once.path(1, 2).bar.write_bytes, kPage);
  EXPECT_EQ(often.path(1, 2).bar.read_bytes, (2 + kMore) * kPage);
  EXPECT_EQ(often.path(1, 2).bar.write_bytes, (1 + kMore) * kPage);
  for (const lab::Counters* counters : {&once, &often}) {
    EXPECT_EQ(counters->path(1, 3).memory.read_bytes, kPage) << "edu reads memory of host3 once";
    EXPECT_EQ(counters->path(1, 3).bar.read_bytes, 0u);
    EXPECT_EQ(counters->path(1, 3).bar.write_bytes, 0u);
    EXPECT_EQ(counters->path(1, 2).all_ones_reads, 0u);
    EXPECT_EQ(counters->path(1, 2).dropped_writes, 0u);
  }
}

/*
 *   host1: edu ══ IOMMU ══ NTB ═══════ NTB ══ IOMMU ══ CMB, host2
 *                     host3: its CPU fills the CMB before, and reads it after
 */
TEST_F(P2pLenders, AFunctionReachesOneOfAnotherLender) {
  ASSERT_NO_FATAL_FAILURE(expect_refused());
  EXPECT_EQ(exposed(), 0u);
  ASSERT_OK(borrower().run(p2p()));
  ASSERT_OK(borrower().run(p2p()));
  EXPECT_EQ(reached(), json::array({target_}));
  EXPECT_GT(exposed(), 0u);
  expect_copied_directly();
}

/*
 *   host1: edu ══ IOMMU ══ NTB ═══════ NTB ══ IOMMU ══ CMB, host2
 *                     host3 ── guest, which has both by PCI address
 *
 * Nobody asks for it. Where the guest has the CMB, and where it moves it to.
 */
TEST_F(P2pLenders, InAGuestByPciAddressNothingIsAskedFor) {
  ASSERT_NO_FATAL_FAILURE(start_guest({edu_, target_}));
  ASSERT_OK(await_reached());
  EXPECT_GT(exposed(), 0u);
  ASSERT_NO_FATAL_FAILURE(expect_copied_directly_in_guest());
  ASSERT_OK(target_lender().run("pcilend unavailable --force " + target_));
  ASSERT_OK(await_nothing_reached());
  expect_nothing_exposed();
}

/*
 *   host1: edu ═══════════ ✂ ════════ CMB, host2
 *     ✂               host3 ── guest, which has both by PCI address
 *
 * Nobody repeats anything.
 */
TEST_F(P2pLenders, InAGuestByPciAddressItOutlivesLostLinks) {
  ASSERT_NO_FATAL_FAILURE(start_guest({edu_, target_}));
  ASSERT_OK(await_reached());
  lab::Counters counters;
  ASSERT_OK(lab_->fabric().link_down(1, 2));
  ASSERT_OK(await_nothing_reached());
  ASSERT_OK(lab_->fabric().link_up(1, 2));
  ASSERT_OK(await_reached());
  ASSERT_NO_FATAL_FAILURE(expect_copied_in_guest(1, &counters));
  ASSERT_OK(lab_->fabric().link_down(1, 3));
  // What is reached is listed until the loss is noticed.
  await_link_of(borrower(), lender(), "down");
  ASSERT_OK(lab_->fabric().link_up(1, 3));
  await_link_of(borrower(), lender(), "up");
  ASSERT_OK(await_reached());
  ASSERT_NO_FATAL_FAILURE(expect_copied_in_guest(1, &counters));
}

/*
 *   host1: edu ─── ✂ ─────────────── CMB, host2
 *                     host3 ── guest, which has both by PCI address
 *
 * Neither lender offers its function to the other one. The log says so, and the drive can be
 * plugged in all the same, though edu's BAR is mapped before.
 */
TEST_F(P2pLenders, InAGuestByPciAddressWhatCannotBeReachedIsRefused) {
  ASSERT_OK(target_lender().run(fmt::format("pcilend allow {} {}", target_, borrower().node())));
  ASSERT_NO_FATAL_FAILURE(start_guest({edu_}));
  ASSERT_NO_FATAL_FAILURE(plug_in_by_address(target_));
  const auto expect_said = [](const std::string& from, const std::string& to, int node) {
    EXPECT_OK(borrower().until(fmt::format(
        "dmesg | grep -q '{0} does not reach BAR . of {1} .* does not offer {1} to node {2}'", from,
        to, node)));
  };
  expect_said(target_, edu_, target_lender().node());
  expect_guest_refused();  // whose guest turns the drive on
  expect_said(edu_, target_, lender().node());
  EXPECT_EQ(reached(), json::array());
  EXPECT_EQ(exposed(), 0u);
}

/*
 *   host1: edu ══════════════════════ CMB, host2
 *                     host3: --end; return; the lease is taken
 */
TEST_F(P2pLenders, ItEndsWithTheCommandAndWithEitherLease) {
  expect_end_with_command_and_leases();
}

/*
 *   host1: edu ═══════════ ✂ ════════ CMB, host2
 *                     host3: a copy is under way
 *
 * What edu copies then is lost: it is stopped and reset, and its user sees that the copy failed.
 * When the link is back, it may be asked for again.
 */
TEST_F(P2pLenders, ALostLinkBetweenTheLendersStopsTheSource) {
  ASSERT_OK(borrower().run(p2p()));
  ASSERT_OK(lab_->fabric().counters(true));
  auto copying = borrower().start(copy_command(target_address_, 500), {{}, 5min});
  ASSERT_OK(copying);
  ASSERT_OK(lab::eventually("edu copies", lab::kPatience, [&] {
    const auto counters = lab_->fabric().counters();
    return counters && counters->path(1, 2).bar.read_bytes > 2 * kPage;
  }));
  const int resets = function(lender(), edu_).at("resets");
  ASSERT_OK(lab_->fabric().link_down(1, 2));
  ASSERT_OK(await_nothing_reached());
  EXPECT_OK(lab::eventually("edu was reset", lab::kPatience,
                            [&] { return function(lender(), edu_).at("resets") == resets + 1; }));
  EXPECT_EQ(function(borrower(), edu_).at("state"), "borrowed");
  EXPECT_EQ(function(borrower(), target_).at("state"), "borrowed");
  // Its driver for the test knows of no resets: it misses data, or an interrupt.
  expect_in_log("word [0-9]+ in memory is|DMA ended without an interrupt");
  await_link("down");
  expect_failure(p2p(), "don't reach each other");
  ASSERT_OK(lab_->fabric().link_up(1, 2));
  await_link("up");
  const auto copied = copying->wait();
  ASSERT_OK(copied);
  EXPECT_NE(copied->code, 0);

  ASSERT_NO_FATAL_FAILURE(expect_refused());
  ASSERT_OK(borrower().run(p2p()));
  lab::Counters counters;
  ASSERT_NO_FATAL_FAILURE(expect_copied(target_address_, 1, kAsPeer, &counters));
}

/*
 *   host1: edu ══════════════════════ CMB, host2
 *     ✂
 *   host3
 *
 * Whatever host1 would have told host3 is lost: it is asked for again.
 */
TEST_F(P2pLenders, ALostLinkToTheSourcesLenderEndsIt) {
  ASSERT_OK(borrower().run(p2p()));
  ASSERT_OK(lab_->fabric().link_down(1, 3));
  ASSERT_OK(lab_->fabric().link_up(1, 3));
  ASSERT_OK(await_nothing_reached());
  ASSERT_OK(borrower().until(p2p()));
  EXPECT_EQ(reached(), json::array({target_}));
  lab::Counters counters;
  ASSERT_NO_FATAL_FAILURE(expect_copied(target_address_, 1, kAsPeer, &counters));
}

/*
 *   host1: power off          host2 exposes nothing to its next boot
 */
TEST_F(P2pLenders, TheSourcesHostDies) {
  ASSERT_OK(borrower().run(p2p()));
  EXPECT_GT(exposed(), 0u);
  ASSERT_OK(lender().power_off());
  ASSERT_OK(lab::eventually("edu is gone from host3", lab::kPatience, [&] {
    return function(borrower(), edu_).at("virtual_bdf").is_null();
  }));
  EXPECT_EQ(reached(), json::array());
  ASSERT_OK(lender().power_on());
  await_link("up");
  expect_nothing_exposed();
  EXPECT_EQ(function(borrower(), target_).at("state"), "borrowed");
  ASSERT_OK(lender().run(fmt::format("pcilend connect {}", borrower().node())));
  ASSERT_NO_FATAL_FAILURE(lend(lender(), "edu", &edu_));
  ASSERT_NO_FATAL_FAILURE(borrow(edu_, &edu_address_));
  ASSERT_NO_FATAL_FAILURE(expect_refused());
  ASSERT_OK(borrower().run(p2p()));
  lab::Counters counters;
  ASSERT_NO_FATAL_FAILURE(expect_copied(target_address_, 1, kAsPeer, &counters));
}

/*
 *   host2 does not offer the drive to host1, or to its functions
 */
TEST_F(P2pLenders, ATargetIsExposedOnlyToWhoMayBorrowIt) {
  ASSERT_OK(target_lender().run(fmt::format("pcilend allow {} {}", target_, borrower().node())));
  expect_failure(p2p(), fmt::format("does not offer {} to node {}", target_, lender().node()));
  EXPECT_EQ(exposed(), 0u);
  EXPECT_EQ(reached(), json::array());
  ASSERT_OK(target_lender().run(
      fmt::format("pcilend allow {} {} {}", target_, borrower().node(), lender().node())));
  ASSERT_OK(borrower().run(p2p()));
}

}  // namespace
}  // namespace pcilend::scenarios
