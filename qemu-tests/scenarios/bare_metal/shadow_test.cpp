// SPDX-License-Identifier: GPL-2.0-or-later
#include <regex>

#include "testing/bare_drive.h"
#include "testing/kexec.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

constexpr const char* kMount = "/mnt";
constexpr const char* kAdapter = "0000:00:04.0";  // of the borrower

/*
 *   host1 (lender, node 4)         host2 (borrower, node 8), two processors
 *   nvme ── IOMMU ── NTB ═════════ NTB ── virtual function ── nvme driver of the host
 */
class Shadow : public BareDrive {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "shadows";
    options.qemu_arguments[2] = {"-smp", "2"};
    for (int i = 1; i <= 2; ++i) options.kernel_arguments[i].push_back("pcilend.lease_ms=10000");
    ASSERT_OK(make_rom());
    ASSERT_OK(options.add_device(fmt::format("host1:nvme,serial=shadow,drive-size=64M,romfile={}{}",
                                             rom().path(), kNoShadowDoorbells)));
    ASSERT_OK(start_lab(options, lab_));
  }

  void SetUp() override {
    BareDrive::SetUp();
    if (HasFatalFailure()) return;
    ASSERT_OK(job().lend());
    ASSERT_OK(job().see_available());
  }

  void TearDown() override {
    if (!lab_) return;
    for (int host : {1, 2}) EXPECT_OK(lab_->fabric().tell_events(host, 3 - host, true));
    EXPECT_OK(lab_->fabric().set_delay(1, 2, 0ms));
    EXPECT_OK(borrower().exec(fmt::format("umount {}", kMount)));
    BareDrive::TearDown();
  }

  [[nodiscard]] Result<> await_gone() const {
    const auto gone =
        borrower().until(fmt::format("ls /sys/bus/pci/devices/{} || ls {}", address_, disk_),
                         [](const lab::Output& o) { return o.code != 0; });
    if (!gone) return tl::unexpected(gone.error());
    return {};
  }

  [[nodiscard]] Result<> mount() const {
    PCILEND_TRY(borrower().run(
        fmt::format("mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 {} 4M && "
                    "mkdir -p {} && mount {} {}",
                    disk_, kMount, disk_, kMount)));
    return {};
  }
  // Writes to the mounted file system until that fails.
  [[nodiscard]] Result<lab::Running> start_writing() const {
    PCILEND_TRY(borrower().run("echo 0 >/tmp/rounds"));
    return borrower().start(
        fmt::format(
            "n=0; while dd if=/dev/urandom of={}/file bs=4k count=2 "
            "conv=fsync 2>/dev/null; do n=$((n+1)); echo $n >/tmp/n; mv /tmp/n /tmp/rounds; done",
            kMount),
        {{}, 5min});
  }
  // Borrows, mounts, and begins to write: some files are there.
  [[nodiscard]] Result<lab::Running> write_files() {
    PCILEND_TRY(borrow());
    PCILEND_TRY(mount());
    auto writer = start_writing();
    if (!writer) return writer;
    PCILEND_TRY(lab::eventually("files are written", lab::kPatience, [&] { return rounds() > 0; }));
    return writer;
  }
  [[nodiscard]] int rounds() const {
    const auto done = borrower().exec("cat /tmp/rounds");
    return done && done->code == 0 && !done->out.empty() ? std::stoi(done->out) : 0;
  }

  // The lease is over, and the function with it; whoever used it has been told.
  void expect_io_errors(lab::Running writer) {
    ASSERT_OK(await_gone());
    const auto ended = writer.wait();
    ASSERT_OK(ended);
    EXPECT_GT(rounds(), 0);
    const auto write = borrower().exec(fmt::format("echo x >{}/more", kMount));
    ASSERT_OK(write);
    EXPECT_NE(write->code, 0);
    EXPECT_OK(borrower().run(fmt::format("umount {}", kMount)));
  }

  // The debug kernel has no kprobes.
  static bool can_trace(const lab::Host& host) {
    return host.run("uname -r | grep -qv debug").has_value();
  }
  // Has the lender note resets, and when the function's BARs are hidden from the borrower.
  void trace_resets() const {
    ASSERT_OK(lender().run(
        "cd /sys/kernel/tracing && echo >trace && echo 'p:reset pci_reset_function_locked' "
        ">kprobe_events && echo 1 >events/kprobes/enable && echo 1 "
        ">events/pcilend/pcilend_bars/enable"));
  }
  // Since then they were hidden before each reset, and could be reached again after it.
  void expect_hidden_during_resets() const {
    // First what it says: it is emptied when its last probe goes.
    const auto trace = lender().run(
        "cd /sys/kernel/tracing && "
        "sed -n 's/.*\\(reset\\|hidden\\|reached\\).*/\\1/p' trace | tr '\\n' ' '; "
        "echo 0 >events/pcilend/pcilend_bars/enable; echo 0 >events/kprobes/enable; "
        "echo >kprobe_events");
    ASSERT_OK(trace);
    EXPECT_TRUE(std::regex_match(*trace, std::regex("(hidden reset reached )+"))) << *trace;
  }

  // A task of the borrower's is in that function of the kernel.
  [[nodiscard]] Result<> await_stack(const char* function) const {
    PCILEND_TRY(
        borrower().until(fmt::format("cat /proc/[0-9]*/stack 2>/dev/null | grep -q {}", function)));
    return {};
  }
  // The PCI core's lock is held for its removal until pcilend_hold.ko is unloaded.
  [[nodiscard]] Result<lab::Running> start_removing(const char* address) const {
    PCILEND_TRY(borrower().run(fmt::format("modprobe pcilend_hold device={}", address)));
    auto removing =
        borrower().start(fmt::format("echo 1 >/sys/bus/pci/devices/{}/remove", address));
    PCILEND_TRY(await_stack("pci_stop_bus_device"));
    return removing;
  }

  // What is unmapped is flushed at once, by each of 100 reads, and not by the DMA API's timer
  // alone.
  void expect_each_unmap_to_flush() const {
    const auto counts = borrower().run(
        fmt::format("cd /sys/kernel/tracing && echo >trace && "
                    "echo 'p:flush intel_flush_iotlb_all' >kprobe_events && "
                    "echo 'p:timer fq_flush_timeout' >>kprobe_events && "
                    "echo 1 >events/kprobes/enable && "
                    "dd if={} of=/dev/null bs=4k count=100 iflag=direct 2>/dev/null; "
                    "echo $(grep -c ' flush:' trace) $(grep -c ' timer:' trace); "
                    "echo 0 >events/kprobes/enable; echo >kprobe_events",
                    disk_));
    ASSERT_OK(counts);
    int flushes = 0;
    int timers = 0;
    ASSERT_EQ(std::sscanf(counts->c_str(), "%d %d", &flushes, &timers), 2) << *counts;
    EXPECT_GE(flushes - timers, 100) << *counts;
  }

  // Of what write_data() has written.
  [[nodiscard]] Result<std::string> sum() const {
    return borrower().run(
        fmt::format("dd if={} bs=16k count=8 iflag=direct 2>/dev/null | sha256sum", disk_));
  }

  void expect_works() {
    ASSERT_OK(borrow());
    ASSERT_OK(use_disk());
    ASSERT_OK(borrower().run("pcilend return " + job().id()));
  }
};

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ lspci, nvme, two queues, fio that verifies
 *   nvme: its own driver again     the same bytes
 */
