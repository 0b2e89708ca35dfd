// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "lab/lab_lock.h"

namespace pcilend::lab {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

class ProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/pcilend-process.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override {
    (void)processes_.kill(processes_.in(dir_));
    fs::remove_all(dir_);
  }

  SpawnRequest request(std::vector<std::string> argv, const std::string& name = "it") const {
    return {std::move(argv), dir_ / (name + ".log"), dir_ / (name + ".pid"), -1};
  }

  ProcessId spawn(std::vector<std::string> argv, const std::string& name = "it") {
    const auto id = processes_.spawn(request(std::move(argv), name));
    EXPECT_TRUE(id) << id.error().message;
    return id.value_or(ProcessId{});
  }

  static std::string content(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  fs::path dir_;
  Processes processes_;
};

TEST(Stat, TheStartTimeIsBehindAnyName) {
  const std::string rest = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
  EXPECT_EQ(parse_start_time("12 (qemu)" + rest), 4711U);
  EXPECT_EQ(parse_start_time("12 (a) b (c) 1 2 3)" + rest), 4711U);
  EXPECT_EQ(parse_process_state("12 (a) Z (c))" + rest), 'S');
  for (const char* bad : {"", "12", "12 (x", "12 (x)", "12 (x) ", "12 (x) S 1 2 3"})
    EXPECT_FALSE(parse_start_time(bad)) << bad;
}

TEST(Stat, AZombieWithThreadsHasNotEnded) {
  const std::string before = "12 (qemu) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 ";
  EXPECT_TRUE(has_ended(before + "1 0 4711"));
  EXPECT_FALSE(has_ended(before + "2 0 4711"));
  EXPECT_FALSE(has_ended("12 (qemu) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 1 0 4711"));
}

TEST(PidFile, HasPidAndStartTime) {
  EXPECT_EQ(parse_pid_file("12 4711\n"), (ProcessId{12, 4711}));
  for (const char* bad : {"", "x", "12", "12 ", "12 x", " 12 1"})
    EXPECT_FALSE(parse_pid_file(bad)) << bad;
}

TEST_F(ProcessTest, AProcessIsFoundUntilItEnds) {
  const ProcessId id = spawn({"sleep", "100"});
  EXPECT_TRUE(processes_.alive(id));
  EXPECT_EQ(processes_.find(dir_ / "it.pid"), id);
  EXPECT_TRUE(processes_.kill({id}));
  EXPECT_FALSE(processes_.alive(id));
  EXPECT_FALSE(processes_.find(dir_ / "it.pid"));
}

TEST_F(ProcessTest, ADeadProcessThatNobodyWaitedForIsNotAlive) {
  const ProcessId id = spawn({"true"});
  EXPECT_TRUE(wait_until(Deadline(20s), [&] { return !processes_.alive(id); }));
  ::waitpid(id.pid, nullptr, 0);
}

TEST_F(ProcessTest, ALaterProcessWithTheSamePidIsAnother) {
  const ProcessId id = spawn({"sleep", "100"});
  EXPECT_FALSE(processes_.alive({id.pid, id.start + 1}));
  std::ofstream(dir_ / "it.pid") << id.pid << " " << id.start + 1 << "\n";
  EXPECT_FALSE(processes_.find(dir_ / "it.pid"));
  // And it is not killed for the other.
  EXPECT_TRUE(processes_.kill({{id.pid, id.start + 1}}));
  EXPECT_TRUE(processes_.alive(id));
}

TEST_F(ProcessTest, AllOfADirectoryAreFoundWithoutTheirPidFiles) {
  const ProcessId one = spawn({"sleep", "100"}, "one");
  const ProcessId two = spawn({"sh", "-c", "sleep 100; true"}, "two");
  const auto marked = [&] { return processes_.in(dir_).size() >= 3; };
  // The shell's sleep has inherited the mark.
  EXPECT_TRUE(wait_until(Deadline(20s), marked));
  fs::remove(dir_ / "one.pid");
  fs::remove(dir_ / "two.pid");
  const auto found = processes_.in(dir_);
  EXPECT_EQ(found.size(), 3U);
  EXPECT_NE(std::find(found.begin(), found.end(), one), found.end());
  EXPECT_NE(std::find(found.begin(), found.end(), two), found.end());
  EXPECT_TRUE(processes_.in(dir_.native().substr(0, dir_.native().size() - 1)).empty());
  EXPECT_TRUE(processes_.kill(found));
  EXPECT_TRUE(processes_.in(dir_).empty());
}

TEST_F(ProcessTest, WhoDoesNotEndOnSigtermIsKilled) {
  const ProcessId id = spawn({"sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"});
  ASSERT_TRUE(wait_until(Deadline(20s), [&] { return content(dir_ / "it.log") == "ready\n"; }));
  EXPECT_TRUE(processes_.end({id}, Deadline(200ms)));
  EXPECT_FALSE(processes_.alive(id));
}

TEST_F(ProcessTest, OutputGoesToTheLogOrWhereItIsTold) {
  const ProcessId id = spawn({"sh", "-c", "echo out; echo err >&2"});
  ASSERT_TRUE(wait_until(Deadline(20s), [&] { return !processes_.alive(id); }));
  EXPECT_EQ(content(dir_ / "it.log"), "out\nerr\n");
}

TEST_F(ProcessTest, AProgramThatIsNotThereIsToldInTheLog) {
  const ProcessId id = spawn({"/no/such/program"});
  EXPECT_TRUE(wait_until(Deadline(20s), [&] { return !processes_.alive(id); }));
  EXPECT_EQ(content(dir_ / "it.log"), "No such file or directory\n");
}

TEST_F(ProcessTest, AProcessOutlivesTheOneThatStartedIt) {
  const pid_t starter = ::fork();
  if (starter == 0) {
    const auto id = processes_.spawn(request({"sleep", "100"}));
    ::_exit(id ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(starter, &status, 0), starter);
  ASSERT_EQ(status, 0);
  EXPECT_TRUE(processes_.find(dir_ / "it.pid"));
}

TEST(Programs, GiveTheirOutput) {
  EXPECT_EQ(run_program({"sh", "-c", "echo a; echo b >&2"}, Deadline(20s)), "a\n");
}

TEST(Programs, FailWithTheirLastWords) {
  const auto failed =
      run_program({"sh", "-c", "echo first >&2; echo last >&2; exit 3"}, Deadline(20s));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "sh failed: last");
  EXPECT_THAT(run_program({"/no/program"}, Deadline(20s)).error().message,
              HasSubstr("No such file or directory"));
  EXPECT_THAT(run_program({"sleep", "100"}, Deadline(100ms)).error().message,
              HasSubstr("does not end"));
}

TEST(Lock, IsHeldByOne) {
  const std::string path = testing::TempDir() + fmt::format("pcilend-lock.{}", ::getpid());
  auto first = LabLock::take(path, Deadline(1s));
  ASSERT_TRUE(first);
  const auto second = LabLock::take(path, Deadline(100ms));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind, ErrorClass::State);
  // Whoever waits while the lock's file goes gets a lock on the new file.
  std::thread waiter([&] {
    const auto third = LabLock::take(path, Deadline(20s));
    ASSERT_TRUE(third);
    EXPECT_TRUE(fs::exists(path));
  });
  std::this_thread::sleep_for(50ms);
  first->remove();
  first = tl::unexpected(Error{});
  waiter.join();
  fs::remove(path);
}

}  // namespace
}  // namespace pcilend::lab
