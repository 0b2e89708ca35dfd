// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/reservation.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "pcilend/wire.h"

namespace {

constexpr u32 kMinute = 60000;
constexpr u32 kHour = 60 * kMinute;
constexpr u8 kNone[16] = {};
constexpr u8 kDomain[16] = {0xd0, 1};
constexpr u8 kOther[16] = {0xd0, 2};

class Reservation : public testing::Test {
 protected:
  // By default: the administrator, of an available function.
  static pcilend_reserve Wish(u32 node, u32 ttl_ms, u32 asker = 0) {
    pcilend_reserve wish = {};
    wish.node = node;
    wish.ttl_ms = ttl_ms;
    wish.asker = asker;
    wish.available = true;
    return wish;
  }
  static pcilend_reserve WishFor(const u8 (&uuid)[16], u32 ttl_ms, u32 asker = 0) {
    pcilend_reserve wish = Wish(0, ttl_ms, asker);
    std::memcpy(wish.uuid, uuid, sizeof(uuid));
    return wish;
  }
  int Set(pcilend_reserve wish) {
    wish.now = now_;
    const pcilend_reservation before = r_;
    const char* why = nullptr;
    const int error = pcilend_reservation_set(&r_, &wish, &why);
    EXPECT_EQ(error != 0, why != nullptr);
    if (error != 0) {
      EXPECT_EQ(std::memcmp(&before, &r_, sizeof(r_)), 0);
    }
    return error;
  }
  u64 Left() { return pcilend_reservation_left(&r_, now_); }
  bool Admits(u32 node, const u8 (&uuid)[16] = kNone) {
    return pcilend_reservation_admits(&r_, node, uuid, now_);
  }

