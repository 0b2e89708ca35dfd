// SPDX-License-Identifier: GPL-2.0-or-later
// What the checkers of a debug kernel say when they are asked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lab/kernel_log.h"

namespace pcilend::lab {

// One object that nothing points to.
struct Leak {
  std::string object;              // "unreferenced object 0xffff888003fa3a00 (size 64):"
  std::string comm;                // of the process that allocated it
  std::vector<std::string> trace;  // "pcilend_peer_add+0x40/0x60 [pcilend]", the innermost first

  // All of it, in one line.
  [[nodiscard]] std::string text() const;

  bool operator==(const Leak&) const = default;
};

// Reads /sys/kernel/debug/kmemleak.
std::vector<Leak> parse_leaks(std::string_view report);

// The findings in what Host asks for: lines "off: CHECKER", or kmemleak's report.
std::vector<LogFinding> checker_findings(std::string_view answer);

}  // namespace pcilend::lab
