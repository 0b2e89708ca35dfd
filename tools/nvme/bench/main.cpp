// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-nvme-bench: leases a drive, reads and writes it, and checks what it reads (docs/nvme.md).
#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/bench.h"
#include "bench/placement.h"
#include "pcilend/nvme/paths.h"
#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

struct Arguments {
  std::string function;
  BenchOptions bench;
  uint32_t name_space = 1;
  bool shared = false;
  bool own_memory = false;
  std::string near = "yes";
  std::string queues_in;  // parse_elsewhere()
  std::string data_in;
  std::vector<std::string> paths;  // adapters
  uint64_t slice = Lease::kSlice;
  std::string wait = "poll";
  bool json = false;
};

volatile std::sig_atomic_t stopped = 0;

nlohmann::ordered_json to_json(const std::string& function, const ControllerInfo& drive,
                               const NamespaceInfo& name_space, const BenchOptions& options,
                               const BenchReport& report) {
  return {{"schema", 1},
          {"function", function},
          {"model", drive.model},
          {"serial", drive.serial},
          {"firmware", drive.firmware},
          {"namespace", name_space.id},
          {"blocks", name_space.blocks},
          {"block_bytes", name_space.block_bytes},
          {"transfer_bytes", options.transfer},
          {"depth", options.depth},
          {"rounds", report.rounds},
          {"reads", report.reads},
          {"writes", report.writes},
          {"flushes", report.flushes},
          {"compared", report.compared},
          {"cksum", report.cksum},
          {"doorbells", report.doorbells},
          {"interrupts", report.interrupts},
          {"repeated", report.repeated},
          {"seconds", report.seconds.count()},
          {"remark", report.remark}};
}

bool goes_on(const BenchReport&) {
  return stopped == 0;
}

bool print_round(const BenchReport& report) {
  fmt::print("round {}: {} reads, {} writes, {} compared, {:.3f} s\n", report.rounds, report.reads,
             report.writes, report.compared, report.seconds.count());
  std::fflush(stdout);
  return goes_on(report);
}

void print_text(const ControllerInfo& drive, const NamespaceInfo& name_space, const Health& health,
                const BenchReport& report) {
  fmt::print("{} {}, namespace {}: {} blocks of {} bytes\n", drive.model, drive.serial,
             name_space.id, name_space.blocks, name_space.block_bytes);
  fmt::print("health: {} K, {} % used{}\n", health.kelvin, health.percent_used,
             health.warnings ? ", it warns" : "");
  fmt::print(
      "{} reads, {} writes, {} flushes, {} compared; {} doorbells, {} interrupts; {:.3f} s\n",
      report.reads, report.writes, report.flushes, report.compared, report.doorbells,
      report.interrupts, report.seconds.count());
  if (report.compared != 0) fmt::print("cksum {}\n", report.cksum);
  if (!report.remark.empty()) fmt::print("{}\n", report.remark);
}

constexpr const char* kOwner = "pcilend-nvme-bench";

// Says which namespaces have changed meanwhile.
class Watch {
 public:
  Watch(Drive& drive, Paths* paths) : drive_(drive), paths_(paths) {}

  void look_now_and_then() {
    if (std::chrono::steady_clock::now() >= next_) look();
  }
  // Whoever does not answer is noticed by what it is asked for.
  void look() {
    next_ = std::chrono::steady_clock::now() + kPause;
    const auto working = paths_ ? paths_->working() : nullptr;
    if (paths_ && !working) return;
    const auto changes = working ? working->changes() : drive_.changes();
    if (changes && !changes->empty())
      fmt::print(stderr, "{}: come, gone, or changed\n", to_string(*changes));
  }

 private:
  static constexpr std::chrono::seconds kPause{2};

  Drive& drive_;
  Paths* paths_;
  std::chrono::steady_clock::time_point next_;
};

// Nothing if all is where the drive's device has it.
Result<std::unique_ptr<Placement>> place(const ThisHost& host, Drive& drive,
                                         const Arguments& arguments) {
  if (arguments.queues_in.empty() && arguments.data_in.empty()) return std::unique_ptr<Placement>();
  return Placement::make(host, drive.device(), kOwner,
                         {.queues = arguments.queues_in,
                          .data = arguments.data_in,
                          .queue_bytes = queue_bytes(arguments.bench),
                          .data_bytes = data_bytes(arguments.bench),
                          .completion_bytes = arguments.bench.write || arguments.bench.verify
                                                  ? completion_bytes(arguments.bench)
                                                  : 0});
}

// With a drive that is open: what is asked for.
Result<> bench(const ThisHost& host, Drive& drive, Paths* paths, FunctionId id,
               const Arguments& arguments) {
  const auto name_space = drive.name_space(arguments.name_space);
  if (!name_space) return tl::unexpected(name_space.error());
  const auto health = drive.health();
  if (!health) return tl::unexpected(health.error());
  const ControllerInfo info = drive.info();
  const auto placement = place(host, drive, arguments);
  if (!placement) return tl::unexpected(placement.error());
  const BenchTarget target{.device = *placement ? (*placement)->device() : drive.device(),
                           .queues = drive.queues(),
                           .name_space = *name_space,
                           .vector = drive.vector(),
                           .paths = paths,
                           .elsewhere = *placement != nullptr,
                           .data = *placement ? (*placement)->data() : nullptr};
  Watch watch(drive, paths);
  const auto progress = [&](const BenchReport& report) {
    watch.look_now_and_then();
    return arguments.json ? goes_on(report) : print_round(report);
  };
  const auto report = run_bench(target, arguments.bench, progress);
  if (!report) {
    watch.look();
    return tl::unexpected(report.error());
  }
  if (arguments.json)
    std::cout << to_json(to_string(id), info, *name_space, arguments.bench, *report).dump(2)
              << std::endl;
  else
    print_text(info, *name_space, *health, *report);
  return {};
}

