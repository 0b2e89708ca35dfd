// SPDX-License-Identifier: GPL-2.0-or-later
// Configuration spaces, decoded.
#pragma once

#include "answer.h"
#include "columns.h"

namespace pcilend {

std::string config_text(const ConfigAnswer& answer, const PciNames& names);
Json config_json(const ConfigAnswer& answer, const PciNames& names);

}  // namespace pcilend