TEST_F(Shadow, ADriveIsBorrowedUsedAndReturned) {
  const auto borrowed = borrower().run("pcilend borrow --wait " + job().id());
  ASSERT_OK(borrowed);
  EXPECT_TRUE(std::regex_search(*borrowed, std::regex("\nnvme[0-9]+: /dev/nvme[0-9]+n1 64 MiB\n")))
      << *borrowed;
  // Asked again, it tells the same.
  ASSERT_OK(borrow());
  const auto pci = borrower().run("lspci -D -s " + address_);
  ASSERT_OK(pci);
  EXPECT_NE(pci->find("Non-Volatile memory controller"), std::string::npos) << *pci;
  const auto function = job().function_on(borrower());
  ASSERT_OK(function);
  EXPECT_EQ(function->at("frontend"), "shadow");
  EXPECT_EQ(function->at("driver"), "nvme");
  EXPECT_EQ(function->at("virtual_bdf"), address_);

  expect_rom(borrower().run(read_rom("/sys/bus/pci/devices/" + address_)));
  // What its driver may tell it of its own BAR, for a memory buffer in it, it understands.
  const auto bus_address = [](const lab::Host& host, const std::string& address) {
    return host.run(fmt::format("setpci -s {} BASE_ADDRESS_0.l BASE_ADDRESS_1.l", address));
  };
  const auto of_lender = bus_address(lender(), *lender().address(0));
  const auto of_borrower = bus_address(borrower(), address_);
  ASSERT_OK(of_lender);
  ASSERT_OK(of_borrower);
  EXPECT_EQ(*of_borrower, *of_lender);
  // So does the PCI core, of whom the driver asks that address.
  const auto bar =
      lender().run(fmt::format("head -n 1 /sys/bus/pci/devices/{}/resource", *lender().address(0)));
  ASSERT_OK(bar);
  const std::string window = fmt::format("(bus address [{:#010x}-", std::stoull(*bar, nullptr, 16));
  EXPECT_NE(borrower().log().find(window), std::string::npos) << window;
  // Two queues of work have to go on when memory is short, as memory may be waiting for the drive:
  // that of virtual functions, and that of what the lender answers.
  EXPECT_OK(borrower().run("[ $(cat /proc/[0-9]*/comm | grep -c '^kworker/R-pcile') = 2 ]"));

  ASSERT_OK(write_data());
  ASSERT_NO_FATAL_FAILURE(use_without_lender([&] {
    EXPECT_OK(verify_on_both_processors(256));
    EXPECT_OK(compare_data());
  }));
  for (int queue = 1; queue <= 2; ++queue)
    EXPECT_GT(interrupts(borrower(), fmt::format(" {}q{}$", controller_, queue)), 50u)
        << "I/O queue " << queue;

  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  EXPECT_OK(await_gone());
  expect_back();
}

