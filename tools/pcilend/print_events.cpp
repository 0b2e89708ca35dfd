// SPDX-License-Identifier: GPL-2.0-or-later
#include "print_events.h"

#include <fmt/chrono.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "text.h"

namespace pcilend {
namespace {

// ISO 8601, UTC, milliseconds.
std::string time_text(WallTime time) {
  const auto since = std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(static_cast<std::time_t>(seconds.count())),
                     (since - seconds).count());
}

WallTime audit_time(const Audit& audit) {
  return WallTime(
      std::chrono::duration_cast<WallTime::duration>(std::chrono::nanoseconds(audit.time_ns)));
}

std::string link_text(const Link& link) {
  std::string text = fmt::format("{}: {}", link_title(link), link_state_name(link.state));
  if (link.peer) text += fmt::format(", node {}", *link.peer);
  if (link.connected) text += ", connected";
  if (link.peer_connected) text += ", peer connected";
  if (!link.reason.empty()) text += ": " + link.reason;
  return text;
}

std::string audit_text(const Audit& audit) {
  std::string text = audit.uid    ? fmt::format("uid {}", *audit.uid)
                     : audit.node ? fmt::format("node {}", *audit.node)
                                  : "pcilend";
  text += ": " + audit.action;
  if (audit.function) text += " " + to_string(*audit.function);
  if (audit.target) text += " " + to_string(*audit.target);
  if (audit.target_node) text += fmt::format(" node {}", *audit.target_node);
  if (audit.result == 0) return text + ": done";
  return text + fmt::format(": not done: {}", std::strerror(-audit.result));
}

// Of this host's it tells whom an offer is to; of others', over which adapter.
std::string segment_text(const Segment& segment, bool gone) {
  const std::string id = to_string(segment.id);
  if (!segment.adapter.empty())
    return fmt::format("{}: segment {} over {}", id,
                       gone ? "no longer connected" : segment_state_name(segment.state),
                       segment.adapter);
  if (gone) return fmt::format("{}: segment ended", id);
  if (segment.offers.empty())
    return fmt::format("{}: segment {}", id, segment_state_name(segment.state));
  const SegmentOffer& offer = segment.offers.front();
  if (offer.withdrawn)
    return fmt::format("{}: segment withdrawn from node {}{}", id, offer.node,
                       offer.connections ? ", which has not confirmed it" : "");
  return fmt::format("{}: segment offered to node {}{}, {} {}", id, offer.node,
                     offer.read_only ? " read-only" : "", offer.connections,
                     offer.connections == 1 ? "connection" : "connections");
}

std::string what_happened(const EventAnswer& answer, const PciNames& names) {
  const Event& event = answer.event;
  if (event.audit) return audit_text(*event.audit);
  if (event.link) return link_text(*event.link);
  if (event.segment) return segment_text(*event.segment, event.kind == PCILEND_EVENT_SEGMENT_GONE);
  if (!event.function) return fmt::format("event {} of a newer kernel", event.kind);
  const Function& function = *event.function;
  switch (event.kind) {
    case PCILEND_EVENT_FUNCTION_GONE:
      return fmt::format("{}: no longer offered", to_string(function.id));
    case PCILEND_EVENT_LEASE_LOST:
      return fmt::format("{}: lease lost", to_string(function.id));
    case PCILEND_EVENT_RECALL:
      return fmt::format("{}: its lender takes it back in {}: return it", to_string(function.id),
                         seconds_text(function.recall_ms.value_or(0)));
    case PCILEND_EVENT_WAS_RESET:
      return fmt::format("{}: was reset by its lender without being asked", to_string(function.id));
    default:
      return function_line(function, names, answer.this_node);
  }
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json audit_json(const Audit& audit) {
  return {{"time", time_text(audit_time(audit))},
          {"uid", or_null(audit.uid)},
          {"node", or_null(audit.node)},
          {"action", audit.action},
          {"function", audit.function ? Json(to_string(*audit.function)) : Json()},
          {"target_node", or_null(audit.target_node)},
          {"target", audit.target ? Json(to_string(*audit.target)) : Json()},
          {"result", audit.result}};
}

template <class T>
Json one(const T& thing, const std::vector<Column<T>>& columns, const PciNames& names) {
  return json_list(std::vector<T>{thing}, columns, names).front();
}

}  // namespace

std::string event_text(const EventAnswer& answer, const PciNames& names) {
  const WallTime time = answer.event.audit ? audit_time(*answer.event.audit) : answer.time;
  return time_text(time) + " " + what_happened(answer, names) + "\n";
}

Json event_json(const EventAnswer& answer, const PciNames& names) {
  Json object = {{"time", time_text(answer.time)},
                 {"event", std::string(event_name(answer.event.kind))}};
  if (answer.event.link) object["link"] = one(*answer.event.link, link_columns(), names);
  if (answer.event.function)
    object["function"] = one(*answer.event.function, function_columns(), names);
  if (answer.event.segment)
    object["segment"] = one(*answer.event.segment, segment_columns(), names);
  if (answer.event.audit) object["audit"] = audit_json(*answer.event.audit);
  return object;
}

std::string snapshot_text(const SnapshotAnswer& answer, const PciNames& names) {
  std::string text = time_text(answer.time) + " events were lost; this is the state now:\n";
  for (const auto& link : answer.links) text += "  " + link_text(link) + "\n";
  for (const auto& function : answer.functions)
    text += "  " + function_line(function, names, answer.this_node) + "\n";
  for (const auto& segment : answer.segments)
    text +=
        fmt::format("  {}: segment {}\n", to_string(segment.id), segment_state_name(segment.state));
  return text;
}

Json snapshot_json(const SnapshotAnswer& answer, const PciNames& names) {
  return {{"time", time_text(answer.time)},
          {"event", "state"},
          {"lost", answer.lost},
          {"links", json_list(answer.links, link_columns(), names)},
          {"functions", json_list(answer.functions, function_columns(), names)},
          {"segments", json_list(answer.segments, segment_columns(), names)}};
}

}  // namespace pcilend
