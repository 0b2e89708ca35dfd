// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-nvme-of-bench: what a drive of another host costs the host that it is in, shared by
// pcilend beside exported by the kernel's NVMe over TCP: the same hosts, drive and fio job.
#include <fmt/format.h>

#include "lab/lab.h"
#include "main_job/admin_steps.h"
#include "scenarios/bench/bench_rows.h"
#include "testing/lan.h"
#include "testing/suite_lab.h"

namespace pcilend::scenarios {
namespace {

constexpr int kRequests = 1000;
constexpr std::string_view kManager = "pcilend-nvme-manager";

/*
 *   host1 (lender)             host2
 *   manager ── nvme ════ NTB ════ pcilend-nvme-disk ── fio
 *   nvmet ──── nvme ──── lan ──── nvme-tcp ─────────── fio
 */
Result<lab::Options> options() {
  lab::Options options;
  options.name = "bench";
  PCILEND_TRY(options.add_device(
      fmt::format("host1:nvme,serial=shared,drive-size=64M,x-max-bounce-buffer-size=16M{}",
                  kNoShadowDoorbells)));
  PCILEND_TRY(add_lan(options, 1, 2));
  return options;
}

// What a host has done so far.
struct Work {
  double busy_ms = 0;  // of all CPUs
  double interrupts = 0;
};

// Interrupts of devices; those of its timers and of its CPUs for each other have names instead of
// numbers.
Result<Work> work_of(const lab::Host& host) {
  const auto said = host.run(
      "awk 'NR == FNR { if (/^cpu /) idle = $5 + $6; next } "
      "/^ *[0-9]+:/ { for (i = 2; $i ~ /^[0-9]+$/; i++) sum += $i } END { print idle, sum }' "
      "/proc/stat /proc/interrupts; echo $(getconf CLK_TCK) $(nproc) $(cut -d' ' -f1 "
      "/proc/uptime)");
  if (!said) return tl::unexpected(said.error());
  double idle = 0;
  double ticks = 0;
  double cpus = 0;
  double uptime = 0;
  Work work;
  if (std::sscanf(said->c_str(), "%lf %lf %lf %lf %lf", &idle, &work.interrupts, &ticks, &cpus,
                  &uptime) != 5)
    return fail(ErrorClass::Failure, "not five numbers: {}", *said);
  work.busy_ms = 1000 * (uptime * cpus - idle / ticks);
  return work;
}

Result<> add_row(lab::Lab& lab, std::string_view what, const std::string& script, int requests) {
  const lab::Host& lender = lab.host(1);
  const auto before = work_of(lender);
  if (!before) return tl::unexpected(before.error());
  const auto took = time_of(lab.host(2), script);
  if (!took) return tl::unexpected(took.error());
  const auto after = work_of(lender);
  if (!after) return tl::unexpected(after.error());
  const double busy = after->busy_ms - before->busy_ms;
  fmt::print("| {} | {:.2f} | {:.2f} | {:.1f} % | {:.1f} s |\n", what,
             (after->interrupts - before->interrupts) / requests, busy / requests,
             100 * busy / *took, *took / 1000);
  return {};
}

Result<> measure(lab::Lab& lab, std::string_view what, const std::string& disk) {
  const auto job = [&](const char* kind) {
    return fmt::format(
        "fio --name=bench --filename={} --size=8M --bs=4k --direct=1 --ioengine=libaio "
        "--iodepth=1 --number_ios={} --rw={}",
        disk, kRequests, kind);
  };
  PCILEND_TRY(add_row(lab, fmt::format("{}: read", what), job("randread"), kRequests));
  return add_row(lab, fmt::format("{}: write", what), job("randwrite"), kRequests);
}

Result<> measure_shared(lab::Lab& lab, const std::string& address) {
  const lab::Host& lender = lab.host(1);
  const lab::Host& client = lab.host(2);
  PCILEND_TRY(lender.run(fmt::format("pcilend connect {}", client.node())));
  const auto offered = offer(lender, address);
  if (!offered) return tl::unexpected(offered.error());
  const std::string id = offered->at("id");
  auto manager =
      lender.start(fmt::format("exec {} {} 2>&1", kManager, id), {{}, lab::kPatience * 20});
  if (!manager) return tl::unexpected(manager.error());
  PCILEND_TRY(lab::eventually("the drive is shared", lab::kPatience, [&] {
    return manager->ended() || manager->output_so_far().find("is shared") != std::string::npos;
  }));
  if (manager->ended()) return fail(ErrorClass::Failure, "{}", manager->output_so_far());
  PCILEND_TRY(await_state(client, id, "borrowed"));
  const auto made = client.json("pcilend nvme attach --json --shared-fs " + id);
  if (!made) return tl::unexpected(made.error());
  PCILEND_TRY(add_row(lab, "nothing, for 10 s, as one", "sleep 10", 1));
  PCILEND_TRY(measure(lab, "pcilend", made->at("disks").at(0).at("disk")));
  PCILEND_TRY(client.run("pcilend nvme detach " + id));
  PCILEND_TRY(lender.run(fmt::format("kill -TERM $(pidof {})", kManager)));
  const auto ended = manager->wait();
  if (!ended) return tl::unexpected(ended.error());
  PCILEND_TRY(await_state(lender, id, "available"));
  PCILEND_TRY(lender.run(fmt::format("pcilend unavailable {0} && pcilend remove {0}", id)));
  return {};
}

Result<> measure_exported(lab::Lab& lab, const std::string& address) {
  const lab::Host& lender = lab.host(1);
  const lab::Host& client = lab.host(2);
  for (const lab::Host* host : {&lender, &client}) PCILEND_TRY(join_lan(*host));
  PCILEND_TRY(lender.run(fmt::format(
      R"sh(modprobe nvmet-tcp && {{ mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config; }} &&
until disk=$(ls /sys/bus/pci/devices/{}/nvme/nvme*/ | grep -x 'nvme[0-9]*n1'); do :; done
cd /sys/kernel/config/nvmet && mkdir -p subsystems/lab/namespaces/1 ports/1 &&
echo 1 >subsystems/lab/attr_allow_any_host && echo /dev/$disk >subsystems/lab/namespaces/1/device_path &&
echo 1 >subsystems/lab/namespaces/1/enable && cd ports/1 && echo tcp >addr_trtype && echo ipv4 >addr_adrfam &&
echo 10.8.0.1 >addr_traddr && echo 4420 >addr_trsvcid && ln -s ../../subsystems/lab subsystems/lab)sh",
      address)));
  PCILEND_TRY(client.run("modprobe nvme-tcp && nvme connect -t tcp -a 10.8.0.1 -s 4420 -n lab"));
  const auto disk = client.until(
      "grep -lx lab /sys/class/nvme-subsystem/*/subsysnqn | sed 's,/subsysnqn,,' | "
      "xargs -I{} ls {} | grep -x 'nvme[0-9]*n1'");
  if (!disk) return tl::unexpected(disk.error());
  PCILEND_TRY(measure(lab, "nvmet, nvme-tcp", "/dev/" + disk->text()));
  PCILEND_TRY(client.run("nvme disconnect -n lab"));
  return {};
}

Result<> bench() {
  const auto wanted = options();
  if (!wanted) return tl::unexpected(wanted.error());
  std::optional<lab::Lab> lab;
  PCILEND_TRY(start_lab(*wanted, lab));
  const auto address = lab->host(1).address(0);
  if (!address) return tl::unexpected(address.error());
  fmt::print(
      "| {} requests of 4 KiB, one at a time | lender: interrupts each | lender: CPU ms each | "
      "of its time | took |\n| --- | --- | --- | --- | --- |\n",
      kRequests);
  PCILEND_TRY(measure_shared(*lab, *address));
  PCILEND_TRY(measure_exported(*lab, *address));
  return end_lab(lab);
}

}  // namespace
}  // namespace pcilend::scenarios

int main() {
  return pcilend::scenarios::run_bench("pcilend-nvme-of-bench", pcilend::scenarios::bench);
}
