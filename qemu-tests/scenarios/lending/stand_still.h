// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>
#include <string>

#include "lab/lab.h"
#include "pcilend/result.h"

namespace pcilend::scenarios {

// A host whose CPUs all stand still for a while, with interrupts off. Only its console can be read
// then.
class StandStill {
 public:
  // Once it has said that they will, in 100 ms.
  static Result<StandStill> start(const lab::Host& host, std::chrono::milliseconds time) {
    const size_t mark = host.machine().console_size();
    auto running = host.start(fmt::format("modprobe pcilend_freeze ms={}", time.count()),
                              {{}, std::chrono::minutes(2)});
    if (!running) return tl::unexpected(std::move(running).error());
    StandStill still(host, std::move(*running), mark);
    PCILEND_TRY(lab::eventually(host.name() + " stands still", lab::kPatience,
                                [&] { return still.says("pcilend_freeze: all CPUs stop"); }));
    return still;
  }

  [[nodiscard]] bool is_over() const { return says("pcilend_freeze: they go on"); }

  // Waits until they go on: for how long they stood.
  Result<std::chrono::milliseconds> end() {
    const auto ended = running_.wait();
    if (!ended) return tl::unexpected(ended.error());
    if (ended->code != 0)
      return fail(ErrorClass::Failure, "modprobe pcilend_freeze: {}", ended->err);
    const auto removed = host_->run("rmmod pcilend_freeze");
    if (!removed) return tl::unexpected(removed.error());
    return ended->time;
  }

 private:
  StandStill(const lab::Host& host, lab::Running running, size_t mark)
      : host_(&host), running_(std::move(running)), mark_(mark) {}

  [[nodiscard]] bool says(const char* text) const {
    return host_->machine().console(mark_).find(text) != std::string::npos;
  }

  const lab::Host* host_;
  lab::Running running_;
  size_t mark_;
};

}  // namespace pcilend::scenarios
