// SPDX-License-Identifier: GPL-2.0-or-later
// How the lease of a user of VFIO ends, and what becomes of its device when the link is lost.
#include "scenarios/bare_metal/vfio_client.h"

namespace pcilend::scenarios {
namespace {

using nlohmann::json;

/*
 *   host1 (lender)                  host2 (borrower)
 *   unavailable --grace 90 ───────> client is asked, and closes the device
 *   mdev is removed ──────────────> the same
 */
TEST_F(VfioClient, AClientThatIsAskedLetsGo) {
  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  std::optional<lab::Running> running;
  ASSERT_NO_FATAL_FAILURE(start_client("let-go", &running));
  ASSERT_OK(borrower().run(remove_device(uuid_)));
  auto ended = running->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "available"));

  ASSERT_OK(borrower().run(make_device(uuid_)));
  ASSERT_NO_FATAL_FAILURE(start_client("let-go", &running));
  const auto start = std::chrono::steady_clock::now();
  ASSERT_OK(lender().run("pcilend unavailable --grace 90 " + address_));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(90)) << "taken";
  ended = running->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "added"));
}

/*
 *   host1 (lender)                  host2 (borrower)
 *   unavailable --grace 90 ───────> client is stopped: who wants the function is refused
 *                                   client goes on, and closes the device
 *
 * A request that waited for the client would hold up all of generic netlink.
 */
TEST_F(VfioClient, NobodyWaitsForAClientThatDoesNotLetGo) {
  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  const auto other = lender().address("msix");
  ASSERT_OK(other);
  const auto offered = offer(lender(), *other);
  ASSERT_OK(offered);
  const std::string other_id = offered->at("id");
  ASSERT_OK(await_state(borrower(), other_id, "available"));
  std::optional<lab::Running> running;
  ASSERT_NO_FATAL_FAILURE(start_client("let-go", &running));
  ASSERT_OK(borrower().run("pkill -STOP -x vfio-client"));
  auto recall = lender().start("pcilend unavailable --grace 90 " + address_);
  ASSERT_OK(recall);
  EXPECT_OK(borrower().until("cat /proc/[0-9]*/stack | grep -q pcilend_await_unused"));

  const auto start = std::chrono::steady_clock::now();
  const auto refused = [&](const std::string& command, const char* why) {
    const auto said = borrower().exec(command);
    ASSERT_OK(said);
    EXPECT_EQ(said->code, static_cast<int>(ErrorClass::State)) << command;
    EXPECT_NE(said->err.find(why), std::string::npos) << command << ": " << said->err;
  };
  refused("pcilend borrow " + id_, "its user has not let go of it yet");
  refused(fmt::format("pcilend p2p {} {}", id_, other_id), "its user has not let go of it yet");
  refused("pcilend return --force " + id_, "another user of VFIO, has it");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));

  ASSERT_OK(borrower().run("pkill -CONT -x vfio-client"));
  const auto ended = running->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  const auto recalled = recall->wait();
  ASSERT_OK(recalled);
  EXPECT_EQ(recalled->code, 0) << recalled->err;
  ASSERT_OK(lender().run(fmt::format("pcilend unavailable {0} && pcilend remove {0}", *other)));
}

/*
 *   host2 (borrower)
 *   mdev is removed ── client closes the device, and maps memory in its container still ── leaves
 *
 * VFIO would empty the container under its feet, and the kernel would use what is freed.
 */
TEST_F(VfioClient, AClientMayUseItsContainerUntilItLeaves) {
  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  std::optional<lab::Running> running;
  ASSERT_NO_FATAL_FAILURE(start_client("leave-late", &running));
  ASSERT_OK(borrower().run(remove_device(uuid_)));
  const auto ended = running->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "available"));
  ASSERT_OK(borrower().run(make_device(uuid_)));
}

/*
 *   host1 (lender)
 *   client has the drive, by its own kernel's vfio-pci: it is not taken from it, and nobody waits
 */
