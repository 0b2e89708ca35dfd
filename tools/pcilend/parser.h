// SPDX-License-Identifier: GPL-2.0-or-later
// The parser that the table of commands makes.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

#include "command_table.h"

namespace pcilend {

// It writes into `options`.
std::unique_ptr<CLI::App> make_parser(Options* options);

}  // namespace pcilend
