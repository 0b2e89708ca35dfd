// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-nvme-bench: leases a drive, reads and writes it, and checks what it reads (docs/nvme.md).
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/bench.h"
#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

struct Arguments {
  std::string function;
  BenchOptions bench;
  std::string wait = "poll";
  bool json = false;
};

nlohmann::ordered_json to_json(const std::string& function, const ControllerInfo& drive,
                               const BenchOptions& options, const BenchReport& report) {
  return {{"schema", 1},
          {"function", function},
          {"model", drive.model},
          {"serial", drive.serial},
          {"firmware", drive.firmware},
          {"namespace", report.name_space.id},
          {"blocks", report.name_space.blocks},
          {"block_bytes", report.name_space.block_bytes},
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
          {"seconds", report.seconds.count()},
          {"remark", report.remark}};
}

void print_round(const BenchReport& report) {
  fmt::print("round {}: {} reads, {} writes, {} compared, {:.3f} s\n", report.rounds, report.reads,
             report.writes, report.compared, report.seconds.count());
  std::fflush(stdout);
}

void print_text(const ControllerInfo& drive, const BenchReport& report) {
  fmt::print("{} {}, namespace {}: {} blocks of {} bytes\n", drive.model, drive.serial,
             report.name_space.id, report.name_space.blocks, report.name_space.block_bytes);
  fmt::print(
      "{} reads, {} writes, {} flushes, {} compared; {} doorbells, {} interrupts; {:.3f} s\n",
      report.reads, report.writes, report.flushes, report.compared, report.doorbells,
      report.interrupts, report.seconds.count());
  if (report.compared != 0) fmt::print("cksum {}\n", report.cksum);
  if (!report.remark.empty()) fmt::print("{}\n", report.remark);
}

Result<> run(const Arguments& arguments) {
  const auto id = parse_function_id(arguments.function);
  if (!id) return tl::unexpected(id.error());
  const auto host = ThisHost::open();
  if (!host) return tl::unexpected(host.error());
  const auto device = open_leased(*host, *id, "pcilend-nvme-bench");
  if (!device) return tl::unexpected(device.error());
  const auto controller = Controller::start(**device);
  if (!controller) return tl::unexpected(controller.error());
  const auto report =
      run_bench(**device, **controller, arguments.bench, arguments.json ? nullptr : print_round);
  if (!report) return tl::unexpected(report.error());
  const ControllerInfo& drive = (*controller)->info();
  if (arguments.json)
    std::cout << to_json(to_string(*id), drive, arguments.bench, *report).dump(2) << std::endl;
  else
    print_text(drive, *report);
  return {};
}

int main(int argc, char** argv) {
  Arguments arguments;
  BenchOptions& bench = arguments.bench;
  CLI::App app(
      "Leases an NVMe drive for this process, reads a range of its blocks, and checks what "
      "it reads.");
  app.add_option("FUNCTION", arguments.function, "id of the function, as `pcilend list` has it")
      ->required();
  app.add_flag("--write", bench.write,
               "write the range first: what is on it is lost. Without, nothing is written");
  app.add_flag("--verify", bench.verify, "compare with what --write has once put there");
  app.add_option("--seed", bench.seed, "of what is written")->capture_default_str();
  app.add_option("--namespace", bench.name_space, "")->capture_default_str();
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