// Over all of them: what one of them loses goes over another one.
Result<> run_over(const ThisHost& host, const std::vector<std::string>& adapters, FunctionId id,
                  const Arguments& arguments) {
  if (!arguments.queues_in.empty() || !arguments.data_in.empty())
    return fail(ErrorClass::Usage,
                "--queues-in and --data-in are for one path, and {} leads over {}: give one --path",
                to_string(id), adapters.size());
  PathsOptions options;
  options.tell = [](const std::string& text) { fmt::print(stderr, "{}\n", text); };
  const auto paths = Paths::open(
      join_openers(id, kOwner, adapters, arguments.slice, arguments.bench.interrupts), options);
  if (!paths) return tl::unexpected(paths.error());
  return bench(host, (*paths)->drive(), paths->get(), id, arguments);
}

Result<> run(const Arguments& arguments) {
  const auto id = parse_function_id(arguments.function);
  if (!id) return tl::unexpected(id.error());
  const auto host = ThisHost::open();
  if (!host) return tl::unexpected(host.error());
  if (!arguments.shared) {
    const DrivePlace place = arguments.own_memory     ? DrivePlace::Own
                             : arguments.near == "no" ? DrivePlace::Far
                                                      : DrivePlace::Near;
    const auto drive = Drive::open_alone(*host, *id, kOwner, arguments.slice, place);
    if (!drive) return tl::unexpected(drive.error());
    return bench(*host, **drive, nullptr, *id, arguments);
  }
  const auto adapters = choose_paths(*host, *id, arguments.paths);
  if (!adapters) return tl::unexpected(adapters.error());
  if (adapters->size() > 1) return run_over(*host, *adapters, *id, arguments);
  JoinOptions wanted{.slice = arguments.slice, .interrupt = arguments.bench.interrupts};
  if (!adapters->empty()) wanted.adapter = adapters->front();
  const auto drive = Drive::join(*host, *id, kOwner, wanted);
  if (!drive) return tl::unexpected(drive.error());
  return bench(*host, **drive, nullptr, *id, arguments);
}

int main(int argc, char** argv) {
  Arguments arguments;
  BenchOptions& bench = arguments.bench;
  CLI::App app(
      "Leases an NVMe drive for this process, or shares it, reads a range of its blocks, and "
      "checks what it reads.");
  app.add_option("FUNCTION", arguments.function, "id of the function, as `pcilend list` has it")
      ->required();
  auto* const own = app.add_flag(
      "--cmb", arguments.own_memory,
      "commands and lists are in the drive's own memory (CMB); of a shared drive its manager "
      "says where");
  app.add_option("--near", arguments.near,
                 "commands and lists are beside a drive of another host: yes, or no; without "
                 "--shared, whose manager says where")
      ->capture_default_str()
      ->check(CLI::IsMember({"yes", "no"}));
  app.add_option("--queues-in", arguments.queues_in,
                 "commands and lists are in a BAR of that function, leased for it, or behind a "
                 "dma-buf: 40002:2+64K, fd:5")
      ->excludes(own);
  app.add_option("--data-in", arguments.data_in, "data is, in the same way");
  app.add_flag("--shared", arguments.shared,
               "beside other processes, by its manager (pcilend-nvme-manager)");
  app.add_option(
         "--path", arguments.paths,
         "with --shared: PCI addresses of the adapters to go over, 0000:00:04.0,0000:00:05.0; "
         "else all over which it is offered")
      ->delimiter(',');
  app.add_flag("--staged", bench.staged,
               "what is written is first put beside the drive, where there is memory for it");
  app.add_option("--slice", arguments.slice, "memory that can be mapped for the drive: 1M")
      ->capture_default_str()
      ->transform(CLI::AsSizeValue(false));
  app.add_flag("--write", bench.write,
               "write the range first: what is on it is lost. Without, nothing is written");
  app.add_flag("--verify", bench.verify, "compare with what --write has once put there");
  app.add_option("--seed", bench.seed, "of what is written")->capture_default_str();
  app.add_option("--namespace", arguments.name_space, "")->capture_default_str();
  app.add_option("--block", bench.block, "the range's first")->capture_default_str();
  app.add_option("--size", bench.transfer, "of a command: 4096, 128K")
      ->capture_default_str()
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--commands", bench.commands, "of each kind, one behind the other on the drive")
      ->capture_default_str();
  app.add_option("--depth", bench.depth, "commands under way at once")->capture_default_str();
  app.add_option("--rounds", bench.rounds, "of all that")->capture_default_str();
  app.add_option("--wait", arguments.wait, "poll memory, or sleep until an interrupt")
      ->capture_default_str()
      ->check(CLI::IsMember({"poll", "interrupt"}));
  app.add_flag("-j,--json", arguments.json);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorClass::Usage);
  }
  // The round that is under way is the last one.
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { stopped = 1; });
  bench.interrupts = arguments.wait == "interrupt";
  const auto done = run(arguments);
  if (done) return 0;
  std::cerr << done.error().message << "\n";
  return static_cast<int>(done.error().kind);
}

}  // namespace
}  // namespace pcilend::nvme

int main(int argc, char** argv) {
  return pcilend::nvme::main(argc, argv);
}
