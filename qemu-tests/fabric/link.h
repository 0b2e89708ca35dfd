// SPDX-License-Identifier: GPL-2.0-or-later
// The link between two hosts: up or down, and what is under way on it when it is slow.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <optional>

#include "timers.h"

namespace pcilend::fabric {

// One direction: what enters leaves in the same order, as PCIe's posted writes and the completions
// behind them do.
class Channel {
 public:
  struct Transfer {
    std::function<void()> deliver;
    std::function<void()> lose;  // the link went down
  };

  [[nodiscard]] bool empty() const { return transfers_.empty(); }
  [[nodiscard]] size_t depth() const { return transfers_.size(); }
  void push(TimePoint now, Duration delay, Transfer transfer) {
    const TimePoint due = empty() ? now + delay : std::max(now + delay, transfers_.back().due);
    transfers_.push_back({due, std::move(transfer)});
  }
  [[nodiscard]] std::optional<TimePoint> due() const {
    if (empty()) return std::nullopt;
    return transfers_.front().due;
  }
  // Delivers what is due. Deliveries may push.
  void run(TimePoint now) {
    while (!empty() && transfers_.front().due <= now) pop().deliver();
  }
  void lose_all() {
    while (!empty()) pop().lose();
  }

  // The caller's, for run(); set while transfers are queued.
  std::optional<Timers::Id> timer;

 private:
  struct Queued {
    TimePoint due;
    Transfer transfer;
  };
  Transfer pop() {
    Transfer transfer = std::move(transfers_.front().transfer);
    transfers_.pop_front();
    return transfer;
  }

  std::deque<Queued> transfers_;
};

struct Link {
  bool enabled = true;  // as set through the control socket
  bool up = false;      // enabled, and both adapters have a host
  Duration delay{};     // one way
  // Channel 0 leaves the host with the lower number.
  std::array<Channel, 2> channels;
};

}  // namespace pcilend::fabric
