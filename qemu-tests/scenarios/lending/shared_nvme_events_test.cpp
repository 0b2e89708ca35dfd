// SPDX-License-Identifier: GPL-2.0-or-later
// What a shared drive tells by itself, and interrupts of who shares it (docs/nvme.md).
#include "lab/qmp.h"
#include "scenarios/lending/shared_nvme.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::json;
using testing::HasSubstr;

constexpr const char* kIntruder = "/usr/lib/pcilend-lab/nvme-intruder";
constexpr const char* kManaged = "0000:00:1b.0";
constexpr const char* kAdmin = "0000:00:1c.0";

/*
 *   nvme: a sensor is out of bounds, by QEMU; then the medium ── manager: says it, each
 *   intruder on host3: rings its doorbell with a value that it can't have, then one of a queue that
 *   there is not ── manager: says it; host2's client goes on
 */
TEST_F(SharedNvme, WhatTheDriveTellsIsSaidByItsManager) {
  ASSERT_NO_FATAL_FAILURE(manage());
  auto a = user(2, "--block 2048 --seed 2");
  ASSERT_OK(a);
  const auto warn = [](int bits) {
    auto qmp = lab::Qmp::connect(lab_->layout().qmp(1), lab::Deadline(10s));
    ASSERT_OK(qmp);
    ASSERT_OK(qmp->execute("qom-set", {{"path", "/machine/peripheral/device0"},
                                       {"property", "smart_critical_warning"},
                                       {"value", bits}}));
  };
  struct Warning {
    int bits;
    const char* text;
  };
  // Each is a new one of its type: the manager has read the page of the one before.
  for (const Warning& warning : {Warning{2, "its temperature is out of bounds"},
                                 Warning{3, "its spare blocks come to an end"},
                                 Warning{7, "it is not reliable any more: save what is on it"}}) {
    ASSERT_NO_FATAL_FAILURE(warn(warning.bits));
    ASSERT_OK(manager_->await(std::string("the drive says: ") + warning.text));
  }
  ASSERT_NO_FATAL_FAILURE(warn(0));

  // The client's queue has the id 1, the intruder's 2.
  const auto ring = [this](const char* steps) {
    return lab_->host(3).run(fmt::format("{} join {} {}", kIntruder, id_, steps));
  };
  EXPECT_OK(ring("ring 2 5000"));
  ASSERT_OK(manager_->await("the drive says: a doorbell was rung with a value that it can't have"));
  EXPECT_OK(ring("ring 20 1"));
  ASSERT_OK(manager_->await("the drive says: a doorbell was rung of a queue that there is not"));
  ASSERT_OK(a->await("\nround ", a->times("\nround ") + 2));
  ASSERT_NO_FATAL_FAILURE(expect_well(*a));
  ASSERT_NO_FATAL_FAILURE(end_manager());
}

/*
 *   host1: admin ── attach-ns, detach-ns ──> nvme ── manager ── reads which
 *                                                       ├── client of host2: is told, and goes on
 *                                                       └── disk of host3: of namespace 1 it goes
 *                                       on; of namespace 2, which goes: what is asked of it fails
 */
