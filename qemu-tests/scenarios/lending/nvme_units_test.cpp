// SPDX-License-Identifier: GPL-2.0-or-later
// A shared drive, and a disk of it, as systemd has them (docs/nvme.md).
#include <gmock/gmock.h>

#include "main_job/admin_steps.h"
#include "testing/asserts.h"
#include "testing/suite_lab.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kData = "/data";

/*
 *   host1 (lender, node 4): an installed Debian      host2 (node 8): an installed Debian
 *   pcilend-nvme-manager@0000:00:10.0 ── nvme ══════ pcilend-nvme-disk@40001 ── ublkb0 ── ext4
 *                                                    /data, by fstab
 */
class NvmeUnits : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "nvme-units";
    for (const char* host : {"host1:installed", "host2:installed"})
      ASSERT_OK(options.add_image(host));
    ASSERT_OK(
        options.add_device(fmt::format("host1:nvme,id=nvme,serial=units,drive-size=128M,"
                                       "x-max-bounce-buffer-size=16M{}",
                                       kNoShadowDoorbells)));
    ASSERT_OK(start_lab(options, lab_));
    ASSERT_NO_FATAL_FAILURE(share());
    ASSERT_NO_FATAL_FAILURE(make_disk());
    ready_ = true;
  }
  static void TearDownTestSuite() { EXPECT_OK(end_lab(lab_)); }

  // As an administrator does it, once.
  static void share() {
    const auto address = lender().address("nvme");
    ASSERT_OK(address);
    manager_ = "pcilend-nvme-manager@" + *address;
    ASSERT_OK(lender().run(fmt::format("pcilend connect {}", host().node())));
    const auto offered = offer(lender(), *address);
    ASSERT_OK(offered);
    id_ = offered->at("id");
    disk_ = "pcilend-nvme-disk@" + id_;
    ASSERT_OK(lender().run("pcilend save"));
    ASSERT_OK(await_state(host(), id_, "available"));
    ASSERT_OK(lender().run("systemctl --quiet enable --now " + manager_));
    ASSERT_OK(await_state(host(), id_, "borrowed"));
  }
  static void make_disk() {
    const std::string disk = fmt::format("/dev/disk/by-id/pcilend-{}-ns1", id_);
    // An administrator has forgotten to say who else may write.
    ASSERT_OK(
        host().run(fmt::format("mkdir -p /etc/pcilend && echo 'OPTIONS=--wait 200' "
                               ">/etc/pcilend/nvme-disk-{}.conf && ! systemctl start {} && "
                               "journalctl -u {} | grep -q 'others may write to the drive'",
                               id_, disk_, disk_)));
    ASSERT_OK(
        host().run(fmt::format("mkdir -p /etc/pcilend {} && "
                               "echo 'OPTIONS=--shared-fs --wait 200 --patience 300' "
                               ">/etc/pcilend/nvme-disk-{}.conf",
                               kData, id_)));
    ASSERT_OK(host().run("systemctl --quiet enable --now " + disk_));
    ASSERT_OK(host().until("test -b " + disk));
    ASSERT_OK(host().run(fmt::format(
        "mkfs.ext4 -q {} && echo '{} {} ext4 "
        "nofail,x-systemd.requires={}.service,x-systemd.device-timeout=240 0 0' >>/etc/fstab && "
        "systemctl daemon-reload && mount {} && sync",
        disk, disk, kData, disk_, kData)));
  }

  void SetUp() override {
    ASSERT_TRUE(ready_) << "the lab did not start";
    for (const int number : {1, 2}) ASSERT_OK(lab_->host(number).mark_log());
    // What the disk's program rings and stores until it knows of its client's end.
    expected_.emplace_back("DMAR: DRHD: handling fault status reg");
    expected_.emplace_back(
        R"(DMAR: \[DMA (Read|Write) NO_PASID\] Request device \[(0000:)?00:0[0-9a-f]\.0\] fault addr 0x)");
    // If the scenario before has failed.
    ASSERT_OK(host().run("systemctl start data.mount"));
    mounted_ = mounted();
    ASSERT_NE(mounted_, "");
    unmounted_ = unmounted();
  }
  void TearDown() override {
    if (!ready_) return;
    if (HasFailure())
      for (const auto& [at, unit] : {std::pair(&lender(), manager_), std::pair(&host(), disk_)})
        fmt::print("{}", at->run(fmt::format("systemctl status --no-pager -l -n 40 {}; "
                                             "systemctl --failed --no-pager; "
                                             "journalctl -b --no-pager -n 30 -u data.mount; "
                                             "grep ublk /proc/mounts; true",
                                             unit))
                             .value_or("no answer\n"));
    for (const int number : {1, 2}) {
      const auto failed = lab_->host(number).run("systemctl --failed --plain --no-legend");
      EXPECT_OK(failed);
      EXPECT_EQ(failed.value_or(""), "") << number;
      EXPECT_OK(lab_->host(number).check_log(expected_));
      EXPECT_THAT(lab_->host(number).log(), Not(HasSubstr("I/O error"))) << number;
    }
  }

  static lab::Host& lender() { return lab_->host(1); }
  static lab::Host& host() { return lab_->host(2); }
  // Of the mount, which a file system that is mounted anew has not.
  static std::string mounted() {
    const auto said =
        host().run(fmt::format("awk '$5 == \"{}\" {{ print $1 }}' /proc/self/mountinfo", kData));
    EXPECT_OK(said);
    return said.value_or("");
  }
  // How often systemd has tried to, in this boot. One that is in use stays where it is.
  static std::string unmounted() {
    const auto said =
        host().run("journalctl -b -u data.mount --no-pager | grep -c Unmounting || true");
    EXPECT_OK(said);
    return said.value_or("");
  }
  // The disk's program is killed, and systemd has started it again.
  static void kill_program() {
    const std::string pid = property(host(), disk_, "MainPID");
    ASSERT_NE(pid, "0");
    ASSERT_OK(host().run("kill -9 " + pid));
    ASSERT_OK(lab::eventually("systemd has started it", lab::kPatience, [&] {
      const std::string now = property(host(), disk_, "MainPID");
      return now != "0" && now != pid && property(host(), disk_, "SubState") == "running";
    }));
  }
  static std::string sum(const char* file) {
    const auto said = host().run(fmt::format("cksum <{}/{}", kData, file));
    EXPECT_OK(said);
    return said.value_or(file);
  }
  static std::string property(const lab::Host& at, const std::string& unit, const char* name) {
    const auto said = at.run(fmt::format("systemctl show --value -p {} {}", name, unit));
    EXPECT_OK(said);
    return said ? said->substr(0, said->find('\n')) : "";
  }
  // By systemd, to its end and to the next boot's agent.
  static void reboot(const lab::Host& at) {
    const auto boot = at.run("cat /proc/sys/kernel/random/boot_id");
    ASSERT_OK(boot);
    ASSERT_OK(at.run("systemctl --no-block reboot"));
    ASSERT_OK(lab::eventually(at.name() + " is up again", 8min, [&] {
      const auto now = at.exec("cat /proc/sys/kernel/random/boot_id", {{}, 5s});
      return now && now->code == 0 && now->out != *boot;
    }));
  }

  // Writes, flushes, and compares what it reads from the disk; it ends with the first error.
  void start_writer() {
    auto writer = host().start(
        fmt::format("n=0; while [ ! -e /run/stop ]; do head -c 64K /dev/urandom >/run/data && "
                    "dd if=/run/data of={0}/file bs=16k conv=fsync 2>/dev/null && "
                    "dd if={0}/file bs=64k iflag=direct 2>/dev/null | cmp - /run/data || exit 1; "
                    "n=$((n + 1)); echo $n; done",
                    kData),
        {{}, 30min});
    ASSERT_OK(writer);
    writer_.emplace(std::move(*writer));
    ASSERT_NO_FATAL_FAILURE(await_writes());
  }
  void await_writes(int more = 3) {
    const auto done = [&] { return std::ranges::count(writer_->output_so_far(), '\n'); };
    const auto before = done();
    ASSERT_OK(lab::eventually("it writes on", 8min,
                              [&] { return writer_->ended() || done() >= before + more; }));
    ASSERT_FALSE(writer_->ended()) << writer_->output_so_far();
  }
  void end_writer() {
    ASSERT_OK(host().run("touch /run/stop"));
    const auto ended = writer_->wait();
    writer_.reset();
    ASSERT_OK(ended);
    EXPECT_EQ(ended->code, 0) << ended->err;
    ASSERT_OK(host().run("rm /run/stop"));
    EXPECT_EQ(mounted(), mounted_) << "it stays mounted";
    EXPECT_EQ(unmounted(), unmounted_);
  }

  static inline std::optional<lab::Lab> lab_;
  static inline bool ready_ = false;
  static inline std::string id_;
  static inline std::string manager_;  // units
  static inline std::string disk_;
  std::optional<lab::Running> writer_;
  std::string mounted_;
  std::string unmounted_;
  lab::Expected expected_;
};

