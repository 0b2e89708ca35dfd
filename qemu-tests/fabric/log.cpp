// SPDX-License-Identifier: GPL-2.0-or-later
#include "log.h"

#include "pcilend/result.h"

namespace pcilend::fabric {

bool Log::admit(std::string_view level, std::string_view kind) {
  auto found = rates_.find(kind);
  if (found == rates_.end()) found = rates_.emplace(kind, Rate{clock_()}).first;
  Rate& rate = found->second;
  if (clock_() - rate.second >= std::chrono::seconds(1)) {
    const unsigned omitted = rate.omitted;
    rate = Rate{clock_()};
    if (omitted != 0) write(level, kind, fmt::format("{} more left out", omitted));
  }
  if (rate.lines < kPerSecond) {
    rate.lines++;
    return true;
  }
  rate.omitted++;
  return false;
}

void Log::write(std::string_view level, std::string_view kind, const std::string& text) {
  const double seconds = std::chrono::duration<double>(clock_() - start_).count();
  if (level.empty())
    sink_(fmt::format("{:.6f} {}\n", seconds, text));
  else
    sink_(fmt::format("{:.6f} {} {}: {}\n", seconds, level, kind, text));
}

}  // namespace pcilend::fabric
