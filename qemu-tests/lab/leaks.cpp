// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/leaks.h"

#include <fmt/ranges.h>

namespace pcilend::lab {
namespace {

std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

// What stands between the first two quotes.
std::string quoted(std::string_view line) {
  const size_t begin = line.find('"');
  if (begin == std::string_view::npos) return {};
  return std::string(line.substr(begin + 1, line.find('"', begin + 1) - begin - 1));
}

}  // namespace

std::string Leak::text() const {
  return fmt::format("{} by {}: {}", object, comm, fmt::join(trace, " < "));
}

std::vector<Leak> parse_leaks(std::string_view report) {
  std::vector<Leak> leaks;
  bool in_trace = false;
  while (!report.empty()) {
    std::string_view line = take_line(report);
    if (line.starts_with("unreferenced object ")) {
      leaks.push_back({std::string(line), {}, {}});
      in_trace = false;
    } else if (leaks.empty()) {
      continue;
    } else if (line.starts_with("  comm ")) {
      leaks.back().comm = quoted(line);
    } else if (line.starts_with("  backtrace")) {
      in_trace = true;
    } else if (in_trace && line.starts_with("    ")) {
      leaks.back().trace.emplace_back(line.substr(4));
    }
  }
  return leaks;
}

std::vector<LogFinding> checker_findings(std::string_view answer) {
  std::vector<LogFinding> findings;
  std::string_view rest = answer;
  while (rest.starts_with("off: ")) findings.push_back({"blind", std::string(take_line(rest))});
  for (const Leak& leak : parse_leaks(rest)) findings.push_back({"leak", leak.text()});
  return findings;
}

}  // namespace pcilend::lab
