// SPDX-License-Identifier: GPL-2.0-or-later
// Amounts of memory, as options have them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace pcilend {

// "64M": bytes, or KiB, MiB, GiB by a letter. Nothing if it is no such text, or above 2^63.
std::optional<uint64_t> parse_bytes(std::string_view text);

}  // namespace pcilend
