// SPDX-License-Identifier: GPL-2.0-or-later
// OpenMetrics text (version 1.0.0) of what a host lends, borrows and counts.
#pragma once

#include <string>

#include "answer.h"

namespace pcilend {

std::string metrics_text(const MetricsAnswer& metrics);

}  // namespace pcilend
