// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdio>
#include <string>

#include "lab/lab.h"
#include "pcilend/result.h"

namespace pcilend::scenarios {

// A program in the background, such as a manager or a client, and what it says.
class Process {
 public:
  static Result<Process> start(const lab::Host& host, const std::string& command) {
    // Its own errors, too: a manager speaks on stderr.
    auto running =
        host.start(fmt::format("echo pid $$; exec {} 2>&1", command), {{}, std::chrono::hours(3)});
    if (!running) return tl::unexpected(std::move(running).error());
    return Process(host, std::move(*running));
  }

  [[nodiscard]] std::string said() const { return running_.output_so_far(); }
  [[nodiscard]] bool ended() const { return running_.ended(); }
  // How often it has said that.
  [[nodiscard]] size_t times(const std::string& words) const {
    const std::string text = said();
    size_t found = 0;
    for (size_t at = 0; (at = text.find(words, at)) != std::string::npos; ++at) ++found;
    return found;
  }
  // Until it has said that, so many times.
  Result<> await(const std::string& words, size_t count = 1) const {
    const auto come = lab::eventually("it says: " + words, lab::kPatience,
                                      [&] { return ended() || times(words) >= count; });
    if (!come) return tl::unexpected(come.error());
    if (times(words) >= count) return {};
    return fail(ErrorClass::Failure, "it has ended without '{}': {}", words, said());
  }
  Result<> signal(const char* name) const {
    int pid = 0;
    if (std::sscanf(said().c_str(), "pid %d", &pid) != 1)
      return fail(ErrorClass::Failure, "it has not begun: {}", said());
    const auto sent = host_->run(fmt::format("kill -{} {}", name, pid));
    if (!sent) return tl::unexpected(sent.error());
    return {};
  }
  // Its exit code.
  Result<int> wait() {
    const auto ended = running_.wait();
    if (!ended) return tl::unexpected(ended.error());
    return ended->code;
  }
  // After that signal.
  Result<int> end(const char* name) {
    if (const auto sent = signal(name); !sent) return tl::unexpected(sent.error());
    return wait();
  }

 private:
  Process(const lab::Host& host, lab::Running running)
      : host_(&host), running_(std::move(running)) {}

  const lab::Host* host_;
  lab::Running running_;
};

}  // namespace pcilend::scenarios
