// SPDX-License-Identifier: GPL-2.0-or-later
// The program itself: its sockets, its control clients, its end.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tests/client.h"

extern char** environ;

namespace pcilend::fabric {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Client;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kPatience = 20'000;  // ms; nothing takes as long unless it is broken

bool readable(int fd) {
  pollfd poll{fd, POLLIN, 0};
  return ::poll(&poll, 1, kPatience) == 1;
}

// One run of ntb-fabric.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments) {
    int out[2], err[2];
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(err, O_CLOEXEC), 0);
    out_.reset(out[0]);
    err_.reset(err[0]);
    arguments.insert(arguments.begin(), PCILEND_FABRIC_PROGRAM);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    ::posix_spawn_file_actions_adddup2(&actions, err[1], 2);
    EXPECT_EQ(::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(out[1]);
    ::close(err[1]);
  }
  ~Program() {
    if (pid_ > 0) end(SIGKILL);
  }

  bool ready() {
    char text[6];
    size_t got = 0;
    while (got < sizeof text && readable(out_.get())) {
      const ssize_t n = ::read(out_.get(), text + got, sizeof text - got);
      if (n <= 0) return false;
      got += static_cast<size_t>(n);
    }
    return std::string_view(text, got) == "ready\n";
  }
  // Exit code; -1 if a signal ended it.
  int wait() {
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  int end(int signal) {
    ::kill(pid_, signal);
    return wait();
  }
  // Processor time used so far, in clock ticks (utime and stime of proc(5)).
  long cpu_ticks() const {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/stat");
    std::string word;
    long ticks = 0;
    for (int field = 1; field <= 15 && file >> word; field++)
      if (field >= 14) ticks += std::stol(word);
    return ticks;
  }
  std::string errors() {
    std::string all;
    char text[4096];
    ssize_t n;
    while ((n = ::read(err_.get(), text, sizeof text)) > 0)
      all.append(text, static_cast<size_t>(n));
    return all;
  }

 private:
  pid_t pid_ = 0;
  UniqueFd out_;
  UniqueFd err_;
};

class ProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/ntb-fabric.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    directory_ = root_ / "fabric";
  }
  void TearDown() override { fs::remove_all(root_); }

  std::unique_ptr<Program> start(std::vector<std::string> more = {"--hosts", "2"}) {
    std::vector<std::string> arguments{"--dir", directory_, "--log", root_ / "log"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    auto program = std::make_unique<Program>(arguments);
    EXPECT_TRUE(program->ready());
    return program;
  }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_))
      names.insert(entry.path().filename());
    return names;
  }
  UniqueFd connect(const char* name) const {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (directory_ / name).c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  static void say(const UniqueFd& fd, std::string_view text) {
    EXPECT_EQ(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // The next line, without its end; nothing if the connection was closed.
  static std::optional<std::string> line(const UniqueFd& fd) {
    std::string text;
    char c;
    while (readable(fd.get()) && ::recv(fd.get(), &c, 1, 0) == 1) {
      if (c == '\n') return text;
      text += c;
    }
    return std::nullopt;
  }
  json ask(const json& request) const {
    const UniqueFd control = connect("control.sock");
    say(control, request.dump() + "\n");
    const auto answer = line(control);
    EXPECT_TRUE(answer);
    return json::parse(answer.value_or("{}"));
  }
  bool connected() const { return ask({{"op", "status"}})["adapters"][0]["connected"].get<bool>(); }

  fs::path root_;
  fs::path directory_;
};

TEST_F(ProgramTest, ListensForEveryOrderedPairAndCleansUp) {
  for (const int signal : {SIGTERM, SIGINT}) {
    auto program = start({"--hosts", "3"});
    EXPECT_THAT(files(), ElementsAre("control.sock", "host1-host2.sock", "host1-host3.sock",
                                     "host2-host1.sock", "host2-host3.sock", "host3-host1.sock",
                                     "host3-host2.sock"));
    EXPECT_EQ(program->end(signal), 0);
    EXPECT_TRUE(files().empty());
  }
}

TEST_F(ProgramTest, EndsWithHostsAndClientsConnected) {
  auto program = start();
  Client host(connect("host1-host2.sock"));
  host.send_version();
  ASSERT_TRUE(readable(host.fd()));
  const UniqueFd control = connect("control.sock");
  EXPECT_EQ(program->end(SIGTERM), 0);
  EXPECT_TRUE(files().empty());
}

TEST_F(ProgramTest, ADirectoryInUseIsRefusedAndLeftAlone) {
  auto first = start();
  Program second({"--dir", directory_, "--hosts", "2"});
  EXPECT_EQ(second.wait(), 4);
  EXPECT_THAT(second.errors(), HasSubstr("another fabric listens there"));
  EXPECT_EQ(ask({{"op", "status"}})["ok"], true);
  EXPECT_EQ(files().size(), 3u);
}

TEST_F(ProgramTest, WhatAKilledOneLeftIsTakenOver) {
  EXPECT_EQ(start()->end(SIGKILL), -1);
  EXPECT_EQ(files().size(), 3u);
  auto program = start();
  EXPECT_EQ(ask({{"op", "status"}})["ok"], true);
  EXPECT_EQ(program->end(SIGTERM), 0);
}

TEST_F(ProgramTest, BadArgumentsAreNamed) {
  struct Case {
    std::vector<std::string> arguments;
    int code;
    const char* text;
  };
  for (const Case& c : {
           Case{{"--hosts", "2"}, 2, "--dir"},
           Case{{"--dir", directory_}, 2, "--hosts"},
           Case{{"--dir", directory_, "--hosts", "1"}, 2, "--hosts"},
           Case{{"--dir", directory_, "--hosts", "17"}, 2, "--hosts"},
           Case{{"--dir", directory_, "--hosts", "2", "--window0", "3M"}, 2, "power of two"},
           Case{{"--dir", directory_, "--hosts", "2", "--window1", "64K"}, 2, "1M to 256G"},
           Case{{"--dir", directory_, "--hosts", "2", "--spin-us", "-1"}, 2, "--spin-us"},
           Case{{"--dir", directory_, "--hosts", "2", "--log", "/none/log"}, 1, "/none/log"},
           Case{{"--dir", "/proc/none", "--hosts", "2"}, 1, "/proc/none"},
           Case{{"--dir", root_ / std::string(120, 'x'), "--hosts", "2"}, 2, "shorter --dir"},
       }) {
    Program program(c.arguments);
    EXPECT_EQ(program.wait(), c.code) << c.text;
    EXPECT_THAT(program.errors(), HasSubstr(c.text));
  }
}

TEST_F(ProgramTest, WindowSizesAreWhatWasAskedFor) {
  auto program = start({"--hosts", "2", "--window0", "1G", "--window1", "2M"});
  const json adapter = ask({{"op", "status"}})["adapters"][0];
  EXPECT_EQ(adapter["inbound_windows"][0]["size"], 1 << 30);
  EXPECT_EQ(adapter["inbound_windows"][1]["size"], 2 << 20);
}

TEST_F(ProgramTest, RequestsComeInAnyPieces) {
  auto program = start();
  const UniqueFd control = connect("control.sock");
  say(control, "{\"op\":\"status\"}\n{\"op\":\"coun");
  ASSERT_TRUE(line(control));
  say(control, "ters\"}\nnonsense\n");
  EXPECT_EQ(json::parse(*line(control))["paths"].size(), 2u);
  EXPECT_EQ(json::parse(*line(control))["ok"], false);
}

TEST_F(ProgramTest, AClientMayCloseItsEndAndStillGetsItsAnswer) {
  auto program = start();
  const UniqueFd control = connect("control.sock");
  say(control, "{\"op\":\"status\"}\n");
  ::shutdown(control.get(), SHUT_WR);
  EXPECT_TRUE(line(control));
  EXPECT_FALSE(line(control)) << "then it is closed";
}

TEST_F(ProgramTest, ALineWithoutEndIsCutOff) {
  auto program = start();
  const UniqueFd control = connect("control.sock");
  const std::string endless(64 << 10, 'x');
  ssize_t n = 0;
  for (int i = 0; i < 64 && n >= 0; i++)
    n = ::send(control.get(), endless.data(), endless.size(), MSG_NOSIGNAL);
  EXPECT_FALSE(line(control));
  EXPECT_EQ(ask({{"op", "status"}})["ok"], true);
}

TEST_F(ProgramTest, ManyControlClientsAtOnce) {
  auto program = start();
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 50; i++) {
    clients.push_back(connect("control.sock"));
    say(clients.back(), "{\"op\":\"status\"}\n");
  }
  for (const UniqueFd& client : clients) EXPECT_TRUE(line(client));
}

TEST_F(ProgramTest, OneHostAnAdapterAndTheNextWhenItIsGone) {
  auto program = start();
  auto first = std::make_unique<Client>(connect("host1-host2.sock"));
  first->send_version();
  ASSERT_TRUE(readable(first->fd()));
  EXPECT_TRUE(connected());

  Client second(connect("host1-host2.sock"));
  ASSERT_TRUE(readable(second.fd()));
  EXPECT_TRUE(second.closed());
  EXPECT_TRUE(connected());

  first.reset();
  Client third(connect("host1-host2.sock"));
  third.send_version();
  ASSERT_TRUE(readable(third.fd()));
  EXPECT_FALSE(third.closed());
  EXPECT_TRUE(connected());
}

TEST_F(ProgramTest, AHostThatSpeaksNonsenseIsDroppedAndLogged) {
  auto program = start();
  Client host(connect("host1-host2.sock"));
  host.send_raw(Bytes(64, std::byte{0xff}));
  ASSERT_TRUE(readable(host.fd()));
  EXPECT_TRUE(host.closed());
  EXPECT_EQ(program->end(SIGTERM), 0);
  std::string log(4096, '\0');
  const UniqueFd file(::open((root_ / "log").c_str(), O_RDONLY));
  log.resize(static_cast<size_t>(::read(file.get(), log.data(), log.size())));
  EXPECT_THAT(log, HasSubstr("host1-host2: message of 4294967295 bytes"));
}

TEST_F(ProgramTest, TimersRunWithoutTraffic) {
  auto program = start({"--hosts", "2", "--read-timeout-ms", "50"});
  Client a(connect("host1-host2.sock"));
  Client b(connect("host2-host1.sock"));
  for (Client* host : {&a, &b}) {
    host->send_version();
    ASSERT_TRUE(readable(host->fd()));
    ASSERT_TRUE(host->receive());
  }
  b.post<uint16_t>(kRegionConfig, 4, 0x6);
  b.post<uint64_t>(kRegionBar0, 0x838, 0xfe000000);
  b.post<uint64_t>(kRegionBar0, 0x818, 0x10000);
  b.send_read(kRegionBar0, 0x408, 4);
  ASSERT_TRUE(readable(b.fd()));
  ASSERT_TRUE(b.receive());
  a.send_read(kRegionBar2, 0, 4);
  ASSERT_TRUE(readable(b.fd()));
  EXPECT_EQ(b.receive()->command(), Command::DmaRead);
  ASSERT_TRUE(readable(a.fd()));
  EXPECT_EQ(a.receive()->value<uint32_t>(), 0xffffffffu);
  EXPECT_EQ(ask({{"op", "counters"}})["paths"][0]["all_ones_reads"]["timeout"], 1);
}

TEST_F(ProgramTest, AClientThatGoesAwayInASweepCostsNothing) {
  auto program = start();
  Client a(connect("host1-host2.sock"));
  Client b(connect("host2-host1.sock"));
  for (Client* host : {&a, &b}) {
    host->send_version();
    ASSERT_TRUE(readable(host->fd()));
    ASSERT_TRUE(host->receive());
  }
  b.post<uint16_t>(kRegionConfig, 4, 0x6);
  b.post<uint64_t>(kRegionBar0, 0x818, 1 << 20);
  b.send_read(kRegionBar0, 0x408, 4);
  ASSERT_TRUE(readable(b.fd()));
  ASSERT_TRUE(b.receive());
  for (const bool half : {true, false}) {
    UniqueFd control = connect("control.sock");
    say(control, "{\"op\":\"sweep\",\"victim\":\"host2\",\"from\":\"host1\"}\n");
    if (half) ::shutdown(control.get(), SHUT_WR);
    ASSERT_TRUE(readable(b.fd())) << "it asks the victim, who doesn't answer";
    ASSERT_TRUE(b.receive());
    const long ticks = program->cpu_ticks();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_LE(program->cpu_ticks() - ticks, 10);
  }
  EXPECT_EQ(ask({{"op", "status"}})["ok"], true);
}

TEST_F(ProgramTest, ASweepIsAnsweredWhenItIsDone) {
  auto program = start();
  const json answer = ask({{"op", "sweep"}, {"victim", "host2"}, {"from", "host1"}});
  EXPECT_EQ(answer["ok"], true);
  EXPECT_EQ(answer["answered"], json::array());
}

}  // namespace
}  // namespace pcilend::fabric
