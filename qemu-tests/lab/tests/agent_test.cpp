// SPDX-License-Identifier: GPL-2.0-or-later
// A client and a server of the agent's protocol, joined by a socket pair.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "lab/agent/client.h"
#include "lab/agent/server.h"

namespace pcilend::lab::agent {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr auto kLong = 30s;

struct Streams {
  UniqueFd client;
  UniqueFd server;
};

Streams make_streams() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// A server in a thread; it ends when its stream does.
class Server {
 public:
  explicit Server(UniqueFd stream) {
    ::fcntl(stream.get(), F_SETFL, O_NONBLOCK);
    ServerConfig config;
    config.boot_id = "this boot";
    config.alive_every = 20ms;
    thread_ = std::thread([stream = std::move(stream), config]() mutable {
      PortServer(std::move(stream), config).run();
    });
  }
  ~Server() { thread_.join(); }

 private:
  std::thread thread_;
};

struct Ran {
  Result<ExitStatus> status;
  std::string out;
  std::string err;
};

Ran run(Session& session, std::vector<std::string> argv, RunStreams streams = {},
        const Limits& limits = {}) {
  Ran ran{ExitStatus{}, {}, {}};
  streams.output = [&](std::string_view bytes) { ran.out.append(bytes); };
  streams.errors = [&](std::string_view bytes) { ran.err.append(bytes); };
  ran.status = session.run(std::move(argv), streams, limits);
  return ran;
}

UniqueFd memory_file(std::string_view content) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_TRUE(write_all(fd.get(), std::as_bytes(std::span(content))));
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class AgentTest : public testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);
    char name[] = "/tmp/pcilend-agent.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override {
    session_.reset();
    client_.reset();
    server_.reset();
    fs::remove_all(dir_);
  }

  // Connects a client's session to a server.
  Session& session() {
    Streams streams = make_streams();
    server_.emplace(std::move(streams.server));
    auto opened = Session::open({std::move(streams.client), {}}, Deadline(kLong));
    EXPECT_TRUE(opened) << opened.error().message;
    session_.emplace(std::move(*opened));
    return *session_;
  }

  // A server whose stream the test writes itself.
  int raw() {
    Streams streams = make_streams();
    server_.emplace(std::move(streams.server));
    client_ = std::move(streams.client);
    return client_.get();
  }

  void write(std::string_view bytes) {
    ASSERT_TRUE(write_all(client_.get(), std::as_bytes(std::span(bytes))));
  }

  // The next frame for that session but Alive; what comes for others is skipped.
  Frame next(uint64_t id) {
    for (;;) {
      for (auto at = frames_.begin(); at != frames_.end(); ++at) {
        if (at->session != id || at->type == FrameType::Alive) continue;
        Frame frame = std::move(*at);
        frames_.erase(frames_.begin(), at + 1);
        return frame;
      }
      char bytes[4096];
      if (!wait_for(client_.get(), POLLIN, Deadline(kLong))) {
        ADD_FAILURE() << "no frame came";
        return {};
      }
      const ssize_t n = ::read(client_.get(), bytes, sizeof bytes);
      if (n <= 0) return {};
      reader_.feed({bytes, static_cast<size_t>(n)},
                   [&](Frame frame) { frames_.push_back(std::move(frame)); });
    }
  }

  fs::path dir_;
  std::optional<Server> server_;
  std::optional<Session> session_;
  UniqueFd client_;
  FrameReader reader_;
  std::vector<Frame> frames_;
};

TEST_F(AgentTest, TheSessionKnowsTheBoot) {
  EXPECT_EQ(session().boot_id(), "this boot");
}

TEST_F(AgentTest, ACommandsStreamsAndExitCodeComeApart) {
  const Ran ran = run(session(), {"sh", "-c", "echo out; echo err >&2; exit 7"});
  ASSERT_TRUE(ran.status) << ran.status.error().message;
  EXPECT_EQ(*ran.status, (ExitStatus{false, 7}));
  EXPECT_EQ(ran.out, "out\n");
  EXPECT_EQ(ran.err, "err\n");
}

TEST_F(AgentTest, ASignalThatEndsACommandIsTold) {
  const Ran ran = run(session(), {"sh", "-c", "kill -9 $$"});
  ASSERT_TRUE(ran.status);
  EXPECT_EQ(*ran.status, (ExitStatus{true, 9}));
}

