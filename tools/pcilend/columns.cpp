// SPDX-License-Identifier: GPL-2.0-or-later
#include "columns.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace pcilend {
namespace {

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

std::string hex(uint64_t value, int digits) {
  return fmt::format("{:0{}x}", value, digits);
}

uint16_t class_code(const Function& f) {
  return static_cast<uint16_t>(f.class_revision >> 16);
}

Json bars(const Function& function) {
  Json list = Json::array();
  for (const auto& bar : function.bars)
    list.push_back({{"index", bar.index},
                    {"size", bar.size},
                    {"type", bar.flags & kBarIo ? "io" : "memory"},
                    {"bits", bar.flags & kBarMem64 ? 64 : 32},
                    {"prefetchable", (bar.flags & kBarPrefetch) != 0}});
  return list;
}

Json or_null(const std::optional<PciAddress>& place) {
  return place ? Json(to_string(*place)) : Json();
}

Json or_null(const std::optional<Uuid>& uuid) {
  return uuid ? Json(to_string(*uuid)) : Json();
}

// An address, as people write them.
Json address(const std::optional<uint64_t>& value) {
  return value ? Json(fmt::format("0x{:x}", *value)) : Json();
}

Json windows(const Link& link) {
  Json list = Json::array();
  for (const auto& window : link.windows)
    list.push_back({{"index", window.index},
                    {"size", window.size},
                    {"size_max", window.size_max},
                    {"address_align", window.address_align},
                    {"size_align", window.size_align}});
  return list;
}

Json regions(const Link& link) {
  Json list = Json::array();
  for (const auto& region : link.regions)
    list.push_back({{"kind", std::string(region_kind_name(region.kind))},
                    {"iova", address(region.iova)},
                    {"size", region.size},
                    {"window", region.window},
                    {"used", or_null(region.used)}});
  return list;
}

// The functions that are lent with it, as a set.
Json set(const Function& f) {
  Json list = Json::array();
  for (const auto& member : f.members)
    list.push_back({{"bdf", member.bdf},
                    {"id", member.id ? Json(to_string(*member.id)) : Json()},
                    {"state", std::string(function_state_name(member.state))}});
  return list;
}

// Functions whose BARs it reaches by DMA.
Json reaches(const Function& f) {
  Json list = Json::array();
  for (const uint32_t id : f.reaches) list.push_back(to_string(FunctionId{id}));
  return list;
}

// Who shares it with its borrower, the manager.
Json clients(const Function& f) {
  Json list = Json::array();
  for (const auto& client : f.clients)
    list.push_back({{"node", client.node},
                    {"lease", client.lease},
                    {"state", std::string(client_state_name(client.state))}});
  return list;
}

// The nodes that may connect it, or have it still.
Json offers(const Segment& s) {
  Json list = Json::array();
  for (const auto& offer : s.offers)
    list.push_back({{"node", offer.node},
                    {"adapter", offer.adapter},
                    {"read_only", offer.read_only},
                    {"withdrawn", offer.withdrawn},
                    {"connections", offer.connections}});
  return list;
}

using F = const Function&;
using L = const Link&;
using K = const policy::PresentKind&;
using S = const Segment&;
using D = const nvme::DiskRecord&;
using N = const PciNames&;

}  // namespace