/*
 *   host2: kill -9 of the disk's program, again and again ── systemd starts it anew, and who writes
 *   sees nothing of it. With nobody in it the file system stays mounted, too, with what is not yet
 *   written
 */
TEST_F(NvmeUnits, ADiskWhoseProgramIsKilledGoesOn) {
  ASSERT_OK(host().run(fmt::format("head -c 1M /dev/urandom >{}/idle", kData)));
  const std::string idle = sum("idle");
  ASSERT_NO_FATAL_FAILURE(kill_program());
  EXPECT_EQ(mounted(), mounted_);
  EXPECT_EQ(unmounted(), unmounted_);
  ASSERT_OK(host().run(fmt::format("sync -f {} && echo 1 >/proc/sys/vm/drop_caches", kData)));
  EXPECT_EQ(sum("idle"), idle);
  ASSERT_NO_FATAL_FAILURE(start_writer());
  for (int kills = 0; kills < 10; ++kills) {
    ASSERT_NO_FATAL_FAILURE(kill_program());
    ASSERT_NO_FATAL_FAILURE(await_writes(1));
  }
  ASSERT_NO_FATAL_FAILURE(end_writer());
}

/*
 *   host2: kill -9 of the disk's program as soon as it is there, six times: more starts in a short
 *   time than systemd allows by itself, and each run is killed before it has got its drive. Not
 * more of them, as the kernel tells of who waits for 120 s
 */
