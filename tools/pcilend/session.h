// SPDX-License-Identifier: GPL-2.0-or-later
// What a command has at hand while it runs, and what its user asked for.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pcilend/client.h"
#include "pcilend/environment.h"

namespace pcilend {

// The command line after parsing; a command uses what its entry in the command table offers.
struct Options {
  std::vector<std::string> targets;  // functions or nodes
  bool json = false;
  std::optional<std::string> columns;
  bool no_headings = false;
  bool force = false;
  std::string frontend;
  std::string owner;
};

struct Session {
  Client& client;
  const Environment& environment;
  // One line on stderr that does not stop the command.
  std::function<void(std::string_view)> warn;
  std::function<void(std::chrono::milliseconds)> sleep;
};

}  // namespace pcilend