const std::vector<Column<Function>>& function_columns() {
  static const std::vector<Column<Function>> columns{
      {"id", [](F f, N) -> Json { return to_string(f.id); }},
      {"uuid", [](F f, N) -> Json { return to_string(f.uuid); }},
      {"lender", [](F f, N) -> Json { return f.lender; }},
      {"bdf", [](F f, N) { return or_null(f.bdf); }},
      {"state", [](F f, N) -> Json { return std::string(function_state_name(f.state)); }},
      {"class", [](F f, N names) -> Json { return names.device_class(class_code(f)); }},
      {"vendor", [](F f, N names) -> Json { return names.vendor(f.vendor); }},
      {"device", [](F f, N names) -> Json { return names.device(f.vendor, f.device); }},
      {"class_id", [](F f, N) -> Json { return hex(f.class_revision >> 8, 6); }},
      {"vendor_id", [](F f, N) -> Json { return hex(f.vendor, 4); }},
      {"device_id", [](F f, N) -> Json { return hex(f.device, 4); }},
      {"subsystem_vendor_id", [](F f, N) -> Json { return hex(f.subsystem_vendor, 4); }},
      {"subsystem_device_id", [](F f, N) -> Json { return hex(f.subsystem_device, 4); }},
      {"revision", [](F f, N) -> Json { return hex(f.class_revision & 0xff, 2); }},
      {"driver", [](F f, N) { return or_null(f.driver); }},
      {"borrower", [](F f, N) { return or_null(f.borrower); }},
      {"lease", [](F f, N) { return or_null(f.lease); }},
      {"frontend", [](F f, N) { return or_null(f.frontend); }},
      {"owner", [](F f, N) { return or_null(f.owner); }},
      {"virtual_bdf", [](F f, N) { return or_null(f.virtual_address); }},
      {"address", [](F f, N) { return or_null(place_of(f.id)); }},
      {"reason", [](F f, N) { return or_null(f.reason); }},
      {"guest_bytes", [](F f, N) { return or_null(f.guest_bytes); }},
      {"resets", [](F f, N) { return or_null(f.resets); }},
      {"faults", [](F f, N) { return or_null(f.faults); }},
      {"label", [](F f, N) { return or_null(f.label); }},
      {"allowed", [](F f, N) { return or_null(f.allowed); }},
      {"reserved_node", [](F f, N) { return or_null(f.reserved_node); }},
      {"reserved_uuid", [](F f, N) { return or_null(f.reserved_uuid); }},
      {"reserved_ms", [](F f, N) { return or_null(f.reserved_ms); }},
      {"lease_ms", [](F f, N) { return or_null(f.lease_ms); }},
      {"lease_left_ms", [](F f, N) { return or_null(f.lease_left_ms); }},
      {"recall_ms", [](F f, N) { return or_null(f.recall_ms); }},
      {"group", [](F f, N) { return or_null(f.group); }},
      {"group_members", [](F f, N) { return set(f); }},
      {"adapter", [](F f, N) { return or_null(f.adapter); }},
      {"paths", [](F f, N) -> Json { return f.paths; }},
      {"p2p_targets", [](F f, N) { return reaches(f); }},
      {"direct", [](F f, N) -> Json { return f.direct; }},
      {"relayed", [](F f, N) -> Json { return f.relayed; }},
      {"sanitize", [](F f, N) -> Json { return f.sanitize; }},
      {"dirty", [](F f, N) -> Json { return f.dirty; }},
      {"near", [](F f, N) { return or_null(f.near); }},
      {"near_used", [](F f, N) -> Json { return f.near_used; }},
      {"shared", [](F f, N) -> Json { return f.shared; }},
      {"clients", [](F f, N) { return clients(f); }},
      {"bars", [](F f, N) { return bars(f); }},
  };
  return columns;
}

const std::vector<Column<Link>>& link_columns() {
  static const std::vector<Column<Link>> columns{
      {"index", [](L l, N) -> Json { return l.index; }},
      {"node", [](L l, N) { return or_null(l.peer); }},
      {"state", [](L l, N) -> Json { return std::string(link_state_name(l.state)); }},
      {"connected", [](L l, N) -> Json { return l.connected; }},
      {"peer_connected", [](L l, N) -> Json { return l.peer_connected; }},
      {"adapter", [](L l, N) { return or_null(l.adapter); }},
      {"driver", [](L l, N) { return or_null(l.driver); }},
      {"reason", [](L l, N) { return or_null(l.reason); }},
      {"peer_boot_id",
       [](L l, N) { return l.peer_boot_id ? Json(hex(*l.peer_boot_id, 16)) : Json(); }},
      {"tx_messages", [](L l, N) -> Json { return l.tx_messages; }},
      {"rx_messages", [](L l, N) -> Json { return l.rx_messages; }},
      {"bad_messages", [](L l, N) -> Json { return l.bad_messages; }},
      {"timeouts", [](L l, N) -> Json { return l.timeouts; }},
      {"export_bytes", [](L l, N) -> Json { return l.export_bytes; }},
      {"slot_bytes", [](L l, N) -> Json { return l.slot_bytes; }},
      {"down_count", [](L l, N) -> Json { return l.downs; }},
      {"lease_ms", [](L l, N) { return or_null(l.lease_ms); }},
      {"pci_hole", [](L l, N) { return address(l.hole); }},
      {"peer_pci_hole", [](L l, N) { return address(l.peer_hole); }},
      {"windows", [](L l, N) { return windows(l); }},
      {"regions", [](L l, N) { return regions(l); }},
      {"degraded", [](L l, N) -> Json { return l.degraded; }},
      {"pinned", [](L l, N) { return or_null(l.pinned); }},
      {"leases", [](L l, N) { return or_null(l.leases); }},
      {"direct", [](L l, N) -> Json { return l.direct; }},
      {"requesters", [](L l, N) { return or_null(l.requesters); }},
      {"requesters_used", [](L l, N) { return or_null(l.requesters_used); }},
      {"requesters_lent", [](L l, N) { return or_null(l.requesters_lent); }},
  };
  return columns;
}

const std::vector<Column<policy::PresentKind>>& kind_columns() {
  static const std::vector<Column<policy::PresentKind>> columns{
      {"name", [](K k, N) -> Json { return k.name; }},
      {"type", [](K k, N) -> Json { return k.type; }},
      {"address", [](K k, N) -> Json { return to_string(k.address); }},
      {"available", [](K k, N) -> Json { return k.available; }},
      {"devices", [](K k, N) -> Json { return k.devices; }},
      {"matches", [](K k, N) -> Json { return k.matches; }},
  };
  return columns;
}

