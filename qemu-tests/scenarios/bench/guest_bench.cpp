// SPDX-License-Identifier: GPL-2.0-or-later
#include "scenarios/bench/guest_bench.h"

#include "scenarios/bench/bench_rows.h"
#include "testing/pci_hostdev.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

constexpr int kStarts = 3;
constexpr int kPlugs = 5;
constexpr int kGuestMiB = 1024;

// Where the own drive's guest memory is mapped for DMA: each call of VFIO's type 1 IOMMU.
constexpr const char* kTraceOn =
    "modprobe vfio_iommu_type1; cd /sys/kernel/tracing && echo 0 >tracing_on; echo >trace; "
    "echo >kprobe_events; echo 'p:begin vfio_iommu_type1_ioctl' >>kprobe_events && "
    "echo 'r:end vfio_iommu_type1_ioctl' >>kprobe_events && echo 1 >events/kprobes/enable && "
    "echo 1 >tracing_on";
// The sum of their times in microseconds.
constexpr const char* kTraceOff =
    "cd /sys/kernel/tracing && echo 0 >tracing_on && awk '"
    "{ for (i = 1; i <= NF; i++) if ($i ~ /^[0-9]+\\.[0-9]+:$/) { t = $i + 0; what = $(i + 1) } } "
    "what == \"begin:\" { began = t } what == \"end:\" { sum += t - began } { what = \"\" } "
    "END { printf \"%d\\n\", sum * 1000000 }' trace; "
    "echo 0 >events/kprobes/enable; echo >kprobe_events";

// BARs are not mapped for DMA, too: an adapter's are windows of many GiB.
constexpr const char* kMemoryOnly =
    "  <qemu:override>\n"
    "    <qemu:device alias='hostdev0'>\n"
    "      <qemu:frontend>\n"
    "        <qemu:property name='x-no-mmap' type='bool' value='true'/>\n"
    "      </qemu:frontend>\n"
    "    </qemu:device>\n"
    "  </qemu:override>\n"
    "</domain>";

enum class Pages { Small, Huge };

void replace(std::string& text, std::string_view what, const std::string& with) {
  text.replace(text.find(what), what.size(), with);
}

// A guest whose memory is there before its devices are: mapping it is all that is left.
Result<lab::Guest> guest_with(const MainJob& job, const std::string& name,
                              const std::string& hostdev, Pages pages,
                              const std::string& closing = "</domain>") {
  auto spec = job.borrower().guest_spec(name, {});
  if (!spec) return tl::unexpected(spec.error());
  spec->memory = kGuestMiB;
  spec->free_slots = 1;
  const lab::Guest guest = job.borrower().guest(*spec);
  std::string xml = guest.xml();
  replace(xml, "  <os>",
          fmt::format("  <memoryBacking>{}<allocation mode='immediate'/></memoryBacking>\n  <os>",
                      pages == Pages::Huge ? "<hugepages/>" : ""));
  replace(xml, "  </devices>", hostdev + "  </devices>");
  replace(xml, "</domain>", closing);
  const std::string file = fmt::format("/tmp/{}.xml", name);
  PCILEND_TRY(job.borrower().write(file, xml));
  PCILEND_TRY(job.borrower().run("virsh define " + file));
  return guest;
}

