// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/suite_lab.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

// The lab that the last suite has ended with, and what it was started with.
std::optional<lab::Lab> kept;
std::optional<lab::Options> kept_options;

// What the kernels of all hosts have said goes beside the lab's other logs ($PCILEND_LAB_LOGS).
void save_kernel_logs(lab::Lab& lab) {
  const char* logs = std::getenv("PCILEND_LAB_LOGS");
  if (!logs || !*logs) return;
  const std::filesystem::path directory = std::filesystem::path(logs) / lab.name();
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  for (int number = 1; number <= lab.hosts(); ++number) {
    const auto log = lab.host(number).exec("dmesg", {{}, 20s});
    if (log) std::ofstream(directory / (lab::host_name(number) + ".dmesg")) << log->out;
  }
}

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
  const bool passed = clean && suite && suite->Passed();
  if (lab && !passed) save_kernel_logs(*lab);
  if (lab && passed) kept.emplace(std::move(*lab));
  lab.reset();
  return clean;
}

}  // namespace pcilend::scenarios
