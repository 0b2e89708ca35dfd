// SPDX-License-Identifier: GPL-2.0-or-later
// Choosing functions as lspci's -s and -d do: libpci parses and matches.
#pragma once

#include <string>

#include "pcilend/policy/local.h"
#include "pcilend/result.h"

namespace pcilend::policy {

struct Pattern {
  std::string slot;    // -s: [[[[DOMAIN]:]BUS]:][DEVICE][.[FUNCTION]]
  std::string device;  // -d: [VENDOR]:[DEVICE][:CLASS[:INTERFACE]]

  bool operator==(const Pattern&) const = default;
};

// Usage with what is wrong, and the syntax.
Result<> check_slot(const std::string& slot);
Result<> check_device(const std::string& device);

// Both parts of a checked pattern must match; an empty one matches everything.
bool matches(const Pattern& pattern, const LocalFunction& function);

// As options of a command: "-s 00:10.0 -d 1b36:0010".
std::string to_string(const Pattern& pattern);

}  // namespace pcilend::policy
