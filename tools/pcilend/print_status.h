// SPDX-License-Identifier: GPL-2.0-or-later
// What status and check found.
#pragma once

#include "answer.h"
#include "columns.h"

namespace pcilend {

std::string status_text(const StatusAnswer& answer, const PciNames& names);
Json status_json(const StatusAnswer& answer, const PciNames& names);
std::string check_text(const CheckAnswer& answer);
Json check_json(const CheckAnswer& answer);
Result<std::string> hwtest_text(const HwtestAnswer& answer, const PciNames& names);
Json hwtest_json(const HwtestAnswer& answer, const PciNames& names);

}  // namespace pcilend