/*
 *   host2 (borrower): the interrupt of the admin queue moves to the other processor, and back
 */
TEST_F(Shadow, InterruptsFollowTheirAffinity) {
  ASSERT_OK(borrow());
  expect_interrupts_follow_affinity();
}

/*
 *   host2 (borrower): unbind, bind; driver_override; reset; remove, rescan: the drive stays what
 *   it was
 */
TEST_F(Shadow, ItBehavesLikeADevice) {
  ASSERT_OK(borrow());
  ASSERT_OK(write_data());
  const std::string device = "/sys/bus/pci/devices/" + address_;
  const std::string unbind = fmt::format("echo {} >/sys/bus/pci/drivers/nvme/unbind", address_);
  const std::string probe = fmt::format("echo {} >/sys/bus/pci/drivers_probe", address_);

  ASSERT_OK(borrower().run(unbind));
  const auto unbound = job().function_on(borrower());
  ASSERT_OK(unbound);
  EXPECT_EQ(unbound->at("driver"), nullptr);
  ASSERT_OK(borrower().run(fmt::format("echo {} >/sys/bus/pci/drivers/nvme/bind", address_)));
  ASSERT_OK(await_disk());
  EXPECT_OK(compare_data());

  ASSERT_OK(borrower().run(unbind));
  ASSERT_OK(borrower().run(fmt::format("echo other >{}/driver_override", device)));
  ASSERT_OK(borrower().exec(probe));
  EXPECT_OK(borrower().run(fmt::format("! ls {}/driver", device)));
  ASSERT_OK(borrower().run(fmt::format("echo >{}/driver_override && {}", device, probe)));
  ASSERT_OK(await_disk());
  EXPECT_OK(compare_data());

  const uint64_t before = resets();
  const bool traced = can_trace(lender());
  if (traced) ASSERT_NO_FATAL_FAILURE(trace_resets());
  ASSERT_OK(borrower().run(fmt::format("echo 1 >{}/reset", device)));
  EXPECT_OK(compare_data());
  EXPECT_GT(resets(), before) << "carried out by the lender";
  if (traced) expect_hidden_during_resets();

  ASSERT_OK(borrower().run(fmt::format("echo 1 >{}/remove", device)));
  const auto removed = job().function_on(borrower());
  ASSERT_OK(removed);
  EXPECT_EQ(removed->at("virtual_bdf"), nullptr);
  EXPECT_EQ(removed->at("state"), "borrowed");
  ASSERT_OK(borrower().run("echo 1 >/sys/bus/pci/rescan"));
  ASSERT_OK(await_disk());
  EXPECT_OK(compare_data());
  ASSERT_OK(use_disk());

  // Returned while it is not there.
  ASSERT_OK(borrower().run(fmt::format("echo 1 >{}/remove", device)));
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  expect_works();
}

