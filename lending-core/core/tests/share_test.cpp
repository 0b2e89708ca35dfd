// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/share.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "share_world.h"

namespace {

using namespace share_world;  // NOLINT: the tests are about just this

// Managed and open for clients.
class ShareTest : public ::testing::Test, public World {
 public:
  ShareTest() {
    EXPECT_EQ(Manage(), 0);
    EXPECT_EQ(SetPolicy(Policy()), 0);
    EXPECT_EQ(share().state, PCILEND_SHARE_SHARED);
  }
  // A client that is active.
  u32 Client(u32 node, u64 boot = 100) {
    EXPECT_EQ(Join(node, boot), 0) << result().why;
    const u32 lease = result().lease;
    EXPECT_EQ(Of(PCILEND_SHARE_MAPPED, lease), 0);
    EXPECT_EQ(State(lease), PCILEND_CLIENT_ACTIVE);
    return lease;
  }
  pcilend_client_state State(u32 lease) const {
    const pcilend_share_client* client = Find(lease);
    return client != nullptr ? client->state : PCILEND_CLIENT_NONE;
  }
  u32 Round(u32 lease) const { return Find(lease)->round; }
  // From ending to over.
  void GoOn(u32 lease) {
    EXPECT_EQ(Of(PCILEND_SHARE_CLOSED, lease), 0);
    EXPECT_EQ(Cleared(lease, Round(lease)), 0);
    EXPECT_EQ(Of(PCILEND_SHARE_UNMAPPED, lease), 0);
    EXPECT_EQ(State(lease), PCILEND_CLIENT_NONE);
  }
  bool Empty() const {
    for (const auto& client : share().client) {
      if (client.state != PCILEND_CLIENT_NONE) return false;
    }
    for (const auto& alias : share().slices.alias) {
      if (alias.users != 0) return false;
    }
    return share().slices.range.count == 0;
  }
};

TEST_F(ShareTest, AClientComesAndEndsInThreeSteps) {
  ASSERT_EQ(Join(2, 100), 0);
  const u32 lease = result().lease;
  EXPECT_EQ(Todo(), "map 11");
  EXPECT_EQ(State(lease), PCILEND_CLIENT_ADMITTED);
  EXPECT_EQ(pcilend_share_check(&share(), 2, 100, lease, nullptr), -ESTALE) << "not yet";
  ASSERT_EQ(Of(PCILEND_SHARE_MAPPED, lease), 0);
  EXPECT_EQ(Todo(), "tell 11; answer 11") << "the manager knows it before it can ask for queues";
  EXPECT_EQ(pcilend_share_check(&share(), 2, 100, lease, nullptr), 0);
  EXPECT_EQ(Find(lease)->slice, 1ULL << 36);
  EXPECT_EQ(Find(lease)->alias, 0xfe000000);

  ASSERT_EQ(Peer(PCILEND_SHARE_RETURN, 2, 100, lease), 0);
  EXPECT_EQ(Todo(), "close 11 last");
  EXPECT_EQ(pcilend_share_check(&share(), 2, 100, lease, nullptr), -ESTALE);
  ASSERT_EQ(Of(PCILEND_SHARE_CLOSED, lease), 0);
  EXPECT_EQ(Todo(), "gone 11");
  EXPECT_EQ(Of(PCILEND_SHARE_UNMAPPED, lease), -EINVAL) << "not before it is cleared";
  ASSERT_EQ(Cleared(lease, Round(lease)), 0);
  EXPECT_EQ(Todo(), "unmap 11 last");
  ASSERT_EQ(Of(PCILEND_SHARE_UNMAPPED, lease), 0);
  EXPECT_EQ(Todo(), "release 11") << "without a reason: it has returned";
  EXPECT_TRUE(Empty());
  EXPECT_EQ(share().state, PCILEND_SHARE_SHARED);
  EXPECT_EQ(DueIn(), U64_MAX);
}

TEST_F(ShareTest, ExclusiveSharedExclusive) {
  const u32 a = Client(2), b = Client(3);
  ASSERT_EQ(SetPolicy(Policy(0)), 0);
  EXPECT_EQ(Todo(), "close 11 last reason1; close 12 last reason1");
  EXPECT_EQ(share().state, PCILEND_SHARE_UNSHARING);
  EXPECT_EQ(Join(4, 100), -EBUSY);
  EXPECT_EQ(SetPolicy(Policy()), -EAGAIN);
  GoOn(a);
  EXPECT_EQ(share().state, PCILEND_SHARE_UNSHARING);
  GoOn(b);
  EXPECT_EQ(share().state, PCILEND_SHARE_EXCLUSIVE);
  EXPECT_EQ(Join(4, 100), -EAGAIN);
  ASSERT_EQ(SetPolicy(Policy()), 0);
  Client(4);
}

TEST_F(ShareTest, OneManager) {
  EXPECT_EQ(Manage(5, 500, 8), -EBUSY);
  EXPECT_STREQ(result().why, "it has a manager already");
  EXPECT_EQ(SetPolicy(Policy(), 5, 500, 8), -EPERM);
  EXPECT_EQ(SetPolicy(Policy(), kManager, kManagerBoot + 1), -EPERM) << "another boot";
  EXPECT_EQ(SetPolicy(Policy(), kManager, kManagerBoot, 8), -EPERM) << "another lease";
  EXPECT_EQ(Peer(PCILEND_SHARE_RESETTING, 5, 500, kManagerLease), -EPERM);
  EXPECT_EQ(share().node, kManager);
  World fresh;
  EXPECT_EQ(fresh.Manage(0), -EINVAL);
  EXPECT_EQ(fresh.Manage(1, 1, 0), -EINVAL);
}

TEST(Share, TheManagersOwnSliceIsNoClients) {
  World world;
  EXPECT_EQ(world.Manage(kManager, kManagerBoot, kManagerLease, 3 * 4096), -EINVAL);
  ASSERT_EQ(world.Manage(kManager, kManagerBoot, kManagerLease, 64 << 20), 0);
  ASSERT_EQ(world.SetPolicy(Policy()), 0);
  ASSERT_EQ(world.Join(2, 100), 0);
  EXPECT_GE(world.Find(world.result().lease)->slice, (1ULL << 36) + (64 << 20));
}

TEST_F(ShareTest, ClearedByAStrangerIsRefusedAndAudited) {
  const u32 lease = Client(2), other = Client(3);
  Peer(PCILEND_SHARE_RETURN, 2, 100, lease);
  Of(PCILEND_SHARE_CLOSED, lease);
  const u32 round = Round(lease);
  EXPECT_EQ(Cleared(lease, round, 3, 100, other), -EPERM) << "another client";
  EXPECT_EQ(Todo(), "audit 3");
  EXPECT_EQ(Cleared(lease, round, 2, 100), -EPERM) << "itself, with the manager's lease";
  EXPECT_EQ(Todo(), "audit 2");
  EXPECT_EQ(Cleared(lease, round, kManager, kManagerBoot + 1), -EPERM) << "not that boot";
  EXPECT_EQ(Cleared(lease, round, kManager, kManagerBoot, 8), -ESTALE) << "a former lease";
  EXPECT_EQ(State(lease), PCILEND_CLIENT_CLEARING);
  EXPECT_EQ(Cleared(lease, round), 0);
  EXPECT_EQ(State(lease), PCILEND_CLIENT_CLEARED);
}

TEST_F(ShareTest, AManagerThatLiesClearsNobodyWhomItWasNotAskedAbout) {
  const u32 lease = Client(2);
  EXPECT_EQ(Cleared(lease, 1), -EINVAL) << "nothing was asked yet";
  EXPECT_EQ(Todo(), "audit 1");
  EXPECT_EQ(Cleared(lease, 0), -EINVAL);
  EXPECT_EQ(State(lease), PCILEND_CLIENT_ACTIVE);
  const u32 gone = Client(3);
  Peer(PCILEND_SHARE_RETURN, 3, 100, gone);
  Of(PCILEND_SHARE_CLOSED, gone);
  EXPECT_EQ(Cleared(lease, Round(gone)), 0) << "a round of another client means nothing";
  EXPECT_EQ(State(lease), PCILEND_CLIENT_ACTIVE);
  EXPECT_EQ(State(gone), PCILEND_CLIENT_CLEARING);
  EXPECT_EQ(Cleared(999, Round(gone)), 0) << "nobody has that lease";
  EXPECT_EQ(State(gone), PCILEND_CLIENT_CLEARING);
}

TEST_F(ShareTest, AManagerThatIsSilentCostsTheFunction) {
  const u32 a = Client(2), b = Client(3);
  Peer(PCILEND_SHARE_RETURN, 2, 100, a);
  Of(PCILEND_SHARE_CLOSED, a);
  EXPECT_EQ(DueIn(), u64{PCILEND_SHARE_CLEAR_MS});
  now += PCILEND_SHARE_CLEAR_MS - 1;
  EXPECT_EQ(Of(PCILEND_SHARE_TICK, 0), 0);
  EXPECT_EQ(Todo(), "");
  now += 1;
  EXPECT_EQ(DueIn(), 0u);
  EXPECT_EQ(Of(PCILEND_SHARE_TICK, 0), 0);
  EXPECT_EQ(Todo(), "fence 7 reason3");
  EXPECT_EQ(share().state, PCILEND_SHARE_FENCING);
  EXPECT_EQ(pcilend_share_check(&share(), 3, 100, b, nullptr), -ESTALE);
  EXPECT_EQ(Join(4, 100), -EBUSY);
  // CLEARED after T.
  EXPECT_EQ(Cleared(a, Round(a)), 0);
  EXPECT_EQ(Todo(), "");
  EXPECT_EQ(State(a), PCILEND_CLIENT_CLEARING) << "it stays until the fence is done";
  EXPECT_FALSE(Empty());
  ASSERT_EQ(Of(PCILEND_SHARE_FENCED, 0), 0);
  EXPECT_EQ(Todo(), "release 11; release 12 reason3") << "the first one has returned";
  EXPECT_TRUE(Empty());
  EXPECT_EQ(share().state, PCILEND_SHARE_OFF);
  EXPECT_EQ(Cleared(a, 1), -ESTALE);
  EXPECT_EQ(Todo(), "") << "late, and no attack";
  ASSERT_EQ(Manage(2, 100, 20), 0) << "and another one may manage it";
}

// Trap 32.
TEST_F(ShareTest, AClientWaitsWhileTheManagerResets) {
  const u32 there = Client(2);
  ASSERT_EQ(Peer(PCILEND_SHARE_RESETTING, kManager, kManagerBoot, kManagerLease), 0);
  EXPECT_EQ(Peer(PCILEND_SHARE_RESETTING, kManager, kManagerBoot, kManagerLease), -EBUSY);
  ASSERT_EQ(Join(3, 100), 0);
  const u32 lease = result().lease;
  EXPECT_EQ(Todo(), "");
  EXPECT_EQ(State(lease), PCILEND_CLIENT_REQUESTED);
  ASSERT_EQ(Join(4, 100), 0);
  const u32 gone = result().lease;
  ASSERT_EQ(Peer(PCILEND_SHARE_RETURN, 4, 100, gone), 0);
  EXPECT_EQ(Todo(), "release 13") << "nothing was mapped";
  ASSERT_EQ(Of(PCILEND_SHARE_RESET_OK, 0), 0);
  EXPECT_EQ(Todo(), "was-reset 11; map 12");
  EXPECT_EQ(State(there), PCILEND_CLIENT_ACTIVE) << "slices stay";
  EXPECT_EQ(Of(PCILEND_SHARE_RESET_OK, 0), -EINVAL);
}

TEST_F(ShareTest, AClientThatGoesDuringAResetIsClearedAfterwards) {
  const u32 lease = Client(2);
  Peer(PCILEND_SHARE_RESETTING, kManager, kManagerBoot, kManagerLease);
  Peer(PCILEND_SHARE_RETURN, 2, 100, lease);
  ASSERT_EQ(Of(PCILEND_SHARE_CLOSED, lease), 0);
  EXPECT_EQ(Todo(), "") << "the manager is busy";
  EXPECT_EQ(State(lease), PCILEND_CLIENT_CLEARING);
  now += 60000;
  EXPECT_EQ(DueIn(), U64_MAX) << "a reset may take a minute";
  EXPECT_EQ(Of(PCILEND_SHARE_TICK, 0), 0);
  EXPECT_EQ(Todo(), "");
  ASSERT_EQ(Of(PCILEND_SHARE_RESET_OK, 0), 0);
  EXPECT_EQ(Todo(), "gone 11");
  EXPECT_EQ(DueIn(), u64{PCILEND_SHARE_CLEAR_MS});
  ASSERT_EQ(Cleared(lease, Round(lease)), 0);
  EXPECT_EQ(Todo(), "unmap 11 last");
}

TEST_F(ShareTest, AskedBeforeAResetAndAgainAfterIt) {
  const u32 lease = Client(2);
  Peer(PCILEND_SHARE_RETURN, 2, 100, lease);
  Of(PCILEND_SHARE_CLOSED, lease);
  const u32 round = Round(lease);
  Peer(PCILEND_SHARE_RESETTING, kManager, kManagerBoot, kManagerLease);
  now += 10000;
  EXPECT_EQ(Of(PCILEND_SHARE_TICK, 0), 0);
  EXPECT_EQ(Todo(), "");
  Of(PCILEND_SHARE_RESET_OK, 0);
  EXPECT_EQ(Todo(), "gone 11");
  EXPECT_NE(Round(lease), round);
  EXPECT_EQ(Cleared(lease, round), 0) << "what it has said before the reset";
  EXPECT_EQ(State(lease), PCILEND_CLIENT_CLEARING);
  EXPECT_EQ(Cleared(lease, Round(lease)), 0);
  EXPECT_EQ(State(lease), PCILEND_CLIENT_CLEARED);
}

TEST_F(ShareTest, AResetThatFailsCostsTheFunction) {
  Client(2);
  Peer(PCILEND_SHARE_RESETTING, kManager, kManagerBoot, kManagerLease);
  ASSERT_EQ(Of(PCILEND_SHARE_RESET_FAILED, 0), 0);
  EXPECT_EQ(Todo(), "fence 7 reason3");
  EXPECT_EQ(Of(PCILEND_SHARE_RESET_OK, 0), 0) << "late";
}

TEST_F(ShareTest, ASecondEndChangesNothing) {
  const u32 lease = Client(2);
  ASSERT_EQ(Of(PCILEND_SHARE_REVOKE_CLIENT, lease), 0);
  EXPECT_EQ(Todo(), "close 11 last reason1");
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(Of(PCILEND_SHARE_EXPIRE, lease), 0);
    EXPECT_EQ(Todo(), "");
    EXPECT_EQ(Peer(PCILEND_SHARE_RETURN, 2, 100, lease), 0);
    EXPECT_EQ(Todo(), "");
    EXPECT_EQ(Peer(PCILEND_SHARE_PEER_DEAD, 2, 100), 0);
    EXPECT_EQ(Todo(), "");
    if (step == 0) Of(PCILEND_SHARE_CLOSED, lease);
    if (step == 1) Cleared(lease, Round(lease));
  }
  EXPECT_EQ(Cleared(lease, Round(lease)), 0) << "a second CLEARED";
  EXPECT_EQ(Todo(), "");
  Of(PCILEND_SHARE_UNMAPPED, lease);
  EXPECT_EQ(Todo(), "release 11 reason1") << "the first reason counts";
  EXPECT_EQ(Of(PCILEND_SHARE_UNMAPPED, lease), 0) << "late";
  EXPECT_EQ(Of(PCILEND_SHARE_EXPIRE, lease), 0);
  EXPECT_EQ(Peer(PCILEND_SHARE_RETURN, 2, 100, lease), -ESTALE);
}