TEST_F(NvmeUnits, AProgramThatIsKilledAtOnceIsStartedAgain) {
  ASSERT_NO_FATAL_FAILURE(start_writer());
  ASSERT_OK(
      host().run("old=; for n in 1 2 3 4 5 6; do "
                 "until pid=$(pidof pcilend-nvme-disk) && [ \"$pid\" != \"$old\" ]; do "
                 "sleep 0.05; done; kill -9 $pid; old=$pid; done",
                 {{}, 5min}));
  ASSERT_NO_FATAL_FAILURE(await_writes());
  ASSERT_NO_FATAL_FAILURE(end_writer());
}

/*
 *   host1: the manager is started anew, then killed, under writes of host2 ── the disk waits for
 * it, and goes on. It is stopped: its client is ended in order; the disk goes on when it is started
 */
TEST_F(NvmeUnits, ItsManagerMayBeStartedAnew) {
  ASSERT_NO_FATAL_FAILURE(start_writer());
  ASSERT_OK(lender().run("systemctl restart " + manager_));
  ASSERT_NO_FATAL_FAILURE(await_writes());
  const std::string pid = property(lender(), manager_, "MainPID");
  ASSERT_OK(lender().run("kill -9 " + pid));
  ASSERT_NO_FATAL_FAILURE(await_writes());
  EXPECT_NE(property(lender(), manager_, "MainPID"), pid);
  ASSERT_OK(lender().run("systemctl stop " + manager_));
  EXPECT_EQ(property(lender(), manager_, "Result"), "success");
  EXPECT_OK(
      lender().run(fmt::format("journalctl -u {} | grep -q '1 clients are ended'", manager_)));
  ASSERT_OK(
      host().until(fmt::format("pcilend nvme list --json | grep -q '\"state\": \"recovering\"'")));
  EXPECT_FALSE(writer_->ended());
  ASSERT_OK(lender().run("systemctl start " + manager_));
  ASSERT_NO_FATAL_FAILURE(await_writes());
  ASSERT_NO_FATAL_FAILURE(end_writer());
}

