// SPDX-License-Identifier: GPL-2.0-or-later
// What was meant by a word that nothing has as its name.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace pcilend {

// The one of `known` that takes the fewest single-character edits from `word`, if these are few.
std::optional<std::string_view> nearest(std::string_view word,
                                        std::span<const std::string_view> known);

}  // namespace pcilend