TEST_F(ShareTest, TheManagerReturnsWhileClientsAreActive) {
  const u32 a = Client(2), b = Client(3);
  ASSERT_EQ(Peer(PCILEND_SHARE_RETURN, kManager, kManagerBoot, kManagerLease), 0);
  EXPECT_EQ(Todo(), "close 11 last reason1; close 12 last reason1");
  EXPECT_EQ(share().state, PCILEND_SHARE_RETURNING);
  EXPECT_EQ(Peer(PCILEND_SHARE_RETURN, kManager, kManagerBoot, kManagerLease), 0);
  EXPECT_EQ(Todo(), "");
  EXPECT_EQ(Join(4, 100), -EBUSY);
  EXPECT_EQ(SetPolicy(Policy()), -EBUSY);
  GoOn(a);
  Of(PCILEND_SHARE_CLOSED, b);
  Cleared(b, Round(b));
  Of(PCILEND_SHARE_UNMAPPED, b);
  EXPECT_EQ(Todo(), "release 12 reason1; manager-over 7");
  EXPECT_EQ(share().state, PCILEND_SHARE_OFF);
  EXPECT_TRUE(Empty());
}

TEST_F(ShareTest, AManagerWithoutClientsReturnsAtOnce) {
  ASSERT_EQ(Peer(PCILEND_SHARE_RETURN, kManager, kManagerBoot, kManagerLease), 0);
  EXPECT_EQ(Todo(), "manager-over 7");
  EXPECT_EQ(share().state, PCILEND_SHARE_OFF);
}

