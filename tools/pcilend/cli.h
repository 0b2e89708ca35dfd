// SPDX-License-Identifier: GPL-2.0-or-later
// The command line: the table of commands, its parser, and what ties a run together.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string_view>
#include <vector>

#include "commands.h"
#include "pcilend/pci_names.h"

namespace pcilend {

// Which options a command takes besides --help.
enum CommandOption : unsigned {
  kJson = 1u << 0,
  kColumns = 1u << 1,
  kForce = 1u << 2,
  kFrontend = 1u << 3,
  kOwner = 1u << 4,
};

struct Command {
  std::string_view group;  // heading in --help
  std::string_view name;
  std::string_view summary;
  // What it is given: "NODE", "ID"; "ID..." takes several; empty: nothing.
  std::string_view target;
  std::string_view target_help;
  unsigned options;
  std::string_view force_help;
  Result<Answer> (*run)(Session&, const Options&);
};

const std::vector<Command>& commands();

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
