// SPDX-License-Identifier: GPL-2.0-or-later
// The story of a test run: every command with its host's name and time, and what came of it.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace pcilend::lab {

class Transcript {
 public:
  using Sink = std::function<void(std::string_view line)>;

  // Without a sink, lines go to stderr.
  explicit Transcript(Sink sink = {});

  // "[  3.104] host1 $ pcilend connect 8"; each line of a longer text is marked as such.
  void say(std::string_view who, char mark, std::string_view text);

 private:
  std::mutex mutex_;
  Sink sink_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace pcilend::lab
