// SPDX-License-Identifier: GPL-2.0-or-later
#include "print_policy.h"

#include <fmt/ranges.h>

namespace pcilend {
namespace {

using policy::Action;
using policy::Audience;
using policy::Outcome;
using Json = nlohmann::ordered_json;

std::string audience_text(const Audience& audience) {
  if (audience.all) return "all nodes";
  if (audience.nodes.empty()) return "no node";
  return fmt::format("{} {}", audience.nodes.size() == 1 ? "node" : "nodes",
                     fmt::join(audience.nodes, ", "));
}

template <class T>
Json text_or_null(const std::optional<T>& value) {
  return value ? Json(to_string(*value)) : Json();
}

Json or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json audience_json(const Audience& audience) {
  return audience.all ? Json("all") : Json(audience.nodes);
}

}  // namespace

std::string describe(const policy::Step& step) {
  const std::string bdf = step.address ? to_string(*step.address) : std::string();
  switch (step.action) {
    case Action::Find:
      return "find " + (step.uuid ? to_string(*step.uuid) : bdf);
    case Action::RemoveKind:
      return fmt::format("remove kind '{}'", step.kind);
    case Action::AddKind:
      return fmt::format("make kind '{}'", step.kind);
    case Action::Connect:
      return fmt::format("connect node {}{}", step.node,
                         step.adapter ? " and pin it to " + to_string(*step.adapter) : "");
    case Action::Add:
      return fmt::format("add {}{}", bdf, step.id ? " as " + to_string(*step.id) : "");
    case Action::Label:
      return step.label.empty() ? fmt::format("label {} with nothing", bdf)
                                : fmt::format("label {} '{}'", bdf, step.label);
    case Action::Allow:
      return fmt::format("allow {} to {}", bdf, audience_text(step.allow));
    case Action::Available:
      return fmt::format("make {} available", bdf);
    case Action::Borrow:
      return fmt::format("borrow {}",
                         step.id ? to_string(*step.id) : to_string(step.uuid.value_or(Uuid{})));
    case Action::Unavailable:
      break;
  }
  return fmt::format("make {} unavailable", bdf);
}

std::string policy_text(const RestoreAnswer& answer) {
  if (answer.steps.empty()) return "nothing to do: all is as configured\n";
  std::string text;
  for (const auto& step : answer.steps) {
    const std::string what = describe(step);
    if (step.outcome == Outcome::Planned) text += fmt::format("would {}\n", what);
    if (step.outcome == Outcome::Done)
      text +=
          fmt::format("{}: done{}\n", what, step.reason.empty() ? "" : ", though " + step.reason);
    if (step.outcome == Outcome::LeftAlone)
      text += fmt::format("{}: left alone: {}\n", what, step.reason);
  }
  return text;
}

std::string policy_text(const FiltersAnswer& answer) {
  std::string text;
  for (const auto& filter : answer.filters) {
    text += to_string(filter.pattern);
    if (filter.label) text += fmt::format(", label '{}'", *filter.label);
    if (filter.allow) text += fmt::format(", seen by {}", audience_text(*filter.allow));
    if (filter.force) text += ", by force";
    text += fmt::format(" ({})\n", filter.place);
  }
  return text;
}

std::string policy_text(const SavedAnswer& answer) {
  if (!answer.text.empty()) return answer.text;
  return fmt::format("{} connection{} and {} function{} saved in {}\n", answer.connections,
                     answer.connections == 1 ? "" : "s", answer.functions,
                     answer.functions == 1 ? "" : "s", answer.file);
}

Json policy_json(const RestoreAnswer& answer) {
  Json steps = Json::array();
  for (const auto& step : answer.steps)
    steps.push_back({{"action", name_of(step.action)},
                     {"outcome", name_of(step.outcome)},
                     {"kind", or_null(step.kind)},
                     {"node", step.action == Action::Connect ? Json(step.node) : Json()},
                     {"adapter", text_or_null(step.adapter)},
                     {"bdf", text_or_null(step.address)},
                     {"uuid", text_or_null(step.uuid)},
                     {"id", text_or_null(step.id)},
                     {"label", step.action == Action::Label ? Json(step.label) : Json()},
                     {"allow", step.action == Action::Allow ? audience_json(step.allow) : Json()},
                     {"place", or_null(step.place)},
                     {"reason", or_null(step.reason)}});
  return {{"dry_run", answer.dry_run}, {"steps", std::move(steps)}};
}

Json policy_json(const FiltersAnswer& answer) {
  Json filters = Json::array();
  for (const auto& filter : answer.filters)
    filters.push_back({{"kind", name_of(filter.kind)},
                       {"slot", or_null(filter.pattern.slot)},
                       {"device", or_null(filter.pattern.device)},
                       {"label", filter.label ? Json(*filter.label) : Json()},
                       {"allow", filter.allow ? audience_json(*filter.allow) : Json()},
                       {"force", filter.force},
                       {"place", filter.place}});
  return {{"filters", std::move(filters)}};
}

Json policy_json(const SavedAnswer& answer) {
  Json json{
      {"file", answer.file}, {"connections", answer.connections}, {"functions", answer.functions}};
  if (!answer.text.empty()) json["configuration"] = Json::parse(answer.text);
  return json;
}

}  // namespace pcilend
