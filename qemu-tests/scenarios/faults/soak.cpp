// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-soak: random cases of the fault matrix at random moments, one after the other, on one
// lab.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>

#include "scenarios/faults/fault_bench.h"

namespace pcilend::scenarios {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Round {
  FaultCase one;
  Timing timing;
};

// All of a round comes from its seed.
Round round_of(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto& cases = all_fault_cases();
  Round round{cases.at(random() % cases.size()), {}};
  const auto& when = triggers(round.one.moment);
  if (!when.empty() && round.one.fault != Fault::Unload)
    round.timing.trigger = random() % when.size();
  if (round.one.fault != Fault::Unload) round.timing.delay = 1ms * (random() % 1500);
  return round;
}

uint64_t next_seed(uint64_t seed) {
  return std::mt19937_64(seed ^ 0x70636c656e64)();
}

// The first seed from this one on whose round is of that kind.
uint64_t seed_of_kind(uint64_t seed, const std::string& only) {
  while (name_of(round_of(seed).one).find(only) == std::string::npos) seed = next_seed(seed);
  return seed;
}

bool is_kind(const std::string& only) {
  return std::any_of(all_fault_cases().begin(), all_fault_cases().end(), [&](const FaultCase& one) {
    return name_of(one).find(only) != std::string::npos;
  });
}

std::string text(const Round& round) {
  const auto& when = triggers(round.one.moment);
  return fmt::format("{}{}{} +{} ms", name_of(round.one), when.empty() ? "" : ", ",
                     when.empty() ? "" : when.at(round.timing.trigger).text,
                     round.timing.delay.count());
}

// What is said in a round; kept until it went well.
class Story {
 public:
  // aloud: on stderr too.
  explicit Story(bool aloud) : aloud_(aloud) {}
  void operator()(std::string_view line) const {
    *text_ += fmt::format("{}\n", line);
    if (aloud_) fmt::print(stderr, "{}\n", line);
  }
  void clear() const { text_->clear(); }
  [[nodiscard]] const std::string& text() const { return *text_; }

 private:
  bool aloud_;
  std::shared_ptr<std::string> text_ = std::make_shared<std::string>();
};

// Everything that is known of a failed round, outside of the checkout and of the lab.
Result<fs::path> keep_logs(const lab::Lab& lab, const std::vector<lab::Host*>& hosts, uint64_t seed,
                           const std::string& story) {
  const char* place = std::getenv("PCILEND_SOAK_LOGS");
  const fs::path dir = fs::path(place != nullptr ? place : "/var/tmp/pcilend-soak") /
                       fmt::format("{}-{:x}", std::time(nullptr), seed);
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) return fail_errno(dir.native(), error.value());
  std::ofstream(dir / "transcript") << story;
  fs::copy_file(lab.layout().fabric_log(), dir / "fabric.log", error);
  for (const lab::Host* host : hosts) {
    std::ofstream(dir / (host->name() + ".kernel.log")) << host->log();
    fs::copy_file(host->machine().console_path(), dir / (host->name() + ".console"), error);
    if (host->machine().condition() == lab::Condition::Running) {
      const auto state = host->exec(
          "pcilend link; pcilend list; virsh list --all; ls -l /sys/bus/mdev/devices; "
          "tail -n 40 /var/log/pcilend-lab-guest-*.log; cat /proc/[0-9]*/stack; dmesg");
      std::ofstream(dir / (host->name() + ".state"))
          << (state ? state->out + state->err : state.error().message);
    }
  }
  return dir;
}

Result<lab::Lab> take_lab(const std::string& name, const Story& story) {
  auto left = lab::Lab::attach(name, story);
  if (left) {
    // A failed soak left it: its hosts begin anew, with what has been built since.
    for (const int host : {1, 2}) PCILEND_TRY(left->host(host).power_off());
    PCILEND_TRY(left->update());
    return left;
  }
  const auto options = FaultBench::options(name);
  if (!options) return tl::unexpected(options.error());
  return lab::Lab::up(*options, {}, story);
}

Result<> soak(const std::string& name, unsigned rounds, uint64_t seed, const std::string& only,
              bool aloud) {
  const Story story(aloud);
  auto lab = take_lab(name, story);
  if (!lab) return tl::unexpected(lab.error());
  FaultBench bench(*lab);
  const auto begin = Clock::now();
  for (unsigned i = 1; i <= rounds; ++i, seed = next_seed(seed)) {
    seed = seed_of_kind(seed, only);
    const Round round = round_of(seed);
    const auto start = Clock::now();
    auto result = bench.run(round.one, round.timing);
    if (result && i == rounds) result = bench.close();
    const std::chrono::duration<double> took = Clock::now() - start;
    fmt::print("{:4} SEED={:x} {:6.1f} s {}: {}\n", i, seed, took.count(), text(round),
               result ? "ok" : "FAILED");
    std::fflush(stdout);
    if (result) {
      story.clear();
      continue;
    }
    if (auto kept = lab->keep(); !kept) story(kept.error().message);
    const auto logs = keep_logs(*lab, {&lab->host(1), &lab->host(2)}, seed, story.text());
    return fail(ErrorClass::Failure,
                "{}\nlogs: {}\nagain: make soak ROUNDS=1 SEED={:x}; 'pcilend-lab --lab {} down' "
                "ends the lab, which stays as it is until then",
                result.error().message, logs ? logs->native() : logs.error().message, seed, name);
  }
  const std::chrono::duration<double> took = Clock::now() - begin;
  fmt::print("{} rounds passed, {:.1f} s each; {} writes, {} reads checked, {} errors met\n",
             rounds, took.count() / rounds, bench.ledger().writes(), bench.ledger().checked(),
             bench.ledger().errors());
  PCILEND_TRY(lab::Lab::down(name));
  return {};
}

}  // namespace
}  // namespace pcilend::scenarios

int main(int argc, char** argv) {
  CLI::App app("Random faults on two hosts, until one is not survived.");
  unsigned rounds = 20;
  std::string seed;
  std::string only;
  std::string lab = "soak";
  app.add_option("--lab", lab, "its name, for several at the same time");
  app.add_option("--rounds", rounds, "how many")->check(CLI::Range(1U, 1'000'000U));
  app.add_option("--seed", seed, "hexadecimal; the first round's")->required();
  app.add_option("--only", only, "cases whose name contains this, such as LenderPanic");
  bool aloud = false;
  app.add_flag("-v,--verbose", aloud, "every command as it is run, on stderr");
  CLI11_PARSE(app, argc, argv);
  char* end = nullptr;
  const uint64_t first = std::strtoull(seed.c_str(), &end, 16);
  if (seed.empty() || *end != '\0') {
    fmt::print(stderr, "pcilend-soak: SEED '{}' is not a hexadecimal number\n", seed);
    return static_cast<int>(pcilend::ErrorClass::Usage);
  }
  if (!pcilend::scenarios::is_kind(only)) {
    fmt::print(stderr, "pcilend-soak: no case has '{}' in its name\n", only);
    return static_cast<int>(pcilend::ErrorClass::Usage);
  }
  const auto result = pcilend::scenarios::soak(lab, rounds, first, only, aloud);
  if (result) return 0;
  fmt::print(stderr, "pcilend-soak: {}\n", result.error().message);
  return static_cast<int>(result.error().kind);
}
