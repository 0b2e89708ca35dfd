// SPDX-License-Identifier: GPL-2.0-or-later
#include "scenarios/devices/device_matrix.h"
#include "testing/bare_drive.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

/*
 *   host1 (lender)                                  host2 (borrower), two processors, relay_msi=1
 *   nvme (MSI-X) ── message ── pcilend: tells ═════ virtual function ── nvme driver
 *   mptsas (MSI)                      answer ══════
 */
class MsiRelay : public BareDrive {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "msi-relay";
    options.qemu_arguments[2] = {"-smp", "2"};
    start(options);
  }
  static void start(lab::Options& options) {
    // Its driver does without MSI unless it is told.
    options.kernel_arguments[1] = {"mptbase.mpt_msi_enable_sas=1"};
    options.kernel_arguments[2] = {"pcilend.relay_msi=1", "mptbase.mpt_msi_enable_sas=1"};
    ASSERT_OK(options.add_device(
        fmt::format("host1:nvme,serial=relay,drive-size=64M{}", kNoShadowDoorbells)));
    ASSERT_OK(options.add_device("host1:pcie-root-port,id=port0,chassis=1,addr=18"));
    ASSERT_OK(
        options.add_device("host1:mptsas1068,id=mptsas,bus=port0,x-max-bounce-buffer-size=16M"));
    ASSERT_OK(
        options.add_device("host1:scsi-hd,bus=mptsas.0,drive-size=16M,wwn=0x5000c50015ea71ac"));
    ASSERT_OK(start_lab(options, lab_));
  }

  void TearDown() override {
    if (!lab_) return;
    if (!other_.empty()) {
      EXPECT_OK(borrower().exec("pcilend return --force " + other_id_));
      EXPECT_OK(lender().exec("pcilend unavailable --force " + other_));
      EXPECT_OK(lender().exec("pcilend remove " + other_));
    }
    BareDrive::TearDown();
    EXPECT_OK(lender().run("! grep pcilend-relay /proc/interrupts"));
  }

  void lend_and_borrow() {
    ASSERT_OK(job().lend());
    ASSERT_OK(job().see_available());
    ASSERT_OK(borrow());
  }

  [[nodiscard]] uint64_t taken() const { return interrupts(lender(), "pcilend-relay"); }
  [[nodiscard]] uint64_t told() const {
    return count(lender(),
                 "pcilend metrics | awk '$1 == \"pcilend_interrupts_relayed_total\" { n = $2 } END "
                 "{ print n + 0 }'");
  }

  std::string other_;  // on the lender: a second function
  std::string other_id_;
};

/*
 *   host1: taken, told once ═══ host2: served once; no message of the function itself crosses
 */
TEST_F(MsiRelay, ADriveOnBareMetal) {
  const auto checked = borrower().exec("pcilend check");
  ASSERT_OK(checked);
  EXPECT_NE(checked->out.find("exports: "), std::string::npos) << checked->out << checked->err;
  EXPECT_EQ(checked->out.find("relay"), std::string::npos) << "it was asked for: " << checked->out;
  EXPECT_OK(borrower().run("dmesg | grep 'functions borrowed over it is relayed: relay_msi=1'"));
  ASSERT_NO_FATAL_FAILURE(lend_and_borrow());
  for (const auto* host : {&lender(), &borrower()}) {
    const auto function = job().function_on(*host);
    ASSERT_OK(function);
    EXPECT_EQ(function->at("relayed"), true) << host->name();
  }
  const uint64_t told_before = told();
  const uint64_t taken_before = taken();
  const std::string mine = fmt::format(" {}q[0-9]+$", controller_);
  const uint64_t served_before = interrupts(borrower(), mine);
  ASSERT_OK(lab_->fabric().counters(true));
  EXPECT_OK(verify_on_both_processors(128));
  EXPECT_OK(use_disk());
  const auto counters = lab_->fabric().counters();
  ASSERT_OK(counters);
  const uint64_t told_now = told() - told_before;
  const uint64_t taken_now = taken() - taken_before;
  const uint64_t served = interrupts(borrower(), mine) - served_before;
  fmt::print(stderr, "-- taken {}, told {}, served {}\n", taken_now, told_now, served);
  EXPECT_GT(served, 64u);
  EXPECT_LE(served, told_now) << "each is told once";
  EXPECT_LE(told_now, taken_now);
  for (int queue = 1; queue <= 2; ++queue)
    EXPECT_GT(interrupts(borrower(), fmt::format(" {}q{}$", controller_, queue)), 16u);
  // What crosses are doorbells of the adapters.
  EXPECT_EQ(counters->path(1, 2).interrupt.writes, 0u);
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  EXPECT_OK(lender().run("! grep pcilend-relay /proc/interrupts"));
  expect_back();
}

