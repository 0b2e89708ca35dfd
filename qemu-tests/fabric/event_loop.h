// SPDX-License-Identifier: GPL-2.0-or-later
// epoll, timers, and a wait that spins for a while where that pays.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "pcilend/fd.h"
#include "pcilend/result.h"
#include "timers.h"

namespace pcilend::fabric {

class EventLoop {
 public:
  using Handler = std::function<void(uint32_t events)>;  // EPOLLIN, EPOLLOUT, EPOLLHUP, …

  // `spin_limit`: how long to look for work before sleeping, at most; 0: never. Waking a sleeping
  // process costs more than most requests. The time adapts: it grows while work comes soon after
  // the last, and falls to nothing while it doesn't, so an idle fabric leaves the processor alone.
  static Result<std::unique_ptr<EventLoop>> create(Timers& timers, Duration spin_limit);

  Result<> add(int fd, uint32_t events, Handler handler);
  // No system call if nothing changes.
  void change(int fd, uint32_t events);
  // Handlers may remove any descriptor, their own too. Call it before the descriptor is closed.
  void remove(int fd);

  // Runs after each handler, and after timers.
  void set_epilogue(std::function<void()> epilogue) { epilogue_ = std::move(epilogue); }

  void run();
  void stop() { running_ = false; }

 private:
  EventLoop(UniqueFd epoll, Timers& timers, Duration spin_limit);

  void wait_once();
  int poll(int timeout_ms);
  int spin(TimePoint end);
  void adapt(Duration waited);

  static constexpr size_t kBatch = 32;

  UniqueFd epoll_;
  Timers& timers_;
  Duration spin_limit_;
  Duration spin_{};
  Duration pause_;          // from spinning, the next time it is interrupted
  TimePoint paused_until_;  // no spinning before
  bool running_ = true;
  std::function<void()> epilogue_ = [] {};
  struct Watched {
    uint32_t events;
    std::shared_ptr<Handler> handler;
  };
  std::unordered_map<int, Watched> watched_;
  struct Ready {
    int fd;
    uint32_t events;
  };
  Ready ready_[kBatch];
};

}  // namespace pcilend::fabric
