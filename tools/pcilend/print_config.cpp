// SPDX-License-Identifier: GPL-2.0-or-later
#include "print_config.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "config_space.h"
#include "text.h"

namespace pcilend {
namespace {

std::string_view header_name(uint8_t type) {
  switch (type) {
    case 0:
      return "device";
    case 1:
      return "bridge";
    case 2:
      return "CardBus bridge";
    default:
      return "of unknown type";
  }
}

std::string bar_name(unsigned index) {
  return index == 6 ? "ROM" : fmt::format("BAR {}", index);
}

std::string bar_text(const ConfigBar& bar) {
  const std::string at = bar.address ? fmt::format("at {:x}", bar.address) : "not assigned";
  if (bar.io) return fmt::format("I/O ports {}", at);
  return fmt::format("memory {}, {}-bit{}", at, bar.bits64 ? 64 : 32,
                     bar.prefetchable ? ", prefetchable" : "");
}

// 16 bytes a line, as lspci prints them.
std::string dump(const std::vector<uint8_t>& bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 16) {
    const auto* const line = bytes.data() + at;
    text += fmt::format("{:02x}: {:02x}\n", at,
                        fmt::join(line, line + std::min<size_t>(16, bytes.size() - at), " "));
  }
  return text;
}

std::string entry_text(const ConfigAnswer::Entry& entry, bool hex, const PciNames& names) {
  const ConfigSpace space = decode_config_space(entry.bytes);
  std::vector<std::vector<std::string>> rows;
  const auto row = [&](std::string_view key, std::string value) {
    rows.push_back({fmt::format("  {}:", key), std::move(value)});
  };
  row("ids", fmt::format("{:04x}:{:04x}, subsystem {:04x}:{:04x}, class {:06x}, revision {:02x}",
                         space.vendor, space.device, space.subsystem_vendor, space.subsystem_device,
                         space.class_revision >> 8, space.class_revision & 0xff));
  row("header", fmt::format("{}, {} bytes of configuration space", header_name(space.header_type),
                            entry.bytes.size()));
  row("command",
      space.command.empty() ? "all off" : fmt::format("{}", fmt::join(space.command, ", ")));
  if (space.interrupt_pin >= 1 && space.interrupt_pin <= 4)
    row("interrupt", fmt::format("pin {}", static_cast<char>('A' + space.interrupt_pin - 1)));
  for (const auto& bar : space.bars) row(bar_name(bar.index), bar_text(bar));
  for (const auto& capability : space.capabilities)
    row(fmt::format("[{:02x}] {}", capability.offset, capability.name),
        capability.detail.empty() ? "-" : capability.detail);
  return function_title(entry.function, names) + "\n" + align(rows) +
         (hex ? dump(entry.bytes) : std::string());
}

Json entry_json(const ConfigAnswer::Entry& entry, const PciNames& names) {
  const ConfigSpace space = decode_config_space(entry.bytes);
  Json bars = Json::array();
  for (const auto& bar : space.bars)
    bars.push_back({{"index", bar.index},
                    {"type", bar.io ? "io" : "memory"},
                    {"address", fmt::format("0x{:x}", bar.address)},
                    {"bits", bar.bits64 ? 64 : 32},
                    {"prefetchable", bar.prefetchable}});
  Json capabilities = Json::array();
  for (const auto& capability : space.capabilities)
    capabilities.push_back(
        {{"offset", capability.offset},
         {"id", fmt::format("{:0{}x}", capability.id, capability.extended ? 4 : 2)},
         {"extended", capability.extended},
         {"name", capability.name},
         {"detail", capability.detail.empty() ? Json() : Json(capability.detail)}});
  const auto class_code = static_cast<uint16_t>(space.class_revision >> 16);
  return {{"id", to_string(entry.function.id)},
          {"bdf", entry.function.bdf},
          {"class", names.device_class(class_code)},
          {"vendor", names.vendor(space.vendor)},
          {"device", names.device(space.vendor, space.device)},
          {"vendor_id", fmt::format("{:04x}", space.vendor)},
          {"device_id", fmt::format("{:04x}", space.device)},
          {"subsystem_vendor_id", fmt::format("{:04x}", space.subsystem_vendor)},
          {"subsystem_device_id", fmt::format("{:04x}", space.subsystem_device)},
          {"class_id", fmt::format("{:06x}", space.class_revision >> 8)},
          {"revision", fmt::format("{:02x}", space.class_revision & 0xff)},
          {"header_type", space.header_type},
          {"command", space.command},
          {"bars", bars},
          {"capabilities", capabilities},
          {"config", fmt::format("{:02x}", fmt::join(entry.bytes, ""))}};
}

}  // namespace

std::string config_text(const ConfigAnswer& answer, const PciNames& names) {
  std::string text;
  for (const auto& entry : answer.entries)
    text += (text.empty() ? "" : "\n") + entry_text(entry, answer.hex, names);
  return text;
}

Json config_json(const ConfigAnswer& answer, const PciNames& names) {
  Json list = Json::array();
  for (const auto& entry : answer.entries) list.push_back(entry_json(entry, names));
  return {{"emulated", answer.emulated}, {"functions", list}};
}

}  // namespace pcilend