  pcilend_reservation r_ = {};
  u64 now_ = 1000;
};

TEST_F(Reservation, OfTheAdministrator) {
  EXPECT_TRUE(Admits(8));
  ASSERT_EQ(Set(Wish(8, kMinute)), 0);
  EXPECT_EQ(Left(), kMinute);
  EXPECT_TRUE(Admits(8));
  EXPECT_FALSE(Admits(12));
  EXPECT_FALSE(Admits(12, kDomain));
  now_ += kMinute - 1;
  EXPECT_FALSE(Admits(12));
  now_ += 1;
  EXPECT_EQ(Left(), 0u);
  EXPECT_TRUE(Admits(12)) << "over";
}

TEST_F(Reservation, ForADomainOnAnyNode) {
  ASSERT_EQ(Set(WishFor(kDomain, kMinute)), 0);
  EXPECT_TRUE(Admits(8, kDomain));
  EXPECT_TRUE(Admits(12, kDomain));
  EXPECT_FALSE(Admits(8, kOther));
  EXPECT_FALSE(Admits(8)) << "who names no domain is not it";
}

TEST_F(Reservation, TheAdministratorReplacesAndEnds) {
  ASSERT_EQ(Set(Wish(8, kMinute)), 0);
  ASSERT_EQ(Set(WishFor(kDomain, 2 * kMinute)), 0);
  EXPECT_FALSE(Admits(8));
  ASSERT_EQ(Set(Wish(0, 0)), 0);
  EXPECT_EQ(Left(), 0u);
  EXPECT_TRUE(Admits(8));
}

TEST_F(Reservation, Bounds) {
  for (const u32 ttl : {0u, PCILEND_RESERVE_MS_MIN - 1, PCILEND_RESERVE_MS_MAX + 1, ~0u})
    EXPECT_EQ(Set(Wish(8, ttl)), -ERANGE) << ttl;
  EXPECT_EQ(Set(Wish(65536, kMinute)), -EINVAL);
  auto two = WishFor(kDomain, kMinute);
  two.node = 8;
  EXPECT_EQ(Set(two), -EINVAL);
  EXPECT_EQ(Set(Wish(8, PCILEND_RESERVE_MS_MAX)), 0);
  EXPECT_EQ(Left(), PCILEND_RESERVE_MS_MAX);
}

TEST_F(Reservation, APeerNeedsTheLeaseOrAnAvailableFunction) {
  auto wish = Wish(8, kMinute, 8);
  wish.available = false;
  EXPECT_EQ(Set(wish), -EAGAIN);
  wish.holds_lease = true;
  EXPECT_EQ(Set(wish), 0);
}

TEST_F(Reservation, NoPeerTakesWhatIsAnothers) {
  ASSERT_EQ(Set(Wish(8, kMinute, 8)), 0);
  EXPECT_EQ(Set(Wish(12, kMinute, 12)), -EACCES);
  EXPECT_EQ(Set(Wish(0, 0, 12)), -EACCES) << "nor ends it";
  auto holder = Wish(12, kMinute, 12);
  holder.holds_lease = true;
  EXPECT_EQ(Set(holder), -EACCES) << "not with a lease either";
  EXPECT_EQ(Set(Wish(12, kMinute, 8)), 0) << "but whose it is may hand it on";
  EXPECT_FALSE(Admits(8));
  EXPECT_EQ(Set(Wish(0, 0, 8)), 0) << "and who made it may end it";
  ASSERT_EQ(Set(Wish(8, kMinute)), 0);
  EXPECT_EQ(Set(Wish(0, 0, 8)), 0) << "as may the node it is for";
}

TEST_F(Reservation, KnowingTheDomainSpeaksForIt) {
  ASSERT_EQ(Set(WishFor(kDomain, kMinute, 8)), 0);
  EXPECT_EQ(Set(WishFor(kOther, kMinute, 12)), -EACCES);
  EXPECT_EQ(Set(WishFor(kDomain, 2 * kMinute, 12)), 0);
  EXPECT_EQ(Left(), 2 * kMinute);
}

TEST_F(Reservation, PeersAreCutToAnHour) {
  ASSERT_EQ(Set(Wish(8, 5 * kHour, 8)), 0);
  EXPECT_EQ(Left(), kHour);
  now_ += 40 * kMinute;
  ASSERT_EQ(Set(Wish(8, kHour, 8)), 0);
  EXPECT_EQ(Left(), 20 * kMinute) << "the hour began with the first one";
  now_ += 20 * kMinute;
  EXPECT_EQ(Set(Wish(8, kHour, 8)), -ERANGE);
  EXPECT_EQ(Set(Wish(12, kHour, 12)), -ERANGE) << "nor by taking turns";
  now_ += kHour - 1;
  EXPECT_EQ(Set(Wish(8, kHour, 8)), -ERANGE);
  now_ += 1;
  EXPECT_EQ(Set(Wish(8, kHour, 8)), 0) << "after an hour's pause";
}

TEST_F(Reservation, ALeaseStartsTheHourAnew) {
  ASSERT_EQ(Set(Wish(8, kHour, 8)), 0);
  now_ += kHour;
  EXPECT_EQ(Set(Wish(8, kHour, 8)), -ERANGE);
  pcilend_reservation_used(&r_);
  EXPECT_EQ(Set(Wish(8, kHour, 8)), 0);
  now_ += 50 * kMinute;
  auto holder = Wish(8, kHour, 8);
  holder.holds_lease = true;
  ASSERT_EQ(Set(holder), 0);
  EXPECT_EQ(Left(), kHour);
}

TEST_F(Reservation, PeersDoNotProlongTheAdministrators) {
  ASSERT_EQ(Set(Wish(8, kMinute)), 0);
  now_ += kMinute / 2;
  ASSERT_EQ(Set(Wish(8, kHour, 8)), 0);
  EXPECT_EQ(Left(), kMinute / 2);
  ASSERT_EQ(Set(Wish(8, kHour, 8)), 0);
  EXPECT_EQ(Left(), kMinute / 2);
  ASSERT_EQ(Set(Wish(8, 2 * kHour)), 0) << "the administrator does";
  EXPECT_EQ(Left(), 2 * kHour);
}

// However peers wish, without a lease they never keep others out for more than half of the time.
TEST_F(Reservation, PeersNeverHoldForEver) {
  std::mt19937 random(3);
  u64 held = 0;
  u64 longest = 0;
  u64 began = 0;
  const u64 start = now_;
  while (now_ < start + 1000ull * kHour) {
    pcilend_reserve wish = Wish(8 + random() % 2, 1000 + random() % (2 * kHour), 8 + random() % 2);
    if (Left() == 0) began = now_;
    Set(wish);
    const u64 step = 1 + random() % (20 * kMinute);
    held += std::min(step, Left());
    if (Left() != 0) longest = std::max(longest, r_.until - began);
    now_ += step;
  }
  EXPECT_LE(longest, kHour);
  EXPECT_GT(held, 100ull * kHour) << "they did hold it";
  EXPECT_LE(held, 510ull * kHour);
}

}  // namespace
