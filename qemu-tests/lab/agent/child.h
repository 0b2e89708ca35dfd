// SPDX-License-Identifier: GPL-2.0-or-later
// A command that the agent runs: a process group of its own, with pipes or a terminal.
#pragma once

#include <sys/types.h>

#include <tl/expected.hpp>

#include "lab/agent/protocol.h"
#include "pcilend/fd.h"

namespace pcilend::lab::agent {

class Child {
 public:
  // Starts the command; a Refusal says why it can't be. Descriptors are non-blocking.
  static tl::expected<Child, Refusal> start(const RunRequest& request);

  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  // Ends the process group if the command still runs: SIGTERM, a second later SIGKILL.
  ~Child();

  // It runs on a terminal: `output` is that, `errors` is closed.
  [[nodiscard]] bool terminal() const { return terminal_; }

  // Readable when the command has ended.
  [[nodiscard]] int ended() const { return ended_.get(); }

  // Takes the status of a command that has ended.
  ExitStatus reap();

  void signal(int number) const;
  void resize(const WindowSize& window) const;

  UniqueFd input;   // its stdin; closed if it has none
  UniqueFd output;  // its stdout, or its terminal
  UniqueFd errors;  // its stderr; closed on a terminal

 private:
  Child(pid_t pid, UniqueFd ended) : pid_(pid), ended_(std::move(ended)) {}

  pid_t pid_ = -1;
  bool terminal_ = false;
  UniqueFd ended_;
};

}  // namespace pcilend::lab::agent