/*
 *   host2 (borrower): the interrupt of the admin queue moves to the other processor, and back
 *   host1 (lender): where it is taken does not matter
 */
TEST_F(MsiRelay, InterruptsFollowTheirAffinity) {
  ASSERT_NO_FATAL_FAILURE(lend_and_borrow());
  ASSERT_NO_FATAL_FAILURE(expect_interrupts_follow_affinity());
  EXPECT_OK(use_disk());
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
}

/*
 *   host2 (borrower): the driver lets go and comes back; the function is reset under I/O
 */
TEST_F(MsiRelay, DriversComeAndGoAndReset) {
  ASSERT_NO_FATAL_FAILURE(lend_and_borrow());
  ASSERT_OK(use_disk());
  EXPECT_GT(taken(), 0u);
  ASSERT_OK(borrower().run(fmt::format("echo {} >/sys/bus/pci/drivers/nvme/unbind", address_)));
  EXPECT_OK(lab::eventually("the lender takes none for a function without driver", lab::kPatience,
                            [&] { return taken() == 0; }));
  ASSERT_OK(borrower().run(fmt::format("echo {} >/sys/bus/pci/drivers/nvme/bind", address_)));
  ASSERT_OK(await_disk());
  ASSERT_OK(use_disk());

  const uint64_t before = resets();
  auto load = borrower().start(
      fmt::format("for n in 1 2 3 4 5 6 7 8 9 10; do "
                  "dd if=/tmp/data of={0} bs=16k seek=64 oflag=direct 2>/dev/null && "
                  "dd if={0} bs=16k skip=64 count=8 iflag=direct 2>/dev/null | cmp - /tmp/data || "
                  "exit 1; done",
                  disk_),
      {{}, 5min});
  ASSERT_OK(load);
  ASSERT_OK(
      borrower().run(fmt::format("echo 1 >/sys/bus/pci/devices/{}/reset", address_), {{}, 3min}));
  const auto ended = load->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->out << ended->err;
  EXPECT_GT(resets(), before) << "carried out by the lender";
  EXPECT_OK(use_disk());
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  expect_back();
}

/*
 *   host1: mptsas ── MSI ── pcilend ═══ host2: mptsas driver: a disk
 */