TEST_F(ShareTest, ADeadManagerCostsTheFunction) {
  Client(2);
  ASSERT_EQ(Peer(PCILEND_SHARE_PEER_DEAD, kManager, kManagerBoot + 1), 0);
  EXPECT_EQ(Todo(), "") << "that is another boot";
  ASSERT_EQ(Peer(PCILEND_SHARE_PEER_DEAD, kManager, kManagerBoot), 0);
  EXPECT_EQ(Todo(), "fence 7 reason3");
  Of(PCILEND_SHARE_FENCED, 0);
  EXPECT_EQ(Todo(), "release 11 reason3");
}

TEST_F(ShareTest, ARecallReachesAllAndIsFollowedByForce) {
  const u32 a = Client(2);
  Client(3);
  EXPECT_EQ(Recall(PCILEND_GRACE_MS_MAX + 1), -ERANGE);
  ASSERT_EQ(Recall(3000), 0);
  EXPECT_EQ(Todo(), "recall 11; recall 12; recall 7");
  EXPECT_EQ(Join(4, 100), -EBUSY);
  EXPECT_EQ(SetPolicy(Policy(0)), -EBUSY);
  Peer(PCILEND_SHARE_RETURN, 2, 100, a);
  GoOn(a);
  EXPECT_EQ(DueIn(), 3000u);
  now += 3000;
  Of(PCILEND_SHARE_TICK, 0);
  EXPECT_EQ(Todo(), "fence 7 reason1");
  Of(PCILEND_SHARE_FENCED, 0);
  EXPECT_EQ(Todo(), "release 12 reason1");
  EXPECT_EQ(Recall(0), -EINVAL) << "nobody has it";
}

