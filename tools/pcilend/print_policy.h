// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "policy_answer.h"

namespace pcilend {

// What a step does, for people: "make 0000:00:10.0 available".
std::string describe(const policy::Step& step);

// Failed steps are not in the text: the command has warned of them.
std::string policy_text(const RestoreAnswer& answer);
std::string policy_text(const FiltersAnswer& answer);
std::string policy_text(const SavedAnswer& answer);

nlohmann::ordered_json policy_json(const RestoreAnswer& answer);
nlohmann::ordered_json policy_json(const FiltersAnswer& answer);
nlohmann::ordered_json policy_json(const SavedAnswer& answer);

}  // namespace pcilend
