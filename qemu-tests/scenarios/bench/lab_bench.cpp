// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-lab-bench: what a borrowed drive costs its borrower, beside a drive of its own in the
// same host.
#include <fmt/format.h>

#include "lab/lab.h"
#include "main_job/admin_steps.h"
#include "main_job/main_job.h"
#include "scenarios/bench/bench_rows.h"
#include "scenarios/bench/guest_bench.h"
#include "testing/suite_lab.h"

namespace pcilend::scenarios {
namespace {

constexpr int kBinds = 7;
constexpr int kCommands = 200;
constexpr const char* kVfioClient = "/usr/lib/pcilend-lab/vfio-client";

/*
 *   host1 (lender)          host2 (borrower)
 *   nvme, BAR of 8 GiB ════ the same, borrowed over one of
 *                           two adapters; and of its own
 */
Result<lab::Options> options() {
  lab::Options options;
  options.name = "bench";
  options.paths = 2;
  // Its guests have 1 GiB, also in huge pages.
  options.memory[2] = 4096;
  PCILEND_TRY(options.add_device("host1:nvme,serial=lent,drive-size=64M"));
  PCILEND_TRY(options.add_device("host2:nvme,serial=own,drive-size=64M"));
  for (const char* host : {"host1", "host2"})
    PCILEND_TRY(options.add_device(fmt::format("{}:pci-testdev,membar=8G", host)));
  return options;
}

// To the disk: `pcilend borrow --wait`, and the driver bound by hand.
Result<> measure_appearance(const MainJob& job, const std::string& own) {
  const lab::Host& host = job.borrower();
  std::vector<double> borrowed;
  std::vector<double> bound;
  for (int i = 0; i < kBinds; ++i) {
    const auto borrow = time_of(host, "pcilend borrow --wait " + job.id());
    if (!borrow) return tl::unexpected(borrow.error());
    borrowed.push_back(*borrow);
    PCILEND_TRY(host.run("pcilend return " + job.id()));
    PCILEND_TRY(host.run(fmt::format("echo {} >/sys/bus/pci/drivers/nvme/unbind", own)));
    const auto bind = time_of(
        host, fmt::format("echo {0} >/sys/bus/pci/drivers/nvme/bind; "
                          "until set -- /sys/bus/pci/devices/{0}/nvme/nvme*/nvme*n1 && [ -e $1 ]; "
                          "do :; done",
                          own));
    if (!bind) return tl::unexpected(bind.error());
    bound.push_back(*bind);
  }
  print_row(fmt::format("to the disk, median of {}", kBinds), median(borrowed), kOwnDrive,
            median(bound), "ms");
  return {};
}

struct MapTimes {
  double map = 0;  // ns
  double unmap = 0;
};

Result<MapTimes> map_times(const lab::Host& host, const std::string& address) {
  const auto line =
      host.run(fmt::format("modprobe pcilend_map_bench function={0} && rmmod pcilend_map_bench && "
                           "dmesg | grep '{0}: median of' | tail -n 1 | "
                           "sed 's/.*map \\([0-9]*\\) ns, unmap \\([0-9]*\\) ns/\\1 \\2/'",
                           address));
  if (!line) return tl::unexpected(line.error());
  MapTimes times;
  if (std::sscanf(line->c_str(), "%lf %lf", &times.map, &times.unmap) != 2)
    return fail(ErrorClass::Failure, "not two numbers: {}", *line);
  return times;
}

// All its DMA is the adapter's, whose IOMMU mappings cost what they cost.
Result<> measure_mapping(const MainJob& job, const std::string& borrowed, const std::string& own) {
  const auto function = job.function_on(job.borrower());
  if (!function) return tl::unexpected(function.error());
  const std::string adapter = function->at("adapter");
  const auto there = map_times(job.borrower(), borrowed);
  if (!there) return tl::unexpected(there.error());
  const std::pair<std::string_view, std::string> peers[] = {{"the adapter itself", adapter},
                                                            {kOwnDrive, own}};
  for (const auto& [name, address] : peers) {
    const auto its = map_times(job.borrower(), address);
    if (!its) return tl::unexpected(its.error());
    print_row("to map a page for DMA", there->map, name, its->map, "ns");
    print_row("to unmap it", there->unmap, name, its->unmap, "ns");
  }
  return {};
}

Result<> measure_traffic(const lab::Lab& lab, const MainJob& job, const std::string& what,
                         const std::string& arguments) {
  PCILEND_TRY(job.borrower().run("sync"));
  PCILEND_TRY(lab.fabric().counters(true));
  const auto before = job.lender_effort();
  if (!before) return tl::unexpected(before.error());
  PCILEND_TRY(
      job.borrower().run(fmt::format("dd bs=4k count={} {} 2>/dev/null", kCommands, arguments)));
  const auto after = job.lender_effort();
  if (!after) return tl::unexpected(after.error());
  const auto counters = lab.fabric().counters();
  if (!counters) return tl::unexpected(counters.error());
  const auto from = counters->path(job.lender().number(), job.borrower().number());
  const auto to = counters->path(job.borrower().number(), job.lender().number());
  const auto each = [](uint64_t count) { return static_cast<double>(count) / kCommands; };
  fmt::print("| {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {} | {} |\n", what,
             each(from.memory.reads), each(from.memory.writes), each(from.interrupt.writes),
             each(to.bar.writes), each(to.bar.reads), after->interrupts - before->interrupts,
             after->messages - before->messages);
  return {};
}

struct Touched {
  double faults = 0;
  double ms = 0;
};

Result<Touched> touch(const lab::Host& host, const std::string& address) {
  const auto said = host.json(fmt::format("{} {} touch", kVfioClient, address));
  if (!said) return tl::unexpected(said.error());
  return Touched{said->at("faults"), said->at("ms")};
}

// A BAR of 8 GiB by VFIO: one read of each 2 MiB, and of each page of the first 4 MiB.
Result<> measure_faults(lab::Lab& lab) {
  const lab::Host& lender = lab.host(1);
  const lab::Host& host = lab.host(2);
  const auto lent = lender.address(1);
  if (!lent) return tl::unexpected(lent.error());
  const auto own = host.address(1);
  if (!own) return tl::unexpected(own.error());
  const auto offered = offer(lender, *lent);
  if (!offered) return tl::unexpected(offered.error());
  const std::string id = offered->at("id");
  PCILEND_TRY(await_state(host, id, "available"));
  PCILEND_TRY(host.run("pcilend borrow --frontend vfio " + id));
  const auto borrowed = touch(host, offered->at("address"));
  if (!borrowed) return tl::unexpected(borrowed.error());
  PCILEND_TRY(
      host.run(fmt::format("modprobe vfio-pci && cd /sys/bus/pci && "
                           "echo vfio-pci >devices/{0}/driver_override && "
                           "echo {0} >drivers_probe",
                           *own)));
  const auto its = touch(host, *own);
  if (!its) return tl::unexpected(its.error());
  PCILEND_TRY(host.run("pcilend return " + id));
  PCILEND_TRY(lender.run(fmt::format("pcilend unavailable {0} && pcilend remove {0}", id)));
  constexpr std::string_view kOwn = "one of the host's own, by vfio-pci";
  print_row("page faults of a BAR of 8 GiB, each 2 MiB read", borrowed->faults, kOwn, its->faults,
            "");
  print_row("how long they took, with the reads", borrowed->ms, kOwn, its->ms, "ms");
  return {};
}

Result<> bench() {
  const auto wanted = options();
  if (!wanted) return tl::unexpected(wanted.error());
  std::optional<lab::Lab> lab;
  PCILEND_TRY(start_lab(*wanted, lab));
  const auto lent = lab->host(1).address(0);
  if (!lent) return tl::unexpected(lent.error());
  const auto own = lab->host(2).address(0);
  if (!own) return tl::unexpected(own.error());
  MainJob job(lab->host(1), lab->host(2), *lent, "guest");
  PCILEND_TRY(job.lend());
  PCILEND_TRY(job.see_available());

  fmt::print("| | borrowed | beside | | ratio |\n| --- | --- | --- | --- | --- |\n");
  PCILEND_TRY(measure_appearance(job, *own));
  const auto drive = job.borrow();
  if (!drive) return tl::unexpected(drive.error());
  PCILEND_TRY(measure_mapping(job, drive->address, *own));

  fmt::print(
      "\n| each of {} | memory reads | memory writes | interrupts | doorbells | register reads | "
      "lender's interrupts, all | control messages, all |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- |\n",
      kCommands);
  PCILEND_TRY(measure_traffic(*lab, job, "read of 4 KiB",
                              fmt::format("if={} of=/dev/null iflag=direct", drive->disk)));
  PCILEND_TRY(measure_traffic(*lab, job, "write of 4 KiB",
                              fmt::format("if=/dev/zero of={} oflag=direct", drive->disk)));
  const auto function = job.function_on(job.borrower());
  if (!function) return tl::unexpected(function.error());
  const std::string used = function->at("adapter");
  std::string other;
  for (const auto& adapter : function->at("paths"))
    if (adapter != used) other = adapter;
  PCILEND_TRY(job.borrower().run("pcilend return " + job.id()));
  fmt::print("\n| | borrowed | beside | | ratio |\n| --- | --- | --- | --- | --- |\n");
  PCILEND_TRY(measure_faults(*lab));
  PCILEND_TRY(measure_guests(job, {*own, other}));
  return job.clean_up();
}

}  // namespace
}  // namespace pcilend::scenarios

int main() {
  return pcilend::scenarios::run_bench("pcilend-lab-bench", pcilend::scenarios::bench);
}
