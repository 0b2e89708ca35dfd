// SPDX-License-Identifier: GPL-2.0-or-later
// What the rogue node does to a victim, by name.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pcilend/result.h"
#include "rogue/node.h"

namespace pcilend::rogue {

struct Report {
  Tally tally;
  // What the victim should have refused, and did not.
  std::vector<std::string> granted;
  // Numbers and places that belong to the attack.
  std::map<std::string, uint64_t> numbers;
};

struct Attack {
  std::string_view name;
  std::string_view text;
  Result<Report> (*run)(Node& node, std::chrono::milliseconds time, uint32_t value);
};

// `time` is for those that go on until told to end; `value` is the attack's own.
std::span<const Attack> attacks();
const Attack* attack_named(std::string_view name);

}  // namespace pcilend::rogue
