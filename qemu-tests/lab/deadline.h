// SPDX-License-Identifier: GPL-2.0-or-later
// A point in time by which something must have happened.
#pragma once

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

namespace pcilend::lab {

// What every time limit is multiplied by, in this process: a lab sets it for the kernel of its
// hosts.
inline std::atomic<int> patience = 1;

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(Clock::duration after) : at_(Clock::now() + after * patience.load()) {}

  [[nodiscard]] bool over() const { return Clock::now() >= at_; }

  // Milliseconds left, never negative, at most `most`: for poll().
  [[nodiscard]] int milliseconds(int most = 1'000'000) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, most));
  }

 private:
  Clock::time_point at_;
};

// Waits until `events` are there on `fd` or the deadline is over; false if it is over.
inline bool wait_for(int fd, short events, const Deadline& deadline) {
  for (;;) {
    pollfd one{fd, events, 0};
    const int n = ::poll(&one, 1, deadline.milliseconds());
    if (n > 0) return true;
    if (n == 0 && deadline.over()) return false;
    if (n < 0 && errno != EINTR) return false;
  }
}

// Asks `condition` again and again until it is true or the deadline is over. What takes long to
// find out is asked for less often, with pauses of up to two seconds: asking must not be what keeps
// a busy host from getting there.
template <class Condition>
bool wait_until(const Deadline& deadline, Condition condition,
                std::chrono::milliseconds pause = std::chrono::milliseconds(20)) {
  for (;;) {
    const auto asked = std::chrono::steady_clock::now();
    if (condition()) return true;
    if (deadline.over()) return false;
    const auto twice = std::chrono::duration_cast<std::chrono::milliseconds>(
        2 * (std::chrono::steady_clock::now() - asked));
    std::this_thread::sleep_for(std::clamp(twice, pause, std::chrono::milliseconds(2000)));
  }
}

}  // namespace pcilend::lab