// In milliseconds, from virsh start to the drive in the guest.
Result<double> start(const lab::Guest& guest) {
  const auto begin = std::chrono::steady_clock::now();
  PCILEND_TRY(guest.start());
  PCILEND_TRY(MainJob::await_disk(guest));
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

Result<> end(const lab::Guest& guest) {
  PCILEND_TRY(guest.destroy());
  return guest.undefine();
}

// In milliseconds: what type 1 takes to map the memory of a guest with that device. That is done
// before the guest runs, which need not get along with it.
Result<double> type1_time(const MainJob& job, const std::string& hostdev, Pages pages) {
  const auto guest = guest_with(job, "peer", hostdev, pages, kMemoryOnly);
  if (!guest) return tl::unexpected(guest.error());
  PCILEND_TRY(job.borrower().run(kTraceOn));
  PCILEND_TRY(guest->start());
  const auto us = job.borrower().run(kTraceOff);
  if (!us) return tl::unexpected(us.error());
  PCILEND_TRY(end(*guest));
  return std::stod(*us) / 1e3;
}

Result<> measure_start(const MainJob& job, const Peers& peers, Pages pages) {
  const lab::Host& host = job.borrower();
  const auto hostdev = host.run("pcilend vm-xml " + job.id());
  if (!hostdev) return tl::unexpected(hostdev.error());
  std::vector<double> borrowed;
  std::vector<double> passed;
  std::vector<double> mapped;
  std::vector<double> type1;
  std::vector<double> type1_adapter;
  for (int i = 0; i < kStarts; ++i) {
    const auto theirs = guest_with(job, "borrowed", *hostdev, pages);
    if (!theirs) return tl::unexpected(theirs.error());
    const auto time = start(*theirs);
    if (!time) return tl::unexpected(time.error());
    borrowed.push_back(*time);
    PCILEND_TRY(end(*theirs));

    const auto its = guest_with(job, "own", pci_hostdev(peers.drive), pages);
    if (!its) return tl::unexpected(its.error());
    const auto its_time = start(*its);
    if (!its_time) return tl::unexpected(its_time.error());
    passed.push_back(*its_time);
    PCILEND_TRY(end(*its));

    for (const auto& [device, times] : {std::pair{*hostdev, &mapped},
                                        {pci_hostdev(peers.drive), &type1},
                                        {pci_hostdev(peers.adapter), &type1_adapter}}) {
      const auto mapping = type1_time(job, device, pages);
      if (!mapping) return tl::unexpected(mapping.error());
      times->push_back(*mapping);
    }
  }
  const std::string_view size = pages == Pages::Huge ? "2 MiB" : "4 KiB";
  print_row(
      fmt::format("virsh start to the disk in the guest, pages of {}, median of {}", size, kStarts),
      median(borrowed), "a drive of the host's own, by vfio-pci", median(passed), "ms");
  print_row(fmt::format("of that, to map {} MiB of guest memory", kGuestMiB), median(mapped),
            "VFIO's type 1, for that drive", median(type1), "ms");
  print_row("the same", median(mapped), "VFIO's type 1, for another NTB adapter",
            median(type1_adapter), "ms");
  return {};
}

struct PlugTimes {
  double attach = 0;  // ms
  double detach = 0;
};

Result<PlugTimes> plug(const lab::Host& host, const lab::Guest& guest, const std::string& xml) {
  PCILEND_TRY(host.write("/tmp/plug.xml", xml));
  std::vector<double> attach;
  std::vector<double> detach;
  for (int i = 0; i < kPlugs; ++i) {
    const auto in =
        time_of(host, fmt::format("virsh attach-device {} /tmp/plug.xml", guest.name()));
    if (!in) return tl::unexpected(in.error());
    PCILEND_TRY(MainJob::await_disk(guest));
    const auto out = time_of(host, fmt::format("virsh detach-device {} /tmp/plug.xml && "
                                               "while virsh dumpxml {} | grep -q '<hostdev'; do :; "
                                               "done",
                                               guest.name(), guest.name()));
    if (!out) return tl::unexpected(out.error());
    attach.push_back(*in);
    detach.push_back(*out);
  }
  return PlugTimes{median(attach), median(detach)};
}

Result<> measure_plugging(const MainJob& job, const std::string& own) {
  const lab::Host& host = job.borrower();
  const auto guest = guest_with(job, "plugged", "", Pages::Small);
  if (!guest) return tl::unexpected(guest.error());
  PCILEND_TRY(guest->start());
  PCILEND_TRY(guest->await_answer());
  const auto xml = host.run("pcilend vm-xml " + job.id());
  if (!xml) return tl::unexpected(xml.error());
  PCILEND_TRY(host.run("pcilend borrow --frontend vfio " + job.id()));
  const auto borrowed = plug(host, *guest, *xml);
  if (!borrowed) return tl::unexpected(borrowed.error());
  PCILEND_TRY(host.run("pcilend return " + job.id()));
  const auto passed = plug(host, *guest, pci_hostdev(own));
  if (!passed) return tl::unexpected(passed.error());
  PCILEND_TRY(end(*guest));
  print_row(fmt::format("virsh attach-device, median of {}", kPlugs), borrowed->attach, kOwnDrive,
            passed->attach, "ms");
  print_row("virsh detach-device, until it is out of the guest", borrowed->detach, kOwnDrive,
            passed->detach, "ms");
  return {};
}

}  // namespace

Result<> measure_guests(const MainJob& job, const Peers& peers) {
  const lab::Host& host = job.borrower();
  const std::string small = "/sys/kernel/mm/transparent_hugepage/enabled";
  PCILEND_TRY(host.run("echo never >" + small));
  PCILEND_TRY(measure_start(job, peers, Pages::Small));
  PCILEND_TRY(
      host.run(fmt::format("echo always >{} && echo {} >/proc/sys/vm/nr_hugepages && "
                           "[ $(cat /proc/sys/vm/nr_hugepages) = {} ]",
                           small, kGuestMiB / 2 + 16, kGuestMiB / 2 + 16)));
  PCILEND_TRY(measure_start(job, peers, Pages::Huge));
  PCILEND_TRY(host.run("echo 0 >/proc/sys/vm/nr_hugepages"));
  return measure_plugging(job, peers.drive);
}

}  // namespace pcilend::scenarios
