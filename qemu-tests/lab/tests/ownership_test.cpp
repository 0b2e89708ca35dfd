// SPDX-License-Identifier: GPL-2.0-or-later
// What becomes of a lab whose owner dies, or that does not come up: with programs that play QEMU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "lab/cpio.h"
#include "lab/lab.h"
#include "lab/qemu_command.h"
#include "lab/teardown.h"

namespace pcilend::lab {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A QEMU that does not get anywhere.
constexpr const char* kSilent = "exec sleep 1000";
constexpr const char* kRefuses = "echo 'qemu: no such device' >&2; exit 1";
// To the host's console.
constexpr const char* kSays =
    "for word; do\n"
    "  case $word in file,id=console,path=*) word=${word#*path=}; console=${word%%,*} ;; esac\n"
    "done\n"
    "say() { echo \"$1\" >>$console; }\n";

// Within which all of a lab ends, on a busy machine.
constexpr auto kEnd = 20s;

class Ownership : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/pcilend-owner.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    top_ = name;
    ::setenv("PCILEND_LAB_DIR", base().c_str(), 1);
    ::setenv("PCILEND_BUILD_DIR", top_.c_str(), 1);
    for (const char* file : {"vmlinuz-6.12", "initrd-6.12", "root-6.12.ext4"})
      write(top_ / "image" / file, "");
    write(top_ / "image/release-6.12", "6.12.9\n");
    write(top_ / "image/guest-initrd", CpioWriter().finish());
    program("qemu-img", "exit 0");
    program("qemu-system-x86_64", kSilent);
  }
  void TearDown() override {
    if (owner_ > 0) {
      ::kill(owner_, SIGKILL);
      ::waitpid(owner_, nullptr, 0);
    }
    for (const std::string& lab : lab_names()) EXPECT_TRUE(Lab::down(lab));
    ::unsetenv("PCILEND_LAB_DIR");
    ::unsetenv("PCILEND_BUILD_DIR");
    fs::remove_all(top_);
  }

  [[nodiscard]] fs::path base() const { return top_ / "labs"; }

  static void write(const fs::path& path, std::string_view content) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
  }
  void program(const std::string& name, const std::string& script) const {
    write(top_ / "image" / name, "#!/bin/sh\n" + script + "\n");
    fs::permissions(top_ / "image" / name, fs::perms::owner_all);
  }

  static Options options() {
    Options options;
    options.name = "x";
    options.hosts = 1;
    options.kernel = "6.12";
    return options;
  }

  // A process that starts the lab; what it says of each step goes to `steps`.
  void start_owner() {
    owner_ = ::fork();
    // By both: whoever is first.
    ::setpgid(owner_, owner_);
    if (owner_ != 0) return;
    const auto lab = Lab::up(options(), [this](double, const std::string& step) {
      std::ofstream(top_ / "steps", std::ios::app) << step << "\n";
    });
    std::ofstream(top_ / "error") << (lab ? "" : lab.error().message);
    ::_exit(lab ? 0 : 1);
  }
  // Returns when its QEMU runs.
  ProcessId start_owner_and_host() {
    start_owner();
    std::optional<ProcessId> host;
    EXPECT_TRUE(wait_until(
        Deadline(kEnd), [&] { return (host = processes_.find(layout_.qemu_pid(1))).has_value(); }));
    return host.value_or(ProcessId{});
  }
  void kill_owner(int signal) {
    ::kill(-owner_, signal);
    ::waitpid(owner_, nullptr, 0);
    owner_ = 0;
  }

  [[nodiscard]] bool nothing_left() const {
    return !fs::exists(base()) && processes_.marks_in(base()).empty();
  }
  [[nodiscard]] std::string content(const std::string& file) const {
    std::ifstream stream(top_ / file);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  // A lab of one host, as another process has left it.
  ProcessId leave_lab(const std::optional<Owner>& owner, const std::string& boot = boot_id()) {
    State state;
    state.name = "x";
    state.boot = boot;
    state.owner = owner;
    state.kernel = "6.12";
    state.bin = "/build/bin";
    state.hosts.push_back({1536, {"qemu"}, {}});
    EXPECT_TRUE(save(state, layout_));
    write(layout_.lock(), "");
    const auto host =
        processes_.spawn({{"sleep", "1000"}, layout_.qemu_log(1), layout_.qemu_pid(1), -1});
    EXPECT_TRUE(host);
    return host.value_or(ProcessId{});
  }
  [[nodiscard]] Owner this_process() const {
    return {processes_.identify(::getpid()).value(), "lab_test"};
  }
  [[nodiscard]] Owner dead_process() const {
    Owner owner = this_process();
    ++owner.process.start;
    owner.program = "pcilend-demo";
    return owner;
  }
  static std::string error_of_up() {
    const auto lab = Lab::up(options());
    EXPECT_FALSE(lab);
    return lab ? "" : lab.error().message;
  }

  fs::path top_;
  Layout layout_ = Layout("");
  Processes processes_;
  pid_t owner_ = 0;
};

