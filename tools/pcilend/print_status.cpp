// SPDX-License-Identifier: GPL-2.0-or-later
#include "print_status.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "print.h"
#include "status.h"
#include "text.h"

namespace pcilend {
namespace {

using Level = Finding::Level;

struct Parts {
  size_t links_up = 0;
  std::map<uint32_t, size_t> lent;  // functions of this host by state
  std::vector<Function> leases;     // of which this host is a party
  size_t borrowed = 0;
};

Parts parts_of(const StatusAnswer& answer) {
  Parts parts;
  const uint32_t node = answer.node.id;
  parts.links_up =
      static_cast<size_t>(std::count_if(answer.links.begin(), answer.links.end(),
                                        [](const Link& l) { return l.state == PCILEND_LINK_UP; }));
  for (const auto& f : answer.functions) {
    const bool ours = f.lender == node;
    const bool borrowed = !ours && f.borrower == node;
    if (ours) ++parts.lent[f.state];
    if (borrowed) ++parts.borrowed;
    if (borrowed || (ours && f.borrower)) parts.leases.push_back(f);
  }
  return parts;
}

std::string states_text(const std::map<uint32_t, size_t>& states) {
  std::vector<std::string> words;
  for (const auto& [state, count] : states)
    words.push_back(fmt::format("{} {}", count, function_state_name(state)));
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

std::string_view level_name(Level level) {
  switch (level) {
    case Level::Ok:
      return "ok";
    case Level::Note:
      return "note";
    default:
      return "error";
  }
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& finding : findings) {
    std::string level(level_name(finding.level));
    if (finding.level == Level::Wrong) level = "WRONG";
    rows.push_back({std::move(level), finding.subject,
                    finding.text + (finding.cure.empty() ? "" : ": " + finding.cure)});
  }
  return align(rows);
}

Json findings_json(const std::vector<Finding>& findings) {
  Json list = Json::array();
  size_t errors = 0;
  for (const auto& finding : findings) {
    errors += finding.level == Level::Wrong;
    list.push_back({{"level", std::string(level_name(finding.level))},
                    {"subject", finding.subject},
                    {"text", finding.text},
                    {"hint", finding.cure.empty() ? Json() : Json(finding.cure)}});
  }
  return {{"errors", errors}, {"findings", list}};
}

}  // namespace

std::string status_text(const StatusAnswer& answer, const PciNames& names) {
  const Parts parts = parts_of(answer);
  std::string text =
      align({{"node:", std::to_string(answer.node.id)},
             {"links:", fmt::format("{} of {} up", parts.links_up, answer.links.size())},
             {"lent:", states_text(parts.lent)},
             {"borrowed:", std::to_string(parts.borrowed)}});
  for (const auto& function : parts.leases)
    text += "  " + function_line(function, names, answer.node.id) + "\n";
  const auto lines = needs_attention(answer);
  if (lines.empty()) return text + "all is well\n";
  text += "needs attention:\n";
  for (const auto& line : lines) text += "  " + line + "\n";
  return text;
}

Json status_json(const StatusAnswer& answer, const PciNames& names) {
  const Parts parts = parts_of(answer);
  Json states = Json::object();
  for (uint32_t state = PCILEND_FUNCTION_ADDED; state <= PCILEND_FUNCTION_QUARANTINED; ++state) {
    const auto found = parts.lent.find(state);
    states[std::string(function_state_name(state))] = found == parts.lent.end() ? 0 : found->second;
  }
  return {{"status",
           {{"node", node_json(answer.node)},
            {"links_up", parts.links_up},
            {"links", answer.links.size()},
            {"lent", states},
            {"borrowed", parts.borrowed},
            {"leases", json_list(parts.leases, function_columns(), names)},
            {"attention", needs_attention(answer)}}}};
}

std::string check_text(const CheckAnswer& answer) {
  return findings_text(answer.findings);
}

Json check_json(const CheckAnswer& answer) {
  return {{"check", findings_json(answer.findings)}};
}

Result<std::string> hwtest_text(const HwtestAnswer& answer, const PciNames& names) {
  if (!answer.command.empty()) return fmt::format("on node {}: {}\n", answer.node, answer.command);
  const auto link = print_text(LinksAnswer{{answer.link}, Detail::Full}, names, {});
  if (!link) return link;
  std::vector<std::vector<std::string>> rows;
  for (const auto& measure : answer.measures)
    rows.push_back({measure.what, fmt::format("{:.2f} {}", measure.value, measure.unit)});
  return fmt::format("{}\n{}\n{}", *link, align(rows), findings_text(answer.findings));
}

Json hwtest_json(const HwtestAnswer& answer, const PciNames& names) {
  Json test = findings_json(answer.findings);
  test["node"] = answer.node;
  test["command"] = answer.command.empty() ? Json() : Json(answer.command);
  test["link"] = json_list(std::vector<Link>{answer.link}, link_columns(), names).at(0);
  test["measures"] = Json::array();
  for (const auto& measure : answer.measures)
    test["measures"].push_back(
        {{"what", measure.what}, {"value", measure.value}, {"unit", measure.unit}});
  return {{"hwtest", std::move(test)}};
}

}  // namespace pcilend
