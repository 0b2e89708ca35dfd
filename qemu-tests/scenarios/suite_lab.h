// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>

#include "lab/lab.h"

namespace pcilend::scenarios {

// Starts a lab into `lab`; its steps are shown with the seconds since the beginning.
Result<> start_lab(const lab::Options& options, std::optional<lab::Lab>& lab);

// Ends it. Failure if one of its hosts has leaked memory (the debug kernel tells).
Result<> end_lab(std::optional<lab::Lab>& lab);

}  // namespace pcilend::scenarios