/*
 *   host1 (lender), --sanitize                    host2 (borrower)
 *   nvme: quarantined, erased by udev, lent ═════ borrows it again: zeroes
 *   nvme: its tool is not there: quarantined ════ does not get it
 */
TEST_F(Shadow, WhatIsErasedAfterALeaseReadsZeroes) {
  constexpr const char* kZeroes = "cmp -n 131072 /dev/zero ";
  const std::string address = *lender().address(0);
  ASSERT_OK(lender().run("pcilend unavailable " + address));
  ASSERT_OK(lender().run("pcilend available --sanitize " + address));
  ASSERT_OK(borrow());
  ASSERT_OK(write_data());
  EXPECT_OK(borrower().run("! " + std::string(kZeroes) + disk_));
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  ASSERT_OK(job().await_state(lender(), "available"));
  ASSERT_OK(borrow());
  EXPECT_OK(borrower().run(kZeroes + disk_));

  ASSERT_OK(write_data());
  ASSERT_OK(lender().run("mv /usr/sbin/nvme /usr/sbin/nvme.away"));
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  ASSERT_OK(lender().until("dmesg | grep 'it stays quarantined: mend that'"));
  ASSERT_OK(job().await_state(lender(), "quarantined"));
  const auto refused = borrower().exec("pcilend borrow " + job().id());
  ASSERT_OK(refused);
  EXPECT_NE(refused->code, 0) << "not erased";
  const auto shown = lender().run("pcilend show " + address);
  ASSERT_OK(shown);
  EXPECT_NE(shown->find("what its last borrower left on it is not erased"), std::string::npos)
      << *shown;
  ASSERT_OK(lender().run("mv /usr/sbin/nvme.away /usr/sbin/nvme"));
  ASSERT_OK(lender().run("pcilend sanitize " + address, {{}, 2min}));
  ASSERT_OK(job().await_state(borrower(), "available"));
  ASSERT_OK(borrow());
  EXPECT_OK(borrower().run(kZeroes + disk_));
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  ASSERT_OK(job().await_state(lender(), "available"));
}

/*
 *   host2 (borrower): the adapter's domain flushes lazily, as on a default Debian
 */
TEST_F(Shadow, ItsAdapterMayFlushLazily) {
  const auto group =
      borrower().run(fmt::format("readlink -f /sys/bus/pci/devices/{}/iommu_group", kAdapter));
  ASSERT_OK(group);
  ASSERT_OK(borrower().run(fmt::format("echo DMA-FQ >{0}/type && grep -x DMA-FQ {0}/type",
                                       group->substr(0, group->find('\n')))));
  ASSERT_OK(borrow());
  EXPECT_OK(use_disk());
  EXPECT_OK(verify_on_both_processors(256));
  if (can_trace(borrower())) expect_each_unmap_to_flush();
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  expect_back();
}

/*
 *   host2 (borrower): the adapter is removed while a borrow is under way, and found again
 */
TEST_F(Shadow, ItsAdapterIsRemovedDuringABorrow) {
  ASSERT_OK(lab_->fabric().set_delay(1, 2, 100ms));  // some seconds from the lease to its bus
  auto borrowing = borrower().start("pcilend borrow " + job().id(), {{}, 2min});
  ASSERT_OK(borrowing);
  ASSERT_OK(job().await_state(lender(), "borrowed"));
  ASSERT_OK(borrower().run(fmt::format("echo 1 >/sys/bus/pci/devices/{}/remove", kAdapter)));
  const auto ended = borrowing->wait();
  ASSERT_OK(ended);
  EXPECT_NE(ended->code, 0);
  EXPECT_EQ(borrower().log().find("nonexistent resource"), std::string::npos);
  ASSERT_OK(lab_->fabric().set_delay(1, 2, 0ms));
  ASSERT_OK(borrower().run("echo 1 >/sys/bus/pci/rescan"));
  ASSERT_OK(job().await_state(borrower(), "available"));
  expect_works();
}

