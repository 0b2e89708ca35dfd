// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-migration-bench: how long a guest with borrowed functions is away while it moves to
// another host, step by step, beside the same guest without.
#include <fmt/format.h>

#include <array>

#include "lab/lab.h"
#include "main_job/admin_steps.h"
#include "main_job/main_job.h"
#include "scenarios/bench/bench_rows.h"
#include "testing/lan.h"
#include "testing/suite_lab.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kMoves = 6;  // there and back
constexpr const char* kGuest = "mover";

enum Step { kReserve, kSeeFree, kMigrate, kStart, kAnswer, kDisk, kSteps };

constexpr std::array<const char*, kSteps> kNames = {
    "`pcilend reserve`, while it runs", "from its end until the target sees both functions free",
    "`virsh migrate --offline`",        "`virsh start`",
    "until the guest's agent answers",  "until the guest has its disk",
};

// Milliseconds of each, one by one.
using Times = std::array<std::vector<double>, kSteps>;

/*
 *   host1 (lender)      host2 ══ guest
 *   nvme, e1000e          │ lan
 *                       host3
 */
Result<lab::Options> options() {
  lab::Options options;
  options.name = "bench";
  options.hosts = 3;
  PCILEND_TRY(options.add_device("host1:nvme,id=nvme,serial=moves,drive-size=64M"));
  PCILEND_TRY(options.add_device("host1:e1000e,id=nic"));
  PCILEND_TRY(add_lan(options, 2, 3));
  return options;
}

Result<std::vector<std::string>> lend(lab::Lab& lab) {
  const lab::Host& lender = lab.host(1);
  std::vector<std::string> ids;
  for (const char* device : {"nvme", "nic"}) {
    const auto address = lender.address(device);
    if (!address) return tl::unexpected(address.error());
    const auto function = offer(lender, *address);
    if (!function) return tl::unexpected(function.error());
    ids.push_back(function->at("id"));
  }
  return ids;
}

Result<> see_free(const lab::Host& host, const std::vector<std::string>& ids) {
  for (const std::string& id : ids) PCILEND_TRY(await_state(host, id, "available"));
  return {};
}

// Each call gives the time since the one before.
class Lap {
 public:
  double operator()() {
    const auto now = Clock::now();
    return std::chrono::duration<double, std::milli>(now - std::exchange(last_, now)).count();
  }

 private:
  Clock::time_point last_ = Clock::now();
};

Result<> move(const lab::Host& from, const lab::Host& to, const std::vector<std::string>& ids,
              Times& times) {
  auto spec = from.guest_spec(kGuest, ids);
  if (!spec) return tl::unexpected(spec.error());
  const lab::Guest here = from.guest(*spec), there = to.guest(*spec);
  Lap lap;
  if (!ids.empty()) {
    PCILEND_TRY(
        from.run(fmt::format("pcilend reserve --for $(virsh domuuid {}) --ttl 900", kGuest)));
    times[kReserve].push_back(lap());
  }
  PCILEND_TRY(here.shut_down());
  lap();
  if (!ids.empty()) {
    PCILEND_TRY(see_free(to, ids));
    times[kSeeFree].push_back(lap());
  }
  PCILEND_TRY(from.run(migrate(kGuest, to), {{}, 3min}));
  times[kMigrate].push_back(lap());
  PCILEND_TRY(there.start());
  times[kStart].push_back(lap());
  PCILEND_TRY(there.await_answer());
  times[kAnswer].push_back(lap());
  if (!ids.empty()) {
    PCILEND_TRY(MainJob::await_disk(there));
    times[kDisk].push_back(lap());
  }
  return {};
}

Result<Times> move_around(lab::Lab& lab, const std::vector<std::string>& ids) {
  auto spec = lab.host(2).guest_spec(kGuest, ids);
  if (!spec) return tl::unexpected(spec.error());
  const lab::Guest guest = lab.host(2).guest(*spec);
  PCILEND_TRY(guest.define());
  PCILEND_TRY(guest.boot());
  Times times;
  for (int i = 0; i < kMoves; ++i)
    PCILEND_TRY(move(lab.host(2 + i % 2), lab.host(3 - i % 2), ids, times));
  PCILEND_TRY(guest.destroy());
  PCILEND_TRY(guest.undefine());
  return times;
}

void print(const Times& with, const Times& without) {
  fmt::print("| median of {} moves | with two functions | without |\n| --- | --- | --- |\n",
             kMoves);
  const auto cell = [](const std::vector<double>& values) {
    return values.empty() ? std::string() : fmt::format("{:.0f} ms", median(values));
  };
  for (size_t step = 0; step < kSteps; ++step)
    fmt::print("| {} | {} | {} |\n", kNames[step], cell(with[step]), cell(without[step]));
  const auto away = [](const Times& times) {
    std::vector<double> sums(kMoves, 0.0);
    for (size_t step = kReserve + 1; step < kSteps; ++step)
      for (size_t i = 0; i < times[step].size(); ++i) sums[i] += times[step][i];
    return sums;
  };
  fmt::print("| away, from its end to its last step | {} | {} |\n", cell(away(with)),
             cell(away(without)));
}

Result<> bench() {
  const auto wanted = options();
  if (!wanted) return tl::unexpected(wanted.error());
  std::optional<lab::Lab> lab;
  PCILEND_TRY(start_lab(*wanted, lab));
  for (const int number : {2, 3}) {
    PCILEND_TRY(lab->host(1).run(fmt::format("pcilend connect {}", lab->host(number).node())));
    PCILEND_TRY(join_lan(lab->host(number)));
  }
  const auto ids = lend(*lab);
  if (!ids) return tl::unexpected(ids.error());
  for (const int number : {2, 3}) PCILEND_TRY(see_free(lab->host(number), *ids));
  const auto with = move_around(*lab, *ids);
  if (!with) return tl::unexpected(with.error());
  const auto without = move_around(*lab, {});
  if (!without) return tl::unexpected(without.error());
  print(*with, *without);
  return {};
}

}  // namespace
}  // namespace pcilend::scenarios

int main() {
  return pcilend::scenarios::run_bench("pcilend-migration-bench", pcilend::scenarios::bench);
}