TEST_F(AgentTest, ArgumentsArriveAsTheyAre) {
  const Ran ran = run(session(), {"printf", "%s|", "a b", "", "$HOME", "*", "\n"});
  EXPECT_EQ(ran.out, "a b||$HOME|*|\n|");
}

TEST_F(AgentTest, ACommandThatIsNotThereIsNotFound) {
  const Ran ran = run(session(), {"no-such-command-anywhere"});
  ASSERT_FALSE(ran.status);
  EXPECT_EQ(ran.status.error().kind, ErrorClass::NotFound);
  EXPECT_THAT(ran.status.error().message, HasSubstr("no-such-command-anywhere"));
}

TEST_F(AgentTest, AFileThatIsNoProgramIsRefused) {
  const Ran ran = run(session(), {"/etc/passwd"});
  ASSERT_FALSE(ran.status);
  EXPECT_EQ(ran.status.error().kind, ErrorClass::Permission);
}

TEST_F(AgentTest, ACommandTooLongIsRefusedHere) {
  const Ran ran = run(session(), {"echo", std::string(2 * kMaxBody, 'x')});
  ASSERT_FALSE(ran.status);
  EXPECT_EQ(ran.status.error().kind, ErrorClass::Usage);
}

TEST_F(AgentTest, MegabytesOfOutputArriveWhole) {
  const Ran ran = run(session(), {"sh", "-c", "head -c 20000000 /dev/zero; echo end"});
  ASSERT_TRUE(ran.status);
  EXPECT_EQ(ran.out.size(), 20000004U);
  EXPECT_TRUE(ran.out.ends_with("end\n"));
}

TEST_F(AgentTest, MegabytesOfInputArriveWhole) {
  const UniqueFd input = memory_file(std::string(5'000'000, 'x'));
  RunStreams streams;
  streams.input = input.get();
  const Ran ran = run(session(), {"wc", "-c"}, streams);
  ASSERT_TRUE(ran.status);
  EXPECT_EQ(ran.out, "5000000\n");
}

TEST_F(AgentTest, WithoutInputStdinIsEmpty) {
  EXPECT_EQ(run(session(), {"wc", "-c"}).out, "0\n");
}

TEST_F(AgentTest, ACommandThatDoesNotReadItsInputEndsAllTheSame) {
  const UniqueFd input = memory_file(std::string(5'000'000, 'x'));
  RunStreams streams;
  streams.input = input.get();
  const Ran ran = run(session(), {"true"}, streams);
  ASSERT_TRUE(ran.status) << ran.status.error().message;
  EXPECT_EQ(ran.status->code(), 0);
}

TEST_F(AgentTest, AnEndlessInputDoesNotOutliveTheCommand) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd input(ends[0]), writer(ends[1]);
  RunStreams streams;
  streams.input = input.get();
  const Ran ran = run(session(), {"echo", "done"}, streams);
  ASSERT_TRUE(ran.status);
  EXPECT_EQ(ran.out, "done\n");
}

TEST_F(AgentTest, AProcessLeftInTheBackgroundIsNotWaitedFor) {
  const Ran ran = run(session(), {"sh", "-c", "sleep 100 & echo $!"});
  ASSERT_TRUE(ran.status);
  const pid_t left = std::stoi(ran.out);
  EXPECT_EQ(::kill(left, 0), 0);
  ::kill(left, SIGKILL);
}

TEST_F(AgentTest, SilenceIsNotDeathWhileTheAgentSaysAlive) {
  Limits limits;
  limits.silence = 400ms;
  const Ran ran = run(session(), {"sleep", "1.2"}, {}, limits);
  EXPECT_TRUE(ran.status) << ran.status.error().message;
}

TEST_F(AgentTest, ATimeLimitEndsTheWait) {
  Limits limits;
  limits.total = 300ms;
  const Ran ran = run(session(), {"sleep", "100"}, {}, limits);
  ASSERT_FALSE(ran.status);
  EXPECT_EQ(ran.status.error().kind, ErrorClass::Unreachable);
  EXPECT_THAT(ran.status.error().message, HasSubstr("not finished after 0.3 s"));
}

TEST_F(AgentTest, AnInterruptIsSigint) {
  const UniqueFd interrupt(::eventfd(1, EFD_CLOEXEC | EFD_SEMAPHORE));
  RunStreams streams;
  streams.interrupt = interrupt.get();
  EXPECT_EQ(run(session(), {"sleep", "100"}, streams).status, (ExitStatus{true, SIGINT}));
}

