// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>

#include "scenarios/lending/stand_still.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

constexpr auto kStop = 10s;

/*
 *   host1 (lender)                 host2 (borrower)
 *   all CPUs stand still,
 *   interrupts off, for 10 s
 *   nvme ═════════════════════════ fio that verifies goes on
 *
 * The lender's heart stops, too: the lease must last for longer, which the lab has asked for
 * (lease_ms).
 */
TEST_F(TwoHosts, IoGoesOnWhileTheLenderStandsStill) {
  for (const lab::Host* host : {&lender(), &borrower()}) {
    const auto lease = host->run("cat /sys/module/pcilend/parameters/lease_ms");
    ASSERT_OK(lease);
    ASSERT_GT(std::stoi(*lease), 20'000) << host->name();
  }
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  const auto drive = job().borrow();
  ASSERT_OK(drive);
  const auto completed = [&]() -> int {
    const auto count = borrower().run(
        fmt::format("awk '{{ print $1 + $5 }}' /sys/block/{}/stat", drive->disk.substr(5)));
    return count ? std::stoi(*count) : -1;
  };

  const auto before = job().lender_effort();
  ASSERT_OK(before);
  ASSERT_OK(borrower().run("rm -f /tmp/enough"));
  auto work = borrower().start(
      fmt::format("until [ -e /tmp/enough ]; do fio --name=verify --filename={} --direct=1 "
                  "--rw=randwrite --bs=4k --size=128k --loops=5 --verify=crc32c "
                  "--verify_fatal=1 || exit 1; done",
                  drive->disk),
      {{}, 5min});
  ASSERT_OK(work);
  ASSERT_OK(lab::eventually("fio is at work", lab::kPatience, [&] { return completed() > 20; }));

  auto still = StandStill::start(lender(), kStop);
  ASSERT_OK(still);
  const int at_stop = completed();
  int last = at_stop;
  int steps = 0;
  ASSERT_OK(lab::eventually("the lender goes on", lab::kPatience, [&] {
    const int now = completed();
    // What is counted after it has gone on does not count.
    if (still->is_over()) return true;
    steps += now > last;
    last = now;
    return false;
  }));
  const auto stood = still->end();
  ASSERT_OK(stood);
  EXPECT_GE(*stood, kStop);
  fmt::print(stderr, "-- {} commands completed while the lender stood still\n", last - at_stop);
  EXPECT_GT(last - at_stop, 20);
  EXPECT_GT(steps, 2) << "all at once";

  ASSERT_OK(borrower().run("touch /tmp/enough"));
  const auto ended = work->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->out << ended->err;
  const auto after = job().lender_effort();
  ASSERT_OK(after);
  EXPECT_EQ(after->messages - before->messages, 0u) << "control messages";
  EXPECT_EQ(after->interrupts - before->interrupts, 0u) << "interrupts of the lender";
  EXPECT_OK(borrower().run("pcilend return " + job().id()));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   stands still for 12 s          a reset waits for that, without a driver whose writes would
 */
TEST_F(TwoHosts, AResetIsWaitedForHoweverLongItTakes) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  const auto drive = job().borrow();
  ASSERT_OK(drive);
  const std::string device = "/sys/bus/pci/devices/" + drive->address;
  ASSERT_OK(borrower().run(fmt::format("echo {} >{}/driver/unbind", drive->address, device)));
  const auto before = job().function_on(lender());
  ASSERT_OK(before);

  auto still = StandStill::start(lender(), 12s);
  ASSERT_OK(still);
  EXPECT_OK(borrower().run(fmt::format("echo 1 >{}/reset", device), {{}, 2min}));
  EXPECT_TRUE(still->is_over()) << "it was taken for done";
  ASSERT_OK(still->end());
  const auto after = job().function_on(lender());
  ASSERT_OK(after);
  EXPECT_EQ(after->at("resets"), before->at("resets").get<uint64_t>() + 1);
  ASSERT_OK(borrower().run(fmt::format("echo {} >/sys/bus/pci/drivers/nvme/bind", drive->address)));
  EXPECT_OK(borrower().until(
      fmt::format("dd if={} of=/dev/null bs=16k count=4 iflag=direct 2>/dev/null", drive->disk)));
  EXPECT_OK(borrower().run("pcilend return " + job().id()));
}

/*
 *   host1 (lender) <── 300 ms ──> host2 (borrower): who writes to the drive's COMMAND register goes
 *                                 on when host1 has acted, in whatever context
 *   stands still for 12 s         who writes meanwhile goes on, too: the first waits for 2 s
 */
TEST_F(TwoHosts, AConfigWriteReturnsWhenItsLenderHasActed) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  const auto drive = job().borrow();
  ASSERT_OK(drive);
  ASSERT_OK(borrower().run(
      fmt::format("echo {0} >/sys/bus/pci/devices/{0}/driver/unbind", drive->address)));
  const std::string write = "setpci -s " + drive->address;
  const auto lender_has = [&](const char* command) {
    return lender().until(
        fmt::format("setpci -s {} COMMAND | grep '{}$'", *lender().address(0), command));
  };
  // setpci's writes come with a spinlock of the PCI core, and interrupts off.
  ASSERT_OK(lab_->fabric().set_delay(1, 2, 300ms));
  const auto on = borrower().exec(write + " COMMAND=4:4");
  ASSERT_OK(lab_->fabric().set_delay(1, 2, 0ms));
  ASSERT_OK(on);
  EXPECT_EQ(on->code, 0) << on->err;
  EXPECT_GE(on->time, 600ms) << "it was not waited for";
  EXPECT_OK(lender_has("[4567]"));

  auto still = StandStill::start(lender(), 12s);
  ASSERT_OK(still);
  std::string writes = write;
  for (int i = 0; i < 8; ++i) writes += " COMMAND=0:4 COMMAND=4:4";
  ASSERT_OK(borrower().run(writes + " COMMAND=0:4"));
  EXPECT_FALSE(still->is_over()) << "its lender holds them up";
  ASSERT_OK(still->end());
  EXPECT_OK(lender_has("[0123]"));
  ASSERT_OK(borrower().run("pcilend return " + job().id()));

  // Somebody who has it by VFIO waits without interrupts off, and takes none of that time.
  const auto lent = borrower().json("pcilend borrow --frontend vfio --json " + job().id());
  ASSERT_OK(lent);
  const std::string place = lent->at("functions").at(0).at("virtual_bdf");
  ASSERT_OK(lab_->fabric().set_delay(1, 2, 400ms));
  const auto off = borrower().exec(fmt::format("setpci -s {} COMMAND=0:4", place));
  const auto later = borrower().exec(fmt::format("setpci -s {} COMMAND=4:4", place));
  ASSERT_OK(lab_->fabric().set_delay(1, 2, 0ms));
  ASSERT_OK(off);
  ASSERT_OK(later);
  EXPECT_EQ(later->code, 0) << later->err;
  // One of them may be slow for other reasons.
  EXPECT_LT(std::min(off->time, later->time), 800ms) << "they were polled for";
  EXPECT_OK(lender_has("[4567]"));
  EXPECT_OK(borrower().run("pcilend return " + job().id()));
}

}  // namespace
}  // namespace pcilend::scenarios
