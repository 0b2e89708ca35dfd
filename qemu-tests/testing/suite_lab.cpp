// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/suite_lab.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace pcilend::scenarios {
namespace {

// The lab that the last suite has ended with, and what it was started with.
std::optional<lab::Lab> kept;
std::optional<lab::Options> kept_options;

class EndOfProgram : public testing::Environment {
  void TearDown() override { kept.reset(); }
};
const auto* const end_of_program = testing::AddGlobalTestEnvironment(new EndOfProgram);

}  // namespace

Result<> start_lab(const lab::Options& options, std::optional<lab::Lab>& lab) {
  if (kept && kept_options == options) {
    lab.emplace(std::move(*kept));
    kept.reset();
    return {};
  }
  kept.reset();
  kept_options = options;
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
  const auto* suite = testing::UnitTest::GetInstance()->current_test_suite();
  if (lab && clean && suite && suite->Passed()) kept.emplace(std::move(*lab));
  lab.reset();
  return clean;
}

}  // namespace pcilend::scenarios
