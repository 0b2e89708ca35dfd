// SPDX-License-Identifier: GPL-2.0-or-later
// The sockets of a fabric in one directory: one a adapter for QEMU, one for control.
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "control.h"
#include "event_loop.h"
#include "fabric.h"
#include "pcilend/fd.h"
#include "pcilend/result.h"

namespace pcilend::fabric {

// A listening Unix socket; its file goes with it.
class Listener {
 public:
  static Result<Listener> create(const std::filesystem::path& path);
  Listener(Listener&&) = default;
  Listener& operator=(Listener&&) = delete;
  ~Listener();

  [[nodiscard]] int fd() const { return fd_.get(); }
  // Empty if nobody waits.
  [[nodiscard]] UniqueFd accept() const;

 private:
  Listener(UniqueFd fd, std::filesystem::path path) : fd_(std::move(fd)), path_(std::move(path)) {}

  UniqueFd fd_;
  std::filesystem::path path_;
};

// One client of the control socket: requests are carried out one after another.
class ControlClient {
 public:
  ControlClient(UniqueFd fd, Fabric& fabric) : fd_(std::move(fd)), fabric_(fabric) {}

  [[nodiscard]] int fd() const { return fd_.get(); }
  // Takes input, gives output; false when the client is done with or broke the protocol.
  bool receive();
  bool flush();
  // The events to wait for.
  [[nodiscard]] uint32_t interest() const;

 private:
  void next_request();
  void answer(const nlohmann::json& answer);

  UniqueFd fd_;
  Fabric& fabric_;
  std::string input_;
  std::string output_;
  bool busy_ = false;   // a request is being carried out
  bool ended_ = false;  // the client sends no more
  std::unique_ptr<Work> work_;
};

class Server {
 public:
  // Listens in `directory` (made if it isn't there) for every adapter and for control. Fails if
  // another fabric is alive there.
  static Result<std::unique_ptr<Server>> create(const std::filesystem::path& directory,
                                                Fabric& fabric, EventLoop& loop, Log& log);
  ~Server();

 private:
  Server(Fabric& fabric, EventLoop& loop, Log& log) : fabric_(fabric), loop_(loop), log_(log) {}

  Result<> listen(const std::filesystem::path& path, std::function<void(UniqueFd)> accepted);
  void connect_host(Adapter& adapter, UniqueFd socket);
  void on_host(Adapter& adapter, uint32_t events);
  void drop_host(Adapter& adapter, const std::string& why);
  void connect_control(UniqueFd socket);
  void on_control(int fd, uint32_t events);
  // Sends what this round produced.
  void flush();

  Fabric& fabric_;
  EventLoop& loop_;
  Log& log_;
  std::vector<Listener> listeners_;
  std::unordered_map<int, std::unique_ptr<ControlClient>> clients_;
};

}  // namespace pcilend::fabric
