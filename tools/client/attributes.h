// SPDX-License-Identifier: GPL-2.0-or-later
// Bounds-checked reading of netlink attributes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "pcilend/result.h"

namespace pcilend {

// One attribute: its type without flags, and its payload (4-byte aligned).
struct Attribute {
  uint16_t type = 0;
  std::span<const std::byte> payload;

  // Each fails unless the payload has exactly the right form.
  Result<> read(uint16_t* value) const;
  Result<> read(uint32_t* value) const;
  Result<> read(uint64_t* value) const;
  // NUL-terminated text; unprintable bytes become '?', so that it can go to a terminal.
  Result<> read(std::string* text) const;
  Result<> read(std::span<uint8_t> bytes) const;
  // However many there are.
  Result<> read(std::vector<uint32_t>* values) const;
};

// Calls `visit` for each attribute in `bytes` (4-byte aligned); stops at its first error. Fails if
// a length points outside of its container, or bytes are left that are no attribute.
Result<> for_each_attribute(std::span<const std::byte> bytes,
                            const std::function<Result<>(const Attribute&)>& visit);

}  // namespace pcilend
