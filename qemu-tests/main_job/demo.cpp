// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-demo: the main job, step by step, each with its time.
#include <fmt/core.h>

#include <chrono>
#include <functional>
#include <optional>

#include "lab/lab.h"
#include "main_job/main_job.h"

namespace pcilend::scenarios {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void print_line(std::string_view line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

// The transcript without what the demo looks at by itself: states (it asks for JSON), kernel logs.
class Story {
 public:
  void operator()(std::string_view line) {
    const auto mark = line.find_first_of("$|>=!<", line.find("] ") + 2);
    if (mark != std::string_view::npos && line[mark] == '$')
      hidden_ = line.find("--json") != std::string_view::npos ||
                line.substr(0, mark).find("(log)") != std::string_view::npos;
    if (!hidden_) print_line(line);
  }

 private:
  bool hidden_ = false;
};

class Demo {
 public:
  // Runs one step, and keeps its time for the closing table.
  Result<> step(const std::string& title, const std::function<Result<>()>& run) {
    fmt::print("\n== {}. {}\n", times_.size() + 1, title);
    std::fflush(stdout);
    const auto start = Clock::now();
    auto result = run();
    times_.emplace_back(title, seconds_since(start));
    if (!result) return tl::unexpected(std::move(result).error().in(title));
    return {};
  }

  Result<> run();

 private:
  Result<> lend_and_use(lab::Lab& lab);
  void print_times() const;
  void print_traffic(const lab::Counters& counters) const;

  std::vector<std::pair<std::string, double>> times_;
  lab::Counters traffic_;
  LenderEffort effort_;
  uint64_t guest_commands_ = 0;
};

Result<> Demo::run() {
  lab::Options options;
  options.name = "demo";
  PCILEND_TRY(options.add_device("host1:nvme,serial=demo,drive-size=256M"));
  std::optional<lab::Lab> lab;
  PCILEND_TRY(
      step("The fabric and two hosts: lender (node 4) and borrower (node 8)", [&]() -> Result<> {
        const auto progress = [](double seconds, const std::string& what) {
          print_line(fmt::format("[{:7.3f}] {}", seconds, what));
        };
        auto up = lab::Lab::up(options, progress, Story());
        if (!up) return tl::unexpected(up.error());
        lab.emplace(std::move(*up));
        return {};
      }));
  return lend_and_use(*lab);
}

Result<> Demo::lend_and_use(lab::Lab& lab) {
  lab::Host& lender = lab.host(1);
  lab::Host& borrower = lab.host(2);
  const auto address = lender.address(0);
  if (!address) return tl::unexpected(address.error());
  MainJob job(lender, borrower, *address, "demo");

  PCILEND_TRY(step("The lender puts 2 MiB of files with known checksums on its NVMe drive",
                   [&]() -> Result<> {
                     // Meanwhile the borrower's libvirtd starts, as on a host that is up.
                     PCILEND_TRY(borrower.run("virsh domcapabilities >/dev/null 2>&1 &"));
                     return job.fill_drive();
                   }));
  PCILEND_TRY(step("The lender offers the drive", [&] { return job.lend(); }));
  PCILEND_TRY(step("The borrower sees it", [&] { return job.see_available(); }));
  PCILEND_TRY(
      step("virsh start: libvirt's hook borrows the drive", [&] { return job.start_guest(); }));
  PCILEND_TRY(
      step("The guest boots, its nvme driver binds", [&] { return job.await_guest_disk(); }));

  LenderEffort before;
  PCILEND_TRY(step("The guest reads 2 MiB and checks every file", [&]() -> Result<> {
    const auto effort = job.lender_effort();
    if (!effort) return tl::unexpected(effort.error());
    before = *effort;
    PCILEND_TRY(lab.fabric().counters(true));
    return job.read_in_guest();
  }));
  PCILEND_TRY(step("The guest writes 256 KiB", [&]() -> Result<> {
    PCILEND_TRY(job.write_in_guest());
    const auto counters = lab.fabric().counters();
    const auto after = job.lender_effort();
    const auto commands = job.guest_commands();
    if (!counters) return tl::unexpected(counters.error());
    if (!after) return tl::unexpected(after.error());
    if (!commands) return tl::unexpected(commands.error());
    traffic_ = *counters;
    guest_commands_ = *commands;
    effort_ = {after->messages - before.messages, after->interrupts - before.interrupts};
    return {};
  }));
  PCILEND_TRY(step("The guest shuts down: the drive goes back", [&]() -> Result<> {
    PCILEND_TRY(job.shut_down_guest());
    return job.see_available();
  }));
  PCILEND_TRY(step("The lender takes the drive back and checks what the guest wrote",
                   [&] { return job.take_back(); }));
  for (const auto* host : {&lender, &borrower}) PCILEND_TRY(host->check_log());
  print_times();
  print_traffic(traffic_);
  if (effort_.messages != 0 || effort_.interrupts != 0)
    return fail(ErrorClass::Failure, "the lender worked during the guest's I/O");
  return {};
}

void Demo::print_times() const {
  double total = 0;
  fmt::print("\nTime per step\n");
  for (const auto& [title, seconds] : times_) {
    fmt::print("  {:7.1f} s  {}\n", seconds, title);
    total += seconds;
  }
  fmt::print("  {:7.1f} s  in all\n", total);
}

void Demo::print_traffic(const lab::Counters& counters) const {
  fmt::print("\nWhat crossed the NTB during the guest's I/O ({} NVMe reads and writes)\n",
             guest_commands_);
  fmt::print("  {:<22}{:<12}{:>10}{:>12}{:>12}{:>14}\n", "from -> to", "target", "reads", "writes",
             "bytes read", "bytes written");
  for (const auto& path : counters.paths) {
    const std::string way =
        fmt::format("{} -> {}", lab::host_name(path.from), lab::host_name(path.to));
    const auto row = [&](const char* target, const lab::Traffic& traffic) {
      fmt::print("  {:<22}{:<12}{:>10}{:>12}{:>12}{:>14}\n", way, target, traffic.reads,
                 traffic.writes, traffic.read_bytes, traffic.write_bytes);
    };
    row("memory", path.memory);
    row("BAR", path.bar);
    row("interrupt", path.interrupt);
  }
  fmt::print("\nWhat the lender did for it\n");
  fmt::print("  {:>7}  control messages\n  {:>7}  interrupts taken\n", effort_.messages,
             effort_.interrupts);
}

}  // namespace
}  // namespace pcilend::scenarios

int main() {
  pcilend::scenarios::Demo demo;
  const auto result = demo.run();
  if (result) return 0;
  std::fflush(stdout);
  fmt::print(stderr, "pcilend-demo: {}\n", result.error().message);
  return static_cast<int>(result.error().kind);
}
