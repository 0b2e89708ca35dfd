// SPDX-License-Identifier: GPL-2.0-or-later
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "columns.h"
#include "metrics.h"
#include "print.h"
#include "print_config.h"
#include "print_events.h"
#include "print_policy.h"
#include "print_status.h"
#include "text.h"

namespace pcilend {
namespace {

// The first bus of a guest's PCI topology that vm-xml makes: above those that libvirt numbers.
constexpr unsigned kGuestBus = 0x20;

struct GuestSlot {
  unsigned bus = 0;
  unsigned function = 0;
};

// Functions of one device are functions of one device in the guest, too, if its function 0, which a
// device must have, is among them. The others are where libvirt puts them.
std::vector<std::optional<GuestSlot>> guest_slots(const std::vector<Function>& functions) {
  struct Device {
    uint32_t lender;
    std::string slot;
    auto operator<=>(const Device&) const = default;
  };
  std::map<Device, std::vector<size_t>> devices;
  for (size_t i = 0; i < functions.size(); ++i)
    devices[{functions[i].lender, functions[i].bdf.substr(0, functions[i].bdf.find('.'))}]
        .push_back(i);
  std::vector<std::optional<GuestSlot>> slots(functions.size());
  unsigned bus = kGuestBus;
  for (const auto& [device, members] : devices) {
    const auto number = [&](size_t i) -> unsigned { return functions[i].bdf.back() - '0'; };
    if (members.size() < 2 ||
        std::none_of(members.begin(), members.end(), [&](size_t i) { return number(i) == 0; }))
      continue;
    for (const size_t i : members) slots[i] = GuestSlot{bus, number(i)};
    ++bus;
  }
  return slots;
}

constexpr const char* kLinkTable = "index,node,state,connected,peer_connected,adapter,driver";

const std::optional<std::string> kSegmentTable = "id,name,size,state,adapter,offers";

const std::optional<std::string> kDiskTable = "disk,function,namespace,size,state,model,error";

std::string cell(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {
    std::vector<std::string> parts;
    for (const auto& part : value) {
      if (!part.is_object()) {
        parts.push_back(cell(part));
      } else if (part.contains("bdf")) {  // functions of its set
        parts.push_back(fmt::format("{}:{}", cell(part.at("bdf")), cell(part.at("state"))));
      } else if (part.contains("connections")) {  // offers of a segment
        parts.push_back(fmt::format("{}:{}", cell(part.at("node")),
                                    part.at("withdrawn").get<bool>()   ? "withdrawn"
                                    : part.at("read_only").get<bool>() ? "read-only"
                                                                       : "read-write"));
      } else {  // BARs, windows, regions
        const auto& name = part.contains("index") ? part.at("index") : part.at("kind");
        parts.push_back(fmt::format("{}:{}", cell(name), part.at("size").dump()));
      }
    }
    return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ","));
  }
  return value.dump();
}

