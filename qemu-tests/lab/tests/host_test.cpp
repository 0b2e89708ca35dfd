// SPDX-License-Identifier: GPL-2.0-or-later
// Hosts as tests use them. The "host VM" is a sleeping process, and the agent behind its sockets
// runs commands here.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "lab/agent/server.h"
#include "lab/lab.h"

namespace pcilend::lab {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// Accepts clients at a socket, one at a time, as a virtio-serial port does.
class Port {
 public:
  explicit Port(const std::string& path) {
    listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 4), 0);
    thread_ = std::thread([this] {
      for (;;) {
        UniqueFd stream(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!stream) return;
        {
          const std::lock_guard lock(mutex_);
          live_.reset(::dup(stream.get()));
        }
        agent::PortServer(std::move(stream), {"boot", false, 50ms}).run();
      }
    });
  }
  ~Port() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    cut();
    thread_.join();
  }

  // As QEMU's end does to its clients.
  void cut() {
    const std::lock_guard lock(mutex_);
    ::shutdown(live_.get(), SHUT_RDWR);
  }

 private:
  UniqueFd listener_;
  std::mutex mutex_;
  UniqueFd live_;
  std::thread thread_;
};

class HostTest : public testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);
    char name[] = "/tmp/pcilend-host.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    base_ = name;
    ::setenv("PCILEND_LAB_DIR", base_.c_str(), 1);
    State state;
    state.name = "x";
    state.kernel = "6.12";
    state.hosts = {{1536, {"sleep", "1000"}, {}}};
    const Layout layout = Layout::of("x");
    ASSERT_TRUE(save(state, layout));
    ports_.push_back(std::make_unique<Port>(layout.agent(1)));
    ports_.push_back(std::make_unique<Port>(layout.agent(1) + ".1"));
    lab_.emplace(Lab::attach("x", [this](std::string_view line) {
                   lines_.emplace_back(line.substr(11));
                 }).value());
    ASSERT_TRUE(host().machine().power_on());
  }
  void TearDown() override {
    lab_.reset();
    EXPECT_TRUE(Lab::down("x"));
    ports_.clear();
    ::unsetenv("PCILEND_LAB_DIR");
    fs::remove_all(base_);
  }

  Host& host() { return lab_->host(1); }

  static bool lives(const std::string& pid) { return ::kill(std::stoi(pid), 0) == 0; }

  fs::path base_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<std::string> lines_;
  std::optional<Lab> lab_;
};

TEST_F(HostTest, CommandsAreEchoedWithWhatCameOfThem) {
  const auto output = host().exec("echo out; echo err >&2; exit 3");
  ASSERT_TRUE(output) << output.error().message;
  EXPECT_EQ(output->code, 3);
  EXPECT_EQ(output->out, "out\n");
  EXPECT_EQ(output->text(), "out");
  EXPECT_EQ(output->err, "err\n");
  ASSERT_EQ(lines_.size(), 4U);
  EXPECT_EQ(lines_[0], "host1 $ echo out; echo err >&2; exit 3");
  EXPECT_EQ(lines_[1], "host1 | out");
  EXPECT_EQ(lines_[2], "host1 > err");
  EXPECT_THAT(lines_[3], testing::StartsWith("host1 = exit code 3 after "));
}

TEST_F(HostTest, RunIsForCommandsThatMustSucceed) {
  EXPECT_EQ(host().run({"echo", "a  b"}), "a  b\n");
  EXPECT_EQ(host().run("echo why >&2; false").error().message,
            "host1: 'echo why >&2; false' ended with 1: why");
  EXPECT_EQ(host().run("echo only out; false").error().message,
            "host1: 'echo only out; false' ended with 1: only out");
  EXPECT_THAT(host().run({"no-such-program"}).error().message, HasSubstr("no-such-program"));
}

TEST_F(HostTest, InputIsGiven) {
  EXPECT_EQ(host().run("tr a b", {"aaa", 1min}), "bbb");
}

TEST_F(HostTest, JsonIsParsed) {
  EXPECT_EQ(host().json("echo '{\"a\": 1}'")->at("a"), 1);
  EXPECT_THAT(host().json("echo no").error().message, HasSubstr("did not print JSON"));
}

TEST_F(HostTest, UntilWaitsForAState) {
  const fs::path file = base_ / "count";
  const auto output = host().until(
      fmt::format("echo x >> {0}; wc -l < {0}", file.native()),
      [](const Output& o) { return o.text() == "3"; }, 20s);
  ASSERT_TRUE(output) << output.error().message;
  const auto never = host().until(
      "echo no", [](const Output&) { return false; }, 200ms);
  ASSERT_FALSE(never);
  EXPECT_EQ(never.error().kind, ErrorClass::State);
  EXPECT_THAT(never.error().message, HasSubstr("is not as awaited after 200 ms"));
}

TEST_F(HostTest, ACommandInTheBackgroundCanBeWatchedAndInterrupted) {
  auto running = host().start("echo begun; exec sleep 100");
  ASSERT_TRUE(running);
  EXPECT_TRUE(eventually("it begins", 20s, [&] { return running->output_so_far() == "begun\n"; }));
  EXPECT_FALSE(running->ended());
  // Others run beside it.
  EXPECT_EQ(host().run("echo beside"), "beside\n");
  running->interrupt();
  const auto output = running->wait();
  ASSERT_TRUE(output) << output.error().message;
  EXPECT_EQ(output->code, 128 + SIGINT);
  EXPECT_TRUE(running->ended());
}

