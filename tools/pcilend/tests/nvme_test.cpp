// SPDX-License-Identifier: GPL-2.0-or-later
// `pcilend nvme`, with a program that does what the test says.
#include <gmock/gmock.h>

#include "disk/record.h"
#include "host.h"

namespace pcilend::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class NvmeCommand : public HostTest {
 protected:
  void SetUp() override {
    HostTest::SetUp();
    write("dev/ublk-control", "");
    loaded_ = false;  // it needs no pcilend.ko to say what is there
    disk_.function.value = 0x40001;
    disk_.state = "ready";
    disk_.number = 0;
    disk_.pid = 77;
    disk_.start = 1;
  }
  void put() { ASSERT_TRUE(nvme::write_record(Environment(root_), disk_)); }
  void serve() {
    put();
    write("proc/77/comm", "pcilend-nvme-di\n");
  }
  [[nodiscard]] bool recorded() const {
    return nvme::read_record(Environment(root_), disk_.function).has_value();
  }
  // What a command that must fail says.
  std::string refusal(std::vector<std::string> words, ErrorClass kind) {
    words.insert(words.begin(), "nvme");
    const Outcome result = run(words);
    EXPECT_EQ(result.status, static_cast<int>(kind)) << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    return result.err;
  }

  static constexpr const char* kUnitState =
      "systemctl show --property=ActiveState --value pcilend-nvme-disk@40001.service";
  nvme::DiskRecord disk_;
};

