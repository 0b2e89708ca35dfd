// SPDX-License-Identifier: GPL-2.0-or-later
// Names of things: function ids, UUIDs and PCI addresses, as people write and read them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "pcilend/api.h"
#include "pcilend/error.h"

namespace pcilend {

// The id of a function, or of a segment, in the whole fabric: node id << 16 | index; printed in
// lower-case hex ("40001").
struct FunctionId {
  uint32_t value = 0;

  [[nodiscard]] uint32_t node() const { return value >> 16; }
  bool operator==(const FunctionId&) const = default;
};

// 16 bytes in the order of RFC 9562's text form.
struct PCILEND_API Uuid {
  std::array<uint8_t, 16> bytes{};

  bool operator==(const Uuid&) const = default;

  // True for UUIDs of functions (70636c64-…, "pcld"), so that one is recognised while no host
  // offers it.
  [[nodiscard]] bool names_function() const;
};

// A PCI address on one host. Domains above ffff exist (VMD, virtual root buses).
struct PciAddress {
  uint32_t domain = 0;
  uint8_t bus = 0;
  uint8_t device = 0;    // 0 to 1f
  uint8_t function = 0;  // 0 to 7

  bool operator==(const PciAddress&) const = default;
};

// Each fails with ErrorClass::Usage and a line that says what the text should look like.
PCILEND_API Result<FunctionId> parse_function_id(std::string_view text);  // "40001"
PCILEND_API Result<Uuid> parse_uuid(std::string_view text);               // 8-4-4-4-12 hex digits
PCILEND_API Result<PciAddress> parse_pci_address(
    std::string_view text);                                         // "00:05.0" or "0000:00:05.0"
PCILEND_API Result<uint32_t> parse_node_id(std::string_view text);  // 1 to 65535, decimal

// Where a borrowed function is, on every borrower; nothing if its id is too high for that.
PCILEND_API std::optional<PciAddress> place_of(FunctionId id);
// The function that is there when it is borrowed; nothing if that is no place of one.
PCILEND_API std::optional<FunctionId> function_at(const PciAddress& place);

PCILEND_API std::string to_string(FunctionId id);
PCILEND_API std::string to_string(const Uuid& uuid);
PCILEND_API std::string to_string(const PciAddress& address);  // dddd:bb:dd.f

}  // namespace pcilend
