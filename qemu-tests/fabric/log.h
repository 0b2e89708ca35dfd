// SPDX-License-Identifier: GPL-2.0-or-later
// The fabric's log: one line an event, stamped with seconds since the start.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "timers.h"

namespace pcilend::fabric {

class Log {
 public:
  using Sink = std::function<void(std::string_view line)>;

  Log(Clock clock, Sink sink)
      : clock_(std::move(clock)), sink_(std::move(sink)), start_(clock_()) {}

  template <class... Args>
  void info(fmt::format_string<Args...> text, Args&&... args) {
    write("", "", fmt::format(text, std::forward<Args>(args)...));
  }

  // Something that hardware does too, but a guest seldom wants: a closed window, an unmapped
  // address. At most kPerSecond lines of one `kind` a second; what was left out is counted in the
  // next line.
  template <class... Args>
  void fault(std::string_view kind, fmt::format_string<Args...> text, Args&&... args) {
    if (admit("FAULT", kind)) write("FAULT", kind, fmt::format(text, std::forward<Args>(args)...));
  }

  // Something that would not have happened on hardware: look here first when a guest behaves
  // strangely. Limited as faults are.
  template <class... Args>
  void artefact(std::string_view kind, fmt::format_string<Args...> text, Args&&... args) {
    if (admit("ARTEFACT", kind))
      write("ARTEFACT", kind, fmt::format(text, std::forward<Args>(args)...));
  }

 private:
  static constexpr unsigned kPerSecond = 10;

  struct Rate {
    TimePoint second;
    unsigned lines = 0;
    unsigned omitted = 0;
  };

  bool admit(std::string_view level, std::string_view kind);
  void write(std::string_view level, std::string_view kind, const std::string& text);

  Clock clock_;
  Sink sink_;
  TimePoint start_;
  std::map<std::string, Rate, std::less<>> rates_;
};

}  // namespace pcilend::fabric