/*
 *   host2: writes, and is rebooted at once ── the file system, which is mounted by hand at another
 *   place, too, is unmounted before the disk's program ends, so nothing is lost ── it is mounted
 *   again by itself
 */
TEST_F(NvmeUnits, ItIsMountedAgainAfterABoot) {
  ASSERT_OK(host().run("mkdir -p /hand && mount /dev/ublkb0 /hand"));
  // The lender stands still while its drive reads data over the lab's NTB. 4 MiB took 36 s beside
  // other labs, and a lender that is silent for 10 s has lost its link.
  ASSERT_OK(host().run(fmt::format(
      "head -c 256K /dev/urandom >{0}/early && sync && head -c 512K /dev/urandom >{0}/late",
      kData)));
  const std::string early = sum("early");
  const std::string late = sum("late");
  ASSERT_NO_FATAL_FAILURE(reboot(host()));
  ASSERT_OK(host().until(fmt::format("mountpoint -q {}", kData), 5min));
  EXPECT_EQ(sum("early"), early);
  EXPECT_EQ(sum("late"), late);
  // A journal to be replayed would mean that it was not unmounted.
  EXPECT_OK(
      host().run("dmesg | grep 'EXT4-fs (ublkb0): mounted' && "
                 "! dmesg | grep 'EXT4-fs (ublkb0): recovery complete'"));
  EXPECT_OK(host().until("systemctl is-active " + disk_));
}

/*
 *   host1 is rebooted, under writes of host2: the manager ends its clients in order, and shares the
 *   drive again when it has booted; the disk has waited
 */
TEST_F(NvmeUnits, ItsLenderMayBeRebooted) {
  // A write may wait as long as the disk's --patience; the kernel warns after 120 s.
  const auto warn_after = [](int seconds) {
    EXPECT_OK(host().run(fmt::format("echo {} >/proc/sys/kernel/hung_task_timeout_secs", seconds)));
  };
  warn_after(300);
  ASSERT_NO_FATAL_FAILURE(start_writer());
  ASSERT_NO_FATAL_FAILURE(reboot(lender()));
  ASSERT_OK(lender().until("systemctl is-active " + manager_));
  ASSERT_NO_FATAL_FAILURE(await_writes());
  ASSERT_NO_FATAL_FAILURE(end_writer());
  warn_after(120);
}

/*
 *   host2: the disk's unit is stopped ── unmounted first ── the drive has all of it, and the file
 *   system needs no repair; it is started, and mounted
 */
TEST_F(NvmeUnits, AUnitThatIsStoppedUnmountsFirst) {
  ASSERT_OK(host().run(fmt::format("echo kept >{}/kept", kData)));
  ASSERT_OK(host().run("systemctl stop " + disk_));
  EXPECT_EQ(mounted(), "");
  EXPECT_OK(host().run("! test -e /dev/ublkb0"));
  EXPECT_EQ(property(host(), disk_, "Result"), "success");
  ASSERT_OK(host().run("systemctl start " + disk_));
  // It waits for the disk; mount(8) says nothing of one that is not there, as of `nofail`.
  ASSERT_OK(host().run("systemctl start data.mount"));
  EXPECT_EQ(host().run(fmt::format("cat {}/kept", kData)), "kept\n");
  EXPECT_OK(host().run("! dmesg | grep 'EXT4-fs (ublkb0): recovery complete'"));
}

}  // namespace
}  // namespace pcilend::scenarios
