// SPDX-License-Identifier: GPL-2.0-or-later
#include "bytes.h"

#include <charconv>

namespace pcilend {

std::optional<uint64_t> parse_bytes(std::string_view text) {
  constexpr std::string_view kLetters = "KMG";
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  size_t shift = 0;
  if (parsed.ptr + 1 == end) {
    const size_t at = kLetters.find(*parsed.ptr);
    if (at == std::string_view::npos) return std::nullopt;
    shift = 10 * (at + 1);
  } else if (parsed.ptr != end) {
    return std::nullopt;
  }
  if (parsed.ec != std::errc() || value > uint64_t{1} << 63 >> shift) return std::nullopt;
  return value << shift;
}

}  // namespace pcilend
