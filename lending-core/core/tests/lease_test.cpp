// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/lease.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "golden.h"

namespace {

constexpr u64 kBoot = 0xb007;
constexpr u32 kNode = 8;

const std::vector<pcilend_lease_event_type> kEvents = {
    PCILEND_LEASE_ADD,
    PCILEND_LEASE_REMOVE,
    PCILEND_LEASE_MAKE_AVAILABLE,
    PCILEND_LEASE_MAKE_UNAVAILABLE,
    PCILEND_LEASE_BORROW,
    PCILEND_LEASE_RETURN,
    PCILEND_LEASE_EXPIRE,
    PCILEND_LEASE_REVOKE,
    PCILEND_LEASE_RECALL,
    PCILEND_LEASE_PEER_DEAD,
    PCILEND_LEASE_UNPLUGGED,
    PCILEND_LEASE_FENCED,
    PCILEND_LEASE_RESET_OK,
    PCILEND_LEASE_RESET_FAILED,
    PCILEND_LEASE_RELEASE_QUARANTINE,
};

const std::vector<pcilend_function_state> kStates = {
    PCILEND_FUNCTION_LOCAL,      PCILEND_FUNCTION_ADDED,   PCILEND_FUNCTION_AVAILABLE,
    PCILEND_FUNCTION_BORROWED,   PCILEND_FUNCTION_FENCING, PCILEND_FUNCTION_RESETTING,
    PCILEND_FUNCTION_QUARANTINED};

// The event that the main job brings next, by state.
const std::vector<pcilend_lease_event_type> kUsual = {
    PCILEND_LEASE_ADD,
    PCILEND_LEASE_MAKE_AVAILABLE,
    PCILEND_LEASE_BORROW,
    PCILEND_LEASE_RETURN,
    PCILEND_LEASE_FENCED,
    PCILEND_LEASE_RESET_OK,
    PCILEND_LEASE_RELEASE_QUARANTINE,
};

std::string Todo(u32 todo) {
  const std::vector<std::pair<u32, const char*>> names = {
      {PCILEND_DO_FENCE, "fence"},       {PCILEND_DO_RESET, "reset"},
      {PCILEND_DO_RELEASE, "release"},   {PCILEND_DO_LOST, "lost"},
      {PCILEND_DO_ANSWER, "answer"},     {PCILEND_DO_ANNOUNCE, "announce"},
      {PCILEND_DO_WITHDRAW, "withdraw"}, {PCILEND_DO_RECALL, "recall"},
  };
  std::string text;
  for (const auto& [bit, name] : names) {
    if ((todo & bit) != 0) text += std::string(text.empty() ? "" : "+") + name;
    todo &= ~bit;
  }
  EXPECT_EQ(todo, 0u);
  return text.empty() ? "-" : text;
}

// A function with the event helpers of one borrower.
class Function {
 public:
  int Apply(pcilend_lease_event_type type) {
    pcilend_lease_event event = {};
    event.type = type;
    event.node = node;
    event.boot = boot;
    event.lease = lease.number;
    event.lease_ms = PCILEND_LEASE_MS_DEFAULT;
    event.grace_ms = 5000;
    event.now = now;
    event.reason = "reset failed in a test";
    return Apply(event);
  }
  int Apply(const pcilend_lease_event& event) {
    const pcilend_lease before = lease;
    const char* why = nullptr;
    const int allowed = pcilend_lease_allows(&lease, &event, &why);
    const int error = pcilend_lease_apply(&lease, &event, &numbers, &result);
    EXPECT_EQ(allowed, error);
    if (error != 0) {
      EXPECT_STREQ(why, result.why);
      EXPECT_GT(std::strlen(result.why), 10u);
      EXPECT_EQ(std::memcmp(&before, &lease, sizeof(lease)), 0) << "refusal changed something";
      EXPECT_EQ(result.todo, 0u);
    } else {
      EXPECT_EQ(result.why, nullptr);
    }
    return error;
  }
  void Reach(pcilend_function_state state) {
    using E = pcilend_lease_event_type;
    const std::vector<std::vector<E>> paths = {
        {},
        {PCILEND_LEASE_ADD},
        {PCILEND_LEASE_ADD, PCILEND_LEASE_MAKE_AVAILABLE, PCILEND_LEASE_RESET_OK},
        {PCILEND_LEASE_ADD, PCILEND_LEASE_MAKE_AVAILABLE, PCILEND_LEASE_RESET_OK,
         PCILEND_LEASE_BORROW},
        {PCILEND_LEASE_ADD, PCILEND_LEASE_MAKE_AVAILABLE, PCILEND_LEASE_RESET_OK,
         PCILEND_LEASE_BORROW, PCILEND_LEASE_EXPIRE},
        {PCILEND_LEASE_ADD, PCILEND_LEASE_MAKE_AVAILABLE, PCILEND_LEASE_RESET_OK,
         PCILEND_LEASE_BORROW, PCILEND_LEASE_EXPIRE, PCILEND_LEASE_FENCED},
        {PCILEND_LEASE_ADD, PCILEND_LEASE_MAKE_AVAILABLE, PCILEND_LEASE_RESET_FAILED},
    };
    for (const E type : paths[state]) ASSERT_EQ(Apply(type), 0);
    ASSERT_EQ(lease.state, state);
  }