TEST_F(NvmeCommand, AttachStartsTheProgramAndWaitsForItsDisk) {
  program_does_ = [this](const auto&) { put(); };
  const Outcome result = run({"nvme", "attach", "--alone", "--namespace", "2", "--queues", "3",
                              "--depth", "8", "--patience", "9", "--read-only", "40001"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("/dev/ublkb0"));
  EXPECT_THAT(kernel_.log,
              ElementsAre("/usr/libexec/pcilend/pcilend-nvme-disk 40001 --daemon --namespace 2 "
                          "--queues 3 --depth 8 --patience 9 --alone --read-only"));
}

TEST_F(NvmeCommand, AttachLeavesTheProgramToSystemd) {
  fs::create_directories(root_ / "run/systemd/system");
  program_does_ = [this](const auto&) { put(); };
  EXPECT_EQ(run({"nvme", "attach", "--shared-fs", "40001"}).status, 0);
  EXPECT_THAT(kernel_.log,
              ElementsAre("systemctl --no-block start pcilend-nvme-disk@40001.service"));
  EXPECT_EQ(Environment(root_).read("/run/pcilend/nvme/40001.conf").value_or(""),
            "OPTIONS=--shared-fs\n");
}

TEST_F(NvmeCommand, AttachNamesThePathsOfAClient) {
  program_does_ = [this](const auto&) { put(); };
  const std::string paths = "0000:00:04.0,0000:01:00.0";
  EXPECT_EQ(run({"nvme", "attach", "--shared-fs", "--adapter", paths, "40001"}).status, 0);
  EXPECT_THAT(kernel_.log, ElementsAre("/usr/libexec/pcilend/pcilend-nvme-disk 40001 --daemon "
                                       "--path " +
                                       paths + " --shared-fs"));
  EXPECT_THAT(refusal({"attach", "--alone", "--adapter", paths, "40001"}, ErrorClass::Usage),
              HasSubstr("goes over one path"));
  for (const char* bad : {"0000:00:04.0,", "0000:00:04.0,eth0"})
    EXPECT_THAT(refusal({"attach", "--shared-fs", "--adapter", bad, "40001"}, ErrorClass::Usage),
                HasSubstr("' is no adapter"));
}

TEST_F(NvmeCommand, AttachSaysWhatItsProgramSays) {
  disk_.state = "failed";
  disk_.error = "40001 is not available";
  disk_.error_kind = static_cast<int>(ErrorClass::State);
  disk_.number.reset();
  program_does_ = [this](const auto&) { put(); };
  EXPECT_THAT(refusal({"attach", "--alone", "40001"}, ErrorClass::State),
              HasSubstr("40001 is not available"));
  EXPECT_FALSE(recorded());
  disk_.error_kind = 99;
  EXPECT_THAT(refusal({"attach", "--alone", "40001"}, ErrorClass::Failure),
              HasSubstr("40001 is not available"));
}

// One that is there, and for which a program waits, stays.
TEST_F(NvmeCommand, ADiskThatWaitsIsNotForgotten) {
  put();
  program_does_ = [this](const auto&) {
    disk_.start = 2;
    disk_.state = "waiting";
    disk_.error = "with other options";
    disk_.error_kind = static_cast<int>(ErrorClass::State);
    put();
  };
  EXPECT_THAT(refusal({"attach", "--alone", "40001"}, ErrorClass::State),
              HasSubstr("with other options"));
  EXPECT_TRUE(recorded());
}

// What a former program has said is no answer.
TEST_F(NvmeCommand, AttachDoesNotWaitForever) {
  put();
  EXPECT_THAT(refusal({"attach", "--alone", "--timeout", "7", "40001"}, ErrorClass::Unreachable),
              HasSubstr("40001 has no disk after 7 s"));
  EXPECT_EQ(slept_, std::chrono::seconds(7));
}

TEST_F(NvmeCommand, AttachWantsUblk) {
  fs::remove(root_ / "dev/ublk-control");
  program_fails_ = "Module ublk_drv not found";
  EXPECT_THAT(refusal({"attach", "--alone", "40001"}, ErrorClass::Unsupported),
              HasSubstr("CONFIG_BLK_DEV_UBLK"));
  EXPECT_THAT(kernel_.log, ElementsAre("modprobe ublk_drv"));
}

TEST_F(NvmeCommand, WhatIsWrongIsSaid) {
  const auto usage = [&](const std::vector<std::string>& words, const char* text) {
    EXPECT_THAT(refusal(words, ErrorClass::Usage), HasSubstr(text));
  };
  usage({"make"}, "there are attach, detach and list");
  usage({"list", "x"}, "what is 'x'?");
  usage({"attach", "--alone"}, "name one function");
  usage({"attach", "--alone", "40001", "40002"}, "name one function");
  usage({"attach", "--alone", "/dev/nvme0"}, "'/dev/nvme0' is no function");
  usage({"attach", "40001"}, "others may write to the drive, too");
  usage({"attach", "--alone", "--queues", "65", "40001"}, "--queues 65: give 1 to 64");
  usage({"attach", "--alone", "--depth", "0", "40001"}, "--depth 0: give 1 to 256");
  usage({"attach", "--alone", "--namespace", "0", "40001"}, "--namespace 0: give 1 to");
  usage({"attach", "--alone", "--patience", "3601", "40001"}, "--patience 3601: give 0 to 3600");
  usage({"attach", "--alone", "--timeout", "0", "40001"}, "--timeout 0: give 1 to 3600");
  usage({"detach"}, "name one disk");
  EXPECT_THAT(refusal({"detach", "/dev/ublkb1"}, ErrorClass::NotFound),
              HasSubstr("nothing is attached as /dev/ublkb1"));
  serve();
  EXPECT_THAT(refusal({"attach", "--alone", "40001"}, ErrorClass::State),
              HasSubstr("40001 is attached already, as /dev/ublkb0"));
  EXPECT_THAT(kernel_.log, IsEmpty());
}

TEST_F(NvmeCommand, DetachEndsTheProgram) {
  serve();
  program_does_ = [this](const auto&) {
    fs::remove(root_ / "proc/77/comm");
    fs::remove(root_ / "run/pcilend/nvme/40001.json");
  };
  const Outcome result = run({"nvme", "detach", "/dev/ublkb0"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(kernel_.log, ElementsAre("kill -TERM 77"));
}

TEST_F(NvmeCommand, DetachRemovesWhatNobodyServes) {
  fs::create_directories(root_ / "run/systemd/system");
  put();
  program_says_ = [](const auto&) { return "inactive\n"; };
  EXPECT_EQ(run({"nvme", "detach", "40001"}).status, 0);
  EXPECT_THAT(kernel_.log,
              ElementsAre("systemctl --no-block stop pcilend-nvme-disk@40001.service", kUnitState,
                          "/usr/libexec/pcilend/pcilend-nvme-disk 40001 --remove"));
}

TEST_F(NvmeCommand, DetachByForceRemovesWhatHasARecordThatCantBeRead) {
  fs::create_directories(root_ / "run/systemd/system");
  write("run/pcilend/nvme/40001.json", "{}");
  program_says_ = [](const auto&) { return "inactive\n"; };
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"list"}, {"attach", "--alone", "40001"}, {"detach", "40001"}})
    EXPECT_THAT(refusal(words, ErrorClass::Failure),
                HasSubstr("'pcilend nvme detach --force 40001' removes it"));
  EXPECT_THAT(refusal({"detach", "40002"}, ErrorClass::NotFound),
              HasSubstr("nothing is attached as 40002"));
  EXPECT_THAT(kernel_.log, IsEmpty());
  EXPECT_EQ(run({"nvme", "detach", "--force", "40001"}).status, 0);
  EXPECT_THAT(kernel_.log,
              ElementsAre("systemctl --no-block stop pcilend-nvme-disk@40001.service", kUnitState,
                          "/usr/libexec/pcilend/pcilend-nvme-disk 40001 --remove"));
}