TEST_F(MsiRelay, AFunctionWithMsiOnly) {
  for (const std::string& pattern : matrix_function("mptsas").log) expect_in_log(pattern);
  const auto address = lender().address("mptsas");
  ASSERT_OK(address);
  other_ = *address;
  ASSERT_OK(lender().run(fmt::format("pcilend connect {}", borrower().node())));
  const auto offered = offer(lender(), other_);
  ASSERT_OK(offered);
  other_id_ = offered->at("id");
  ASSERT_OK(await_state(borrower(), other_id_, "available"));
  const auto borrowed = borrower().json("pcilend borrow --wait --json " + other_id_);
  ASSERT_OK(borrowed);
  const std::string there = borrowed->at("functions").at(0).at("virtual_bdf");
  const auto disk = scenarios::await_disk(borrower(), there);
  ASSERT_OK(disk);
  disk_ = *disk;
  const uint64_t before = told();
  ASSERT_OK(use_disk());
  EXPECT_GT(told(), before);
  EXPECT_OK(borrower().run("grep 'PCI-MSI.*ioc' /proc/interrupts"));
  ASSERT_OK(borrower().run("pcilend return " + other_id_));
  ASSERT_OK(lender().run("pcilend unavailable " + other_));
  const auto back = scenarios::await_disk(lender(), other_);
  ASSERT_OK(back);
  expect_data_on(*back);
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme: reset ═══ for 1 s ══════ its driver starts it anew; interrupts come as before
 */
TEST_F(MsiRelay, GoesOnAfterALinkFlap) {
  // News of an interrupt from before the reset: the borrower reads a register of what is hidden.
  expect_stopped_accesses();
  ASSERT_NO_FATAL_FAILURE(lend_and_borrow());
  const uint64_t before = resets();
  ASSERT_NO_FATAL_FAILURE(
      flap_during(fmt::format("head -c 512K /dev/urandom >/tmp/file && "
                              "dd if=/tmp/file of={0} bs=16k oflag=direct 2>/dev/null && "
                              "dd if={0} bs=16k count=32 iflag=direct 2>/dev/null | "
                              "cmp - /tmp/file",
                              disk_),
                  128u << 10));
  EXPECT_GT(resets(), before);
  const uint64_t told_before = told();
  EXPECT_OK(use_disk());
  EXPECT_GT(told(), told_before);
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  expect_back();
}

/*
 *   host1: unavailable --force ═══ host2: the drive under I/O is removed, and both hosts live
 */
TEST_F(MsiRelay, RevokedUnderIo) {
  expect_stopped_accesses();
  ASSERT_NO_FATAL_FAILURE(lend_and_borrow());
  const uint64_t before = told();
  // Without nocreat, a dd that begins after the removal would write to a new file, for ever.
  auto load = borrower().start(
      fmt::format(
          "while dd if=/dev/zero of={} bs=16k count=4 oflag=direct conv=nocreat; do :; done",
          disk_),
      {{}, 5min});
  ASSERT_OK(load);
  ASSERT_OK(lab::eventually("it does I/O", lab::kPatience, [&] { return told() > before + 8; }));
  ASSERT_OK(lender().run("pcilend unavailable --force " + *lender().address(0)));
  EXPECT_OK(lender().run("! grep pcilend-relay /proc/interrupts"));
  ASSERT_OK(load->wait());
  ASSERT_OK(borrower().until("! ls /sys/bus/pci/devices/" + address_));
  ASSERT_OK(lender().until("ls /dev/nvme0n1"));
}

// With one processor, on which a guest boots faster here.
class MsiRelayInGuests : public MsiRelay {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "msi-relay-in-guests";
    start(options);
  }
};

/*
 *   host1 (lender)                  host2 (borrower)                 guest
 *   nvme ── message ── pcilend ════ virtual function ── eventfd ──── nvme
 */
TEST_F(MsiRelayInGuests, ADriveInAGuest) {
  ASSERT_OK(job().fill_drive());
  ASSERT_OK(job().lend());
  // How many is the guest's affair: its driver takes as many completions as there are at each.
  uint64_t before = told();
  const auto told_more = [&] {
    const uint64_t was = std::exchange(before, told());
    return before > was;
  };
  ASSERT_OK(job().start_guest());
  ASSERT_OK(job().read_in_guest());
  EXPECT_TRUE(told_more());
  ASSERT_OK(job().write_in_guest());
  EXPECT_TRUE(told_more());
  EXPECT_OK(job().guest().run("! dmesg | grep polled"));  // after a timeout: none told of it
  ASSERT_OK(job().shut_down_guest());
  EXPECT_OK(
      lab::eventually("the function is returned", lab::kPatience, [&] { return taken() == 0; }));
  EXPECT_OK(job().take_back());
}

}  // namespace
}  // namespace pcilend::scenarios