const std::vector<Column<Segment>>& segment_columns() {
  static const std::vector<Column<Segment>> columns{
      {"id", [](S s, N) -> Json { return to_string(s.id); }},
      {"node", [](S s, N) -> Json { return s.id.node(); }},
      {"name", [](S s, N) { return or_null(s.name); }},
      {"size", [](S s, N) -> Json { return s.size; }},
      {"state", [](S s, N) -> Json { return std::string(segment_state_name(s.state)); }},
      {"adapter", [](S s, N) { return or_null(s.adapter); }},
      {"read_only", [](S s, N) -> Json { return s.read_only; }},
      {"write_combining", [](S s, N) -> Json { return s.write_combining; }},
      {"offers", [](S s, N) { return offers(s); }},
  };
  return columns;
}

const std::vector<Column<nvme::DiskRecord>>& disk_columns() {
  static const std::vector<Column<nvme::DiskRecord>> columns{
      {"disk", [](D d, N) -> Json { return d.number ? Json("/dev/" + d.disk()) : Json(); }},
      {"function", [](D d, N) -> Json { return to_string(d.function); }},
      {"namespace", [](D d, N) -> Json { return d.name_space; }},
      {"size", [](D d, N) -> Json { return d.blocks * d.block_bytes; }},
      {"block_bytes", [](D d, N) -> Json { return d.block_bytes; }},
      {"state", [](D d, N) -> Json { return d.state; }},
      {"error", [](D d, N) { return or_null(d.error); }},
      {"model", [](D d, N) { return or_null(d.model); }},
      {"serial", [](D d, N) { return or_null(d.serial); }},
      {"alone", [](D d, N) -> Json { return d.alone; }},
      {"read_only", [](D d, N) -> Json { return d.read_only; }},
      {"shared_fs", [](D d, N) -> Json { return d.shared_fs; }},
      {"queues", [](D d, N) -> Json { return d.queues; }},
      {"depth", [](D d, N) -> Json { return d.depth; }},
      {"recoveries", [](D d, N) -> Json { return d.recoveries; }},
      {"pid", [](D d, N) -> Json { return d.pid != 0 ? Json(d.pid) : Json(); }},
  };
  return columns;
}

template <class T>
Json json_list(const std::vector<T>& things, const std::vector<Column<T>>& columns,
               const PciNames& names) {
  Json list = Json::array();
  for (const auto& thing : things) {
    Json object = Json::object();
    for (const auto& column : columns)
      object[std::string(column.name)] = column.value(thing, names);
    list.push_back(std::move(object));
  }
  return list;
}

Json node_json(const Node& node) {
  return {
      {"id", node.id}, {"boot_id", fmt::format("{:016x}", node.boot_id)}, {"protocol", node.abi}};
}

template <class T>
Result<std::vector<Column<T>>> select_columns(const std::vector<Column<T>>& all,
                                              const std::optional<std::string>& selection) {
  if (!selection) return all;
  const std::string_view list = *selection;
  std::vector<Column<T>> selected;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string_view name = list.substr(at, end - at);
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const Column<T>& column) { return column.name == name; });
    if (found == all.end()) {
      std::vector<std::string_view> names;
      names.reserve(all.size());
      for (const auto& column : all) names.push_back(column.name);
      return fail(ErrorClass::Usage, "no column '{}': there are {}", name, fmt::join(names, ","));
    }
    selected.push_back(*found);
    at = end + 1;
  }
  return selected;
}

template Json json_list(const std::vector<Function>&, const std::vector<Column<Function>>&,
                        const PciNames&);
template Json json_list(const std::vector<Link>&, const std::vector<Column<Link>>&,
                        const PciNames&);
template Json json_list(const std::vector<Segment>&, const std::vector<Column<Segment>>&,
                        const PciNames&);
template Json json_list(const std::vector<nvme::DiskRecord>&,
                        const std::vector<Column<nvme::DiskRecord>>&, const PciNames&);
template Json json_list(const std::vector<policy::PresentKind>&,
                        const std::vector<Column<policy::PresentKind>>&, const PciNames&);
template Result<std::vector<Column<Function>>> select_columns(const std::vector<Column<Function>>&,
                                                              const std::optional<std::string>&);
template Result<std::vector<Column<Link>>> select_columns(const std::vector<Column<Link>>&,
                                                          const std::optional<std::string>&);
template Result<std::vector<Column<Segment>>> select_columns(const std::vector<Column<Segment>>&,
                                                             const std::optional<std::string>&);
template Result<std::vector<Column<nvme::DiskRecord>>> select_columns(
    const std::vector<Column<nvme::DiskRecord>>&, const std::optional<std::string>&);
template Result<std::vector<Column<policy::PresentKind>>> select_columns(
    const std::vector<Column<policy::PresentKind>>&, const std::optional<std::string>&);

}  // namespace pcilend
