// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>

#include "columns.h"
#include "print.h"

namespace pcilend {
namespace {

constexpr const char* kLinkTable = "index,node,state,connected,peer_connected,adapter,driver";

std::string cell(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {  // BARs
    std::vector<std::string> bars;
    for (const auto& bar : value)
      bars.push_back(fmt::format("{}:{}", bar.at("index").dump(), bar.at("size").dump()));
    return bars.empty() ? "-" : fmt::format("{}", fmt::join(bars, ","));
  }
  return value.dump();
}

// Columns aligned by blanks; the last one is not padded.
std::string align(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) text += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += row.back() + "\n";
  }
  return text;
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

// "16 KiB" where that says it all, else bytes.
std::string size_text(uint64_t bytes) {
  constexpr std::string_view kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

std::string node_text(uint32_t node, uint32_t this_node) {
  return node == this_node ? "this host" : fmt::format("node {}", node);
}

std::string title(const Function& f, const PciNames& names) {
  return fmt::format("{}: {}: {} {}", to_string(f.id),
                     names.device_class(static_cast<uint16_t>(f.class_revision >> 16)),
                     names.vendor(f.vendor), names.device(f.vendor, f.device));
}

std::string line(const Function& f, const PciNames& names, uint32_t this_node) {
  std::string text = fmt::format("{} [{}]", title(f, names), function_state_name(f.state));
  if (f.borrower) text += fmt::format(" by {}", node_text(*f.borrower, this_node));
  if (!f.owner.empty()) text += fmt::format(" for {}", f.owner);
  if (!f.reason.empty()) text += fmt::format(": {}", f.reason);
  if (f.lender == this_node) text += fmt::format(" ({} of this host)", f.bdf);
  return text + "\n";
}

std::string bar_text(const Bar& bar) {
  const std::string name = bar.index == 6 ? "ROM" : fmt::format("BAR {}", bar.index);
  if (bar.flags & kBarIo)
    return fmt::format("{}: {} of I/O ports, not reachable by borrowers", name,
                       size_text(bar.size));
  return fmt::format("{}: {}, {}-bit{}", name, size_text(bar.size), bar.flags & kBarMem64 ? 64 : 32,
                     bar.flags & kBarPrefetch ? ", prefetchable" : "");
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
  row("ids", fmt::format("{:04x}:{:04x}, subsystem {:04x}:{:04x}, class {:06x}, revision {:02x}",
                         f.vendor, f.device, f.subsystem_vendor, f.subsystem_device,
                         f.class_revision >> 8, f.class_revision & 0xff));
  if (!f.driver.empty()) row("driver", fmt::format("{} on the lender", f.driver));
  if (f.borrower)
    row("borrower",
        fmt::format("node {}{}{}", *f.borrower, *f.borrower == this_node ? " (this host)" : "",
                    f.lease ? fmt::format(", lease {}", *f.lease) : ""));
  if (!f.frontend.empty()) row("frontend", f.frontend);
  if (!f.owner.empty()) row("owner", f.owner);
  if (!f.virtual_address.empty()) row("virtual function", f.virtual_address);
  for (const auto& bar : f.bars) {
    const std::string text = bar_text(bar);
    const size_t colon = text.find(": ");
    row(text.substr(0, colon), text.substr(colon + 2));
  }
  if (f.guest_bytes.value_or(0) > 0)
    row("guest memory",
        size_text(*f.guest_bytes) +
            (f.guest_map_us
                 ? fmt::format(", mapped in {:.1f} ms", static_cast<double>(*f.guest_map_us) / 1000)
                 : ""));
  if (f.resets) row("resets", std::to_string(*f.resets));
  if (f.faults) row("DMA faults", std::to_string(*f.faults));
  return title(f, names) + "\n" + align(rows);
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

  Result<std::string> operator()(const FunctionsAnswer& answer) const {
    if (options.columns)
      return table(answer.functions, function_columns(), names, options.columns,
                   options.no_headings);
    std::string text;
    for (const auto& function : answer.functions) {
      if (answer.detail == FunctionsAnswer::Detail::Line) {
        text += line(function, names, answer.this_node);
      } else {
        text += (text.empty() ? "" : "\n") + details(function, names, answer.this_node);
      }
    }
    return text;
  }

  Result<std::string> operator()(const LinksAnswer& answer) const {
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
    std::string text;
    for (const auto& function : answer.functions)
      text += fmt::format(
          "<hostdev mode='subsystem' type='mdev' model='vfio-pci'>\n"
          "  <!-- {} -->\n"
          "  <source>\n"
          "    <address uuid='{}'/>\n"
          "  </source>\n"
          "</hostdev>\n",
          comment(title(function, names)), to_string(function.uuid));
    return text;
  }
};

}  // namespace

Result<std::string> print_text(const Answer& answer, const PciNames& names,
                               const PrintOptions& options) {
  return std::visit(TextPrinter{names, options}, answer);
}

}  // namespace pcilend