TEST_F(VfioClient, WhatItsLenderUsesThroughVfioIsNotTaken) {
  const auto address = lender().address("msi");
  ASSERT_OK(address);
  address_ = *address;
  const std::string device = "/sys/bus/pci/devices/" + address_;
  ASSERT_OK(lender().run(fmt::format(
      "modprobe vfio-pci && echo vfio-pci >{0}/driver_override && echo {1} >{0}/driver/unbind; "
      "echo {1} >/sys/bus/pci/drivers_probe && pcilend add {1}",
      device, address_)));
  // By the kernel's own vfio-pci, which does not lock the bridge.
  expect_in_log(
      "unlocked secondary bus reset via: (__pci_reset_function_locked|pci_reset_bus_function)");
  auto client = lender().start(fmt::format("{} {} let-go", kClient, address_));
  ASSERT_OK(client);
  ASSERT_OK(await_words(*client, "\"ready\":true"));
  for (const char* force : {"", "--force "}) {
    const auto refused = lender().exec(fmt::format("pcilend available {}{}", force, address_));
    ASSERT_OK(refused);
    EXPECT_EQ(refused->code, static_cast<int>(ErrorClass::State));
    EXPECT_NE(refused->err.find("another user of VFIO has it (vfio-client (pid "),
              std::string::npos)
        << refused->err;
  }
  // The kernel says so, too, where the program finds nothing.
  const auto refused = lender().exec(fmt::format(
      "unshare --mount sh -c 'mount -t tmpfs none /dev/vfio && pcilend available {}'", address_));
  ASSERT_OK(refused);
  EXPECT_NE(refused->err.find("vfio-pci has it in use"), std::string::npos) << refused->err;
  // What asks the client to let go is the driver that is taken from it.
  ASSERT_OK(lender().run(fmt::format("echo {1} >{0}/driver/unbind", device, address_)));
  const auto ended = client->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  ASSERT_OK(
      lender().run(fmt::format("echo >{0}/driver_override; echo {1} "
                               ">/sys/bus/pci/drivers_probe",
                               device, address_)));
}

/*
 *   host1 (lender)
 *   a driver does not let go of one controller ── another one is lent and taken back meanwhile
 */
TEST_F(VfioClient, WhoWaitsForADriverHoldsUpNobody) {
  const auto slow = lender().address("msix");
  const auto other = lender().address("msi");
  ASSERT_OK(slow);
  ASSERT_OK(other);
  address_ = *slow;
  ASSERT_OK(lender().run(fmt::format("pcilend add {} {}", *slow, *other)));
  ASSERT_OK(lender().run("modprobe pcilend_hold device=" + *slow));
  auto waiting = lender().start("pcilend available " + *slow);
  ASSERT_OK(waiting);
  EXPECT_OK(lender().until("cat /proc/[0-9]*/stack | grep -q pcilend_lender_available"));
  EXPECT_OK(lender().run(fmt::format(
      "pcilend available {0} && pcilend unavailable {0} && pcilend remove {0}", *other)));
  ASSERT_OK(lender().run("rmmod pcilend_hold"));
  const auto ended = waiting->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
}

// What the adapter's page tables take for a user's memory counts as that user's. Few stay there
// from one that has mapped less.
TEST_F(VfioClient, PageTablesAreTheirUsers) {
  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  ASSERT_OK(borrower().run(
      "grep -q cgroup2 /proc/mounts || mount -t cgroup2 none /sys/fs/cgroup; cd /sys/fs/cgroup && "
      "echo +memory >cgroup.subtree_control && mkdir user"));
  auto user = borrower().start("echo $$ >/sys/fs/cgroup/user/cgroup.procs && exec " +
                               client("keep-sparse"));
  ASSERT_OK(user);
  ASSERT_OK(await_words(*user, "\"ready\":true"));
  EXPECT_OK(borrower().run("grep 'sec_pagetables [1-9]' /sys/fs/cgroup/user/memory.stat"));
  user->interrupt();
  ASSERT_OK(user->wait());
  ASSERT_OK(borrower().run("rmdir /sys/fs/cgroup/user"));
}

