// SPDX-License-Identifier: GPL-2.0-or-later
#include "event_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <chrono>

namespace pcilend::fabric {
namespace {

using std::chrono::steady_clock;

constexpr auto kFirstSpin = std::chrono::microseconds(10);
// One look at epoll takes well below this, unless the processor went to somebody else.
constexpr auto kInterrupted = std::chrono::microseconds(50);
constexpr auto kFirstPause = std::chrono::milliseconds(250);
constexpr auto kLongestPause = std::chrono::seconds(8);

}  // namespace

EventLoop::EventLoop(UniqueFd epoll, Timers& timers, Duration spin_limit)
    : epoll_(std::move(epoll)), timers_(timers), spin_limit_(spin_limit), pause_(kFirstPause) {}

Result<std::unique_ptr<EventLoop>> EventLoop::create(Timers& timers, Duration spin_limit) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno("epoll_create1");
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll), timers, spin_limit));
}

Result<> EventLoop::add(int fd, uint32_t events, Handler handler) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) < 0) return fail_errno("epoll_ctl");
  watched_[fd] = {events, std::make_shared<Handler>(std::move(handler))};
  return {};
}

void EventLoop::change(int fd, uint32_t events) {
  Watched& watched = watched_.at(fd);
  if (watched.events == events) return;
  watched.events = events;
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::remove(int fd) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  watched_.erase(fd);
  // What is left of this round for the descriptor is void, and the number may be used again.
  for (Ready& ready : ready_) {
    if (ready.fd == fd) ready.events = 0;
  }
}

int EventLoop::poll(int timeout_ms) {
  epoll_event events[kBatch];
  const int n = ::epoll_wait(epoll_.get(), events, kBatch, timeout_ms);
  for (int i = 0; i < n; i++) ready_[i] = {events[i].data.fd, events[i].events};
  return n;
}

int EventLoop::spin(TimePoint end) {
  TimePoint before = steady_clock::now();
  if (before < paused_until_) return 0;
  while (before < end) {
    const int n = poll(0);
    const TimePoint after = steady_clock::now();
    if (after - before > kInterrupted) {
      paused_until_ = after + pause_;
      pause_ = std::min<Duration>(2 * pause_, kLongestPause);
      return n;
    }
    if (n != 0) {
      pause_ = std::max<Duration>(pause_ - pause_ / 4096, kFirstPause);
      return n;
    }
    before = after;
  }
  return 0;
}

void EventLoop::adapt(Duration waited) {
  if (waited > spin_limit_)
    spin_ = Duration::zero();
  else if (waited > spin_)
    spin_ = std::min(spin_limit_, std::max<Duration>(2 * spin_, kFirstSpin));
}

void EventLoop::wait_once() {
  int n = poll(0);
  if (n == 0) {
    const TimePoint start = steady_clock::now();
    const auto due = timers_.next();
    TimePoint spin_end = start + spin_;
    if (due) spin_end = std::min(spin_end, *due);
    n = spin(spin_end);
    if (n == 0) {
      int timeout = -1;
      if (due) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(*due - steady_clock::now());
        timeout = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
      }
      n = poll(timeout);
    }
    if (n > 0) adapt(steady_clock::now() - start);
  }
  for (int i = 0; i < n; i++) {
    if (ready_[i].events == 0) continue;
    const auto found = watched_.find(ready_[i].fd);
    if (found == watched_.end()) continue;
    const std::shared_ptr<Handler> handler = found->second.handler;
    (*handler)(ready_[i].events);
    epilogue_();
  }
}

void EventLoop::run() {
  while (running_) {
    wait_once();
    if (const auto due = timers_.next(); due && *due <= steady_clock::now()) {
      timers_.run(steady_clock::now());
      epilogue_();
    }
  }
}

}  // namespace pcilend::fabric
