// SPDX-License-Identifier: GPL-2.0-or-later
#include <nlohmann/json.hpp>

#include "columns.h"
#include "metrics.h"
#include "print.h"
#include "print_config.h"
#include "print_events.h"
#include "print_policy.h"
#include "print_status.h"

namespace pcilend {
namespace {

std::string_view class_name(ErrorClass kind) {
  switch (kind) {
    case ErrorClass::Usage:
      return "usage";
    case ErrorClass::NotFound:
      return "not-found";
    case ErrorClass::State:
      return "state";
    case ErrorClass::Permission:
      return "permission";
    case ErrorClass::Unreachable:
      return "unreachable";
    case ErrorClass::Unsupported:
      return "unsupported";
    default:
      return "failure";
  }
}

struct JsonPrinter {
  const PciNames& names;
  const PrintOptions& options;

  Result<Json> operator()(const NothingAnswer&) const { return Json::object(); }
  Result<Json> operator()(const EmittedAnswer&) const { return Json(); }

  Result<Json> operator()(const FunctionsAnswer& answer) const {
    const auto columns = select_columns(function_columns(), options.columns);
    if (!columns) return tl::unexpected(columns.error());
    return Json{{"functions", json_list(answer.functions, *columns, names)}};
  }

  Result<Json> operator()(const AppearedAnswer& answer) const {
    Json disks = Json::array();
    for (const auto& disk : answer.devices.disks)
      disks.push_back({{"name", disk.name},
                       {"controller", disk.controller.empty() ? Json() : Json(disk.controller)},
                       {"bytes", disk.bytes}});
    return Json{
        {"functions", json_list(std::vector<Function>{answer.function}, function_columns(), names)},
        {"disks", std::move(disks)},
        {"interfaces", answer.devices.interfaces}};
  }

  Result<Json> operator()(const LinksAnswer& answer) const {
    const auto columns = select_columns(link_columns(), options.columns);
    if (!columns) return tl::unexpected(columns.error());
    return Json{{"links", json_list(answer.links, *columns, names)}};
  }

  Result<Json> operator()(const Node& node) const { return Json{{"node", node_json(node)}}; }

  Result<Json> operator()(const HostdevsAnswer& answer) const {
    const auto xml = print_text(answer, names, {});
    if (!xml) return tl::unexpected(xml.error());
    return Json{{"functions", json_list(answer.functions, function_columns(), names)},
                {"xml", *xml}};
  }
  Result<Json> operator()(const MetricsAnswer& answer) const {
    Json counters = Json::object();
    for (const auto& counter : counter_list())
      counters[std::string(counter.name)] = answer.counters.*counter.value;
    return Json{{"node", node_json(answer.node)},
                {"links", json_list(answer.links, link_columns(), names)},
                {"functions", json_list(answer.functions, function_columns(), names)},
                {"segments", json_list(answer.segments, segment_columns(), names)},
                {"counters", std::move(counters)}};
  }
  Result<Json> operator()(const InUseAnswer& answer) const {
    return Json{{"functions", json_list(answer.functions, function_columns(), names)},
                {"disks", json_list(answer.disks, disk_columns(), names)}};
  }
  Result<Json> operator()(const ConfigAnswer& answer) const { return config_json(answer, names); }
  Result<Json> operator()(const SegmentsAnswer& answer) const {
    const auto columns = select_columns(segment_columns(), options.columns);
    if (!columns) return tl::unexpected(columns.error());
    return Json{{"segments", json_list(answer.segments, *columns, names)}};
  }
  Result<Json> operator()(const DisksAnswer& answer) const {
    return Json{{"disks", json_list(answer.disks, disk_columns(), names)}};
  }
  Result<Json> operator()(const StatusAnswer& answer) const { return status_json(answer, names); }
  Result<Json> operator()(const CheckAnswer& answer) const { return check_json(answer); }
  Result<Json> operator()(const HwtestAnswer& answer) const { return hwtest_json(answer, names); }
  Result<Json> operator()(const EventAnswer& answer) const { return event_json(answer, names); }
  Result<Json> operator()(const SnapshotAnswer& answer) const {
    return snapshot_json(answer, names);
  }
  Result<Json> operator()(const RestoreAnswer& answer) const { return policy_json(answer); }
  Result<Json> operator()(const FiltersAnswer& answer) const { return policy_json(answer); }
  Result<Json> operator()(const KindsAnswer& answer) const {
    const auto columns = select_columns(kind_columns(), options.columns);
    if (!columns) return tl::unexpected(columns.error());
    return Json{{"kinds", json_list(answer.kinds, *columns, names)}};
  }
  Result<Json> operator()(const SavedAnswer& answer) const { return policy_json(answer); }
};

}  // namespace

std::string print_json(const Error& error) {
  const Json object{{"schema", kJsonSchema},
                    {"error",
                     {{"class", std::string(class_name(error.kind))},
                      {"status", static_cast<int>(error.kind)},
                      {"message", error.message}}}};
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::string> print_json(const Answer& answer, const PciNames& names,
                               const PrintOptions& options) {
  const auto json = std::visit(JsonPrinter{names, options}, answer);
  if (!json) return tl::unexpected(json.error());
  if (json->is_null()) return std::string();
  Json object{{"schema", kJsonSchema}};
  object.update(*json);
  return object.dump(options.one_line ? -1 : 2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace pcilend