  pcilend_lease lease = {};
  pcilend_lease_numbers numbers = {};
  pcilend_lease_result result = {};
  u32 node = kNode;
  u64 boot = kBoot;
  u64 now = 1000;
};

// Every event in every state: where it leads, what is to be done, or the sentence people get.
TEST(Lease, Matrix) {
  std::ostringstream text;
  for (const pcilend_function_state state : kStates) {
    for (const pcilend_lease_event_type event : kEvents) {
      Function function;
      function.Reach(state);
      const int error = function.Apply(event);
      text << pcilend_function_state_name(state) << " " << pcilend_lease_event_name(event) << ": ";
      if (error != 0) {
        text << strerrorname_np(-error) << " " << function.result.why << "\n";
      } else {
        text << pcilend_function_state_name(function.lease.state) << " "
             << Todo(function.result.todo) << "\n";
      }
    }
    text << "\n";
  }
  ExpectGolden("lease_matrix.txt", text.str());
}

TEST(Lease, MainJob) {
  Function f;
  f.Reach(PCILEND_FUNCTION_AVAILABLE);
  ASSERT_EQ(f.Apply(PCILEND_LEASE_BORROW), 0);
  EXPECT_EQ(f.result.lease, 1u);
  EXPECT_EQ(f.lease.number, 1u);
  EXPECT_EQ(pcilend_lease_check(&f.lease, kNode, kBoot, 1, nullptr), 0);
  ASSERT_EQ(f.Apply(PCILEND_LEASE_RETURN), 0);
  EXPECT_EQ(Todo(f.result.todo), "fence+announce");
  EXPECT_EQ(pcilend_lease_check(&f.lease, kNode, kBoot, 1, nullptr), -ESTALE);
  ASSERT_EQ(f.Apply(PCILEND_LEASE_RETURN), 0) << "repeated while it goes on";
  EXPECT_EQ(f.result.todo, 0u);
  ASSERT_EQ(f.Apply(PCILEND_LEASE_FENCED), 0);
  EXPECT_EQ(Todo(f.result.todo), "reset+announce");
  ASSERT_EQ(f.Apply(PCILEND_LEASE_RESET_OK), 0);
  EXPECT_EQ(Todo(f.result.todo), "answer+announce");
  EXPECT_EQ(f.result.lease, 1u) << "whom to answer";
  EXPECT_EQ(f.result.node, kNode);
  EXPECT_EQ(f.result.boot, kBoot);
  EXPECT_EQ(f.lease.number, 0u);
  EXPECT_EQ(f.lease.resets, 2u);
  ASSERT_EQ(f.Apply(PCILEND_LEASE_BORROW), 0);
  EXPECT_EQ(f.result.lease, 2u) << "never used twice";
  ASSERT_EQ(f.Apply(PCILEND_LEASE_RETURN), 0);
}

TEST(Lease, WhoMayNameIt) {
  Function f;
  const char* why = nullptr;
  f.Reach(PCILEND_FUNCTION_AVAILABLE);
  EXPECT_EQ(pcilend_lease_check(&f.lease, kNode, kBoot, 1, &why), -ESTALE);
  EXPECT_STREQ(why, "the function is not borrowed");
  EXPECT_EQ(pcilend_lease_check(&f.lease, 0, 0, 0, nullptr), -ESTALE) << "zeroes match nothing";
  ASSERT_EQ(f.Apply(PCILEND_LEASE_BORROW), 0);
  EXPECT_EQ(pcilend_lease_check(&f.lease, kNode + 1, kBoot, 1, &why), -ESTALE);
  EXPECT_STREQ(why, "another node holds the lease");
  EXPECT_EQ(pcilend_lease_check(&f.lease, kNode, kBoot + 1, 1, &why), -ESTALE);
  EXPECT_STREQ(why, "the lease belongs to an earlier boot of this node");
  EXPECT_EQ(pcilend_lease_check(&f.lease, kNode, kBoot, 2, &why), -ESTALE);
  EXPECT_STREQ(why, "the lease in force has another number");
  EXPECT_EQ(pcilend_lease_check(&f.lease, kNode, kBoot, 1, &why), 0);
}

TEST(Lease, OnlyItsHolderReturnsIt) {
  Function f;
  f.Reach(PCILEND_FUNCTION_BORROWED);
  f.node = kNode + 1;
  EXPECT_EQ(f.Apply(PCILEND_LEASE_RETURN), -ESTALE);
  f.node = kNode;
  f.boot = kBoot + 1;
  EXPECT_EQ(f.Apply(PCILEND_LEASE_RETURN), -ESTALE);
  f.boot = kBoot;
  pcilend_lease_event event = {};
  event.type = PCILEND_LEASE_RETURN;
  event.node = kNode;
  event.boot = kBoot;
  event.lease = 2;
  EXPECT_EQ(f.Apply(event), -ESTALE);
  EXPECT_EQ(f.Apply(PCILEND_LEASE_RETURN), 0);
}

TEST(Lease, DeathOfOthersIsNothing) {
  Function f;
  f.Reach(PCILEND_FUNCTION_BORROWED);
  f.node = kNode + 1;
  ASSERT_EQ(f.Apply(PCILEND_LEASE_PEER_DEAD), 0);
  EXPECT_EQ(f.result.todo, 0u);
  f.node = kNode;
  f.boot = kBoot - 1;
  ASSERT_EQ(f.Apply(PCILEND_LEASE_PEER_DEAD), 0) << "an earlier boot of the holder";
  EXPECT_EQ(f.lease.state, PCILEND_FUNCTION_BORROWED);
  f.boot = kBoot;
  ASSERT_EQ(f.Apply(PCILEND_LEASE_PEER_DEAD), 0);
  EXPECT_EQ(Todo(f.result.todo), "fence+announce") << "nobody is left to be told";
}

TEST(Lease, ExpiryOfAnEarlierLeaseIsNothing) {
  Function f;
  f.Reach(PCILEND_FUNCTION_BORROWED);
  pcilend_lease_event event = {};
  event.type = PCILEND_LEASE_EXPIRE;
  event.lease = 77;
  ASSERT_EQ(f.Apply(event), 0);
  EXPECT_EQ(f.lease.state, PCILEND_FUNCTION_BORROWED);
  event.lease = 0;
  ASSERT_EQ(f.Apply(event), 0);
  EXPECT_EQ(f.lease.state, PCILEND_FUNCTION_FENCING);
  EXPECT_EQ(f.result.lost, PCILEND_LOST_EXPIRED);
  EXPECT_EQ(f.result.lease, 1u);
}

TEST(Lease, RevokedGoesBackToItsOwner) {
  Function f;
  f.Reach(PCILEND_FUNCTION_BORROWED);
  ASSERT_EQ(f.Apply(PCILEND_LEASE_REVOKE), 0);
  EXPECT_EQ(f.result.lost, PCILEND_LOST_REVOKED);
  ASSERT_EQ(f.Apply(PCILEND_LEASE_FENCED), 0);
  ASSERT_EQ(f.Apply(PCILEND_LEASE_RESET_OK), 0);
  EXPECT_EQ(f.lease.state, PCILEND_FUNCTION_ADDED);
  EXPECT_EQ(Todo(f.result.todo), "release+answer+announce");
  EXPECT_FALSE(f.lease.take_back);
}

TEST(Lease, RecalledGoesBackToItsOwner) {
  for (const auto end : {PCILEND_LEASE_RETURN, PCILEND_LEASE_REVOKE, PCILEND_LEASE_EXPIRE,
                         PCILEND_LEASE_PEER_DEAD}) {
    Function f;
    f.Reach(PCILEND_FUNCTION_BORROWED);
    EXPECT_EQ(pcilend_lease_recall_in(&f.lease, f.now), U64_MAX);
    ASSERT_EQ(f.Apply(PCILEND_LEASE_RECALL), 0);
    EXPECT_EQ(f.result.node, kNode);
    EXPECT_EQ(f.result.boot, kBoot);
    EXPECT_EQ(f.result.lease, 1u);
    EXPECT_EQ(pcilend_lease_check(&f.lease, kNode, kBoot, 1, nullptr), 0) << "goes on";
    EXPECT_EQ(f.Apply(PCILEND_LEASE_MAKE_AVAILABLE), -EBUSY);
    f.node = kNode + 1;
    EXPECT_EQ(f.Apply(PCILEND_LEASE_BORROW), -EBUSY);
    f.node = kNode;
    ASSERT_EQ(f.Apply(end), 0);
    ASSERT_EQ(f.Apply(PCILEND_LEASE_FENCED), 0);
    f.node = kNode + 1;
    EXPECT_EQ(f.Apply(PCILEND_LEASE_BORROW), -EBUSY);
    ASSERT_EQ(f.Apply(PCILEND_LEASE_RESET_OK), 0);
    EXPECT_EQ(f.lease.state, PCILEND_FUNCTION_ADDED);
    EXPECT_EQ(Todo(f.result.todo), "release+answer+announce");
    EXPECT_EQ(f.Apply(PCILEND_LEASE_BORROW), -EAGAIN) << "nobody else got it in between";
    EXPECT_EQ(f.lease.recall_at, 0u);
  }
}

TEST(Lease, TheLastRecallCounts) {
  Function f;
  f.Reach(PCILEND_FUNCTION_BORROWED);
  pcilend_lease_event event = {};
  event.type = PCILEND_LEASE_RECALL;
  event.now = 10000;
  for (const u32 grace : {5000u, 60000u, 0u, PCILEND_GRACE_MS_MAX}) {
    event.grace_ms = grace;
    ASSERT_EQ(f.Apply(event), 0);
    EXPECT_EQ(Todo(f.result.todo), "announce+recall");
    EXPECT_EQ(pcilend_lease_recall_in(&f.lease, 10000), grace);
    EXPECT_EQ(pcilend_lease_recall_in(&f.lease, 10000 + grace), 0u);
    EXPECT_EQ(pcilend_lease_recall_in(&f.lease, U64_MAX), 0u);
  }
  event.grace_ms = PCILEND_GRACE_MS_MAX + 1;
  EXPECT_EQ(f.Apply(event), -ERANGE);
  ASSERT_EQ(f.Apply(PCILEND_LEASE_RETURN), 0);
  EXPECT_EQ(pcilend_lease_recall_in(&f.lease, 10000), U64_MAX) << "it is on its way";
}

TEST(Lease, RecalledWhileItIsBeingReset) {
  Function f;
  f.Reach(PCILEND_FUNCTION_FENCING);
  ASSERT_EQ(f.Apply(PCILEND_LEASE_RECALL), 0);
  EXPECT_EQ(f.result.todo, 0u) << "nobody to ask";
  ASSERT_EQ(f.Apply(PCILEND_LEASE_FENCED), 0);
  ASSERT_EQ(f.Apply(PCILEND_LEASE_RESET_OK), 0);
  EXPECT_EQ(f.lease.state, PCILEND_FUNCTION_ADDED);
}

TEST(Lease, UnpluggedWhileBorrowed) {
  Function f;
  f.Reach(PCILEND_FUNCTION_BORROWED);
  ASSERT_EQ(f.Apply(PCILEND_LEASE_UNPLUGGED), 0);
  EXPECT_EQ(f.result.lost, PCILEND_LOST_GONE);
  EXPECT_EQ(Todo(f.result.todo), "fence+lost+announce");
  ASSERT_EQ(f.Apply(PCILEND_LEASE_FENCED), 0);
  EXPECT_EQ(f.lease.state, PCILEND_FUNCTION_LOCAL);
  EXPECT_EQ(Todo(f.result.todo), "release+answer+withdraw");
  EXPECT_FALSE(f.lease.gone);
}

TEST(Lease, UnpluggedDuringReset) {
  for (const auto outcome : {PCILEND_LEASE_RESET_OK, PCILEND_LEASE_RESET_FAILED}) {
    Function f;
    f.Reach(PCILEND_FUNCTION_RESETTING);
    ASSERT_EQ(f.Apply(PCILEND_LEASE_UNPLUGGED), 0);
    EXPECT_EQ(f.lease.state, PCILEND_FUNCTION_RESETTING);
    ASSERT_EQ(f.Apply(outcome), 0);
    EXPECT_EQ(f.lease.state, PCILEND_FUNCTION_LOCAL);
    EXPECT_EQ(f.lease.quarantine, nullptr);
  }
}

TEST(Lease, QuarantineSaysWhy) {
  Function f;
  f.Reach(PCILEND_FUNCTION_QUARANTINED);
  EXPECT_STREQ(f.lease.quarantine, "reset failed in a test");
  ASSERT_EQ(f.Apply(PCILEND_LEASE_RELEASE_QUARANTINE), 0);
  EXPECT_EQ(f.lease.quarantine, nullptr);
  EXPECT_EQ(Todo(f.result.todo), "reset+announce") << "not available without a reset";
  pcilend_lease_event event = {};
  event.type = PCILEND_LEASE_RESET_FAILED;
  ASSERT_EQ(f.Apply(event), 0);
  EXPECT_STREQ(f.lease.quarantine, "it does not answer after its reset");
  ASSERT_EQ(f.Apply(PCILEND_LEASE_MAKE_UNAVAILABLE), 0);
  EXPECT_EQ(f.lease.quarantine, nullptr);
}

// Borrowed and given back, on a function that is to be erased after each lease.
Function Sanitized() {
  Function f;
  f.Apply(PCILEND_LEASE_ADD);
  pcilend_lease_event event = {};
  event.type = PCILEND_LEASE_MAKE_AVAILABLE;
  event.sanitize = true;
  EXPECT_EQ(f.Apply(event), 0);
  EXPECT_EQ(f.Apply(PCILEND_LEASE_RESET_OK), 0);
  EXPECT_EQ(f.lease.state, PCILEND_FUNCTION_AVAILABLE) << "nobody has borrowed it yet";
  for (const auto type :
       {PCILEND_LEASE_BORROW, PCILEND_LEASE_RETURN, PCILEND_LEASE_FENCED, PCILEND_LEASE_RESET_OK})
    EXPECT_EQ(f.Apply(type), 0);
  return f;
}

TEST(Lease, WhatIsToBeErasedIsQuarantinedUntilThen) {
  Function f = Sanitized();
  EXPECT_EQ(f.lease.state, PCILEND_FUNCTION_QUARANTINED);
  EXPECT_NE(std::string(f.lease.quarantine).find("pcilend sanitize"), std::string::npos);
  EXPECT_EQ(f.Apply(PCILEND_LEASE_BORROW), -EUCLEAN);
  EXPECT_NE(std::string(f.result.why).find("pcilend sanitize"), std::string::npos);
  EXPECT_EQ(f.Apply(PCILEND_LEASE_MAKE_UNAVAILABLE), 0);
  // Not erased, and whatever is said of later leases: in quarantine again.
  EXPECT_EQ(f.Apply(PCILEND_LEASE_MAKE_AVAILABLE), 0);
  EXPECT_EQ(f.Apply(PCILEND_LEASE_RESET_OK), 0);
  EXPECT_EQ(f.lease.state, PCILEND_FUNCTION_QUARANTINED);
  EXPECT_EQ(f.Apply(PCILEND_LEASE_MAKE_UNAVAILABLE), 0);
  pcilend_lease_event event = {};
  event.type = PCILEND_LEASE_MAKE_AVAILABLE;
  event.sanitize = event.sanitized = true;
  EXPECT_EQ(f.Apply(event), 0);
  EXPECT_EQ(f.Apply(PCILEND_LEASE_RESET_OK), 0);
  EXPECT_EQ(f.lease.state, PCILEND_FUNCTION_AVAILABLE);
}

TEST(Lease, WhoReleasesWhatIsNotErasedAnswersForIt) {
  Function f = Sanitized();
  EXPECT_EQ(f.Apply(PCILEND_LEASE_RELEASE_QUARANTINE), 0);
  EXPECT_EQ(f.Apply(PCILEND_LEASE_RESET_OK), 0);
  EXPECT_EQ(f.lease.state, PCILEND_FUNCTION_AVAILABLE);
}

TEST(Lease, WhatIsTakenBackIsNotErased) {
  Function f;
  f.Apply(PCILEND_LEASE_ADD);
  pcilend_lease_event event = {};
  event.type = PCILEND_LEASE_MAKE_AVAILABLE;
  event.sanitize = true;
  f.Apply(event);
  for (const auto type : {PCILEND_LEASE_RESET_OK, PCILEND_LEASE_BORROW, PCILEND_LEASE_REVOKE,
                          PCILEND_LEASE_FENCED, PCILEND_LEASE_RESET_OK})
    EXPECT_EQ(f.Apply(type), 0);
  EXPECT_EQ(f.lease.state, PCILEND_FUNCTION_ADDED) << "who took it has what is on it";
  EXPECT_TRUE(f.lease.dirty) << "others do not get that";
}

TEST(Lease, BorrowBounds) {
  Function f;
  f.Reach(PCILEND_FUNCTION_AVAILABLE);
  pcilend_lease_event event = {};
  event.type = PCILEND_LEASE_BORROW;
  event.node = kNode;
  for (const u32 ms : {0u, PCILEND_LEASE_MS_MIN - 1u, PCILEND_LEASE_MS_MAX + 1u, ~0u}) {
    event.lease_ms = ms;
    EXPECT_EQ(f.Apply(event), -ERANGE);
  }
  event.lease_ms = PCILEND_LEASE_MS_MIN;
  for (const u32 node : {0u, 65536u, ~0u}) {
    event.node = node;
    EXPECT_EQ(f.Apply(event), -EINVAL);
  }
  event.node = 65535;
  EXPECT_EQ(f.Apply(event), 0);
}

TEST(Lease, NumbersEndBeforeTheyRepeat) {
  Function f;
  f.Reach(PCILEND_FUNCTION_AVAILABLE);
  f.numbers.last = U32_MAX - 1;
  ASSERT_EQ(f.Apply(PCILEND_LEASE_BORROW), 0);
  EXPECT_EQ(f.lease.number, U32_MAX);
  Function g;
  g.Reach(PCILEND_FUNCTION_AVAILABLE);
  g.numbers.last = U32_MAX;
  pcilend_lease_event event = {};
  event.type = PCILEND_LEASE_BORROW;
  event.node = kNode;
  event.lease_ms = PCILEND_LEASE_MS_DEFAULT;
  const pcilend_lease before = g.lease;
  EXPECT_EQ(pcilend_lease_apply(&g.lease, &event, &g.numbers, &g.result), -EOVERFLOW);
  EXPECT_EQ(std::memcmp(&before, &g.lease, sizeof(before)), 0);
}

TEST(Lease, UnknownEvent) {
  Function f;
  pcilend_lease_event event = {};
  EXPECT_EQ(f.Apply(event), -EINVAL);
  EXPECT_STREQ(pcilend_lease_event_name(event.type), "unknown");
  EXPECT_STREQ(pcilend_function_state_name(static_cast<pcilend_function_state>(7)), "unknown");
}

// What must hold after any sequence of events, however senseless, from several peers.
class LeaseProperty : public ::testing::TestWithParam<u64> {};

TEST_P(LeaseProperty, InvariantsHold) {
  std::mt19937_64 random(GetParam());
  constexpr int kFunctions = 4;
  pcilend_lease leases[kFunctions] = {};
  pcilend_lease_numbers numbers = {};
  // What a careful caller knows of each function.
  struct Known {
    bool fenced = true;  // nothing of a former lease can reach it
    bool reset = false;  // reset since the last lease or local use
    u32 unanswered = 0;  // lease whose settling wasn't announced yet
  } known[kFunctions];
  std::set<u32> used;
  u32 borrows = 0;

  for (int step = 0; step < 20000; ++step) {
    const int i = random() % kFunctions;
    pcilend_lease& lease = leases[i];
    pcilend_lease_event event = {};
    event.type = random() % 2 == 0 ? kUsual[lease.state] : kEvents[random() % kEvents.size()];
    event.node = 1 + random() % 3;
    event.boot = random() % 2;
    event.lease = random() % 2 == 0 ? lease.number : static_cast<u32>(random() % 8);
    event.lease_ms = PCILEND_LEASE_MS_DEFAULT;
    event.now = step;
    const pcilend_lease before = lease;
    pcilend_lease_result result;
    const int error = pcilend_lease_apply(&lease, &event, &numbers, &result);
    const bool changed = std::memcmp(&before, &lease, sizeof(lease)) != 0;
    SCOPED_TRACE(std::string(pcilend_function_state_name(before.state)) + " " +
                 pcilend_lease_event_name(event.type));

    if (error != 0) {
      ASSERT_FALSE(changed);
      ASSERT_NE(result.why, nullptr);
      ASSERT_EQ(result.todo, 0u);
      continue;
    }
    if (event.type == PCILEND_LEASE_FENCED) known[i].fenced = true;
    if (event.type == PCILEND_LEASE_RESET_OK) known[i].reset = true;
    if (lease.state == PCILEND_FUNCTION_ADDED) known[i].reset = false;

    const bool was_settling = before.state == PCILEND_FUNCTION_BORROWED ||
                              before.state == PCILEND_FUNCTION_FENCING ||
                              before.state == PCILEND_FUNCTION_RESETTING;
    switch (lease.state) {
      case PCILEND_FUNCTION_AVAILABLE:
        ASSERT_TRUE(known[i].fenced && known[i].reset) << "offered unfenced or not reset";
        break;
      case PCILEND_FUNCTION_BORROWED:
        if (event.type == PCILEND_LEASE_BORROW) {
          ASSERT_TRUE(known[i].fenced && known[i].reset) << "lent unfenced or not reset";
          ASSERT_EQ(before.state, PCILEND_FUNCTION_AVAILABLE);
          ASSERT_TRUE(used.insert(lease.number).second) << "lease number used twice";
          ASSERT_EQ(result.lease, lease.number);
          known[i] = {false, false, lease.number};
          ++borrows;
        }
        ASSERT_NE(lease.number, 0u);
        ASSERT_EQ(pcilend_lease_check(&lease, lease.node, lease.boot, lease.number, nullptr), 0);
        break;
      case PCILEND_FUNCTION_LOCAL:
      case PCILEND_FUNCTION_ADDED:
      case PCILEND_FUNCTION_QUARANTINED:
        ASSERT_TRUE(known[i].fenced) << "handed back unfenced";
        break;
      default:
        ASSERT_TRUE(was_settling || before.state == PCILEND_FUNCTION_ADDED ||
                    before.state == PCILEND_FUNCTION_QUARANTINED);
        break;
    }
    if (before.state == PCILEND_FUNCTION_BORROWED && lease.state != before.state) {
      ASSERT_EQ(lease.state, PCILEND_FUNCTION_FENCING) << "every end of a lease fences";
      ASSERT_TRUE(result.todo & PCILEND_DO_FENCE);
      ASSERT_EQ(result.lease, before.number);
    }
    if ((result.todo & PCILEND_DO_RESET) != 0) {
      ASSERT_EQ(lease.state, PCILEND_FUNCTION_RESETTING);
    }
    if ((result.todo & PCILEND_DO_ANSWER) != 0) {
      ASSERT_EQ(result.lease, known[i].unanswered) << "answered once, for the right lease";
      known[i].unanswered = 0;
    }
    if (lease.state != PCILEND_FUNCTION_BORROWED) {
      ASSERT_EQ(pcilend_lease_check(&lease, before.node, before.boot, before.number, nullptr),
                -ESTALE);
    }
    const bool on_record = lease.state == PCILEND_FUNCTION_BORROWED ||
                           lease.state == PCILEND_FUNCTION_FENCING ||
                           (lease.state == PCILEND_FUNCTION_RESETTING && known[i].unanswered != 0);
    ASSERT_EQ(lease.number != 0, on_record) << "a lease on record exactly until it is settled";
    ASSERT_EQ(known[i].unanswered != 0, on_record);
    ASSERT_EQ(lease.quarantine != nullptr, lease.state == PCILEND_FUNCTION_QUARANTINED);
    if (changed && lease.state != before.state) {
      ASSERT_TRUE(result.todo & (PCILEND_DO_ANNOUNCE | PCILEND_DO_WITHDRAW)) << "kept secret";
      ASSERT_EQ((result.todo & PCILEND_DO_WITHDRAW) != 0, lease.state == PCILEND_FUNCTION_LOCAL);
    }
  }
  EXPECT_GT(borrows, 100u) << "the sequence did something";
}

INSTANTIATE_TEST_SUITE_P(Seeds, LeaseProperty, ::testing::Range<u64>(1, 21));

TEST(Heartbeat, CountsSilence) {
  pcilend_heartbeat beat;
  pcilend_heartbeat_start(&beat, kBoot, 5, 1000);
  EXPECT_EQ(pcilend_heartbeat_silence(&beat, 1000), 0u);
  EXPECT_EQ(pcilend_heartbeat_note(&beat, kBoot, 5, 1500), PCILEND_HEARTBEAT_SILENT);
  EXPECT_EQ(pcilend_heartbeat_silence(&beat, 1500), 500u);
  EXPECT_EQ(pcilend_heartbeat_note(&beat, kBoot, 6, 2000), PCILEND_HEARTBEAT_ALIVE);
  EXPECT_EQ(pcilend_heartbeat_silence(&beat, 2000), 0u);
  EXPECT_EQ(pcilend_heartbeat_note(&beat, kBoot + 1, 7, 2500), PCILEND_HEARTBEAT_STRANGER);
  EXPECT_EQ(pcilend_heartbeat_silence(&beat, 2500), 500u) << "a stranger's beat is none";
  EXPECT_EQ(pcilend_heartbeat_silence(&beat, 0), 0u) << "a clock that went back";
  EXPECT_EQ(pcilend_heartbeat_note(&beat, kBoot, 0, 3000), PCILEND_HEARTBEAT_ALIVE) << "wrapped";
}

TEST(Heartbeat, EndsLeases) {
  Function f;
  pcilend_heartbeat beat;
  pcilend_heartbeat_start(&beat, kBoot, 0, 1000);
  f.Reach(PCILEND_FUNCTION_AVAILABLE);
  EXPECT_EQ(pcilend_lease_expires_in(&f.lease, &beat, 5000), U64_MAX);
  f.now = 9000;
  ASSERT_EQ(f.Apply(PCILEND_LEASE_BORROW), 0);
  const u64 lease_ms = PCILEND_LEASE_MS_DEFAULT;
  EXPECT_EQ(pcilend_lease_expires_in(&f.lease, &beat, 9000), lease_ms) << "a request is life too";
  EXPECT_EQ(pcilend_lease_expires_in(&f.lease, &beat, 8000), lease_ms);
  EXPECT_EQ(pcilend_lease_expires_in(&f.lease, &beat, 9000 + lease_ms - 1), 1u);
  EXPECT_EQ(pcilend_lease_expires_in(&f.lease, &beat, 9000 + lease_ms), 0u);
  EXPECT_EQ(pcilend_lease_expires_in(&f.lease, &beat, U64_MAX), 0u);
  EXPECT_EQ(pcilend_heartbeat_note(&beat, kBoot, 1, 12000), PCILEND_HEARTBEAT_ALIVE);
  EXPECT_EQ(pcilend_lease_expires_in(&f.lease, &beat, 9000 + lease_ms), 3000u);
  pcilend_heartbeat_start(&beat, kBoot + 1, 0, 12000);
  EXPECT_EQ(pcilend_lease_expires_in(&f.lease, &beat, 12000), 0u) << "the borrower rebooted";
}

// What a peer's beats leave in the control area; those in `lost` never arrive.
class Trail : public testing::Test {
 protected:
  void Beat(u32 times, bool arrives = true) {
    for (u32 i = 0; i < times; ++i) {
      ++beat_;
      if (arrives) slots_[beat_ % PCILEND_TRAIL_SLOTS] = beat_;
      if (arrives) shown_ = beat_;
    }
  }
  pcilend_trail_news Follow(u32 losses = 0) {
    return pcilend_trail_follow(&trail_, slots_.data(), shown_, losses);
  }
  void Start(u32 beat) {
    beat_ = shown_ = beat;
    slots_ = {};
    pcilend_trail_start(&trail_, beat, 0);
  }