TEST_F(AgentTest, TheSecondInterruptKills) {
  const UniqueFd interrupts(::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  RunStreams streams;
  streams.interrupt = interrupts.get();
  streams.output = [&](std::string_view) {
    const uint64_t two = 2;
    EXPECT_EQ(::write(interrupts.get(), &two, sizeof two), 8);
  };
  EXPECT_EQ(session().run({"sh", "-c", "trap '' INT; echo ready; while :; do sleep 0.01; done"},
                          streams, {}),
            (ExitStatus{true, SIGKILL}));
}

TEST_F(AgentTest, ACommandEndsWithItsClient) {
  const fs::path pid_file = dir_ / "pid";
  Limits limits;
  limits.total = 1s;
  const Ran ran = run(
      session(), {"sh", "-c", "echo $$ > " + pid_file.native() + "; exec sleep 100"}, {}, limits);
  ASSERT_FALSE(ran.status);
  const pid_t pid = std::stoi(content_of(pid_file));
  ASSERT_EQ(::kill(pid, 0), 0);
  session_.reset();
  server_.reset();
  EXPECT_NE(::kill(pid, 0), 0);
}

// A port that tells that nobody is there, and lives on, as a virtio-serial port does.
class ReconnectingPort : public AgentTest {
 protected:
  // Its agent is another process, since it never ends.
  void start_agent(std::chrono::milliseconds gone_after) {
    UniqueFd port(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
    char name[64];
    ASSERT_EQ(::grantpt(port.get()) | ::unlockpt(port.get()), 0);
    ASSERT_EQ(::ptsname_r(port.get(), name, sizeof name), 0);
    name_ = name;
    agent_ = ::fork();
    if (agent_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ServerConfig config;
      config.reconnects = true;
      config.alive_every = 20ms;
      config.gone_after = gone_after;
      PortServer(std::move(port), config).run();
      ::_exit(1);
    }
    ASSERT_GT(agent_, 0);
    connect();
  }
  void TearDown() override {
    if (agent_ > 0) {
      ::kill(agent_, SIGKILL);
      ::waitpid(agent_, nullptr, 0);
    }
    AgentTest::TearDown();
  }

  void connect() {
    client_.reset(::open(name_.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
    termios raw{};
    ASSERT_EQ(::tcgetattr(client_.get(), &raw), 0);
    ::cfmakeraw(&raw);
    ASSERT_EQ(::tcsetattr(client_.get(), TCSANOW, &raw), 0);
  }

  // Runs a command in a session; returns when it has begun.
  void begin(uint64_t session, const std::string& rest) {
    // The terminal has given back what the agent said before connect().
    write(std::string(1, '\0') + encode({FrameType::Hello, session, Hello{}.body()}));
    ASSERT_EQ(next(session).type, FrameType::Welcome);
    write(encode({FrameType::Run, session,
                  RunRequest{{"sh", "-c", "echo $$; " + rest}, false, false, {}}.body()}));
    command_ = std::stoi(next(session).body);
  }

  std::string name_;
  pid_t agent_ = -1;
  pid_t command_ = -1;
};

TEST_F(ReconnectingPort, ACommandOutlivesALateWordOfTheClientBefore) {
  ASSERT_NO_FATAL_FAILURE(start_agent(kLong));
  const fs::path go = dir_ / "go";
  ASSERT_NO_FATAL_FAILURE(
      begin(1, "until [ -e " + go.native() + " ]; do sleep 0.01; done; echo on"));
  client_.reset();
  // Nothing tells that the agent has seen that nobody is there.
  std::this_thread::sleep_for(100ms);
  ASSERT_NO_FATAL_FAILURE(connect());
  std::ofstream(go).put('1');
  EXPECT_EQ(next(1).body, "on\n");
  EXPECT_EQ(next(1).type, FrameType::Done);
}

TEST_F(ReconnectingPort, ACommandEndsWithItsClient) {
  ASSERT_NO_FATAL_FAILURE(start_agent(50ms));
  ASSERT_NO_FATAL_FAILURE(begin(1, "exec sleep 100"));
  ASSERT_EQ(::kill(command_, 0), 0);
  client_.reset();
  EXPECT_TRUE(wait_until(Deadline(kLong), [&] { return ::kill(command_, 0) != 0; }));
}

TEST_F(AgentTest, ATerminalIsOne) {
  RunStreams streams;
  const UniqueFd input(::eventfd(0, EFD_CLOEXEC));
  streams.input = input.get();
  streams.terminal = true;
  streams.window = [] { return WindowSize{33, 77}; };
  const Ran ran =
      run(session(), {"sh", "-c", "stty size; test -t 0 && test -t 2; echo $?"}, streams);
  ASSERT_TRUE(ran.status) << ran.status.error().message;
  EXPECT_EQ(ran.out, "33 77\r\n0\r\n");
}

TEST_F(AgentTest, AFileGoesThereAndBackWithItsMode) {
  std::string bytes(1'500'000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i >> 7);
  const UniqueFd source = memory_file(bytes);
  const fs::path path = dir_ / "file";
  ASSERT_TRUE(session().put(source.get(), {path, "other", 0751}, {}));
  EXPECT_EQ(content_of(path), bytes);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0751U);

  session_.reset();
  server_.reset();
  const UniqueFd sink = memory_file({});
  const auto mode = session().get(path, sink.get(), {});
  ASSERT_TRUE(mode) << mode.error().message;
  EXPECT_EQ(*mode, 0751U);
  EXPECT_EQ(content_of(fmt::format("/proc/self/fd/{}", sink.get())), bytes);
}

TEST_F(AgentTest, IntoADirectoryAFileGoesByItsName) {
  const UniqueFd source = memory_file("x");
  ASSERT_TRUE(session().put(source.get(), {dir_, "name", 0600}, {}));
  EXPECT_EQ(content_of(dir_ / "name"), "x");
}

TEST_F(AgentTest, AFileThatCannotBeIsRefusedByName) {
  const UniqueFd source = memory_file("x");
  const auto put = session().put(source.get(), {dir_ / "no/file", "f", 0600}, {});
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().kind, ErrorClass::NotFound);
  EXPECT_THAT(put.error().message, HasSubstr((dir_ / "no/file").native()));

  session_.reset();
  server_.reset();
  const UniqueFd sink = memory_file({});
  const auto directory = session().get(dir_, sink.get(), {});
  ASSERT_FALSE(directory);
  EXPECT_THAT(directory.error().message, HasSubstr("Is a directory"));
}

TEST_F(AgentTest, ManySessionsRunAtTheSameTime) {
  constexpr int kCount = 8;
  std::vector<std::thread> threads;
  std::array<std::string, kCount> outputs;
  for (int i = 0; i < kCount; ++i)
    threads.emplace_back([i, &outputs] {
      Streams streams = make_streams();
      const Server server(std::move(streams.server));
      auto opened = Session::open({std::move(streams.client), {}}, Deadline(kLong));
      ASSERT_TRUE(opened);
      outputs[static_cast<size_t>(i)] =
          run(*opened, {"sh", "-c", fmt::format("head -c 300000 /dev/zero | wc -c; echo {}", i)})
              .out;
    });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kCount; ++i)
    EXPECT_EQ(outputs[static_cast<size_t>(i)], fmt::format("300000\n{}\n", i));
}

TEST_F(AgentTest, AnAgentThatSaysNothingIsUnreachable) {
  Streams streams = make_streams();
  const auto opened = Session::open({std::move(streams.client), {}}, Deadline(200ms));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().kind, ErrorClass::Unreachable);
}

