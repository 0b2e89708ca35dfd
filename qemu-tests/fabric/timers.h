// SPDX-License-Identifier: GPL-2.0-or-later
// Deadlines, and what to do when they pass. The clock is the caller's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

namespace pcilend::fabric {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;
using Clock = std::function<TimePoint()>;

class Timers {
 public:
  using Id = std::pair<TimePoint, uint64_t>;

  Id arm(TimePoint when, std::function<void()> action) {
    return pending_.emplace(Id{when, next_++}, std::move(action)).first->first;
  }
  // No error if it has run.
  void cancel(const Id& id) { pending_.erase(id); }

  [[nodiscard]] std::optional<TimePoint> next() const {
    if (pending_.empty()) return std::nullopt;
    return pending_.begin()->first.first;
  }

  // Runs what is due at `now`; actions may arm and cancel.
  void run(TimePoint now) {
    while (!pending_.empty() && pending_.begin()->first.first <= now) {
      const auto action = std::move(pending_.begin()->second);
      pending_.erase(pending_.begin());
      action();
    }
  }

 private:
  std::map<Id, std::function<void()>> pending_;
  uint64_t next_ = 0;
};

}  // namespace pcilend::fabric
