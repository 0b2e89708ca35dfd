// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/kernel_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/leaks.h"
#include "lab/transcript.h"

namespace pcilend::lab {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> kinds(std::string_view log) {
  std::vector<std::string> out;
  for (const LogFinding& finding : scan_kernel_log(log)) out.push_back(finding.kind);
  return out;
}

TEST(KernelLog, ACleanBootHasNoFindings) {
  EXPECT_THAT(scan_kernel_log(R"([    0.000000] Linux version 6.12.107+deb13-amd64
[    0.004011] APIC: Switch to symmetric I/O mode setup
[    1.516841] ACPI: IRQ 4 override to edge(!), high(!)
[    2.241494] Demotion targets for Node 0: null
[    2.317675] RAS: Correctable Errors collector initialized.
[    2.881851] x86/mm: Checked W+X mappings: passed, no W+X pages found.
[    3.221205] crc32c_intel: module verification failed: signature and/or required key missing - tainting kernel
[    3.577793] EXT4-fs (vda): warning: mounting unchecked fs, running e2fsck is recommended
[    4.728174] ntb: loading out-of-tree module taints kernel.
[    5.807283] nvme nvme0: Ignoring bogus Namespace Identifiers
[    7.079356] kvm_amd: PMU virtualization is disabled
<6>[    8.1] DMAR: IOMMU enabled
[    8.2] DMAR-IR: Enabled IRQ remapping in x2apic mode
[    8.3] kmemleak: Kernel memory leak detector initialized (mem pool available: 15679)
[    8.4] rcu: Hierarchical RCU implementation.
[    8.5] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar
[    8.6] kasan: KernelAddressSanitizer initialized (generic)
)"),
              IsEmpty());
}

TEST(KernelLog, AWarningIsFoundWithItsTrace) {
  const auto findings = scan_kernel_log(
      "[   41.000001] ------------[ cut here ]------------\n"
      "[   41.000002] WARNING: CPU: 0 PID: 1022 at drivers/iommu/iommu.c:2514 "
      "__iommu_unmap+0x1a/0x20\n"
      "[   41.000003] Modules linked in: pcilend(OE) ntb_hw_amd(OE)\n"
      "[   41.000004] Call Trace:\n"
      "[   41.000005]  <TASK>\n"
      "[   41.000006] ---[ end trace 0000000000000000 ]---\n");
  EXPECT_THAT(findings,
              ElementsAre(LogFinding{"warning",
                                     "WARNING: CPU: 0 PID: 1022 at drivers/iommu/iommu.c:2514 "
                                     "__iommu_unmap+0x1a/0x20"},
                          LogFinding{"trace", "Call Trace:"}));
}

TEST(KernelLog, EachKindIsKnown) {
  const std::pair<const char*, const char*> samples[] = {
      {"Kernel panic - not syncing: sysrq triggered crash", "panic"},
      {"Kernel panic - not syncing: NMI: Not continuing", "panic"},
      {"BUG: KASAN: slab-use-after-free in pcilend_remote_put+0x40/0x60", "memory"},
      {"UBSAN: array-index-out-of-bounds in drivers/ntb/x.c:7:3", "memory"},
      {"BUG: KFENCE: use-after-free read in test+0x1/0x2", "memory"},
      {"BUG kmalloc-64 (Tainted: G           OE     ): Poison overwritten", "memory"},
      {"BUG pcilend (Not tainted): Objects remaining in pcilend on __kmem_cache_shutdown()",
       "memory"},
      {"list_add corruption. next->prev should be prev (ffff), but was 0", "memory"},
      {"kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)", "leak"},
      {"unreferenced object 0xffff888003fa3a00 (size 64):", "leak"},
      {"watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [modprobe:512]", "lockup"},
      {"INFO: task virsh:812 blocked for more than 120 seconds.", "lockup"},
      {"rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", "lockup"},
      {"rcu: INFO: rcu_sched self-detected stall on CPU", "lockup"},
      {"WARNING: possible circular locking dependency detected", "lockdep"},
      {"WARNING: possible recursive locking detected", "lockdep"},
      {"WARNING: suspicious RCU usage", "lockdep"},
      {"WARNING: inconsistent lock state", "lockdep"},
      {"[ BUG: Invalid wait context ]", "lockdep"},
      {"BUG: unable to handle page fault for address: ffffc900001d5000", "oops"},
      {"BUG: kernel NULL pointer dereference, address: 0000000000000008", "oops"},
      {"kernel BUG at mm/slub.c:440!", "oops"},
      {"Oops: general protection fault, probably for non-canonical address 0xdead: 0000 [#1]",
       "oops"},
      {"Oops: Oops: 0000 [#1] PREEMPT SMP NOPTI", "oops"},
      {"refcount_t: underflow; use-after-free.", "warning"},
      {"BUG: scheduling while atomic: swapper/0/0/0x00000002", "oops"},
      {"BUG: sleeping function called from invalid context at kernel/locking/mutex.c:283", "oops"},
      {"irq 19: nobody cared (try booting with the \"irqpoll\" option)", "warning"},
      {"vfio-pci 0000:01:00.0: unlocked secondary bus reset via: pci_reset_bus_function+0x51/0x100",
       "warning"},
      {"sysfs: cannot create duplicate filename '/bus/pcilend/devices/40001'", "warning"},
      {"DMAR: DRHD: handling fault status reg 2", "iommu fault"},
      {"DMAR: [DMA Write NO_PASID] Request device [00:10.0] fault addr 0x1000 [fault reason 0x05] "
       "PTE Write access is not set",
       "iommu fault"},
      {"DMAR: [INTR-REMAP] Request device [00:10.0] fault index 0x0 [fault reason 0x26]",
       "iommu fault"},
      {"INFO: trying to register non-static key.", "lockdep"},
      {"WARNING: HARDIRQ-safe -> HARDIRQ-unsafe lock order detected", "lockdep"},
      {"WARNING: possible irq lock inversion dependency detected", "lockdep"},
      {"WARNING: bad unlock balance detected!", "lockdep"},
      {"WARNING: held lock freed!", "lockdep"},
      {"WARNING: lock held when returning to user space!", "lockdep"},
      {"BUG: workqueue leaked atomic, lock or RCU: kworker/0:1[9]", "lockdep"},
      {"BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 31s!", "lockup"},
      {"rcu: rcu_preempt kthread starved for 5250 jiffies! g10649 f0x2", "lockup"},
      {"turning off the locking correctness validator.", "blind"},
      {"BUG: MAX_LOCKDEP_ENTRIES too low!", "blind"},
      {"INFO: lockdep is turned off.", "blind"},
      {"ODEBUG: Out of memory. ODEBUG disabled", "blind"},
      {"DMA-API: debugging out of memory - disabling", "blind"},
      {"DMA-API: cacheline tracking ENOMEM, dma-debug disabled", "blind"},
      {"kmemleak: Cannot allocate a kmemleak_object structure", "blind"},
      {"kmemleak: Kernel memory leak detector disabled", "blind"},
      {"ODEBUG: free active (active state 0) object: ffff888004a1c0a8 object type: timer_list "
       "hint: pcilend_link_beat+0x0/0x120 [pcilend]",
       "memory"},
      {"DMA-API: ntb_hw_amd 0000:00:04.0: device driver frees DMA memory it has not allocated "
       "[device address=0x00000000fffff000] [size=4096 bytes]",
       "warning"},
      {"UBSAN: shift-out-of-bounds in /src/lending-core/core/ranges.c:41:20", "memory"},
      {"BUG: KASAN: vmalloc-out-of-bounds in pcilend_ring_copy+0x88/0x110 [pcilend]", "memory"},
      {"AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0002 address=0x1000 flags=0x0020]",
       "iommu fault"},
  };
  for (const auto& [line, kind] : samples) EXPECT_THAT(kinds(line), ElementsAre(kind)) << line;
}

TEST(KernelLog, CheckersThatStartAreNoFinding) {
  EXPECT_THAT(scan_kernel_log("DMA-API: preallocated 65536 debug entries\n"
                              "DMA-API: debugging enabled by kernel config\n"
                              "DMA-API: dma_debug_entry pool grown to 131072 (200%)\n"
                              "kmemleak: Kernel memory leak detector initialized (mem pool "
                              "available: 38013)\n"
                              "Running RCU self tests\n"),
              IsEmpty());
}

constexpr std::string_view kLeakReport =
    R"(unreferenced object 0xffff888005b1f400 (size 256):
  comm "pcilend", pid 311, jiffies 4294902155
  hex dump (first 32 bytes):
    00 01 00 00 00 00 ad de 22 01 00 00 00 00 ad de  ........".......
    70 63 69 6c 65 6e 64 00 00 00 00 00 00 00 00 00  pcilend.........
  backtrace (crc 7d2a1c40):
    __kmalloc_cache_noprof+0x1e6/0x2a0
    pcilend_lender_add+0x5e/0x210 [pcilend]
    genl_family_rcv_msg_doit+0x148/0x1b0
unreferenced object 0xffffc90000231000 (size 4096):
  comm "udevd", pid 88, jiffies 4294900000
  backtrace (crc 0):
    __vmalloc_node_range_noprof+0x9a/0x1000
)";

