// SPDX-License-Identifier: GPL-2.0-or-later
#include "start_lab.h"

#include <fmt/format.h>

namespace pcilend::scenarios {

Result<> start_lab(const lab::Options& options, std::optional<lab::Lab>& lab) {
  auto started = lab::Lab::up(options, [](double seconds, const std::string& step) {
    fmt::print(stderr, "[{:7.3f}] {}\n", seconds, step);
  });
  if (!started) return tl::unexpected(started.error());
  lab.emplace(std::move(*started));
  return {};
}

}  // namespace pcilend::scenarios
