// SPDX-License-Identifier: GPL-2.0-or-later
// A test program is killed: its lab ends with it, and the next run of the program begins as if
// nothing had been.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "lab/process.h"
#include "lab/teardown.h"
#include "testing/asserts.h"
#include "testing/suite_lab.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

// Within which a killed lab is gone, on a busy machine.
constexpr auto kEnd = 30s;

class Interrupted : public testing::Test {
 protected:
  void TearDown() override {
    kill_owner();
    EXPECT_OK(lab::Lab::down(options_.name));
  }

  // A process that starts the lab, says so and waits.
  void start_owner() {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    owner_ = ::fork();
    if (owner_ == 0) {
      std::optional<lab::Lab> lab;
      const auto started = start_lab(options_, lab);
      if (!started) fmt::print(stderr, "{}\n", started.error().message);
      if (started && ::write(ends[1], "u", 1) == 1)
        for (;;) ::pause();
      ::_exit(1);
    }
    up_.reset(ends[0]);
    ::close(ends[1]);
  }
  void await_up() {
    char byte = 0;
    ASSERT_EQ(::read(up_.get(), &byte, 1), 1) << "the lab did not start";
  }
  void kill_owner() {
    if (owner_ <= 0) return;
    ::kill(owner_, SIGKILL);
    ::waitpid(owner_, nullptr, 0);
    owner_ = 0;
  }

  [[nodiscard]] bool runs(const std::string& pid_file) const {
    return processes_.find(pid_file).has_value();
  }
  // The fabric and both hosts.
  [[nodiscard]] bool all_run() const {
    return runs(layout_.fabric_pid()) && runs(layout_.qemu_pid(1)) && runs(layout_.qemu_pid(2));
  }
  [[nodiscard]] bool nothing_left() const {
    return processes_.in(layout_.dir()).empty() && !std::filesystem::exists(layout_.dir()) &&
           !std::filesystem::exists(layout_.lock());
  }

  lab::Options options_ = [] {
    lab::Options options;
    options.name = "interrupted";
    return options;
  }();
  lab::Layout layout_ = lab::Layout::of(options_.name);
  lab::Processes processes_;
  pid_t owner_ = 0;
  UniqueFd up_;
};

/*
 *   kill -9 of the program
 *     while its hosts boot              all of the lab ends at once
 *     and of the watcher, when it is up  all of it stays, until the program is run again
 */
TEST_F(Interrupted, ATestProgramIsKilledAndRunAgain) {
  ASSERT_NO_FATAL_FAILURE(start_owner());
  ASSERT_OK(lab::eventually("the hosts boot", 2min, [&] { return all_run(); }));
  kill_owner();
  EXPECT_OK(lab::eventually("nothing is left", kEnd, [&] { return nothing_left(); }));

  ASSERT_NO_FATAL_FAILURE(start_owner());
  ASSERT_NO_FATAL_FAILURE(await_up());
  const auto watcher = processes_.find(layout_.watcher_pid());
  ASSERT_TRUE(watcher);
  ASSERT_OK(processes_.kill({*watcher}));
  kill_owner();
  ASSERT_TRUE(all_run());

  std::optional<lab::Lab> next;
  ASSERT_OK(start_lab(options_, next));
  EXPECT_OK(next->host(1).run("pcilend link"));
  ASSERT_OK(next->keep());
  EXPECT_FALSE(runs(layout_.watcher_pid()));
  next.reset();
  // It belongs to nobody now.
  EXPECT_TRUE(all_run());
  EXPECT_EQ(lab::standing_of(options_.name).text, "started by hand");
  EXPECT_OK(lab::Lab::down(options_.name));
  EXPECT_TRUE(nothing_left());
}

}  // namespace
}  // namespace pcilend::scenarios
