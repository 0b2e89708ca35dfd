// SPDX-License-Identifier: GPL-2.0-or-later
// A client of QEMU's machine protocol (QMP).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lab/deadline.h"
#include "lab/json_lines.h"
#include "pcilend/fd.h"
#include "pcilend/result.h"

namespace pcilend::lab {

class Qmp {
 public:
  // Connects and leaves negotiation mode. QEMU serves one client: waits until it is free.
  static Result<Qmp> connect(const std::string& socket, const Deadline& deadline);

  // Runs a command; what QEMU returns. Its refusal is a Failure with QEMU's words.
  Result<nlohmann::json> execute(const std::string& command, nlohmann::json arguments = {});

  // Waits for an event of that name; events before the last execute() don't count.
  Result<> wait_for_event(const std::string& name, const Deadline& deadline);

 private:
  Qmp(UniqueFd stream, UniqueFd lock) : lines_(std::move(stream)), lock_(std::move(lock)) {}

  JsonLines lines_;
  UniqueFd lock_;
  std::vector<nlohmann::json> events_;
};

}  // namespace pcilend::lab