class OwnedLab : public Ownership {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Ownership::SetUp());
    layout_ = Layout::of("x");
  }
};

class EndsWith : public OwnedLab, public testing::WithParamInterface<int> {};

TEST_P(EndsWith, ItsOwnerEvenIfAllOfThatsProcessGroupDies) {
  for (int i = 0; i < 2; ++i) {
    const ProcessId host = start_owner_and_host();
    kill_owner(GetParam());
    EXPECT_TRUE(wait_until(Deadline(kEnd), [&] { return nothing_left(); }));
    EXPECT_FALSE(processes_.alive(host));
  }
}

INSTANTIATE_TEST_SUITE_P(Signals, EndsWith, testing::Values(SIGKILL, SIGTERM, SIGINT, SIGHUP),
                         [](const auto& signal) { return sigabbrev_np(signal.param); });

TEST_F(OwnedLab, SoDoesWhatItsOwnerWasRunning) {
  // Its parent's end is all that ends it.
  program("qemu-img", fmt::format("echo $$ >{}/helper; exec sleep 1000", top_.native()));
  start_owner();
  ASSERT_TRUE(wait_until(Deadline(kEnd), [&] { return content("helper").ends_with('\n'); }));
  const auto helper = processes_.identify(std::stoi(content("helper")));
  ASSERT_TRUE(helper);
  kill_owner(SIGKILL);
  EXPECT_TRUE(wait_until(Deadline(kEnd), [&] { return nothing_left(); }));
  EXPECT_TRUE(wait_until(Deadline(kEnd), [&] { return !processes_.alive(*helper); }));
}

TEST_F(OwnedLab, AtEveryMomentOfItsStart) {
  for (int delay = 0; delay < 60; delay += 3) {
    start_owner();
    std::this_thread::sleep_for(std::chrono::milliseconds(delay));
    kill_owner(SIGKILL);
    EXPECT_TRUE(wait_until(Deadline(kEnd), [&] { return nothing_left(); })) << delay << " ms";
  }
}

TEST_F(OwnedLab, WhatIsLeftWithoutAWatcherIsClearedByTheNext) {
  const ProcessId host = start_owner_and_host();
  const auto watcher = processes_.find(layout_.watcher_pid());
  ASSERT_TRUE(watcher);
  EXPECT_TRUE(processes_.kill({*watcher}));
  kill_owner(SIGKILL);
  EXPECT_TRUE(processes_.alive(host));

  const ProcessId next = start_owner_and_host();
  EXPECT_TRUE(wait_until(Deadline(kEnd), [&] { return !processes_.alive(host); }));
  ASSERT_TRUE(wait_until(
      Deadline(kEnd), [&] { return processes_.find(layout_.qemu_pid(1)).value_or(host) != host; }));
  EXPECT_THAT(content("steps"),
              HasSubstr("what was left of lab 'x' is cleared away (of lab_test "));
  kill_owner(SIGKILL);
  EXPECT_TRUE(wait_until(Deadline(kEnd), [&] { return nothing_left(); }));
  (void)next;
}

