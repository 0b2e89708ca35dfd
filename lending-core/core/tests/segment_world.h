// SPDX-License-Identifier: GPL-2.0-or-later
// A segment's owner and a peer, driven by random numbers or a fuzzer's bytes.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>

#include "pcilend/segment.h"

namespace segment_world {

// Both ends, and what goes between them: in order, but any of it may be lost with the link.
class World {
 public:
  using Below = std::function<u32(u32 end)>;
  explicit World(Below below) : below_(std::move(below)) {}

  void step() {
    switch (below_(10)) {
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
        if (below_(8)) break;
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
      if (c.state == PCILEND_CONNECTION_ASKING) broken = "a question has no end";
      if (c.owed) broken = "the owner counts on what is closed";
    }
    for (const auto& [number, offer] : offers_)
      if (offer.state != PCILEND_OFFER_OVER) broken = "a range is never free";
  }

  std::string broken;  // the promise that is; none: empty
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
    return &std::next(things.begin(), below_(static_cast<u32>(things.size())))->second;
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
      if (c.state == PCILEND_CONNECTION_OPEN && offers_.at(c.offer).state == PCILEND_OFFER_OVER)
        broken = "a range is something else's, and is still mapped";
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

  Below below_;
  std::map<u32, pcilend_offer> offers_;
  std::map<u32, pcilend_connection> connections_;
  std::deque<Message> to_owner_;
  std::deque<Message> to_peer_;
  u32 last_offer_ = 0;
  u32 last_connection_ = 0;
};

}  // namespace segment_world
