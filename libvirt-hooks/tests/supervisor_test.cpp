// SPDX-License-Identifier: GPL-2.0-or-later
#include "supervisor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pcilend/fd.h"

namespace pcilend {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST(Supervisor, GivesBackSuccess) {
  EXPECT_TRUE(supervise(20s, [](Steps& steps) {
    steps.begin("one", "");
    steps.begin("two", "");
    return Result<>();
  }));
}

TEST(Supervisor, GivesBackTheErrorOnOneLine) {
  const auto result = supervise(
      20s, [](Steps&) -> Result<> { return fail(ErrorClass::Permission, "not\nallowed"); });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorClass::Permission);
  EXPECT_EQ(result.error().message, "not allowed");
}

TEST(Supervisor, AStepThatHangsIsNamed) {
  const auto result = supervise(50ms, [](Steps& steps) -> Result<> {
    steps.begin("waiting for the world", "look\nup");
    for (;;) ::pause();
  });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorClass::Unreachable);
  EXPECT_EQ(result.error().message, "waiting for the world took more than 0.05 s: look up");
}

TEST(Supervisor, EveryStepHasTheLimitForItself) {
  EXPECT_TRUE(supervise(2s, [](Steps& steps) {
    for (int i = 0; i < 6; ++i) {
      steps.begin("a slow step", "");
      ::usleep(500'000);
    }
    return Result<>();
  }));
}

TEST(Supervisor, ACrashIsAnError) {
  const auto result = supervise(20s, [](Steps& steps) -> Result<> {
    steps.begin("crashing", "");
    ::_exit(3);
  });
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("crashing ended unexpectedly"));
}

// What it does after that nobody would hear of.
TEST(Supervisor, TheChildEndsWithItsParent) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t hook = ::fork();
  ASSERT_GE(hook, 0);
  if (hook == 0) {
    reader.reset();
    (void)supervise(60s, [&](Steps&) -> Result<> {
      (void)write_all(writer.get(), std::as_bytes(std::span("x", 1)));
      for (;;) ::pause();
    });
    ::_exit(0);
  }
  writer.reset();
  char byte = 0;
  ASSERT_EQ(::read(reader.get(), &byte, 1), 1);
  ::kill(hook, SIGKILL);
  ::waitpid(hook, nullptr, 0);
  pollfd waiting{reader.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&waiting, 1, 10'000), 1);
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0) << "the child still has its end of the pipe";
}

// libvirt reads the hook's stderr until its end: a child that hangs must not hold it.
TEST(Supervisor, TheChildHoldsNoStandardStream) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const UniqueFd saved(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  ASSERT_GE(::dup2(writer.get(), STDERR_FILENO), 0);
  writer.reset();
  int hold[2];
  ASSERT_EQ(::pipe2(hold, O_CLOEXEC), 0);
  UniqueFd hold_reader(hold[0]);
  UniqueFd hold_writer(hold[1]);
  bool ended = false;
  (void)supervise(20s, [&](Steps&) -> Result<> {
    // Another child, to outlive the supervised one as a hung one would.
    if (::fork() == 0) {
      hold_writer.reset();
      char byte = 0;
      (void)!::read(hold_reader.get(), &byte, 1);
      ::_exit(0);
    }
    return {};
  });
  ::dup2(saved.get(), STDERR_FILENO);
  pollfd waiting{reader.get(), POLLIN, 0};
  ended = ::poll(&waiting, 1, 10'000) == 1 && (waiting.revents & POLLHUP);
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace pcilend