template <class T>
Result<std::string> table(const std::vector<T>& things, const std::vector<Column<T>>& all,
                          const PciNames& names, const std::optional<std::string>& selection,
                          bool no_headings) {
  const auto columns = select_columns(all, selection);
  if (!columns) return tl::unexpected(columns.error());
  std::vector<std::vector<std::string>> rows;
  if (!no_headings) {
    auto& headings = rows.emplace_back();
    for (const auto& column : *columns) {
      std::string heading(column.name);
      std::transform(heading.begin(), heading.end(), heading.begin(),
                     [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
      headings.push_back(std::move(heading));
    }
  }
  for (const auto& thing : things) {
    auto& row = rows.emplace_back();
    for (const auto& column : *columns) row.push_back(cell(column.value(thing, names)));
  }
  return align(rows);
}

std::string bar_text(const Bar& bar) {
  const std::string name = bar.index == 6 ? "ROM" : fmt::format("BAR {}", bar.index);
  if (bar.flags & kBarIo)
    return fmt::format("{}: {} of I/O ports, not reachable by borrowers", name,
                       size_text(bar.size));
  return fmt::format("{}: {}, {}-bit{}", name, size_text(bar.size), bar.flags & kBarMem64 ? 64 : 32,
                     bar.flags & kBarPrefetch ? ", prefetchable" : "");
}

std::string reservation_text(const Function& f, uint32_t this_node) {
  std::string text = "for ";
  // Which domain only administrators are told.
  text += f.reserved_node   ? node_text(*f.reserved_node, this_node)
          : f.reserved_uuid ? to_string(*f.reserved_uuid)
                            : "a domain";
  if (f.reserved_ms) text += fmt::format(", {} left", seconds_text(*f.reserved_ms));
  return text;
}

// The path in use, and those there are.
std::string paths_text(const Function& f) {
  std::vector<std::string> parts;
  if (!f.adapter.empty()) parts.push_back(f.adapter + " (in use)");
  for (const auto& path : f.paths)
    if (path != f.adapter) parts.push_back(path);
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string details(const Function& f, const PciNames& names, uint32_t this_node) {
  std::vector<std::vector<std::string>> rows;
  const auto row = [&](std::string_view key, std::string value) {
    rows.push_back({fmt::format("  {}:", key), std::move(value)});
  };
  row("state", std::string(function_state_name(f.state)) +
                   (f.reason.empty() ? "" : fmt::format(": {}", f.reason)));
  row("uuid", to_string(f.uuid));
  row("lender",
      fmt::format("node {}{}, {}", f.lender, f.lender == this_node ? " (this host)" : "", f.bdf));
  if (!f.label.empty()) row("label", f.label);
  row("ids", fmt::format("{:04x}:{:04x}, subsystem {:04x}:{:04x}, class {:06x}, revision {:02x}",
                         f.vendor, f.device, f.subsystem_vendor, f.subsystem_device,
                         f.class_revision >> 8, f.class_revision & 0xff));
  if (!f.driver.empty())
    row("driver",
        fmt::format("{} on {}", f.driver, f.lender == this_node ? "the lender" : "this host"));
  if (f.group) row("IOMMU group", fmt::format("{}", *f.group));
  for (const auto& member : f.members)
    row("lent with", fmt::format("{}, {}", member.bdf,
                                 member.id ? fmt::format("{}, {}", to_string(*member.id),
                                                         function_state_name(member.state))
                                           : "not added"));
  if (f.allowed)
    row("seen by",
        f.allowed->empty() ? "no node" : fmt::format("nodes {}", fmt::join(*f.allowed, ", ")));
  if (f.reserved_node || f.reserved_ms) row("reserved", reservation_text(f, this_node));
  if (f.borrower)
    row("borrower",
        fmt::format("node {}{}{}", *f.borrower, *f.borrower == this_node ? " (this host)" : "",
                    f.lease ? fmt::format(", lease {}", *f.lease) : ""));
  if (f.lease_ms) row("lease", fmt::format("ends after {} of silence", seconds_text(*f.lease_ms)));
  if (f.recall_ms) row("wanted back", fmt::format("in {}", seconds_text(*f.recall_ms)));
  if (!f.adapter.empty() || !f.paths.empty()) row("paths", paths_text(f));
  if (!f.frontend.empty()) row("frontend", f.frontend);
  if (!f.owner.empty()) row("owner", f.owner);
  if (!f.virtual_address.empty()) row("virtual function", f.virtual_address);
  if (!f.reaches.empty()) row("reaches", reaches_text(f));
  if (f.direct) row("direct", "no IOMMU: it reaches all memory and all interrupts of its lender");
  if (f.sanitize || f.dirty)
    row("sanitize", f.dirty ? "what its last borrower left on it is not erased yet"
                            : "it is erased after each lease");
  if (f.near_used != 0)
    row("near", fmt::format("{} KiB of this host's memory, of {}", f.near_used >> 10,
                            f.near.value_or(0) >> 10));
  if (f.shared) row("shared", "its borrower is the manager, and admits clients");
  for (const auto& client : f.clients)
    row("client", fmt::format("node {}{}, lease {}: {}", client.node,
                              client.node == this_node ? " (this host)" : "", client.lease,
                              client_state_name(client.state)));
  if (f.relayed) row("interrupts", "MSI and MSI-X are relayed by its lender");
  for (const auto& bar : f.bars) {
    const std::string text = bar_text(bar);
    const size_t colon = text.find(": ");
    row(text.substr(0, colon), text.substr(colon + 2));
  }
  if (f.guest_bytes.value_or(0) > 0) row("guest memory", size_text(*f.guest_bytes) + " mapped");
  if (f.resets) row("resets", std::to_string(*f.resets));
  if (f.faults) row("DMA faults", std::to_string(*f.faults));
  return function_title(f, names) + "\n" + align(rows);
}

std::string connected_text(const Link& link) {
  if (link.connected && link.peer_connected) return "both ways";
  if (link.connected) return "its functions of this host; it offers none";
  if (link.peer_connected) return "this host sees its functions; none are offered to it";
  return "no: 'pcilend connect' offers functions";
}

std::string range_text(const Region& region) {
  std::string text = fmt::format("0x{:x}, {}", region.iova, size_text(region.size));
  if (region.used) text += fmt::format(", {} used", size_text(*region.used));
  return text + fmt::format(", through window {}", region.window);
}

std::string window_text(const Window& window) {
  std::string text = fmt::format("{} of the peer", size_text(window.size));
  if (window.size_max) text += fmt::format("; translates up to {}", size_text(window.size_max));
  if (window.address_align > 1)
    text += fmt::format(", addresses in steps of {}", size_text(window.address_align));
  if (window.size_align > 1)
    text += fmt::format(", sizes in steps of {}", size_text(window.size_align));
  return text;
}

std::string details(const Link& link) {
  std::vector<std::vector<std::string>> rows;
  const auto row = [&](std::string_view key, std::string value) {
    rows.push_back({fmt::format("  {}:", key), std::move(value)});
  };
  row("state",
      std::string(link_state_name(link.state)) + (link.reason.empty() ? "" : ": " + link.reason));
  if (link.peer) row("peer", fmt::format("node {}", *link.peer));
  if (link.pinned) row("pinned", fmt::format("to node {}: no other is let in", *link.pinned));
  if (!link.driver.empty()) row("driver", link.driver);
  if (link.direct)
    row("direct", "no IOMMU: the peer reaches all memory and all interrupts of this host");
  row("connected", connected_text(link));
  if (link.lease_ms)
    row("leases", fmt::format("{}end after {} of silence",
                              link.leases ? fmt::format("{}, ", *link.leases) : "",
                              seconds_text(*link.lease_ms)));
  row("messages", fmt::format("{} sent, {} received, {} bad, {} without answer", link.tx_messages,
                              link.rx_messages, link.bad_messages, link.timeouts));
  row("times lost", std::to_string(link.downs));
  if (link.requesters)
    row("requesters",
        fmt::format("{} entries, {} used, {} of lent functions", *link.requesters,
                    link.requesters_used.value_or(0), link.requesters_lent.value_or(0)));
  for (const auto& window : link.windows)
    row(fmt::format("window {}", window.index), window_text(window));
  for (const auto& region : link.regions) row(region_kind_name(region.kind), range_text(region));
  if (link.hole)
    row("PCI hole", fmt::format("from 0x{:x}", *link.hole) +
                        (link.peer_hole ? fmt::format(", the peer's from 0x{:x}", *link.peer_hole)
                                        : std::string()));
  for (const auto& sentence : link.degraded) row("degraded", sentence);
  return link_title(link) + "\n" + align(rows);
}

// Fit for an XML comment, which "--" would end.
std::string comment(std::string text) {
  for (size_t at = 0; (at = text.find("--", at)) != std::string::npos;) text.insert(++at, " ");
  return text;
}

struct TextPrinter {
  const PciNames& names;
  const PrintOptions& options;

  Result<std::string> operator()(const NothingAnswer&) const { return std::string(); }
  Result<std::string> operator()(const EmittedAnswer&) const { return std::string(); }

  Result<std::string> operator()(const FunctionsAnswer& answer) const {
    if (options.columns)
      return table(answer.functions, function_columns(), names, options.columns,
                   options.no_headings);
    std::string text;
    for (const auto& function : answer.functions) {
      if (answer.detail == Detail::Line) {
        text += function_line(function, names, answer.this_node) + "\n";
      } else {
        text += (text.empty() ? "" : "\n") + details(function, names, answer.this_node);
      }
    }
    return text;
  }

  Result<std::string> operator()(const AppearedAnswer& answer) const {
    std::string text = function_line(answer.function, names, answer.this_node) + "\n";
    for (const auto& disk : answer.devices.disks)
      text += fmt::format("{}/dev/{} {}\n",
                          disk.controller.empty() ? "" : fmt::format("{}: ", disk.controller),
                          disk.name, size_text(disk.bytes));
    for (const auto& name : answer.devices.interfaces) text += name + "\n";
    return text;
  }

  Result<std::string> operator()(const LinksAnswer& answer) const {
    if (answer.detail == Detail::Full && !options.columns) {
      std::string all;
      for (const auto& link : answer.links) all += (all.empty() ? "" : "\n") + details(link);
      return all;
    }
    auto text = table(answer.links, link_columns(), names, options.columns.value_or(kLinkTable),
                      options.no_headings);
    if (!text || options.columns) return text;
    for (const auto& link : answer.links) {
      if (!link.reason.empty()) *text += fmt::format("link {}: {}\n", link.index, link.reason);
    }
    return text;
  }

  Result<std::string> operator()(const Node& node) const {
    return fmt::format("node {}, boot id {:016x}, protocol version {}\n", node.id, node.boot_id,
                       node.abi);
  }

  Result<std::string> operator()(const HostdevsAnswer& answer) const {
    const auto slots = guest_slots(answer.functions);
    std::string text;
    for (size_t i = 0; i < answer.functions.size(); ++i) {
      const auto& function = answer.functions[i];
      const auto& slot = slots[i];
      if (slot && slot->function == 0)
        text +=
            fmt::format("<controller type='pci' index='{}' model='pcie-root-port'/>\n", slot->bus);
      const std::string title = comment(function_title(function, names));
      const auto place = answer.mdev ? std::nullopt : place_of(function.id);
      text += fmt::format(
          "<hostdev mode='subsystem' {}>\n"
          "  <!-- {} -->\n"
          "  <source>\n"
          "    <address {}/>\n"
          "  </source>\n"
          "{}</hostdev>\n",
          place ? "type='pci' managed='no'" : "type='mdev' model='vfio-pci'", title,
          place ? fmt::format("domain='0x{:04x}' bus='0x{:02x}' slot='0x00' function='0x0'",
                              place->domain, place->bus)
                : fmt::format("uuid='{}'", to_string(function.uuid)),
          slot ? fmt::format("  <address type='pci' domain='0x0000' bus='0x{:02x}' slot='0x00' "
                             "function='0x{:x}'{}/>\n",
                             slot->bus, slot->function,
                             slot->function == 0 ? " multifunction='on'" : "")
               : std::string());
    }
    return text;
  }

  Result<std::string> operator()(const ConfigAnswer& answer) const {
    return config_text(answer, names);
  }
  Result<std::string> operator()(const StatusAnswer& answer) const {
    return status_text(answer, names);
  }
  Result<std::string> operator()(const InUseAnswer& answer) const {
    auto text = print_text(FunctionsAnswer{answer.functions, answer.this_node}, names, {});
    if (!text) return text;
    for (const auto& disk : answer.disks)
      *text += fmt::format("/dev/{}: namespace {} of {} [{}]\n", disk.disk(), disk.name_space,
                           to_string(disk.function), disk.state);
    return text;
  }
  Result<std::string> operator()(const MetricsAnswer& answer) const { return metrics_text(answer); }
  Result<std::string> operator()(const SegmentsAnswer& answer) const {
    return table(answer.segments, segment_columns(), names,
                 options.columns ? options.columns : kSegmentTable, options.no_headings);
  }
  Result<std::string> operator()(const DisksAnswer& answer) const {
    return table(answer.disks, disk_columns(), names, kDiskTable, options.no_headings);
  }
  Result<std::string> operator()(const CheckAnswer& answer) const { return check_text(answer); }
  Result<std::string> operator()(const HwtestAnswer& answer) const {
    return hwtest_text(answer, names);
  }
  Result<std::string> operator()(const EventAnswer& answer) const {
    return event_text(answer, names);
  }
  Result<std::string> operator()(const SnapshotAnswer& answer) const {
    return snapshot_text(answer, names);
  }
  Result<std::string> operator()(const RestoreAnswer& answer) const { return policy_text(answer); }
  Result<std::string> operator()(const FiltersAnswer& answer) const { return policy_text(answer); }
  Result<std::string> operator()(const KindsAnswer& answer) const {
    return table(answer.kinds, kind_columns(), names, options.columns, options.no_headings);
  }
  Result<std::string> operator()(const SavedAnswer& answer) const { return policy_text(answer); }
};

}  // namespace

Result<std::string> print_text(const Answer& answer, const PciNames& names,
                               const PrintOptions& options) {
  return std::visit(TextPrinter{names, options}, answer);
}

}  // namespace pcilend
