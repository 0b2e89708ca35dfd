// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/transcript.h"

#include <fmt/format.h>

#include <cstdio>

namespace pcilend::lab {

Transcript::Transcript(Sink sink) : sink_(std::move(sink)) {
  if (!sink_) sink_ = [](std::string_view line) { fmt::print(stderr, "{}\n", line); };
}

void Transcript::say(std::string_view who, char mark, std::string_view text) {
  const std::lock_guard lock(mutex_);
  const std::chrono::duration<double> now = std::chrono::steady_clock::now() - start_;
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  do {
    const size_t end = std::min(text.find('\n'), text.size());
    sink_(fmt::format("[{:8.3f}] {} {} {}", now.count(), who, mark, text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  } while (!text.empty());
}

}  // namespace pcilend::lab