TEST_F(AgentTest, WhatIsKnownToHaveEndedTheAgentIsSaid) {
  Streams streams = make_streams();
  const auto opened = Session::open({std::move(streams.client), {}}, Deadline(kLong),
                                    [] { return std::string("host1 panicked"); });
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().message, "host1 panicked");
}

TEST_F(AgentTest, AnAgentThatBeginsLateIsWaitedFor) {
  Streams streams = make_streams();
  std::thread late([this, &streams] {
    std::this_thread::sleep_for(700ms);
    server_.emplace(std::move(streams.server));
  });
  const auto opened = Session::open({std::move(streams.client), {}}, Deadline(kLong));
  late.join();
  EXPECT_TRUE(opened) << opened.error().message;
}

// An agent played by the test.
class PlayedAgent : public AgentTest {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    Streams streams = make_streams();
    client_ = std::move(streams.server);
    client_thread_ = std::thread([this, stream = std::move(streams.client)]() mutable {
      auto opened = Session::open({std::move(stream), {}}, Deadline(kLong));
      if (!opened) {
        ran_.status = tl::unexpected(opened.error());
        return;
      }
      Limits limits;
      limits.silence = 300ms;
      ran_ = run(*opened, {"true"}, {}, limits);
    });
    // Its first Hello names the session.
    char bytes[4096];
    ASSERT_TRUE(wait_for(client_.get(), POLLIN, Deadline(kLong)));
    const ssize_t n = ::read(client_.get(), bytes, sizeof bytes);
    reader_.feed({bytes, static_cast<size_t>(n)}, [this](const Frame& frame) {
      EXPECT_EQ(frame.type, FrameType::Hello);
      id_ = frame.session;
    });
    ASSERT_NE(id_, 0U);
  }
  void TearDown() override {
    client_.reset();
    if (client_thread_.joinable()) client_thread_.join();
    AgentTest::TearDown();
  }

  void answer(FrameType type, std::string body) { write(encode({type, id_, std::move(body)})); }
  void welcome() { answer(FrameType::Welcome, Welcome{kVersion, "b"}.body()); }
  const Ran& result() {
    client_thread_.join();
    return ran_;
  }

  uint64_t id_ = 0;
  Ran ran_{ExitStatus{}, {}, {}};
  std::thread client_thread_;
};

