// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/segment.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

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

// Both ends, and what goes between them: in order, but any of it may be lost with the link.
class World {
 public:
  explicit World(unsigned seed) : random_(seed) {}

  void step() {
    switch (random_() % 10) {
      case 0:
        if (offers_.size() < 4) offers_[++last_offer_] = {};
        break;
      case 1:  // withdrawn
        if (auto* offer = any(offers_)) pcilend_offer_withdraw(offer);
        break;
      case 2:  // the owner asks again, as long as it has no answer
        for (auto& [number, offer] : offers_)
          if (offer.state == PCILEND_OFFER_WITHDRAWN)
            to_peer_.push_back({Message::Withdraw, number, 0});
        break;
      case 3:
        if (connections_.size() < 6) {
          pcilend_connection_ask(&connections_[++last_connection_]);
          to_owner_.push_back({Message::Connect, 0, last_connection_});
        }
        break;
      case 4:
        if (auto* c = any(connections_); c && c->state != PCILEND_CONNECTION_ASKING)
          pcilend_connection_close(c);
        break;
      case 5:  // releases, again as long as there is no answer
        for (auto& [number, c] : connections_)
          if (pcilend_connection_to_release(&c)) to_owner_.push_back({Message::Release, 0, number});
        break;
      case 6:  // the link is lost, with what is under way
        if (random_() % 8) break;
        to_owner_.clear();
        to_peer_.clear();
        for (auto& [number, c] : connections_) {
          pcilend_connection_lost(&c);
          if (c.state == PCILEND_CONNECTION_ASKING)
            pcilend_connection_answered(&c, PCILEND_CONNECTION_UNANSWERED, 0);
        }
        break;
      case 7:
      case 8:
        owner_takes();
        break;
      default:
        peer_takes();
    }
    for (auto at = connections_.begin(); at != connections_.end();)
      at = pcilend_connection_is_over(&at->second) ? connections_.erase(at) : std::next(at);
    check();
  }

  // When nothing new happens, everything ends.
  void end() {
    for (auto& [number, c] : connections_)
      if (c.state != PCILEND_CONNECTION_ASKING) pcilend_connection_close(&c);
    for (auto& [number, offer] : offers_) pcilend_offer_withdraw(&offer);
    for (int round = 0; round < 10; ++round) {
      for (auto& [number, offer] : offers_)
        if (offer.state == PCILEND_OFFER_WITHDRAWN)
          to_peer_.push_back({Message::Withdraw, number, 0});
      for (auto& [number, c] : connections_) {
        if (c.state == PCILEND_CONNECTION_OPEN) pcilend_connection_close(&c);
        if (pcilend_connection_to_release(&c)) to_owner_.push_back({Message::Release, 0, number});
      }
      while (!to_owner_.empty()) owner_takes();
      while (!to_peer_.empty()) peer_takes();
      check();
    }
    for (const auto& [number, c] : connections_) {
      EXPECT_NE(c.state, PCILEND_CONNECTION_ASKING);
      EXPECT_FALSE(c.owed);
    }
    for (const auto& [number, offer] : offers_) EXPECT_EQ(offer.state, PCILEND_OFFER_OVER);
  }

  unsigned opened = 0;
  unsigned over = 0;

 private:
  struct Message {
    enum Kind { Connect, Release, Withdraw, Granted, Refused, Released, Settled } kind;
    u32 offer;
    u32 connection;
  };

  template <class T>
  T* any(std::map<u32, T>& things) {
    if (things.empty()) return nullptr;
    return &std::next(things.begin(), static_cast<long>(random_() % things.size()))->second;
  }

  void owner_takes() {
    if (to_owner_.empty()) return;
    const Message msg = to_owner_.front();
    to_owner_.pop_front();
    if (msg.kind == Message::Connect) {
      for (auto& [number, offer] : offers_) {
        if (pcilend_offer_connect(&offer, msg.connection)) continue;
        to_peer_.push_back({Message::Granted, number, msg.connection});
        return;
      }
      to_peer_.push_back({Message::Refused, 0, msg.connection});
    } else if (msg.kind == Message::Release) {
      for (auto& [number, offer] : offers_)
        if (!pcilend_offer_release(&offer, msg.connection)) break;
      to_peer_.push_back({Message::Released, 0, msg.connection});
    } else {
      pcilend_offer_settle(&offers_[msg.offer]);
    }
  }

  void peer_takes() {
    if (to_peer_.empty()) return;
    const Message msg = to_peer_.front();
    to_peer_.pop_front();
    if (msg.kind == Message::Withdraw) {
      for (auto& [number, c] : connections_) pcilend_connection_withdrawn(&c, msg.offer);
      to_owner_.push_back({Message::Settled, msg.offer, 0});
      return;
    }
    const auto found = connections_.find(msg.connection);
    if (found == connections_.end()) return;
    pcilend_connection& c = found->second;
    if (msg.kind == Message::Released)
      pcilend_connection_released(&c);
    else if (c.state == PCILEND_CONNECTION_ASKING)
      opened += pcilend_connection_answered(
          &c,
          msg.kind == Message::Granted ? PCILEND_CONNECTION_GRANTED : PCILEND_CONNECTION_REFUSED,
          msg.offer);
  }

  void check() {
    for (const auto& [number, c] : connections_) {
      if (c.state != PCILEND_CONNECTION_OPEN) continue;
      ASSERT_NE(offers_.at(c.offer).state, PCILEND_OFFER_OVER)
          << "its range is something else's, and is still mapped";
    }
    for (auto at = offers_.begin(); at != offers_.end();) {
      const bool is_over = at->second.state == PCILEND_OFFER_OVER && to_owner_.empty();
      over += is_over;
      at = is_over && at->first != last_offer_ && !used(at->first) ? offers_.erase(at)
                                                                   : std::next(at);
    }
  }

  bool used(u32 offer) const {
    for (const auto& [number, c] : connections_)
      if (c.offer == offer) return true;
    for (const auto& msg : to_peer_)
      if (msg.offer == offer) return true;
    return false;
  }

  std::minstd_rand random_;
  std::map<u32, pcilend_offer> offers_;
  std::map<u32, pcilend_connection> connections_;
  std::deque<Message> to_owner_;
  std::deque<Message> to_peer_;
  u32 last_offer_ = 0;
  u32 last_connection_ = 0;
};

TEST(Segments, NoRangeIsGivenOnWhileItIsMapped) {
  unsigned opened = 0;
  unsigned over = 0;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    World world(seed);
    for (int i = 0; i < 400 && !HasFatalFailure(); ++i) world.step();
    if (!HasFatalFailure()) world.end();
    if (HasFailure()) FAIL() << "seed " << seed;
    opened += world.opened;
    over += world.over;
  }
  EXPECT_GT(opened, 1000u);
  EXPECT_GT(over, 1000u);
}

}  // namespace
