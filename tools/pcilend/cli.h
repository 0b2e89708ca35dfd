// SPDX-License-Identifier: GPL-2.0-or-later
// The command line: its parser, and what ties a run together.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <iosfwd>
#include <memory>
#include <vector>

#include "command_table.h"
#include "pcilend/pci_names.h"

namespace pcilend {

// The parser of the whole command line; it writes into `options`.
std::unique_ptr<CLI::App> make_parser(Options* options);

// What a run takes from its surroundings.
struct Surroundings {
  Environment environment;
  PciNames names;
  std::function<Result<std::unique_ptr<Client>>()> open_client;
  std::function<void(std::chrono::milliseconds)> sleep;
  std::ostream& out;
  std::ostream& err;
};

// Runs one command line (without the program's name); the exit status of pcilend(8).
int run(Surroundings& surroundings, std::vector<std::string> arguments);

}  // namespace pcilend