TEST_F(PlayedAgent, StaleBytesBeforeTheWelcomeAreSkipped) {
  write(std::string("\x05half a frame\0", 14));
  write(encode({FrameType::Done, id_ + 1, ExitStatus{false, 1}.body()}));
  write(encode({FrameType::Restarted, 0, {}}));
  welcome();
  write(encode({FrameType::Content, id_ + 1, "of another session"}));
  answer(FrameType::Content, "mine");
  answer(FrameType::Done, ExitStatus{false, 0}.body());
  const Ran& ran = result();
  EXPECT_TRUE(ran.status) << ran.status.error().message;
  EXPECT_EQ(ran.out, "mine");
}

TEST_F(PlayedAgent, AnotherVersionIsSaid) {
  answer(FrameType::Welcome, Welcome{kVersion + 1, "b"}.body());
  const Ran& ran = result();
  ASSERT_FALSE(ran.status);
  EXPECT_EQ(ran.status.error().kind, ErrorClass::Unsupported);
}

TEST_F(PlayedAgent, ARestartUnderTheCommandIsAnError) {
  welcome();
  write(encode({FrameType::Restarted, 0, {}}));
  const Ran& ran = result();
  ASSERT_FALSE(ran.status);
  EXPECT_THAT(ran.status.error().message, HasSubstr("restarted"));
}

TEST_F(PlayedAgent, SilenceIsAnError) {
  welcome();
  const Ran& ran = result();
  ASSERT_FALSE(ran.status);
  EXPECT_EQ(ran.status.error().kind, ErrorClass::Unreachable);
  EXPECT_THAT(ran.status.error().message, HasSubstr("no word from the agent"));
}

TEST_F(PlayedAgent, AnEndUnderTheCommandIsAnError) {
  welcome();
  client_.reset();
  const Ran& ran = result();
  ASSERT_FALSE(ran.status);
  EXPECT_EQ(ran.status.error().kind, ErrorClass::Unreachable);
}

TEST_F(PlayedAgent, AMalformedEndIsAnError) {
  welcome();
  answer(FrameType::Done, "x");
  const Ran& ran = result();
  ASSERT_FALSE(ran.status);
  EXPECT_THAT(ran.status.error().message, HasSubstr("malformed"));
}

