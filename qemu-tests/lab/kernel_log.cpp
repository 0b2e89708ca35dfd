// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/kernel_log.h"

#include <algorithm>
#include <set>

namespace pcilend::lab {
namespace {

struct Pattern {
  const char* kind;
  std::regex expression;
};

// The wording is that of Linux 6.12 and 7.2: lib/dump_stack, kernel/panic.c, kernel/watchdog.c,
// kernel/hung_task.c, kernel/rcu/tree_stall.h, kernel/locking/lockdep.c, mm/kasan/report.c,
// mm/kmemleak.c, lib/ubsan.c, lib/refcount.c, lib/debugobjects.c, kernel/dma/debug.c,
// kernel/workqueue.c, drivers/iommu.
const std::vector<Pattern>& patterns() {
  const auto flags = std::regex::ECMAScript | std::regex::optimize;
  static const std::vector<Pattern> list = {
      {"panic", std::regex("Kernel panic - not syncing", flags)},
      // A checker that has given up: from here on it finds nothing.
      {"blind", std::regex("turning off the locking correctness validator|lockdep is turned off|"
                           "BUG: MAX_[A-Z_]+ too low|ODEBUG disabled|"
                           "DMA-API: .*(disabling|disabled|out of memory)|"
                           "kmemleak: (Cannot allocate|Memory pool empty|.*detector disabled)",
                           flags)},
      {"memory", std::regex("ODEBUG: |BUG: KASAN|BUG: KFENCE|BUG: KMSAN|BUG: KCSAN|UBSAN:", flags)},
      {"memory", std::regex("BUG: Bad page|BUG .*: .*(Poison|Redzone|Object) overwritten", flags)},
      {"memory", std::regex("list_(add|del) corruption|slab.*leaked|Objects remaining", flags)},
      {"leak", std::regex("kmemleak: [1-9][0-9]* new suspected|unreferenced object 0x", flags)},
      {"lockup", std::regex("soft lockup|hard LOCKUP|hung_task:|blocked for more than", flags)},
      {"lockup", std::regex("rcu: INFO: .*stall|self-detected stall|"
                            "kthread starved for|BUG: workqueue lockup",
                            flags)},
      {"lockdep", std::regex("possible (circular|recursive|irq lock inversion)|"
                             "lock order detected|trying to register non-static key|"
                             "workqueue leaked atomic, lock or RCU|"
                             "inconsistent lock state|suspicious RCU usage|"
                             "bad unlock balance|held lock freed|lock held when returning|"
                             "Invalid wait context",
                             flags)},
      {"oops", std::regex("kernel BUG at|Oops:|general protection fault|"
                          "unable to handle (kernel|page fault)|divide error:|invalid opcode:|"
                          "stack segment:|kernel tried to execute",
                          std::regex::ECMAScript | std::regex::optimize | std::regex::icase)},
      {"oops", std::regex("BUG: ", flags)},
      {"warning", std::regex("WARNING: |refcount_t: |scheduling while atomic|"
                             "DMA-API: .*(device driver|mapping sg|overlapping mappings)",
                             flags)},
      {"warning", std::regex("cannot create duplicate filename|nobody cared|"
                             "unlocked secondary bus reset|"
                             "sleeping function called from invalid context",
                             flags)},
      {"iommu fault", std::regex("DMAR: \\[.*fault|DMAR: DRHD: handling fault|"
                                 "DMAR-IR: .*fault|AMD-Vi: Event logged",
                                 flags)},
      {"trace", std::regex("Call Trace:", flags)},
  };
  return list;
}

bool is_expected(const std::string& line, const Expected& expected) {
  return std::any_of(expected.begin(), expected.end(), [&](const std::regex& expression) {
    return std::regex_search(line, expression);
  });
}

// Takes "[…]" off the front, and the blanks behind it, if what is inside fits `inside`.
template <class Inside>
bool take_bracket(std::string_view& line, Inside inside) {
  if (!line.starts_with('[')) return false;
  const size_t end = line.find(']');
  if (end == std::string_view::npos) return false;
  const std::string_view text = line.substr(1, end - 1);
  if (!std::all_of(text.begin(), text.end(), inside)) return false;
  line.remove_prefix(end + 1);
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  return true;
}

}  // namespace

std::string_view log_text(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line.starts_with('<')) {
    const size_t end = line.find('>');
    if (end != std::string_view::npos && end <= 4) line.remove_prefix(end + 1);
  }
  const auto of_time = [](char c) { return (c >= '0' && c <= '9') || c == '.' || c == ' '; };
  const auto of_caller = [&](char c) { return of_time(c) || c == 'T' || c == 'C'; };
  if (take_bracket(line, of_time)) take_bracket(line, of_caller);
  return line;
}

std::vector<LogFinding> scan_kernel_log(std::string_view log, const Expected& expected) {
  std::vector<LogFinding> findings;
  std::set<std::string> seen;
  while (!log.empty()) {
    const size_t end = std::min(log.find('\n'), log.size());
    const std::string line(log_text(log.substr(0, end)));
    log.remove_prefix(std::min(end + 1, log.size()));
    for (const Pattern& pattern : patterns()) {
      if (!std::regex_search(line, pattern.expression)) continue;
      if (seen.insert(line).second && !is_expected(line, expected))
        findings.push_back({pattern.kind, line});
      break;
    }
  }
  return findings;
}

std::string_view log_since(std::string_view log, std::string_view mark) {
  const size_t at = log.rfind(mark);
  if (at == std::string_view::npos) return log;
  const size_t end = log.find('\n', at);
  return end == std::string_view::npos ? std::string_view() : log.substr(end + 1);
}

}  // namespace pcilend::lab
