// SPDX-License-Identifier: GPL-2.0-or-later
// The table of commands: what each is called, what it is given, what it runs. A new command is an
// entry here, a function in commands.h, and a paragraph in pcilend.8; tests hold them together.
#pragma once

#include <string_view>
#include <variant>
#include <vector>

#include "commands.h"

namespace pcilend {

// An option of a command, and where in Options its value goes. Without a value name it is a flag;
// where a list is, it can be given several times.
struct CommandOption {
  std::string_view names;  // "-f,--force"
  std::string_view value;  // "SECONDS"
  std::string_view help;
  std::variant<bool Options::*, std::string Options::*, std::optional<std::string> Options::*,
               std::optional<uint32_t> Options::*, std::vector<std::string> Options::*>
      slot;
  std::vector<std::string> choices = {};  // all there are; the first is the default
};

// What a command is given by position.
struct CommandArgument {
  std::string_view name;  // "NODE"; "ID..." takes several
  std::string_view help;
  std::vector<std::string> Options::*slot = &Options::targets;
  bool required = true;
};

struct Command {
  std::string_view group;  // heading in --help
  std::string_view name;
  std::string_view summary;
  std::vector<CommandArgument> arguments;
  std::vector<CommandOption> options;
  // With pcilend.ko; or without, where it can do something without it.
  std::variant<Result<Answer> (*)(Session&, const Options&),
               Result<Answer> (*)(Host&, const Options&)>
      run;
};

const std::vector<Command>& commands();

}  // namespace pcilend