/*
 *   host2: the adapter's BAR    │ lent BAR │ the rest │
 *                                anybody's  its driver's: refused to /dev/mem
 */
TEST_F(Shadow, TheRestOfTheWindowStaysTheAdaptersDrivers) {
  const std::string regions = "grep -o '[0-9a-f]*-[0-9a-f]* : ntb_hw_amd$' /proc/iomem";
  const auto before = borrower().run(regions);
  ASSERT_OK(before);
  ASSERT_OK(borrow());
  // What nobody has requested may be read.
  ASSERT_OK(borrower().run(
      fmt::format("cd /sys/bus/pci/devices/{0} && echo {0} >driver/unbind && echo 1 >enable && "
                  "bar=$(head -n 1 resource) && busybox devmem ${{bar%% *}}; code=$?; "
                  "echo 0 >enable; exit $code",
                  address_)));
  const uint64_t refused = count(
      borrower(),
      fmt::format("while read start end flags; do [ $((end)) = 0 ] || busybox devmem "
                  "$(printf 0x%x $((end - 4095))) 2>&1; done </sys/bus/pci/devices/{}/resource | "
                  "grep -c 'not permitted'",
                  kAdapter));
  EXPECT_EQ(refused, std::ranges::count(*before, '\n')) << *before;
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  EXPECT_EQ(borrower().run(regions).value_or(""), *before);
}

/*
 *   host2 (borrower): the adapter's removal holds the PCI core's lock, for which a borrow waits,
 * and then goes on
 */
TEST_F(Shadow, ItsAdapterIsRemovedWhileABorrowWaitsForThat) {
  auto removing = start_removing(kAdapter);
  ASSERT_OK(removing);
  auto borrowing = borrower().start("pcilend borrow " + job().id());
  ASSERT_OK(borrowing);
  ASSERT_OK(await_stack("pcilend_hotplug_run"));
  ASSERT_OK(borrower().run("rmmod pcilend_hold"));
  const auto ended = borrowing->wait();
  ASSERT_OK(ended);
  EXPECT_NE(ended->code, 0);
  ASSERT_OK(removing->wait());
  ASSERT_OK(borrower().run("echo 1 >/sys/bus/pci/rescan"));
  ASSERT_OK(job().await_state(borrower(), "available"));
  expect_works();
}

/*
 *   host2 (borrower): somebody holds the PCI core's lock: the function's bus stays until he is done
 */
TEST_F(Shadow, ItsBusStaysWhileOthersAreWalked) {
  constexpr const char* kOther = "0000:00:1f.0";  // the LPC bridge, which nobody needs
  ASSERT_OK(borrow());
  const auto function = job().function_on(borrower());
  ASSERT_OK(function);
  auto removing = start_removing(kOther);
  ASSERT_OK(removing);
  auto returning = borrower().start("pcilend return " + job().id());
  ASSERT_OK(returning);
  EXPECT_OK(await_stack("pcilend_hotplug_run"));
  EXPECT_OK(borrower().run(
      fmt::format("ls /sys/bus/pci/devices/{}", function->at("virtual_bdf").get<std::string>())));
  ASSERT_OK(borrower().run("rmmod pcilend_hold"));
  ASSERT_OK(returning->wait());
  ASSERT_OK(removing->wait());
  ASSERT_OK(borrower().run("echo 1 >/sys/bus/pci/rescan"));
  expect_back();
}

/*
 *   host1: echo 1 >reset ═════════ host2: its driver starts it anew, and reads the same
 */
TEST_F(Shadow, AResetByItsLendersAdministratorIsTold) {
  ASSERT_OK(borrow());
  ASSERT_OK(write_data());
  const uint64_t before = resets();
  ASSERT_OK(
      lender().run(fmt::format("echo 1 >/sys/bus/pci/devices/{}/reset", *lender().address(0))));
  ASSERT_OK(borrower().until("dmesg | grep 'its driver has started it anew'"));
  EXPECT_OK(compare_data());
  EXPECT_GT(resets(), before);
  EXPECT_NE(lender().log().find("was reset, because somebody else has reset it"),
            std::string::npos);
}