/*
 *   host1 (lender)                  host2 (borrower)
 *   unavailable --grace 3 ────────> client is asked, and goes on with the device
 *   taken when the time is over     all it reads is all-ones; it lives
 */
TEST_F(VfioClient, WhatIsHeldTooLongIsTaken) {
  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  // It does not know at once that the drive was taken: what it does until then is stopped by the
  // lender's IOMMU, as faults of the adapter (00:04.0) in the export region.
  expect_in_log("DMAR: DRHD: handling fault status reg");
  expect_in_log(
      R"(DMAR: \[DMA (Read|Write) NO_PASID\] Request device \[(0000:)?00:04\.0\] fault addr 0x100[0-9a-f]{8} )");
  std::optional<lab::Running> running;
  ASSERT_NO_FATAL_FAILURE(start_client("hold", &running));
  ASSERT_OK(lender().run("pcilend unavailable --grace 3 " + address_));
  const auto ended = running->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  std::istringstream lines(ended->out);
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  EXPECT_EQ(json::parse(line), json({{"asked", true}, {"serial", kSerial}}));
  std::getline(lines, line);
  EXPECT_EQ(json::parse(line), json({{"mapped", 0xffffffff},
                                     {"read", 0xffffffff},
                                     {"rom", 0xffffffff},
                                     {"config", true},
                                     {"interrupts", "ENODEV"},
                                     {"reset", "ENODEV"}}));
  ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "added"));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ client is killed with the drive started; another one comes;
 *                                  the mediated device goes
 */
TEST_F(VfioClient, AClientThatIsKilledGivesItBack) {
  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  std::optional<lab::Running> running;
  ASSERT_NO_FATAL_FAILURE(start_client("hold", &running));
  ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "borrowed"));
  const auto second = borrower().exec(client("info"));
  ASSERT_OK(second);
  EXPECT_NE(second->err.find("busy"), std::string::npos) << second->err;
  ASSERT_OK(borrower().run("pkill -KILL -x vfio-client"));
  ASSERT_OK(running->wait());
  const auto said = borrower().json(client("nvme"));
  ASSERT_OK(said);
  EXPECT_EQ(said->at("serials").size(), 12U);
  expect_owner("mdev:" + uuid_);
  ASSERT_OK(borrower().run(remove_device(uuid_)));
  ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "available"));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═══════ down ════════════ client: its BAR is memory of host2, and reads all-ones
 *   nvme: reset ══════════════════ the drive is there again, as after a reset
 */
TEST_F(VfioClient, NothingGoesToADriveWhoseLinkIsDown) {
  expect_stopped_accesses();  // from when the link is up until the drive was reset
  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  std::optional<lab::Running> running;
  ASSERT_OK(borrower().run("rm -f /run/vfio-client.heard"));
  ASSERT_NO_FATAL_FAILURE(start_client("outlive-link", &running));
  ASSERT_OK(lab_->fabric().link_down(1, 2));
  EXPECT_OK(await_words(*running, R"({"away":true,"read":true,"written":true})"));
  ASSERT_OK(lab_->fabric().link_up(1, 2));
  EXPECT_OK(lab::eventually("the borrower hears of the reset", lab::kPatience, [&] {
    return borrower().log().find("was reset by its lender, because the link was lost") !=
           std::string::npos;
  }));
  ASSERT_OK(borrower().run("touch /run/vfio-client.heard"));
  const auto ended = running->wait();
  EXPECT_OK(borrower().run("rm /run/vfio-client.heard"));
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  EXPECT_NE(ended->out.find(kSerial), std::string::npos) << ended->out;
}

}  // namespace
}  // namespace pcilend::scenarios
