// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>

#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

/*
 *   host1 (lender, node 4)         host2 (borrower, node 8)
 *   nvme ── IOMMU ── NTB ═════════ NTB ── libvirt ── guest: nvme driver, ext4
 *
 * The lender's files are read in the guest, the guest's files on the lender, and the lender does
 * nothing while the guest works.
 */
TEST_F(TwoHosts, MainJob) {
  do_main_job();
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme: added, in use there ──── virsh start: refused
 */
TEST_F(TwoHosts, StartIsRefusedWhileTheFunctionIsNotAvailable) {
  ASSERT_OK(job().lend());
  const auto address = lender().address(0);
  ASSERT_OK(address);
  auto guest = job().another_guest("refused");
  ASSERT_OK(guest);
  ASSERT_OK(guest->define());
  ASSERT_OK(lender().run("pcilend unavailable " + *address));
  ASSERT_OK(job().await_state(borrower(), "added"));

  const auto start = borrower().exec("virsh start refused");
  ASSERT_OK(start);
  EXPECT_NE(start->code, 0);
  EXPECT_NE(start->err.find(job().id()), std::string::npos) << start->err;
  EXPECT_NE(start->err.find("pcilend available " + *address), std::string::npos) << start->err;
  const auto state = guest->state();
  ASSERT_OK(state);
  EXPECT_EQ(*state, "shut off");
  const auto function = job().function_on(lender());
  ASSERT_OK(function);
  EXPECT_EQ(function->at("state"), "added");
  EXPECT_EQ(function->at("driver"), "nvme");
  ASSERT_OK(guest->undefine());
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ guest under I/O: its QEMU is killed
 *   nvme: fenced, reset            the host borrows it for itself
 */
TEST_F(TwoHosts, AKilledGuestGivesItsFunctionBack) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().start_guest());
  ASSERT_OK(job().await_guest_disk());
  const auto resets = job().function_on(lender());
  ASSERT_OK(resets);
  auto load = job().guest().start("dd if=/dev/zero of=/dev/nvme0n1 bs=16k count=512 oflag=direct");
  ASSERT_OK(load);
  ASSERT_OK(lab::eventually("the guest's writes cross the NTB", lab::kPatience, [&] {
    const auto counters = lab_->fabric().counters();
    return counters && counters->path(1, 2).memory.read_bytes > (256u << 10);
  }));

  ASSERT_OK(borrower().run("kill -9 $(cat /run/libvirt/qemu/guest.pid)"));
  ASSERT_OK(job().await_state(borrower(), "available"));
  const auto function = job().function_on(lender());
  ASSERT_OK(function);
  EXPECT_EQ(function->at("state"), "available");
  EXPECT_GT(function->at("resets").get<int>(), resets->at("resets").get<int>());
  ASSERT_OK(lab::eventually("libvirt notices", lab::kPatience, [&] {
    const auto state = job().guest().state();
    return state && *state == "shut off";
  }));

  ASSERT_OK(job().borrow_and_use());
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   rmmod pcilend: refused ═══════ its nvme driver uses the drive, and goes on
 */
TEST_F(TwoHosts, ModulesStayWhileALeaseIsHeld) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  const auto drive = job().borrow();
  ASSERT_OK(drive);
  // The frontends would keep the module for themselves: on the lender nothing but the lease does.
  ASSERT_OK(lender().run("rmmod pcilend_mdev pcilend_shadow"));
  const auto unload = lender().exec("rmmod pcilend");
  ASSERT_OK(unload);
  EXPECT_NE(unload->code, 0);
  EXPECT_NE(unload->err.find("Module pcilend is in use"), std::string::npos) << unload->err;
  ASSERT_OK(lender().run("modprobe -a pcilend_mdev pcilend_shadow"));
  const auto unload_frontend = borrower().exec("rmmod pcilend_shadow");
  ASSERT_OK(unload_frontend);
  EXPECT_NE(unload_frontend->code, 0);
  EXPECT_NE(unload_frontend->err.find("in use"), std::string::npos) << unload_frontend->err;
  const auto take = lender().exec("pcilend unavailable " + *lender().address(0));
  ASSERT_OK(take);
  EXPECT_EQ(take->code, static_cast<int>(ErrorClass::State));
  EXPECT_NE(take->err.find("node 8"), std::string::npos) << take->err;
  EXPECT_OK(borrower().run(
      fmt::format("dd if={} of=/dev/null bs=16k count=4 iflag=direct", drive->disk)));
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   what does not exist, in every command: one line, an exit code, nothing changed
 */
TEST_F(TwoHosts, BadInputChangesNothing) {
  ASSERT_OK(job().lend());
  const auto before = lender().run("pcilend list --json");
  ASSERT_OK(before);
  struct Case {
    lab::Host& host;
    const char* command;
    ErrorClass expected;
    const char* named;
  };
  const Case cases[] = {
      {lender(), "pcilend connect nowhere", ErrorClass::Usage, "nowhere"},
      {lender(), "pcilend connect 4", ErrorClass::Usage, "4"},
      {lender(), "pcilend add 0000:00:1e.7", ErrorClass::NotFound, "0000:00:1e.7"},
      {lender(), "pcilend add 0000:00:99.0", ErrorClass::Usage, "0000:00:99.0"},
      {lender(), "pcilend available 0000:00:00.0", ErrorClass::NotFound, "0000:00:00.0"},
      {lender(), "pcilend add 0000:00:04.0", ErrorClass::Unsupported, "0000:00:04.0"},
      {borrower(), "pcilend borrow 49999", ErrorClass::NotFound, "49999"},
      {borrower(), "pcilend show 40002", ErrorClass::NotFound, "40002"},
      {borrower(), "pcilend lend 40001", ErrorClass::Usage, "lend"},
      {borrower(), "pcilend list --colour", ErrorClass::Usage, "--colour"},
  };
  for (const auto& bad : cases) {
    const auto output = bad.host.exec(bad.command);
    ASSERT_OK(output);
    EXPECT_EQ(output->code, static_cast<int>(bad.expected)) << bad.command << ": " << output->err;
    EXPECT_NE(output->err.find(bad.named), std::string::npos) << bad.command << ": " << output->err;
    EXPECT_EQ(std::count(output->err.begin(), output->err.end(), '\n'), 1) << output->err;
    EXPECT_EQ(output->out, "") << bad.command;
  }
  const auto after = lender().run("pcilend list --json");
  ASSERT_OK(after);
  EXPECT_EQ(*after, *before);
}

}  // namespace
}  // namespace pcilend::scenarios
