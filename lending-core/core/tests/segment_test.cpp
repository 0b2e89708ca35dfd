// SPDX-License-Identifier: GPL-2.0-or-later
#include <gtest/gtest.h>

#include <random>

#include "segment_world.h"

namespace {

TEST(Offer, CountsEachConnectionOnce) {
  pcilend_offer offer = {};
  EXPECT_EQ(pcilend_offer_connect(&offer, 7), 0);
  EXPECT_EQ(pcilend_offer_connect(&offer, 7), -EEXIST);
  EXPECT_EQ(pcilend_offer_connect(&offer, 8), 0);
  EXPECT_EQ(pcilend_offer_release(&offer, 9), -ESTALE);
  EXPECT_EQ(pcilend_offer_release(&offer, 7), 0);
  EXPECT_EQ(pcilend_offer_release(&offer, 7), -ESTALE);
  EXPECT_EQ(offer.count, 1u);
  EXPECT_EQ(offer.state, PCILEND_OFFER_OFFERED);
}

TEST(Offer, HasRoomForSoMany) {
  pcilend_offer offer = {};
  for (u32 i = 1; i <= PCILEND_OFFER_CONNECTIONS; ++i)
    ASSERT_EQ(pcilend_offer_connect(&offer, i), 0);
  EXPECT_EQ(pcilend_offer_connect(&offer, 1000), -ENOSPC);
  EXPECT_EQ(pcilend_offer_release(&offer, 1), 0);
  EXPECT_EQ(pcilend_offer_connect(&offer, 1000), 0);
}

TEST(Offer, IsOverWhenNothingIsLeft) {
  pcilend_offer unused = {};
  pcilend_offer_settle(&unused);
  EXPECT_EQ(unused.state, PCILEND_OFFER_OFFERED) << "nobody has withdrawn it";
  pcilend_offer_withdraw(&unused);
  EXPECT_EQ(unused.state, PCILEND_OFFER_OVER);
  EXPECT_EQ(pcilend_offer_connect(&unused, 1), -ENODEV);
  EXPECT_EQ(pcilend_offer_release(&unused, 1), -ESTALE);

  pcilend_offer released = {};
  pcilend_offer_connect(&released, 1);
  pcilend_offer_connect(&released, 2);
  pcilend_offer_withdraw(&released);
  EXPECT_EQ(released.state, PCILEND_OFFER_WITHDRAWN);
  EXPECT_EQ(pcilend_offer_connect(&released, 3), -ENODEV);
  EXPECT_EQ(pcilend_offer_release(&released, 1), 0);
  EXPECT_EQ(released.state, PCILEND_OFFER_WITHDRAWN);
  EXPECT_EQ(pcilend_offer_release(&released, 2), 0);
  EXPECT_EQ(released.state, PCILEND_OFFER_OVER);

  pcilend_offer settled = {};
  pcilend_offer_connect(&settled, 1);
  pcilend_offer_withdraw(&settled);
  pcilend_offer_settle(&settled);
  EXPECT_EQ(settled.state, PCILEND_OFFER_OVER);
  EXPECT_EQ(settled.count, 0u);
}

pcilend_connection Open(u32 offer) {
  pcilend_connection c = {};
  pcilend_connection_ask(&c);
  EXPECT_TRUE(pcilend_connection_answered(&c, PCILEND_CONNECTION_GRANTED, offer));
  return c;
}

TEST(Connection, IsOwedUnlessItWasRefused) {
  pcilend_connection c = {};
  pcilend_connection_ask(&c);
  EXPECT_FALSE(pcilend_connection_to_release(&c)) << "it is being asked for";
  EXPECT_FALSE(pcilend_connection_answered(&c, PCILEND_CONNECTION_REFUSED, 0));
  EXPECT_TRUE(pcilend_connection_is_over(&c));

  pcilend_connection_ask(&c);
  EXPECT_FALSE(pcilend_connection_answered(&c, PCILEND_CONNECTION_UNANSWERED, 0));
  EXPECT_TRUE(pcilend_connection_to_release(&c));
  pcilend_connection_released(&c);
  EXPECT_TRUE(pcilend_connection_is_over(&c));
}

TEST(Connection, IsWithdrawnByItsOfferOnly) {
  pcilend_connection c = Open(5);
  EXPECT_FALSE(pcilend_connection_withdrawn(&c, 4));
  EXPECT_EQ(c.state, PCILEND_CONNECTION_OPEN);
  EXPECT_TRUE(pcilend_connection_withdrawn(&c, 5));
  EXPECT_EQ(c.state, PCILEND_CONNECTION_LOST);
  EXPECT_FALSE(pcilend_connection_to_release(&c)) << "the answer tells the owner";
  EXPECT_FALSE(pcilend_connection_withdrawn(&c, 5));
  pcilend_connection_close(&c);
  EXPECT_TRUE(pcilend_connection_is_over(&c));
}

TEST(Connection, IsNotOpenedAfterADoubt) {
  for (const bool withdrawn : {false, true}) {
    pcilend_connection c = {};
    pcilend_connection_ask(&c);
    EXPECT_FALSE(withdrawn ? pcilend_connection_withdrawn(&c, 5) : pcilend_connection_lost(&c));
    EXPECT_FALSE(pcilend_connection_answered(&c, PCILEND_CONNECTION_GRANTED, 5));
    EXPECT_TRUE(pcilend_connection_to_release(&c));
  }
}

TEST(Connection, OutlivesNoOwner) {
  pcilend_connection open = Open(5);
  EXPECT_TRUE(pcilend_connection_owner_dead(&open));
  EXPECT_FALSE(pcilend_connection_to_release(&open));
  pcilend_connection closed = Open(5);
  pcilend_connection_close(&closed);
  EXPECT_TRUE(pcilend_connection_to_release(&closed));
  EXPECT_FALSE(pcilend_connection_owner_dead(&closed));
  EXPECT_TRUE(pcilend_connection_is_over(&closed));
}

TEST(Segments, NoRangeIsGivenOnWhileItIsMapped) {
  unsigned opened = 0;
  unsigned over = 0;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::minstd_rand random(seed);
    segment_world::World world([&](u32 end) { return static_cast<u32>(random() % end); });
    for (int i = 0; i < 400 && world.broken.empty(); ++i) world.step();
    if (world.broken.empty()) world.end();
    ASSERT_EQ(world.broken, "") << "seed " << seed;
    opened += world.opened;
    over += world.over;
  }
  EXPECT_GT(opened, 1000u);
  EXPECT_GT(over, 1000u);
}

}  // namespace