  std::array<__le32, PCILEND_TRAIL_SLOTS> slots_ = {};
  u32 beat_ = 0;
  u32 shown_ = 0;
  pcilend_trail trail_ = {};
};

TEST_F(Trail, IsWholeHoweverSeldomItIsFollowed) {
  for (const u32 start : {0u, 5u, ~0u - 70}) {
    Start(start);
    for (const u32 beats : {0u, 1u, 2u, 63u, 64u, 1u}) {
      Beat(beats);
      EXPECT_EQ(Follow(), PCILEND_TRAIL_WHOLE) << start << " + " << beats;
    }
  }
}

TEST_F(Trail, ALostBeatLeavesAGap) {
  for (const u32 before : {0u, 1u, 30u}) {
    for (const u32 lost : {1u, 2u, 30u}) {
      Start(1000);
      Beat(before);
      Beat(lost, false);
      EXPECT_EQ(Follow(), PCILEND_TRAIL_WHOLE) << "nothing has come since";
      Beat(1);
      EXPECT_EQ(Follow(), PCILEND_TRAIL_GAP);
      EXPECT_EQ(Follow(), PCILEND_TRAIL_WHOLE) << "it is told once";
    }
  }
}

TEST_F(Trail, ALossOfThePeersIsTold) {
  Start(0);
  Beat(1);
  EXPECT_EQ(Follow(1), PCILEND_TRAIL_TOLD);
  EXPECT_EQ(Follow(1), PCILEND_TRAIL_WHOLE);
  EXPECT_EQ(Follow(7), PCILEND_TRAIL_TOLD);
  pcilend_trail_start(&trail_, shown_, 8);
  EXPECT_EQ(Follow(8), PCILEND_TRAIL_WHOLE);
}

TEST_F(Trail, WhatNobodyKnowsIsAGap) {
  Start(100);
  Beat(PCILEND_TRAIL_SLOTS + 1);
  EXPECT_EQ(Follow(), PCILEND_TRAIL_GAP) << "the first of them has been written over";
  shown_ -= 3;
  EXPECT_EQ(Follow(), PCILEND_TRAIL_GAP) << "it goes backwards";
}

// The next beat comes between the reader's look at the heartbeat and at the slots.
TEST_F(Trail, LaterBeatsMayHaveComeMeanwhile) {
  Start(0);
  Beat(10);
  const u32 read = shown_;
  Beat(60);
  shown_ = read;
  EXPECT_EQ(Follow(), PCILEND_TRAIL_WHOLE);
  shown_ = beat_;
  EXPECT_EQ(Follow(), PCILEND_TRAIL_WHOLE);
}

}  // namespace