// It may have been waiting to start its program again, or have another one by now.
TEST_F(NvmeCommand, DetachWaitsForSystemd) {
  fs::create_directories(root_ / "run/systemd/system");
  put();
  std::vector<std::string> states{"activating", "deactivating", "failed"};
  program_says_ = [&](const auto&) {
    const std::string state = states.front();
    states.erase(states.begin());
    if (state == "activating") {
      disk_.pid = 78;
      put();
      write("proc/78/comm", "pcilend-nvme-di\n");
    }
    return state + "\n";
  };
  EXPECT_THAT(refusal({"detach", "--timeout", "3", "40001"}, ErrorClass::Unreachable),
              HasSubstr("40001 is still being ended after 3 s"));
  EXPECT_EQ(slept_, std::chrono::seconds(3));
  EXPECT_EQ(states.size(), 2u) << "its new program is not looked at";
  fs::remove(root_ / "proc/78/comm");
  EXPECT_EQ(run({"nvme", "detach", "40001"}).status, 0);
  EXPECT_TRUE(states.empty());
  program_says_ = [](const auto&) { return fail(ErrorClass::State, "systemctl failed: no bus"); };
  EXPECT_THAT(refusal({"detach", "40001"}, ErrorClass::State), HasSubstr("no bus"));
}

TEST_F(NvmeCommand, DetachDoesNotWaitForever) {
  serve();
  EXPECT_THAT(refusal({"detach", "--timeout", "3", "40001"}, ErrorClass::Unreachable),
              HasSubstr("40001 is still being ended after 3 s"));
}

TEST_F(NvmeCommand, WhatIsMountedIsDetachedByForceOnly) {
  serve();
  write("sys/class/block/ublkb0/dev", "259:7\n");
  write("sys/class/block/ublkb0/ublkb0p1/partition", "1\n");
  write("sys/class/block/ublkb0p1/dev", "259:8\n");
  write("proc/self/mountinfo", "30 22 259:8 / /data rw - ext4 /dev/ublkb0p1 rw\n");
  EXPECT_THAT(refusal({"detach", "40001"}, ErrorClass::State),
              HasSubstr("/dev/ublkb0p1 is mounted on /data: run 'umount /data', or use --force"));
  EXPECT_THAT(kernel_.log, IsEmpty());
  program_does_ = [this](const auto&) { fs::remove(root_ / "proc/77/comm"); };
  EXPECT_EQ(run({"nvme", "detach", "--force", "40001"}).status, 0);
}

}  // namespace
}  // namespace pcilend::test