TEST_F(AgentTest, ANewSessionEndsTheOldOnesCommand) {
  raw();
  const fs::path pid_file = dir_ / "pid";
  write(encode({FrameType::Hello, 1, Hello{}.body()}));
  EXPECT_EQ(next(1).type, FrameType::Welcome);
  write(encode(
      {FrameType::Run, 1,
       RunRequest{{"sh", "-c", "echo $$ > " + pid_file.native() + "; echo go; exec sleep 100"},
                  false,
                  false,
                  {}}
           .body()}));
  EXPECT_EQ(next(1).body, "go\n");
  const pid_t pid = std::stoi(content_of(pid_file));
  // The old client died in the middle of a frame.
  write(encode({FrameType::Content, 1, "lost"}).substr(0, 6));
  write(std::string(1, '\0') + encode({FrameType::Hello, 2, Hello{}.body()}));
  EXPECT_EQ(next(2).type, FrameType::Welcome);
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST_F(AgentTest, RequestsWithoutASessionAreIgnored) {
  raw();
  write(encode({FrameType::Run, 5, RunRequest{{"touch", dir_ / "made"}, false, false, {}}.body()}));
  write(encode({FrameType::Hello, 0, Hello{}.body()}));
  write(encode({FrameType::Run, 0, RunRequest{{"touch", dir_ / "made"}, false, false, {}}.body()}));
  write(encode({FrameType::Hello, 6, Hello{}.body()}));
  EXPECT_EQ(next(6).type, FrameType::Welcome);
  EXPECT_FALSE(fs::exists(dir_ / "made"));
}

TEST_F(AgentTest, ASecondRequestInASessionIsIgnored) {
  raw();
  const auto request = [&](const char* word) {
    return encode({FrameType::Run, 3, RunRequest{{"echo", word}, false, false, {}}.body()});
  };
  write(encode({FrameType::Hello, 3, Hello{}.body()}) + request("one") + request("two"));
  EXPECT_EQ(next(3).type, FrameType::Welcome);
  EXPECT_EQ(next(3).body, "one\n");
  EXPECT_EQ(next(3).type, FrameType::Done);
  write(encode({FrameType::Hello, 4, Hello{}.body()}));
  EXPECT_EQ(next(4).type, FrameType::Welcome);
}

TEST_F(AgentTest, MalformedRequestsAreRefused) {
  raw();
  uint64_t id = 10;
  for (const FrameType type : {FrameType::Run, FrameType::Put, FrameType::Get}) {
    ++id;
    write(encode({FrameType::Hello, id, Hello{}.body()}));
    EXPECT_EQ(next(id).type, FrameType::Welcome);
    write(encode({type, id, "\xff\xff\xff\xff"}));
    const Frame answer = next(id);
    EXPECT_EQ(answer.type, FrameType::Refused);
    EXPECT_EQ(Refusal::parse(answer.body)->error, EBADMSG);
  }
}

TEST_F(AgentTest, FramesThatOnlyAnAgentSendsAreIgnored) {
  raw();
  write(encode({FrameType::Hello, 9, Hello{}.body()}));
  EXPECT_EQ(next(9).type, FrameType::Welcome);
  for (const FrameType type :
       {FrameType::Welcome, FrameType::Errors, FrameType::Done, FrameType::Restarted,
        FrameType::End, FrameType::Signal, FrameType::Window, FrameType::Content})
    write(encode({type, 9, "abcd"}));
  write(encode({FrameType::Run, 9, RunRequest{{"echo", "alive"}, false, false, {}}.body()}));
  EXPECT_EQ(next(9).body, "alive\n");
}

TEST_F(AgentTest, AFileWhoseClientDiesLeavesNothing) {
  raw();
  write(encode({FrameType::Hello, 1, Hello{}.body()}));
  EXPECT_EQ(next(1).type, FrameType::Welcome);
  write(encode({FrameType::Put, 1, FileRequest{dir_ / "file", "file", 0600}.body()}));
  write(encode({FrameType::Content, 1, "half"}));
  const Deadline deadline(kLong);
  ASSERT_TRUE(wait_until(deadline, [&] { return !fs::is_empty(dir_); }));
  client_.reset();
  server_.reset();
  EXPECT_TRUE(fs::is_empty(dir_));
}

TEST(AgentSockets, EveryPortIsUsedOnceAndThenWaitedFor) {
  char name[] = "/tmp/pcilend-ports.XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  const std::string base = std::string(name) + "/agent";
  std::vector<UniqueFd> listeners;
  for (const std::string& path : {base, base + ".1"}) {
    UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(listener.get(), 4), 0);
    listeners.push_back(std::move(listener));
  }
  auto first = connect(base, Deadline(1s));
  auto second = connect(base, Deadline(1s));
  ASSERT_TRUE(first && second);
  const auto third = connect(base, Deadline(100ms));
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().kind, ErrorClass::State);
  EXPECT_THAT(third.error().message, HasSubstr("all 2 agent ports"));
  first = tl::unexpected(Error{});
  EXPECT_TRUE(connect(base, Deadline(1s)));
  const auto none = connect(base + "-none", Deadline(1s));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorClass::NotFound);
  fs::remove_all(name);
}

}  // namespace
}  // namespace pcilend::lab::agent
