// SPDX-License-Identifier: GPL-2.0-or-later
#include <regex>

#include "two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

constexpr const char* kMount = "/mnt";

/*
 *   host1 (lender, node 4)         host2 (borrower, node 8), two processors
 *   nvme ── IOMMU ── NTB ═════════ NTB ── virtual function ── nvme driver of the host
 */
class Shadow : public TwoHosts {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "shadows";
    options.qemu_arguments[2] = {"-smp", "2"};
    for (int i = 1; i <= 2; ++i) options.kernel_arguments[i].push_back("pcilend.lease_ms=10000");
    ASSERT_OK(make_rom());
    ASSERT_OK(
        options.add_device("host1:nvme,serial=shadow,drive-size=64M,romfile=" + rom().path()));
    ASSERT_OK(start_lab(options, lab_));
  }

  void SetUp() override {
    TwoHosts::SetUp();
    if (HasFatalFailure()) return;
    ASSERT_OK(job().lend());
    ASSERT_OK(job().see_available());
  }

  void TearDown() override {
    if (!lab_) return;
    EXPECT_OK(borrower().exec(fmt::format("umount {}", kMount)));
    TwoHosts::TearDown();
  }

  // Borrows, and knows then what appeared.
  Result<> borrow() {
    const auto drive = job().borrow();
    if (!drive) return tl::unexpected(drive.error());
    address_ = drive->address;
    disk_ = drive->disk;
    controller_ = drive->controller;
    return {};
  }

  // After somebody has unbound it, or worse: the disk is there again, whatever it is called.
  Result<> await_disk() {
    const auto found = borrower().until(
        fmt::format("ls /sys/bus/pci/devices/{}/nvme/nvme*/ | grep -x 'nvme[0-9]*n1'", address_),
        [](const lab::Output& o) { return o.code == 0; });
    if (!found) return tl::unexpected(found.error());
    disk_ = "/dev/" + found->text();
    return {};
  }
  [[nodiscard]] Result<> await_gone() const {
    const auto gone =
        borrower().until(fmt::format("ls /sys/bus/pci/devices/{} || ls {}", address_, disk_),
                         [](const lab::Output& o) { return o.code != 0; });
    if (!gone) return tl::unexpected(gone.error());
    return {};
  }

  [[nodiscard]] Result<> write_data() const {
    PCILEND_TRY(
        borrower().run(fmt::format("head -c 64K /dev/urandom >/tmp/data && "
                                   "dd if=/tmp/data of={} bs=16k oflag=direct 2>/dev/null",
                                   disk_)));
    return {};
  }
  // Of what write_data() wrote.
  static Result<std::string> sum_of_data(const lab::Host& host, const std::string& disk) {
    return host.run(
        fmt::format("dd if={} bs=16k count=4 iflag=direct 2>/dev/null | sha256sum", disk));
  }
  [[nodiscard]] Result<> compare_data() const {
    PCILEND_TRY(borrower().run(fmt::format(
        "dd if={} of=/tmp/read bs=16k count=4 iflag=direct 2>/dev/null && cmp /tmp/data /tmp/read",
        disk_)));
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
        fmt::format("n=0; while dd if=/dev/urandom of={}/file bs=4k count=2 "
                    "conv=fsync 2>/dev/null; do n=$((n+1)); echo $n >/tmp/rounds; done",
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

  void expect_works() {
    ASSERT_OK(borrow());
    ASSERT_OK(write_data());
    EXPECT_OK(compare_data());
    ASSERT_OK(borrower().run("pcilend return " + job().id()));
  }

  std::string address_;  // on the borrower
  std::string disk_;
  std::string controller_;
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
  EXPECT_EQ(function->at("virtual"), address_);

  expect_rom(borrower().run(read_rom("/sys/bus/pci/devices/" + address_)));

  ASSERT_OK(write_data());
  const auto before = job().lender_effort();
  ASSERT_OK(before);
  ASSERT_OK(lab_->fabric().counters(true));
  EXPECT_OK(borrower().run(
      fmt::format("fio --name=verify --filename={} --direct=1 --rw=randwrite --bs=4k --offset=1M "
                  "--size=256k --offset_increment=1M --numjobs=2 --thread --cpus_allowed=0,1 "
                  "--cpus_allowed_policy=split --verify=crc32c --verify_fatal=1",
                  disk_),
      {{}, 5min}));
  EXPECT_OK(compare_data());
  const auto after = job().lender_effort();
  ASSERT_OK(after);
  const auto counters = lab_->fabric().counters();
  ASSERT_OK(counters);
  EXPECT_EQ(after->messages - before->messages, 0u) << "control messages during I/O";
  EXPECT_EQ(after->interrupts - before->interrupts, 0u) << "interrupts of the lender";
  EXPECT_GE(counters->path(1, 2).memory.read_bytes, 512u << 10) << "data written";
  EXPECT_GE(counters->path(1, 2).memory.write_bytes, 512u << 10) << "data read";
  EXPECT_GT(counters->path(1, 2).interrupt.writes, 0u);
  EXPECT_GT(counters->path(2, 1).bar.writes, 0u) << "doorbells";
  for (int queue = 1; queue <= 2; ++queue) {
    const auto interrupts = borrower().run(
        fmt::format("awk '/ {}q{}$/ {{ print $2 + $3 }}' /proc/interrupts", controller_, queue));
    ASSERT_OK(interrupts);
    EXPECT_GT(std::stoi(*interrupts), 50) << "I/O queue " << queue;
  }

  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  EXPECT_OK(await_gone());
  ASSERT_OK(lender().run("pcilend unavailable " + *lender().address(0)));
  const auto local =
      lender().until("ls /dev/nvme0n1", [](const lab::Output& o) { return o.code == 0; });
  ASSERT_OK(local);
  const auto sum = borrower().run("sha256sum </tmp/data");
  ASSERT_OK(sum);
  const auto same = sum_of_data(lender(), "/dev/nvme0n1");
  ASSERT_OK(same);
  EXPECT_EQ(*same, *sum);
}

/*
 *   host2 (borrower): the interrupt of the admin queue moves to the other processor, and back
 */
TEST_F(Shadow, InterruptsFollowTheirAffinity) {
  ASSERT_OK(borrow());
  const std::string line = fmt::format("awk '/ {}q0$/'", controller_);
  const auto irq = borrower().run(line + " /proc/interrupts | cut -d: -f1 | tr -d ' \\n'");
  ASSERT_OK(irq);
  for (const int cpu : {1, 0, 1}) {
    ASSERT_OK(borrower().run(fmt::format("echo {} >/proc/irq/{}/smp_affinity_list", cpu, *irq)));
    // The first one may still be delivered where the last one was.
    ASSERT_OK(borrower().run("nvme id-ctrl /dev/" + controller_));
    const std::string count =
        fmt::format("awk '/ {}q0$/ {{ print ${} }}' /proc/interrupts", controller_, cpu + 2);
    const auto before = borrower().run(count);
    ASSERT_OK(before);
    ASSERT_OK(borrower().run("nvme id-ctrl /dev/" + controller_));
    const auto after = borrower().run(count);
    ASSERT_OK(after);
    EXPECT_GT(std::stoi(*after), std::stoi(*before)) << "interrupts on processor " << cpu;
  }
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

  const auto before = job().function_on(lender());
  ASSERT_OK(before);
  ASSERT_OK(borrower().run(fmt::format("echo 1 >{}/reset", device)));
  EXPECT_OK(compare_data());
  const auto after = job().function_on(lender());
  ASSERT_OK(after);
  EXPECT_GT(after->at("resets"), before->at("resets")) << "carried out by the lender";

  ASSERT_OK(borrower().run(fmt::format("echo 1 >{}/remove", device)));
  const auto removed = job().function_on(borrower());
  ASSERT_OK(removed);
  EXPECT_EQ(removed->at("virtual"), nullptr);
  EXPECT_EQ(removed->at("state"), "borrowed");
  ASSERT_OK(borrower().run("echo 1 >/sys/bus/pci/rescan"));
  ASSERT_OK(await_disk());
  EXPECT_OK(compare_data());
  ASSERT_OK(write_data());
  EXPECT_OK(compare_data());

  // Returned while it is not there.
  ASSERT_OK(borrower().run(fmt::format("echo 1 >{}/remove", device)));
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  expect_works();
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
  const auto sleep = borrower().exec("echo freeze >/sys/power/state");
  ASSERT_OK(sleep);
  EXPECT_NE(sleep->code, 0);
  EXPECT_NE(borrower().log().find("no sleep while functions are borrowed"), std::string::npos);
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
  ASSERT_OK(lab_->fabric().counters(true));
  auto copy =
      borrower().start(fmt::format("head -c 1M /dev/urandom >/tmp/file && "
                                   "dd if=/tmp/file of={0}/file bs=16k oflag=direct 2>/dev/null && "
                                   "umount {0} && mount {1} {0} && cmp /tmp/file {0}/file",
                                   kMount, disk_),
                       {{}, 5min});
  ASSERT_OK(copy);
  ASSERT_OK(lab::eventually("writes cross the NTB", lab::kPatience, [&] {
    const auto counters = lab_->fabric().counters();
    return counters && counters->path(1, 2).memory.read_bytes > (256u << 10);
  }));
  ASSERT_OK(lab_->fabric().link_down(1, 2));
  ASSERT_OK(borrower().until("pcilend link --json", [](const lab::Output& o) {
    return o.out.find("\"up\"") == std::string::npos;
  }));
  ASSERT_OK(lab_->fabric().link_up(1, 2));
  const auto ended = copy->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->out << ended->err;
  const auto after = job().function_on(lender());
  ASSERT_OK(after);
  EXPECT_EQ(after->at("lease"), before->at("lease"));
  EXPECT_GT(after->at("resets"), before->at("resets"));
  EXPECT_NE(borrower().log().find("its driver has started it anew"), std::string::npos);
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
