// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <filesystem>
#include <vector>

namespace pcilend {

// What is in that directory, sorted; nothing if there is none, or it can't be read.
std::vector<std::filesystem::path> entries(const std::filesystem::path& directory);

}  // namespace pcilend
