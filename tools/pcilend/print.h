// SPDX-License-Identifier: GPL-2.0-or-later
// From answers to what goes to stdout.
#pragma once

#include <optional>
#include <string>

#include "answer.h"
#include "pcilend/pci_names.h"
#include "pcilend/result.h"

namespace pcilend {

struct PrintOptions {
  std::optional<std::string> columns;  // separated by commas; else the answer's usual form
  bool no_headings = false;            // tables without their first line
  bool one_line = false;               // JSON without line breaks inside
};

Result<std::string> print_text(const Answer& answer, const PciNames& names,
                               const PrintOptions& options);

// What section JSON of pcilend(8) promises of the objects; another number, if something there no
// longer holds.
inline constexpr int kJsonSchema = 1;

// What stdout has when a command with --json fails.
std::string print_json(const Error& error);

// One object, ended by a newline; empty where all was printed already.
Result<std::string> print_json(const Answer& answer, const PciNames& names,
                               const PrintOptions& options);

}  // namespace pcilend