TEST(Leaks, AreReadWithTheirTrace) {
  EXPECT_THAT(parse_leaks(kLeakReport),
              ElementsAre(Leak{"unreferenced object 0xffff888005b1f400 (size 256):",
                               "pcilend",
                               {"__kmalloc_cache_noprof+0x1e6/0x2a0",
                                "pcilend_lender_add+0x5e/0x210 [pcilend]",
                                "genl_family_rcv_msg_doit+0x148/0x1b0"}},
                          Leak{"unreferenced object 0xffffc90000231000 (size 4096):",
                               "udevd",
                               {"__vmalloc_node_range_noprof+0x9a/0x1000"}}));
  EXPECT_THAT(parse_leaks(""), IsEmpty());
  EXPECT_THAT(parse_leaks("    a line of nothing\n"), IsEmpty());
}

TEST(Leaks, AndBlindCheckersAreFindings) {
  EXPECT_THAT(checker_findings(""), IsEmpty());
  EXPECT_THAT(checker_findings("off: lockdep\noff: DMA-API debugging\n"),
              ElementsAre(LogFinding{"blind", "off: lockdep"},
                          LogFinding{"blind", "off: DMA-API debugging"}));
  const auto findings = checker_findings("off: lockdep\n" + std::string(kLeakReport));
  ASSERT_EQ(findings.size(), 3U);
  EXPECT_EQ(findings[1].kind, "leak");
  EXPECT_EQ(findings[1].line,
            "unreferenced object 0xffff888005b1f400 (size 256): by pcilend: "
            "__kmalloc_cache_noprof+0x1e6/0x2a0 < pcilend_lender_add+0x5e/0x210 [pcilend] < "
            "genl_family_rcv_msg_doit+0x148/0x1b0");
}

