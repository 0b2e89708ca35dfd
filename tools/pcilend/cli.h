// SPDX-License-Identifier: GPL-2.0-or-later
// A run of pcilend(8): from words to an exit status.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "pcilend/client.h"
#include "pcilend/environment.h"
#include "pcilend/events.h"
#include "pcilend/pci_names.h"

namespace pcilend {

// What a run takes from its surroundings.
struct Surroundings {
  Environment environment;
  PciNames names;
  std::function<Result<std::unique_ptr<Client>>()> open_client;
  std::function<Result<std::unique_ptr<EventStream>>()> open_events;
  std::function<void(std::chrono::milliseconds)> sleep;
  std::function<std::chrono::steady_clock::time_point()> now;
  std::function<std::chrono::system_clock::time_point()> wall_time;
  std::function<Result<>(const std::vector<std::string>& words)> run_program;
  std::function<Result<std::string>(const std::vector<std::string>& words)> read_program;
  bool terminal;  // `err` is one
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
};

// Runs one command line (without the program's name); the exit status of pcilend(8).
int run(Surroundings& surroundings, std::vector<std::string> arguments);

}  // namespace pcilend