TEST_F(HostTest, AnEndedCommandKeepsNoPort) {
  auto one = host().start("true");
  auto two = host().start("true");
  ASSERT_TRUE(one && two);
  EXPECT_TRUE(one->wait() && two->wait());
  EXPECT_TRUE(host().machine().open_session(Deadline(20s)));
}

TEST_F(HostTest, ACommandInTheBackgroundEndsWithItsHandle) {
  std::string pid;
  {
    auto running = host().start("trap '' INT; echo $$; while :; do sleep 0.01; done");
    ASSERT_TRUE(running);
    ASSERT_TRUE(eventually("it begins", 20s,
                           [&] { return (pid = running->output_so_far()).ends_with("\n"); }));
    EXPECT_TRUE(lives(pid));
  }
  EXPECT_FALSE(lives(pid));
}

TEST_F(HostTest, ATimeoutIsAnErrorThatNamesTheCommand) {
  const auto output = host().exec("sleep 100", {{}, 200ms});
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().kind, ErrorClass::Unreachable);
  EXPECT_EQ(output.error().message, "host1: 'sleep 100': not finished after 0.2 s");
}

TEST_F(HostTest, MoreCommandsThanPortsWaitForEachOther) {
  std::vector<std::thread> threads;
  std::array<std::string, 5> outputs;
  for (size_t i = 0; i < outputs.size(); ++i)
    threads.emplace_back([this, i, &outputs] {
      outputs[i] = host().run(fmt::format("sleep 0.05; echo {}", i)).value_or("failed");
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(outputs, ElementsAre("0\n", "1\n", "2\n", "3\n", "4\n"));
}

TEST_F(HostTest, AHostThatDiesUnderACommandIsSaid) {
  auto running = host().start("sleep 100");
  ASSERT_TRUE(running);
  ASSERT_TRUE(host().power_off());
  for (const auto& port : ports_) port->cut();
  const auto output = running->wait();
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().kind, ErrorClass::Unreachable);
  EXPECT_THAT(output.error().message, HasSubstr("it is off, or its QEMU ended"));
  EXPECT_EQ(host().machine().condition(), Condition::Off);
  EXPECT_EQ(host().exec("true").error().kind, ErrorClass::State);
}

TEST_F(HostTest, AHostThatDiesBeforeItsCommandIsSentIsSaid) {
  auto session = host().machine().open_session(Deadline(20s));
  ASSERT_TRUE(session);
  ASSERT_TRUE(host().power_off());
  for (const auto& port : ports_) port->cut();
  agent::Limits limits;
  limits.obituary = [this] { return host().machine().obituary(); };
  const auto status = session->run({"true"}, {}, limits);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("it is off, or its QEMU ended"));
}

TEST_F(HostTest, FilesGoThereAndBack) {
  const std::string there = base_ / "there";
  ASSERT_TRUE(host().write(there, "content\n", 0640));
  EXPECT_EQ(host().read(there), "content\n");
  EXPECT_EQ(host().run({"stat", "-c", "%a", there}), "640\n");
  ASSERT_TRUE(host().get(there, base_ / "back"));
  ASSERT_TRUE(host().put(base_ / "back", base_ / "again"));
  EXPECT_EQ(host().read(base_ / "again"), "content\n");
  EXPECT_EQ(fs::status(base_ / "again").permissions(), fs::perms(0640));
}

TEST_F(HostTest, AFileThatDoesNotComeLeavesNothing) {
  const size_t before = std::distance(fs::directory_iterator(base_), fs::directory_iterator());
  EXPECT_EQ(host().get("/no/file", base_ / "x").error().kind, ErrorClass::NotFound);
  EXPECT_FALSE(host().put("/no/file", base_ / "x"));
  EXPECT_THAT(host().put("/tmp", base_ / "x").error().message, HasSubstr("is a directory"));
  EXPECT_EQ(std::distance(fs::directory_iterator(base_), fs::directory_iterator()), before);
}

TEST_F(HostTest, APanicOnTheConsoleIsSaid) {
  EXPECT_EQ(host().machine().obituary(), "");
  std::ofstream(host().machine().console_path())
      << "[ 9.0] Kernel panic - not syncing: sysrq triggered crash\n"
         "[ 9.1] ---[ end Kernel panic - not syncing: sysrq triggered crash ]---\n";
  EXPECT_EQ(host().machine().obituary(),
            "its kernel panicked: Kernel panic - not syncing: sysrq triggered crash");
  // An agent that answers all the same is believed.
  EXPECT_EQ(host().machine().condition(), Condition::Running);
  // The panic of an earlier boot is history.
  ASSERT_TRUE(host().power_off());
  ASSERT_TRUE(host().machine().power_on());
  EXPECT_EQ(host().machine().obituary(), "");
}

TEST_F(HostTest, TheConsoleCountsWhenTheHostIsOff) {
  std::ofstream(host().machine().console_path())
      << "[ 1.0] fine\n[ 2.0] WARNING: CPU: 0 PID: 1 at a.c:1 f+0x1/0x2\n";
  ASSERT_TRUE(host().power_off());
  const auto checked = host().check_log();
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().message,
            "host1's kernel log has 1 finding:\n"
            "  warning: WARNING: CPU: 0 PID: 1 at a.c:1 f+0x1/0x2");
  EXPECT_TRUE(host().check_log({std::regex("at a\\.c:1")}));
}

}  // namespace
}  // namespace pcilend::lab
