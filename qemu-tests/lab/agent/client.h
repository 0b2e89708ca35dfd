// SPDX-License-Identifier: GPL-2.0-or-later
// The client's side of one session with an agent.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "lab/agent/protocol.h"
#include "lab/deadline.h"
#include "pcilend/fd.h"
#include "pcilend/result.h"

namespace pcilend::lab::agent {

// Descriptors and callbacks around a running command. All optional.
struct RunStreams {
  std::function<void(std::string_view)> output;  // stdout (or the terminal) as it comes
  std::function<void(std::string_view)> errors;  // stderr as it comes
  int input = -1;  // read to its end and sent as stdin; -1: the command's stdin is /dev/null
  int interrupt =
      -1;  // eventfd or signalfd: when readable, the command gets SIGINT, the second time SIGKILL
  bool terminal = false;
  std::function<WindowSize()> window;  // asked at the start, and again once `resized` is readable
  int resized = -1;                    // eventfd or signalfd: the terminal's size has changed
};

struct Limits {
  // The whole command may take this long; none by default.
  std::optional<std::chrono::milliseconds> total;
  // The agent says "alive" every second; without a word for this long it is given up.
  std::chrono::milliseconds silence{60'000};
  // Asked about once a second while the agent is silent: what is known to have ended it, or empty.
  std::function<std::string()> obituary;
};

// A stream to one port of an agent, and the lock that keeps other clients off it.
struct Connection {
  UniqueFd stream;
  UniqueFd lock;
};

// Connects to a free port among SOCKET, SOCKET.1, SOCKET.2…; waits until the deadline if all are in
// use. NotFound if there is no such socket.
Result<Connection> connect(const std::string& socket, const Deadline& deadline);

class Session {
 public:
  // Opens a session over a connection; the agent may still be booting. Unreachable if it
  // does not answer by the deadline or `obituary` says that it won't.
  static Result<Session> open(Connection connection, const Deadline& deadline,
                              const std::function<std::string()>& obituary = {});

  // Changes with each boot of the agent's machine.
  [[nodiscard]] const std::string& boot_id() const { return boot_id_; }

  // Each of these is the session's one request.

  // A command that can't be started: NotFound (no such command), Permission or Failure.
  Result<ExitStatus> run(std::vector<std::string> argv, const RunStreams& streams,
                         const Limits& limits);
  // Sends `source`, read to its end, as the file `to.path` (or to.name in that directory).
  Result<> put(int source, const FileRequest& to, const Limits& limits);
  // Writes the remote file's content to `sink`; returns its permission bits.
  Result<uint32_t> get(const std::string& path, int sink, const Limits& limits);

 private:
  explicit Session(Connection connection);

  struct Watch;  // what a request waits for besides the stream

  Result<> send(FrameType type, std::string body);
  // Sends a request.
  Result<> begin(FrameType type, std::string body, const Limits& limits);
  static Error explained(Error error, const Limits& limits);
  Result<> transmit();
  // Reads what is there into frames_.
  Result<> receive();
  Result<> turn(Watch& watch, const Limits& limits);
  Result<ExitStatus> finish(Watch& watch, const Limits& limits,
                            const std::function<Result<>(const Frame&)>& deliver);

  UniqueFd stream_;
  UniqueFd lock_;
  uint64_t id_ = 0;
  std::string boot_id_;
  FrameReader reader_;
  std::vector<Frame> frames_;
  std::string outgoing_;
  Deadline::Clock::time_point last_word_;
};

}  // namespace pcilend::lab::agent
