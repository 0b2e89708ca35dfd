// SPDX-License-Identifier: GPL-2.0-or-later
// The agent's side of one port: one session at a time.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "lab/agent/child.h"
#include "lab/agent/protocol.h"
#include "pcilend/fd.h"

namespace pcilend::lab::agent {

struct ServerConfig {
  std::string boot_id;
  // A virtio-serial port comes back when its host connects again; a socket ends for good.
  bool reconnects = false;
  std::chrono::milliseconds alive_every{1000};
  // For how long nobody may be at a port that reconnects before its session ends.
  std::chrono::milliseconds gone_after{500};
};

// A file that a client sends: beside its place until it is whole.
class IncomingFile {
 public:
  static tl::expected<IncomingFile, Refusal> create(const FileRequest& request);
  IncomingFile(IncomingFile&& other) noexcept = default;
  IncomingFile& operator=(IncomingFile&&) = delete;
  ~IncomingFile();

  tl::expected<void, Refusal> append(std::string_view bytes);
  tl::expected<void, Refusal> finish();

 private:
  IncomingFile(UniqueFd fd, std::string aside, std::string path, uint32_t mode)
      : fd_(std::move(fd)), aside_(std::move(aside)), path_(std::move(path)), mode_(mode) {}

  UniqueFd fd_;
  std::string aside_;
  std::string path_;
  uint32_t mode_;
};

class PortServer {
 public:
  // `port` must be non-blocking.
  PortServer(UniqueFd port, ServerConfig config);

  // Serves sessions; returns when the stream has ended for good (never for a port that
  // reconnects, unless it fails).
  void run();

 private:
  using Clock = std::chrono::steady_clock;

  void wait();
  bool receive();
  void transmit();
  void hung_up();

  void handle(Frame frame);
  void begin(const Frame& frame);
  void start(const Frame& frame);
  void accept_content(std::string_view bytes);
  void finish_input();
  void send(FrameType type, std::string body = {});
  void refuse(const Refusal& refusal);
  void end_session();

  ssize_t forward(UniqueFd& from, FrameType type, size_t most);
  void forward_input();
  void forward_rest();

  UniqueFd port_;
  UniqueFd wakeups_;  // epoll, edge-triggered, on port_
  ServerConfig config_;
  FrameReader reader_;
  std::string outgoing_;
  Clock::time_point next_alive_;
  std::optional<Clock::time_point> gone_since_;  // nobody is at the port

  uint64_t session_ = 0;
  bool used_ = false;  // the session has made its request
  std::optional<Child> child_;
  std::string child_input_;
  bool child_input_ends_ = false;
  std::optional<IncomingFile> incoming_;
  UniqueFd outgoing_file_;
};

}  // namespace pcilend::lab::agent