TEST_F(ShareTest, ARecalledFunctionComesBackWithoutForce) {
  const u32 a = Client(2);
  Recall(3000);
  Peer(PCILEND_SHARE_RETURN, 2, 100, a);
  GoOn(a);
  ASSERT_EQ(Peer(PCILEND_SHARE_RETURN, kManager, kManagerBoot, kManagerLease), 0);
  EXPECT_EQ(Todo(), "manager-over 7");
  EXPECT_FALSE(share().recalled);
}

TEST_F(ShareTest, RevokedAndUnplugged) {
  Client(2);
  ASSERT_EQ(Of(PCILEND_SHARE_REVOKE, 0), 0);
  EXPECT_EQ(Todo(), "fence 7 reason1");
  EXPECT_EQ(Of(PCILEND_SHARE_UNPLUGGED, 0), 0);
  EXPECT_EQ(Todo(), "") << "it is fenced already";
  Of(PCILEND_SHARE_FENCED, 0);
  EXPECT_EQ(Of(PCILEND_SHARE_FENCED, 0), -EINVAL);
  EXPECT_EQ(Of(PCILEND_SHARE_REVOKE, 0), -EINVAL);
  EXPECT_EQ(Of(PCILEND_SHARE_UNPLUGGED, 0), 0);
}

