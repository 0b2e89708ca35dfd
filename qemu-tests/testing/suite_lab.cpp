// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/suite_lab.h"

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

Result<> end_lab(std::optional<lab::Lab>& lab) {
  Result<> clean;
  for (int host = 1; lab && host <= lab->hosts() && clean; ++host)
    clean = lab->host(host).check_leaks();
  lab.reset();
  return clean;
}

}  // namespace pcilend::scenarios