TEST(KernelLog, EveryFormOfALineIsRead) {
  for (const char* line :
       {"x", "<4>x", "[    1.234567] x", "<6>[12345.000001] x", "[    1.234567] x\r",
        "[    1.234567][  T123] x", "[    1.234567][    C0] x", "<3>[    1.2][ T1] x"})
    EXPECT_EQ(log_text(line), "x") << line;
  EXPECT_EQ(log_text("[ BUG: bad ]"), "[ BUG: bad ]");
  EXPECT_EQ(log_text("[unclosed"), "[unclosed");
  EXPECT_EQ(log_text("<unclosed"), "<unclosed");
  EXPECT_EQ(log_text(""), "");
}

TEST(KernelLog, TheSameLineOnConsoleAndInTheBufferIsOneFinding) {
  EXPECT_THAT(kinds("[    5.000001] DMAR: DRHD: handling fault status reg 2\r\n"
                    "<3>[    5.000001] DMAR: DRHD: handling fault status reg 2\n"),
              ElementsAre("iommu fault"));
}

TEST(KernelLog, WhatIsExpectedDoesNotCount) {
  const Expected expected = {std::regex("DMAR: .*00:10\\.0")};
  EXPECT_THAT(scan_kernel_log("DMAR: [DMA Read] Request device [00:10.0] fault addr 0\n"
                              "DMAR: [DMA Read] Request device [00:11.0] fault addr 0\n",
                              expected),
              ElementsAre(LogFinding{"iommu fault",
                                     "DMAR: [DMA Read] Request device [00:11.0] fault addr 0"}));
}

TEST(KernelLog, CountsFromTheLastMark) {
  const std::string log =
      "WARNING: old\n[ 1.0] pcilend-lab: mark 1.\nmid\n[ 2.0] pcilend-lab: mark 2.\nnew";
  EXPECT_EQ(log_since(log, "pcilend-lab: mark 2."), "new");
  EXPECT_EQ(log_since(log, "pcilend-lab: mark 1."), "mid\n[ 2.0] pcilend-lab: mark 2.\nnew");
  // The mark was lost: a reboot, or a full buffer. Then all counts.
  EXPECT_EQ(log_since(log, "pcilend-lab: mark 3."), log);
  EXPECT_EQ(log_since("x mark", "mark"), "");
}

TEST(Transcripts, MarkEveryLine) {
  std::vector<std::string> lines;
  Transcript transcript([&](std::string_view line) { lines.emplace_back(line.substr(11)); });
  transcript.say("host1", '$', "pcilend list");
  transcript.say("host1", '|', "a\n\nb\n");
  transcript.say("lab", '*', "");
  EXPECT_THAT(lines,
              ElementsAre("host1 $ pcilend list", "host1 | a", "host1 | ", "host1 | b", "lab * "));
}

}  // namespace
}  // namespace pcilend::lab