TEST_F(OwnedLab, OfALivingProcessIsRefused) {
  const ProcessId host = leave_lab(this_process());
  EXPECT_EQ(error_of_up(),
            fmt::format("lab 'x' is up already (of lab_test (process {}), which runs): "
                        "'pcilend-lab down --lab x' ends it",
                        ::getpid()));
  EXPECT_TRUE(processes_.alive(host));
  // The watcher that the refused one had begun with is gone.
  EXPECT_THAT(processes_.marks_in(base()), ElementsAre(layout_.qemu_pid(1)));
}

TEST_F(OwnedLab, StartedByHandIsRefusedAlsoWithAllHostsOff) {
  const ProcessId host = leave_lab({});
  const std::string refusal =
      "lab 'x' is up already (started by hand): 'pcilend-lab down --lab x' ends it";
  EXPECT_EQ(error_of_up(), refusal);
  EXPECT_TRUE(processes_.alive(host));
  EXPECT_TRUE(processes_.kill({host}));
  EXPECT_EQ(error_of_up(), refusal);
}

TEST_F(OwnedLab, OfAnEarlierBootIsCleared) {
  program("qemu-system-x86_64", kRefuses);
  const ProcessId host = leave_lab({}, "another");
  EXPECT_THAT(error_of_up(), HasSubstr("no such device"));
  EXPECT_FALSE(processes_.alive(host));
  EXPECT_TRUE(nothing_left());
}

TEST_F(OwnedLab, OfAnotherVersionIsClearedIfNothingOfItRuns) {
  program("qemu-system-x86_64", kRefuses);
  const ProcessId host = leave_lab({});
  write(layout_.state(), "{}");
  EXPECT_THAT(error_of_up(), HasSubstr("is up already (of another version of pcilend-lab)"));
  EXPECT_TRUE(processes_.kill({host}));
  EXPECT_THAT(error_of_up(), HasSubstr("no such device"));
  EXPECT_TRUE(nothing_left());
}

TEST_F(OwnedLab, IsEndedByDownEvenWhileItStarts) {
  const ProcessId host = start_owner_and_host();
  EXPECT_EQ(Lab::down("x"), true);
  EXPECT_FALSE(processes_.alive(host));
  int status = 0;
  ASSERT_EQ(::waitpid(owner_, &status, 0), owner_);
  owner_ = 0;
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(content("error"), HasSubstr("host1 does not come up"));
  EXPECT_TRUE(nothing_left());
}

TEST_F(OwnedLab, IsNotEndedForAnotherOwner) {
  leave_lab(this_process());
  EXPECT_EQ(end_lab_of(dead_process().process, "x"), false);
  EXPECT_TRUE(fs::exists(layout_.state()));
  EXPECT_TRUE(fs::exists(layout_.lock()));
  EXPECT_EQ(end_lab_of(this_process().process, "x"), true);
  EXPECT_TRUE(nothing_left());
}

