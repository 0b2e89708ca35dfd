// SPDX-License-Identifier: GPL-2.0-or-later
#include "status.h"

#include <fmt/format.h>

#include <algorithm>

#include "text.h"

namespace pcilend {

std::vector<std::string> needs_attention(const StatusAnswer& status) {
  std::vector<std::string> lines;
  if (status.node.id == 0)
    lines.emplace_back("this host has no node id: load the module with node=1 to 65535");
  for (const auto& link : status.links) {
    if (link.state != PCILEND_LINK_UP && std::find(status.ignored.begin(), status.ignored.end(),
                                                   link.adapter) == status.ignored.end())
      lines.push_back(link_trouble(link));
  }
  for (const auto& function : status.functions) {
    if (function.lender == status.node.id && function.state == PCILEND_FUNCTION_QUARANTINED)
      lines.push_back(fmt::format("{} ({}) is quarantined: {}", to_string(function.id),
                                  function.bdf, function.reason));
  }
  return lines;
}

int exit_status(const Answer& answer) {
  if (const auto* const status = std::get_if<StatusAnswer>(&answer))
    return needs_attention(*status).empty() ? 0 : kNeedsAttention;
  if (const auto* const in_use = std::get_if<InUseAnswer>(&answer))
    return in_use->functions.empty() && in_use->disks.empty() ? 0 : kNeedsAttention;
  if (const auto* const restored = std::get_if<RestoreAnswer>(&answer))
    return std::none_of(restored->steps.begin(), restored->steps.end(),
                        [](const policy::Step& s) { return s.outcome == policy::Outcome::Failed; })
               ? 0
               : kNeedsAttention;
  const auto well = [](const std::vector<Finding>& findings) {
    return std::none_of(findings.begin(), findings.end(),
                        [](const Finding& f) { return f.level == Finding::Level::Wrong; })
               ? 0
               : kNeedsAttention;
  };
  if (const auto* const check = std::get_if<CheckAnswer>(&answer)) return well(check->findings);
  if (const auto* const test = std::get_if<HwtestAnswer>(&answer)) return well(test->findings);
  return 0;
}

}  // namespace pcilend
