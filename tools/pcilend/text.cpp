// SPDX-License-Identifier: GPL-2.0-or-later
#include "text.h"

#include <fmt/format.h>

#include <algorithm>

namespace pcilend {
namespace {

std::string why_not_up(const Link& link) {
  if (!link.reason.empty()) return link.reason;
  switch (link.state) {
    case PCILEND_LINK_DOWN:
      return "the peer is off, the cable is out, or its NTB driver is not loaded";
    case PCILEND_LINK_HANDSHAKE:
      return "the peer's pcilend has not answered: is it loaded there?";
    default:
      return "no reason was given";
  }
}

}  // namespace

std::string size_text(uint64_t bytes) {
  constexpr std::string_view kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

std::string seconds_text(uint32_t milliseconds) {
  return fmt::format("{} s", milliseconds / 1000 + (milliseconds % 1000 != 0));
}

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

std::string node_text(uint32_t node, uint32_t this_node) {
  return node == this_node ? "this host" : fmt::format("node {}", node);
}

std::string reaches_text(const Function& f) {
  std::string text;
  for (const uint32_t id : f.reaches)
    text += (text.empty() ? "" : ", ") + to_string(FunctionId{id});
  return text;
}

std::string function_title(const Function& f, const PciNames& names) {
  return fmt::format("{}: {}: {} {}", to_string(f.id),
                     names.device_class(static_cast<uint16_t>(f.class_revision >> 16)),
                     names.vendor(f.vendor), names.device(f.vendor, f.device));
}

std::string function_line(const Function& f, const PciNames& names, uint32_t this_node) {
  std::string text = fmt::format("{} [{}]", function_title(f, names), function_state_name(f.state));
  if (f.borrower) text += fmt::format(" by {}", node_text(*f.borrower, this_node));
  if (!f.owner.empty()) text += fmt::format(" for {}", f.owner);
  if (!f.frontend.empty()) text += fmt::format(" through {}", f.frontend);
  if (!f.virtual_address.empty()) text += fmt::format(" at {}", f.virtual_address);
  if (!f.reaches.empty()) text += fmt::format(", reaches {}", reaches_text(f));
  if (f.direct) text += ", direct";
  if (f.shared)
    text += f.clients.empty() ? ", shared" : fmt::format(", shared by {}", f.clients.size());
  if (!f.reason.empty()) text += fmt::format(": {}", f.reason);
  if (f.recall_ms) text += fmt::format(", wanted back in {}", seconds_text(*f.recall_ms));
  if (f.reserved_node)
    text += fmt::format(", reserved for {}", node_text(*f.reserved_node, this_node));
  else if (f.reserved_uuid)
    text += fmt::format(", reserved for {}", to_string(*f.reserved_uuid));
  else if (f.reserved_ms)
    text += ", reserved for a domain";
  if (!f.label.empty()) text += fmt::format(", label \"{}\"", f.label);
  if (f.lender == this_node) text += fmt::format(" ({} of this host)", f.bdf);
  return text;
}

std::string link_title(const Link& link) {
  return fmt::format("link {} ({})", link.index, link.adapter);
}

std::string link_trouble(const Link& link) {
  return fmt::format("{} is {}: {}", link_title(link), link_state_name(link.state),
                     why_not_up(link));
}

}  // namespace pcilend
