// SPDX-License-Identifier: GPL-2.0-or-later
// Functions named by what a command of pcilend(8) printed with --json, on this host or another.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "pcilend/result.h"

namespace pcilend {

// The ids in {"functions": [{"id": "40001", ...}, ...]}, in their order; at least one. Usage if it
// is anything else. `name` stands in errors.
Result<std::vector<std::string>> ids_of_json(std::string_view name, std::string_view text);

// The same, of all there is to read; at most 64 MiB: 60,000 functions as 'pcilend list' prints
// them.
Result<std::vector<std::string>> read_ids(std::istream& in);

}  // namespace pcilend