TEST_F(Ownership, AllLabsAreFoundWithWhatTheyAre) {
  layout_ = Layout::of("dead");
  leave_lab(dead_process());
  layout_ = Layout::of("hand");
  leave_lab({});
  layout_ = Layout::of("lost");
  leave_lab({});
  fs::remove_all(layout_.dir());
  layout_ = Layout::of("own");
  leave_lab(this_process());
  // Begun by one that was killed, and what is not ours.
  layout_ = Layout::of("begun");
  fs::create_directories(layout_.dir());
  write(layout_.lock(), "");
  write(base() / "documents/letter", "");
  write(base() / "other.lock", "");
  EXPECT_THAT(lab_names(), ElementsAre("begun", "dead", "hand", "lost", "own"));
  EXPECT_EQ(standing_of("begun").text, "half started");
  EXPECT_EQ(standing_of("dead").text,
            fmt::format("of pcilend-demo (process {}), which is dead", ::getpid()));
  EXPECT_EQ(standing_of("hand").text, "started by hand");
  EXPECT_EQ(standing_of("lost").text, "half started");
  EXPECT_EQ(standing_of("own").text,
            fmt::format("of lab_test (process {}), which runs", ::getpid()));
  EXPECT_FALSE(standing_of("none").there);
  for (const std::string& lab : lab_names()) EXPECT_EQ(Lab::down(lab), true) << lab;
  EXPECT_THAT(lab_names(), IsEmpty());
  EXPECT_TRUE(fs::exists(base() / "documents/letter"));
  EXPECT_THAT(processes_.marks_in(base()), IsEmpty());
}

class NotComingUp : public OwnedLab {
 protected:
  static UniqueFd listen_at(const std::string& path) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket.get(), 4), 0);
    return socket;
  }
  // The error of a lab whose QEMU is this script; it must come at once.
  std::string error_with(const std::string& script) {
    program("qemu-system-x86_64", script);
    const auto began = Deadline::Clock::now();
    std::string error = error_of_up();
    EXPECT_LT(Deadline::Clock::now() - began, kEnd);
    EXPECT_TRUE(nothing_left());
    return error;
  }
};

TEST_F(NotComingUp, QemuRefusesToStart) {
  const std::string error = error_with(kRefuses);
  EXPECT_EQ(error,
            "host1 does not come up: its QEMU ended: qemu: no such device; "
            "its console is empty");
}

TEST_F(NotComingUp, QemuRefusesADeviceWithItsSocketsOpen) {
  std::thread sockets([this] {
    ASSERT_TRUE(wait_until(Deadline(kEnd),
                           [&] { return processes_.find(layout_.qemu_pid(1)).has_value(); }));
    const UniqueFd first = listen_at(layout_.agent(1));
    const UniqueFd last = listen_at(fmt::format("{}.{}", layout_.agent(1), kAgentPorts - 1));
    ASSERT_TRUE(wait_for(first.get(), POLLIN, Deadline(kEnd)));
    EXPECT_TRUE(UniqueFd(::accept(first.get(), nullptr, nullptr)));
    write(top_ / "closed", "");
  });
  const std::string error =
      error_with(fmt::format("until [ -e {}/closed ]; do sleep 0.02; done; sleep 0.5; "
                             "echo 'qemu: no such property' >&2; exit 1",
                             top_.native()));
  sockets.join();
  EXPECT_EQ(error,
            "host1 does not come up: its QEMU ended: qemu: no such property; "
            "its console is empty");
}

TEST_F(NotComingUp, QemuEndsInTheMiddleOfTheBoot) {
  const std::string error = error_with(std::string(kSays) + "say 'Linux version'; say 'last word'");
  EXPECT_EQ(error,
            "host1 does not come up: its QEMU ended\n"
            "its console ends:\n  | Linux version\n  | last word");
}

TEST_F(NotComingUp, ItsKernelPanics) {
  const std::string error =
      error_with(std::string(kSays) + "say 'Kernel panic - not syncing: VFS: no root'\n" + kSilent);
  EXPECT_EQ(
      error,
      "host1 does not come up: its kernel panicked: Kernel panic - not syncing: VFS: no root\n"
      "its console ends:\n  | Kernel panic - not syncing: VFS: no root");
}

TEST_F(NotComingUp, ItsInitSaysWhatFailed) {
  const std::string error = error_with(
      std::string(kSays) + "say 'pcilend-lab: initramfs: cannot mount /dev/vda'\n" + kSilent);
  EXPECT_THAT(error, HasSubstr("host1 does not come up: pcilend-lab: initramfs: cannot mount "
                               "/dev/vda\nits console ends:\n"));
}

}  // namespace
}  // namespace pcilend::lab