// Traps 20 and 21: what is lost is one client, and its queues go before it may do anything.
TEST_F(ShareTest, ALostLinkQuarantinesOneClient) {
  const u32 a = Client(2), b = Client(3);
  ASSERT_EQ(Peer(PCILEND_SHARE_LINK_LOST, 2, 100), 0);
  EXPECT_EQ(Todo(), "quarantine 11") << "and nothing else: bus mastering is the others' too";
  EXPECT_EQ(State(b), PCILEND_CLIENT_ACTIVE);
  EXPECT_EQ(pcilend_share_check(&share(), 2, 100, a, nullptr), -EAGAIN);
  // The link is there first.
  ASSERT_EQ(Peer(PCILEND_SHARE_LINK_UP, 2, 100), 0);
  EXPECT_EQ(Todo(), "");
  EXPECT_EQ(pcilend_share_check(&share(), 2, 100, a, nullptr), -EAGAIN) << "rule 1";
  ASSERT_EQ(Cleared(a, Round(a)), 0);
  EXPECT_EQ(Todo(), "readmit 11");
  EXPECT_EQ(State(a), PCILEND_CLIENT_ACTIVE);
  // The answer is there first.
  Peer(PCILEND_SHARE_LINK_LOST, 2, 100);
  const u32 round = Round(a);
  ASSERT_EQ(Cleared(a, round), 0);
  EXPECT_EQ(Todo(), "");
  EXPECT_EQ(State(a), PCILEND_CLIENT_QUARANTINED);
  ASSERT_EQ(Peer(PCILEND_SHARE_LINK_UP, 2, 100), 0);
  EXPECT_EQ(Todo(), "readmit 11");
  // The former answer, again, says nothing of the next loss.
  Peer(PCILEND_SHARE_LINK_LOST, 2, 100);
  ASSERT_EQ(Cleared(a, round), 0);
  EXPECT_EQ(State(a), PCILEND_CLIENT_QUARANTINING);
}

TEST_F(ShareTest, AQuarantineThatIsNotConfirmedCostsTheFunction) {
  Client(2);
  Peer(PCILEND_SHARE_LINK_LOST, 2, 100);
  now += PCILEND_SHARE_CLEAR_MS;
  Of(PCILEND_SHARE_TICK, 0);
  EXPECT_EQ(Todo(), "fence 7 reason3");
}

TEST_F(ShareTest, ALinkThatStaysLostEndsTheClient) {
  const u32 lease = Client(2);
  Peer(PCILEND_SHARE_LINK_LOST, 2, 100);
  Cleared(lease, Round(lease));
  EXPECT_EQ(DueIn(), u64{PCILEND_LEASE_MS_DEFAULT});
  now += PCILEND_LEASE_MS_DEFAULT - 1;
  Peer(PCILEND_SHARE_LINK_LOST, 2, 100);
  EXPECT_EQ(DueIn(), 1u) << "told twice, it is lost for no longer";
  now += 1;
  Of(PCILEND_SHARE_TICK, 0);
  EXPECT_EQ(Todo(), "close 11 last reason2");
  GoOn(lease);
}

TEST_F(ShareTest, AResetEndsAQuarantine) {
  const u32 lease = Client(2), asked = Client(3);
  Peer(PCILEND_SHARE_LINK_LOST, 3, 100);
  Peer(PCILEND_SHARE_RESETTING, kManager, kManagerBoot, kManagerLease);
  Peer(PCILEND_SHARE_LINK_LOST, 2, 100);
  EXPECT_EQ(Todo(), "") << "the manager is asked nothing";
  Peer(PCILEND_SHARE_LINK_UP, 2, 100);
  EXPECT_EQ(State(lease), PCILEND_CLIENT_QUARANTINING);
  Of(PCILEND_SHARE_RESET_OK, 0);
  EXPECT_EQ(Todo(), "readmit 11") << "no queue outlives a reset";
  EXPECT_EQ(State(asked), PCILEND_CLIENT_QUARANTINED);
}

