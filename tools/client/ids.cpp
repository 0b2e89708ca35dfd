// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/ids.h"

#include <charconv>
#include <optional>

#include "pcilend/identity.h"
#include "pcilend/result.h"

namespace pcilend {
namespace {

// The whole of `text` as a number of 1 to `digits` digits that is at most `max`.
std::optional<uint32_t> number(std::string_view text, int base, size_t digits, uint32_t max) {
  if (text.empty() || text.size() > digits) return {};
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || value > max) return {};
  return value;
}

}  // namespace

bool Uuid::names_function() const {
  return pcilend_uuid_is_ours(bytes.data());
}

Result<FunctionId> parse_function_id(std::string_view text) {
  FunctionId id;
  if (pcilend_id_parse(std::string(text).c_str(), &id.value) < 0)
    return fail(ErrorClass::Usage,
                "'{}' is not a function id: ids are hex as 'pcilend list' prints them (40001)",
                text);
  return id;
}

Result<Uuid> parse_uuid(std::string_view text) {
  Uuid uuid;
  if (pcilend_uuid_parse(std::string(text).c_str(), uuid.bytes.data()) < 0)
    return fail(ErrorClass::Usage, "'{}' is not a UUID (8-4-4-4-12 hex digits)", text);
  return uuid;
}

Result<PciAddress> parse_pci_address(std::string_view text) {
  const auto bad = [&] {
    return fail(ErrorClass::Usage,
                "'{}' is not a PCI address: write it as lspci does (00:05.0 or 0000:00:05.0)",
                text);
  };
  const size_t dot = text.rfind('.');
  const size_t last = text.rfind(':');
  if (dot == std::string_view::npos || last == std::string_view::npos || dot < last) return bad();
  std::string_view bus_text = text.substr(0, last);
  std::string_view domain_text = "0";
  if (const size_t first = bus_text.find(':'); first != std::string_view::npos) {
    domain_text = bus_text.substr(0, first);
    bus_text = bus_text.substr(first + 1);
  }
  const auto domain = number(domain_text, 16, 8, UINT32_MAX);
  const auto bus = number(bus_text, 16, 2, 0xff);
  const auto device = number(text.substr(last + 1, dot - last - 1), 16, 2, 0x1f);
  const auto function = number(text.substr(dot + 1), 16, 1, 7);
  if (!domain || !bus || !device || !function) return bad();
  return PciAddress{*domain, static_cast<uint8_t>(*bus), static_cast<uint8_t>(*device),
                    static_cast<uint8_t>(*function)};
}

Result<uint32_t> parse_node_id(std::string_view text) {
  const auto value = number(text, 10, 5, PCILEND_NODE_MAX);
  if (!value || *value == 0)
    return fail(ErrorClass::Usage, "'{}' is not a node id: a number from 1 to {}", text,
                PCILEND_NODE_MAX);
  return *value;
}

std::optional<PciAddress> place_of(FunctionId id) {
  PciAddress place;
  if (!pcilend_pci_place(id.value, &place.domain, &place.bus)) return {};
  return place;
}

std::optional<FunctionId> function_at(const PciAddress& place) {
  if (place.domain <= PCILEND_PCI_DOMAIN_FIRST) return {};
  const FunctionId id{(place.domain - PCILEND_PCI_DOMAIN_FIRST) << 16 | place.bus};
  if (place_of(id) != place || !pcilend_id_valid(id.value)) return {};
  return id;
}

std::string to_string(FunctionId id) {
  std::array<char, PCILEND_ID_TEXT_BYTES> text{};
  return pcilend_id_format(id.value, text.data());
}

std::string to_string(const Uuid& uuid) {
  std::array<char, PCILEND_UUID_TEXT_BYTES> text{};
  return pcilend_uuid_format(uuid.bytes.data(), text.data());
}

std::string to_string(const PciAddress& address) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", address.domain, address.bus, address.device,
                     address.function);
}

}  // namespace pcilend