TEST_F(SharedNvme, NamespacesThatComeAndGoAreNoticed) {
  const lab::Host& host = lab_->host(3);
  const auto admin =
      lender().run(fmt::format("ls /sys/bus/pci/devices/{}/nvme | grep -x 'nvme[0-9]*'", kAdmin));
  ASSERT_OK(admin);
  const std::string drive = "/dev/" + admin->substr(0, admin->find('\n'));
  take_back();
  ASSERT_NO_FATAL_FAILURE(lend(kManaged));
  ASSERT_NO_FATAL_FAILURE(manage());
  const auto change = [&](const char* what) {
    const size_t before = manager_->times("the drive says: namespace 2: come, gone, or changed");
    ASSERT_OK(lender().run(fmt::format("nvme {} {} -n 2 -c 0", what, drive)));
    ASSERT_OK(manager_->await("the drive says: namespace 2: come, gone, or changed", before + 1));
  };
  const auto disk = [&]() -> json {
    const auto list = host.json("pcilend nvme list --json");
    EXPECT_OK(list);
    return list && list->at("disks").size() == 1 ? list->at("disks")[0] : json::object();
  };

  auto a = Process::start(lab_->host(2), command(id_, fmt::format("--rounds {}", kMany)));
  ASSERT_OK(a);
  ASSERT_OK(a->await("round 1:"));
  ASSERT_OK(host.run("pcilend nvme attach --shared-fs " + id_));
  ASSERT_NO_FATAL_FAILURE(change("attach-ns"));
  ASSERT_OK(a->await("\nnamespace 2: come, gone, or changed"));
  ASSERT_OK(a->await("\nround ", a->times("\nround ") + 2));
  EXPECT_EQ(bench(2, "--namespace 2 --commands 4").value("namespace", 0), 2);
  // Of another one than its own.
  EXPECT_EQ(disk().value("state", ""), "ready");
  EXPECT_EQ(disk().at("error"), nullptr);
  ASSERT_OK(host.run("dd if=/dev/ublkb0 of=/dev/null bs=4k count=4 iflag=direct"));
  ASSERT_OK(host.run("pcilend nvme detach /dev/ublkb0"));

  ASSERT_OK(host.run("pcilend nvme attach --shared-fs --namespace 2 " + id_));
  ASSERT_OK(host.run("dd if=/dev/ublkb0 of=/dev/null bs=4k count=4 iflag=direct"));
  ASSERT_NO_FATAL_FAILURE(change("detach-ns"));
  ASSERT_OK(lab::eventually("the disk has failed", lab::kPatience,
                            [&] { return disk().value("state", "") == "failed"; }));
  EXPECT_THAT(disk().at("error").get<std::string>(),
              HasSubstr("namespace 2 of " + id_ + " is gone, or another one now"));
  EXPECT_OK(host.run("! dd if=/dev/ublkb0 of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null"));
  ASSERT_OK(host.run("pcilend nvme detach " + id_));
  const auto none = lab_->host(2).exec(command(id_, "--namespace 2"));
  ASSERT_OK(none);
  EXPECT_EQ(none->code, static_cast<int>(ErrorClass::NotFound)) << none->err;
  const auto code = a->end("TERM");
  ASSERT_OK(code);
  EXPECT_EQ(*code, 0) << a->said();
  EXPECT_EQ(a->times("\nnamespace 2: come, gone, or changed"), 2U);
  ASSERT_NO_FATAL_FAILURE(end_manager());
}

/*
 *   client of each host, one after the other: sleeps until its interrupt, one command at a time ──
 *   each command has one, which for host2 and host3 goes through the NTB; host3's other client goes
 *   on ── one that sleeps is killed ── the next one has its interrupt
 */
TEST_F(SharedNvme, ClientsSleepUntilTheirInterrupts) {
  ASSERT_NO_FATAL_FAILURE(manage());
  constexpr int kCommands = 32;
  constexpr int kAll = 2 * kCommands + 1;  // and a flush
  auto other = user(3, "--wait interrupt --block 6144");
  ASSERT_OK(other);
  const auto expect_interrupts = [&](int host) {
    ASSERT_OK(lab_->fabric().counters(true));
    const json report =
        bench(host, fmt::format("--write --wait interrupt --block 4096 --commands {}", kCommands));
    const auto counters = lab_->fabric().counters();
    ASSERT_OK(counters);
    EXPECT_EQ(report.value("compared", 0), kCommands) << host;
    // A client may look, and find its command done, before the interrupt is told to it: the last
    // one comes when it has left, and one that comes meanwhile is told with the next.
    EXPECT_THAT(report.value("interrupts", 0),
                testing::AllOf(testing::Gt(kCommands), testing::Le(kAll)))
        << host;
    EXPECT_EQ(counters->path(1, 2).interrupt.writes, static_cast<uint64_t>(host == 2 ? kAll : 0))
        << host;
    // With those of its other client.
    if (host == 3) EXPECT_GE(counters->path(1, 3).interrupt.writes, static_cast<uint64_t>(kAll));
  };
  for (int host : {1, 2, 3}) ASSERT_NO_FATAL_FAILURE(expect_interrupts(host));
  auto killed = user(2, "--wait interrupt --block 8192 --depth 4");
  ASSERT_OK(killed);
  const size_t ends = manager_->times("has ended");
  ASSERT_OK(killed->end("KILL"));
  ASSERT_OK(manager_->await("has ended", ends + 1));
  ASSERT_NO_FATAL_FAILURE(expect_interrupts(2));
  ASSERT_NO_FATAL_FAILURE(expect_well(*other));
  EXPECT_THAT(other->said(), testing::Not(HasSubstr(" 0 interrupts")));
  ASSERT_NO_FATAL_FAILURE(end_manager());
}

}  // namespace
}  // namespace pcilend::scenarios