TEST_F(ShareTest, TheManagersLinkIsWaitedForAsLongAsItsAnswer) {
  const u32 a = Client(2);
  Client(3);
  Peer(PCILEND_SHARE_RETURN, 2, 100, a);
  Of(PCILEND_SHARE_CLOSED, a);
  now += 1000;
  ASSERT_EQ(Peer(PCILEND_SHARE_LINK_LOST, kManager, kManagerBoot), 0);
  EXPECT_EQ(Todo(), "");
  now += 1000;
  ASSERT_EQ(Peer(PCILEND_SHARE_LINK_UP, kManager, kManagerBoot), 0);
  EXPECT_EQ(Todo(), "gone 11; tell 12") << "what it may not have heard";
  EXPECT_EQ(DueIn(), PCILEND_SHARE_CLEAR_MS - 2000u) << "a flap is no excuse";
  ASSERT_EQ(Cleared(a, Round(a)), 0);
  ASSERT_EQ(Peer(PCILEND_SHARE_LINK_LOST, kManager, kManagerBoot), 0);
  EXPECT_EQ(DueIn(), u64{PCILEND_SHARE_CLEAR_MS});
  now += PCILEND_SHARE_CLEAR_MS;
  Of(PCILEND_SHARE_TICK, 0);
  EXPECT_EQ(Todo(), "fence 7 reason3");
}

// Trap 33.
TEST_F(ShareTest, ANewBootIsAdmittedWhenTheOldOneIsCleared) {
  const u32 a = Client(2, 100), b = Client(2, 100);
  const u64 slice = Find(a)->slice;
  EXPECT_EQ(Join(2, 101), -EAGAIN) << "the old boot is there";
  ASSERT_EQ(Peer(PCILEND_SHARE_PEER_DEAD, 2, 100), 0);
  EXPECT_EQ(Todo(), "close 11 reason3; close 12 last reason3");
  for (const u32 lease : {a, b}) {
    EXPECT_EQ(Join(2, 101), -EAGAIN);
    Of(PCILEND_SHARE_CLOSED, lease);
    EXPECT_EQ(Join(2, 101), -EAGAIN);
    Cleared(lease, Round(lease));
    EXPECT_EQ(Join(2, 101), -EAGAIN) << "it is not unmapped yet";
    Of(PCILEND_SHARE_UNMAPPED, lease);
  }
  EXPECT_EQ(Join(2, 101), 0);
  EXPECT_EQ(Find(result().lease)->slice, slice) << "now it is free";
}

// Each link to a node has boots of its own: two leases of one host go over two of them.
TEST_F(ShareTest, OverAnotherLinkAnotherBootIsNoFormerOne) {
  const u32 a = Client(2, 100);
  pcilend_share_event join = {};
  join.type = PCILEND_SHARE_JOIN;
  join.node = 2;
  join.boot = 200;
  join.path = 1;
  join.wish = Wish();
  ASSERT_EQ(Apply(join), 0);
  const u32 b = result().lease;
  EXPECT_NE(Find(a)->slice, Find(b)->slice);
  join.boot = 201;
  EXPECT_EQ(Apply(join), -EAGAIN) << "a former boot of that link";
  // What happens to one of the links is not the other's.
  Of(PCILEND_SHARE_MAPPED, b);
  ASSERT_EQ(Peer(PCILEND_SHARE_LINK_LOST, 2, 100), 0);
  EXPECT_EQ(Find(a)->state, PCILEND_CLIENT_QUARANTINING);
  EXPECT_EQ(Find(b)->state, PCILEND_CLIENT_ACTIVE);
  ASSERT_EQ(Peer(PCILEND_SHARE_PEER_DEAD, 2, 100), 0);
  EXPECT_EQ(Find(b)->state, PCILEND_CLIENT_ACTIVE);
}

TEST_F(ShareTest, NoSliceIsGivenTwiceBeforeItsClientIsOver) {
  std::set<u64> slices;
  std::vector<u32> leases;
  for (u32 i = 0; i < PCILEND_SHARE_CLIENTS; ++i) {
    leases.push_back(Client(2 + i % 8));
    EXPECT_TRUE(slices.insert(Find(leases.back())->slice).second);
    EXPECT_EQ(pcilend_share_piece(&share(), Find(leases.back())), i);
  }
  EXPECT_EQ(Join(2, 100), -ENOSPC) << "the 65th";
  const u64 slice = Find(leases[5])->slice;
  Of(PCILEND_SHARE_REVOKE_CLIENT, leases[5]);
  Of(PCILEND_SHARE_CLOSED, leases[5]);
  EXPECT_EQ(Join(2, 100), -ENOSPC) << "not over";
  Cleared(leases[5], Round(leases[5]));
  EXPECT_EQ(Join(2, 100), -ENOSPC) << "not unmapped";
  Of(PCILEND_SHARE_UNMAPPED, leases[5]);
  const u32 next = Client(9);
  EXPECT_EQ(Find(next)->slice, slice);
  EXPECT_EQ(pcilend_share_piece(&share(), Find(next)), 5u);
}