/*
 *   host2 (borrower): what would hurt who uses the drive is refused, with the reason
 */
TEST_F(Shadow, WhatIsInUseIsNotTaken) {
  ASSERT_OK(borrow());
  ASSERT_OK(mount());
  const auto given = borrower().exec("pcilend return " + job().id());
  ASSERT_OK(given);
  EXPECT_EQ(given->code, static_cast<int>(ErrorClass::State));
  EXPECT_NE(given->err.find(fmt::format("{} is mounted on {}", disk_, kMount)), std::string::npos)
      << given->err;
  const auto unload = borrower().exec("rmmod pcilend_shadow");
  ASSERT_OK(unload);
  EXPECT_NE(unload->err.find("in use"), std::string::npos) << unload->err;
  for (const auto* host : {&borrower(), &lender()}) {
    const auto sleep = host->exec("echo freeze >/sys/power/state");
    ASSERT_OK(sleep);
    EXPECT_NE(sleep->code, 0);
    EXPECT_NE(host->log().find("no sleep while functions are borrowed or lent"), std::string::npos);
  }
  EXPECT_OK(borrower().run(fmt::format("echo still >{0}/file && sync && umount {0}", kMount)));
  EXPECT_OK(borrower().run("pcilend return " + job().id()));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme: reset ═══ for 1 s ══════ its driver starts it anew, and the file system goes on
 */
TEST_F(Shadow, AFlapCostsAResetAndNoData) {
  ASSERT_OK(borrow());
  ASSERT_OK(mount());
  const auto before = job().function_on(lender());
  ASSERT_OK(before);
  ASSERT_NO_FATAL_FAILURE(
      flap_during(fmt::format("head -c 1M /dev/urandom >/tmp/file && "
                              "dd if=/tmp/file of={0}/file bs=16k oflag=direct 2>/dev/null && "
                              "umount {0} && mount {1} {0} && cmp /tmp/file {0}/file",
                              kMount, disk_),
                  256u << 10));
  const auto after = job().function_on(lender());
  ASSERT_OK(after);
  EXPECT_EQ(after->at("lease"), before->at("lease"));
  EXPECT_GT(after->at("resets"), before->at("resets"));
  EXPECT_NE(borrower().log().find("its driver has started it anew"), std::string::npos);
}

/*
 *   host1 (lender), not told       host2 (borrower)
 *   nvme: reset ═══ for 20 ms ════ is told, and tells the lender
 *   nvme: reset ═══ for 600 ms ═══ not told: a heartbeat is missing
 */
TEST_F(Shadow, AFlapOfWhichTheLenderIsNotToldCostsAResetToo) {
  ASSERT_OK(borrow());
  ASSERT_OK(write_data());
  const auto before = job().function_on(lender());
  ASSERT_OK(before);
  const auto await_reset = [&](std::chrono::milliseconds flap, uint64_t former) {
    EXPECT_OK(lab_->fabric().flap(1, 2, flap));
    EXPECT_OK(lab::eventually("the function was reset", lab::kPatience,
                              [&] { return resets() > former; }));
    EXPECT_OK(lab::eventually("the data is read again", lab::kPatience, [&] {
      return await_disk().has_value() && compare_data().has_value();
    }));
  };
  ASSERT_OK(lab_->fabric().tell_events(1, 2, false));
  await_reset(20ms, resets());
  ASSERT_OK(lab_->fabric().tell_events(2, 1, false));
  await_reset(600ms, resets());
  const auto after = job().function_on(lender());
  ASSERT_OK(after);
  EXPECT_EQ(after->at("lease"), before->at("lease"));
}

/*
 *   host1 (lender), not told       host2 (borrower)
 *   nvme: fenced, reset ══════════ reboots, and borrows again
 */
TEST_F(Shadow, ABorrowerRebootsOfWhichTheLenderIsNotTold) {
  ASSERT_OK(borrow());
  ASSERT_OK(lab_->fabric().tell_events(1, 2, false));
  ASSERT_OK(borrower().power_off());
  ASSERT_OK(borrower().power_on());
  ASSERT_OK(job().await_state(lender(), "available"));
  ASSERT_OK(job().await_state(borrower(), "available"));
  expect_works();
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme: fenced, reset ══════════ kexec: another kernel, and no reset of its adapter; it borrows
 *                                  again, and reads what it wrote
 */
TEST_F(Shadow, ABorrowerThatIsStartedAnewByKexecBorrowsAgain) {
  if (!can_kexec()) GTEST_SKIP() << "there is no compressed image of this kernel";
  ASSERT_OK(borrow());
  ASSERT_OK(write_data());
  const auto written = sum();
  ASSERT_OK(written);
  ASSERT_OK(kexec(borrower()));
  ASSERT_OK(job().await_state(lender(), "available"));
  ASSERT_OK(job().await_state(borrower(), "available"));
  ASSERT_OK(borrow());
  const auto read = sum();
  ASSERT_OK(read);
  EXPECT_EQ(*read, *written);
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  expect_works();
}

/*
 *   host1: kexec ═════════════════ host2: the drive is gone, and the host lives
 *   host1: nvme available ════════ borrowed again: it reads what it wrote
 */
TEST_F(Shadow, ALenderThatIsStartedAnewByKexecLendsAgain) {
  if (!can_kexec()) GTEST_SKIP() << "there is no compressed image of this kernel";
  expect_stopped_accesses();  // of its driver, which masks its interrupts when it is removed
  ASSERT_OK(borrow());
  ASSERT_OK(write_data());
  const auto written = sum();
  ASSERT_OK(written);
  ASSERT_OK(kexec(lender()));
  ASSERT_OK(await_gone());
  EXPECT_TRUE(std::regex_search(borrower().log(), std::regex("lease on function .* was lost")));
  ASSERT_OK(job().lend());
  ASSERT_OK(job().await_state(borrower(), "available"));
  ASSERT_OK(borrow());
  const auto read = sum();
  ASSERT_OK(read);
  EXPECT_EQ(*read, *written);
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  expect_works();
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═══ cut ═════════════════ a mounted file system: I/O errors, and the host lives
 *   nvme: fenced, reset ══════════ borrowed again
 */
TEST_F(Shadow, AMountedFileSystemOutlivesTheLink) {
  expect_stopped_accesses();
  auto writer = write_files();
  ASSERT_OK(writer);
  ASSERT_OK(lab_->fabric().link_down(1, 2));
  expect_io_errors(std::move(*writer));
  ASSERT_OK(lab_->fabric().link_up(1, 2));
  ASSERT_OK(job().await_state(borrower(), "available"));
  expect_works();
}

/*
 *   host1: power off ═════════════ host2: a mounted file system: I/O errors, and the host lives
 *   host1: back, nvme available ══ borrowed again
 */
TEST_F(Shadow, AMountedFileSystemOutlivesTheLender) {
  auto writer = write_files();
  ASSERT_OK(writer);
  ASSERT_OK(lender().power_off());
  expect_io_errors(std::move(*writer));
  ASSERT_OK(lender().power_on());
  ASSERT_OK(job().lend());
  ASSERT_OK(job().await_state(borrower(), "available"));
  expect_works();
}

/*
 *   host1: unavailable --force ═══ host2: a mounted file system: I/O errors, and the host lives
 *   host1: available ═════════════ borrowed again
 */
TEST_F(Shadow, AMountedFileSystemOutlivesARevocation) {
  expect_stopped_accesses();
  auto writer = write_files();
  ASSERT_OK(writer);
  ASSERT_OK(lender().run("pcilend unavailable --force " + *lender().address(0)));
  expect_io_errors(std::move(*writer));
  ASSERT_OK(lender().run("pcilend available " + *lender().address(0)));
  ASSERT_OK(job().await_state(borrower(), "available"));
  expect_works();
}

/*
 *   host1: nvme ══════════════════ host2: borrowed, read, returned; twenty times
 */
TEST_F(Shadow, TwentyTimesInARow) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(borrow());
    ASSERT_OK(borrower().run(
        fmt::format("dd if={} of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null", disk_)));
    ASSERT_OK(borrower().run("pcilend return " + job().id()));
  }
}

}  // namespace
}  // namespace pcilend::scenarios
