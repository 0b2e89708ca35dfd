// SPDX-License-Identifier: GPL-2.0-or-later
// Finds in a kernel log what must not be there.
#pragma once

#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace pcilend::lab {

// A line of a kernel log that reports a fault, and what kind.
struct LogFinding {
  std::string kind;  // "warning", "oops", "lockup", "lockdep", "memory", "iommu fault", …
  std::string line;  // without priority and time

  bool operator==(const LogFinding&) const = default;
};

// What a scenario expects to see: findings whose line matches any of these don't count.
using Expected = std::vector<std::regex>;

// Scans a log as dmesg or a serial console gives it, one finding for each faulty line. Equal lines
// are one finding.
std::vector<LogFinding> scan_kernel_log(std::string_view log, const Expected& expected = {});

// A line without the "<4>" and "[   12.345678]" (and "[ T123]") in front.
std::string_view log_text(std::string_view line);

// What stands behind the last line that contains `mark`; all of it if there is none.
std::string_view log_since(std::string_view log, std::string_view mark);

}  // namespace pcilend::lab