// Trap 31: the common BAR pages, and the alias, go with the last client of a host.
TEST_F(ShareTest, TwoClientsOfOneHostEndAtOnce) {
  const u32 a = Client(2), b = Client(2);
  EXPECT_EQ(Find(a)->alias, Find(b)->alias);
  Peer(PCILEND_SHARE_RETURN, 2, 100, a);
  EXPECT_EQ(Todo(), "close 11") << "the other one uses them";
  Peer(PCILEND_SHARE_RETURN, 2, 100, b);
  EXPECT_EQ(Todo(), "close 12 last");
  Of(PCILEND_SHARE_CLOSED, b);
  Of(PCILEND_SHARE_CLOSED, a);
  Cleared(b, Round(b));
  EXPECT_EQ(Todo(), "unmap 12") << "its vectors may still raise interrupts";
  Cleared(a, Round(a));
  EXPECT_EQ(Todo(), "unmap 11 last");
  Of(PCILEND_SHARE_UNMAPPED, a);
  Of(PCILEND_SHARE_UNMAPPED, b);
  EXPECT_TRUE(Empty());
}

TEST_F(ShareTest, WhoHasNoRightIsNotAdmitted) {
  pcilend_share_rules rules = {};
  rules.clients = 2;
  const u32 nodes[] = {2, 3, 5};
  const char* why = nullptr;
  ASSERT_EQ(pcilend_access_set(&rules.nodes, nodes, 3, &why), 0);
  const u32 there = Client(4);
  ASSERT_EQ(Allow(rules), 0);
  EXPECT_EQ(Todo(), "close 11 last reason1") << "its right was taken";
  GoOn(there);
  EXPECT_EQ(Join(4, 100), -ENODEV);
  EXPECT_EQ(Join(0, 100), -ENODEV);
  EXPECT_EQ(Join(65536, 100), -ENODEV);
  Client(2);
  Client(3);
  EXPECT_EQ(Join(5, 100), -ENOSPC) << "the lender's limit";
  rules.clients = PCILEND_SHARE_CLIENTS + 1;
  EXPECT_EQ(Allow(rules), -ERANGE);
  rules.clients = 0;
  ASSERT_EQ(Allow(rules), 0);
  EXPECT_EQ(Todo(), "close 12 last reason1; close 13 last reason1");
  EXPECT_EQ(Join(2, 100), -ENODEV);
}

TEST_F(ShareTest, WhatThePolicyDoesNotAllowIsRefused) {
  const auto join = [this](auto change) {
    pcilend_share_wish wish = Wish();
    change(wish);
    const int error = Join(2, 100, wish);
    EXPECT_NE(result().why, nullptr);
    EXPECT_EQ(result().count, 0u);
    return error;
  };
  EXPECT_EQ(join([](auto& w) { w.slice_bytes = 1 << 27; }), -ERANGE);
  EXPECT_EQ(join([](auto& w) { w.slice_bytes = 0; }), -ERANGE);
  EXPECT_EQ(join([](auto& w) { w.slice_bytes = 3 << 20; }), -ERANGE);
  EXPECT_EQ(join([](auto& w) { w.near_bytes = 2 << 20; }), -ERANGE);
  EXPECT_EQ(join([](auto& w) { w.near_bytes = 1; }), -ERANGE);
  EXPECT_EQ(join([](auto& w) { w.vectors = 5; }), -ERANGE);
  EXPECT_EQ(join([](auto& w) { w.lease_ms = 1; }), -ERANGE);
  EXPECT_EQ(join([](auto& w) { w.lease_ms = ~0u; }), -ERANGE);
  EXPECT_TRUE(Empty());
  pcilend_share_policy two = Policy(2);
  ASSERT_EQ(SetPolicy(two), 0) << "no client was promised another one";
  Client(2);
  EXPECT_EQ(SetPolicy(two), -EBUSY);
  Client(3);
  EXPECT_EQ(Join(4, 100), -ENOSPC) << "the manager's limit";
}

TEST_F(ShareTest, MappingFails) {
  ASSERT_EQ(Join(2, 100), 0);
  const u32 lease = result().lease;
  ASSERT_EQ(Of(PCILEND_SHARE_MAP_FAILED, lease), 0);
  EXPECT_EQ(Todo(), "release 11");
  EXPECT_TRUE(Empty());
}

TEST_F(ShareTest, AClientThatEndsWhileItIsMappedIsClosedAndUnmapped) {
  ASSERT_EQ(Join(2, 100), 0);
  const u32 lease = result().lease;
  ASSERT_EQ(Peer(PCILEND_SHARE_LINK_LOST, 2, 100), 0);
  EXPECT_EQ(Todo(), "") << "mapping is under way";
  ASSERT_EQ(Of(PCILEND_SHARE_MAPPED, lease), 0);
  EXPECT_EQ(Todo(), "close 11 last reason2");
  ASSERT_EQ(Of(PCILEND_SHARE_CLOSED, lease), 0);
  EXPECT_EQ(Todo(), "unmap 11 last reason2") << "the manager has never heard of it";
  ASSERT_EQ(Of(PCILEND_SHARE_UNMAPPED, lease), 0);
  EXPECT_TRUE(Empty());
}

TEST_F(ShareTest, ALeaseIsItsHoldersOnly) {
  const u32 lease = Client(2);
  EXPECT_EQ(Peer(PCILEND_SHARE_RETURN, 3, 100, lease), -ESTALE);
  EXPECT_EQ(Peer(PCILEND_SHARE_RETURN, 2, 101, lease), -ESTALE);
  EXPECT_EQ(Peer(PCILEND_SHARE_RETURN, 2, 100, kManagerLease), -ESTALE) << "the manager's";
  const char* why = nullptr;
  EXPECT_EQ(pcilend_share_check(&share(), 3, 100, lease, &why), -ESTALE);
  EXPECT_STREQ(why, "this lease is over, or was never granted");
  EXPECT_EQ(State(lease), PCILEND_CLIENT_ACTIVE);
}

TEST_F(ShareTest, TheActionsOfAllClientsFitTheList) {
  std::vector<u32> leases;
  for (u32 i = 0; i < PCILEND_SHARE_CLIENTS; ++i) {
    leases.push_back(Client(kManager, kManagerBoot));
  }
  // The most that one event asks for: all of the manager's own host.
  ASSERT_EQ(Peer(PCILEND_SHARE_LINK_LOST, kManager, kManagerBoot), 0);
  EXPECT_EQ(result().count, u32{PCILEND_SHARE_CLIENTS});
  for (const u32 lease : leases) Cleared(lease, Round(lease));
  ASSERT_EQ(Peer(PCILEND_SHARE_LINK_UP, kManager, kManagerBoot), 0);
  EXPECT_EQ(result().count, 2u * PCILEND_SHARE_CLIENTS);
  ASSERT_EQ(Recall(1), 0);
  EXPECT_EQ(result().count, PCILEND_SHARE_CLIENTS + 1u);
}

TEST(SharePolicy, PagesThatMayBeGiven) {
  const auto check = [](auto change) {
    World world;
    EXPECT_EQ(world.Manage(), 0);
    pcilend_share_policy policy = Policy();
    change(policy);
    const int error = world.SetPolicy(policy);
    EXPECT_EQ(world.share().state, error == 0 ? PCILEND_SHARE_SHARED : PCILEND_SHARE_EXCLUSIVE);
    return error;
  };
  EXPECT_EQ(check([](auto&) {}), 0);
  EXPECT_EQ(check([](auto& p) { p.clients = 65; }), -ERANGE);
  EXPECT_EQ(check([](auto& p) { p.vectors = 33; }), -ERANGE);
  EXPECT_EQ(check([](auto& p) { p.slice_bytes = 12345; }), -ERANGE);
  EXPECT_EQ(check([](auto& p) { p.near_bytes = 1; }), -ERANGE);
  EXPECT_EQ(check([](auto& p) { p.ranges = 9; }), -ERANGE);
  EXPECT_EQ(check([](auto& p) { p.range[0].bar = 6; }), -ERANGE);
  EXPECT_EQ(check([](auto& p) { p.range[0].bar = 1; }), -ERANGE) << "not there";
  EXPECT_EQ(check([](auto& p) { p.range[0].pages = 0; }), -ERANGE);
  EXPECT_EQ(check([](auto& p) { p.range[0].page = 4; }), -ERANGE) << "past its end";
  EXPECT_EQ(check([](auto& p) { p.range[0].page = ~0u; }), -ERANGE);
  // Trap 12.
  EXPECT_EQ(check([](auto& p) { p.range[0].page = 2; }), -ERANGE) << "the MSI-X table";
  EXPECT_EQ(check([](auto& p) { p.range[0].pages = 2; }), -ERANGE) << "with it";
  EXPECT_EQ(check([](auto& p) { p.range[1].pages = 65; }), -ERANGE) << "no piece for each";
  EXPECT_EQ(check([](auto& p) { p.range[1].pages = 64; }), 0);
  EXPECT_EQ(check([](auto& p) {
              p.ranges = 3;
              p.range[2] = {2, 1023, 1, PCILEND_SHARE_COMMON};
            }),
            -ERANGE)
      << "a piece of somebody's own that all have";
}

TEST(SharePolicy, FunctionsThatCannotBeShared) {
  const auto check = [](auto change) {
    pcilend_share_function drive = Drive();
    change(drive);
    World world(drive);
    EXPECT_EQ(world.Manage(), 0);
    const int error = world.SetPolicy(Policy());
    EXPECT_NE(world.result().why, nullptr);
    return error;
  };
  EXPECT_EQ(check([](auto& f) { f.last_address = 0; }), -EOPNOTSUPP) << "nothing to fence by";
  EXPECT_EQ(check([](auto& f) { f.alone = false; }), -EOPNOTSUPP);
  EXPECT_EQ(check([](auto& f) { f.last_address = (1ULL << 32) - 1; }), -EOPNOTSUPP);
  World world;
  pcilend_share_rules none = {};
  world.Allow(none);
  world.Manage();
  EXPECT_EQ(world.SetPolicy(Policy()), -EOPNOTSUPP) << "its lender does not share it";
  EXPECT_EQ(world.Join(2, 100), -ENODEV);
}

}  // namespace
