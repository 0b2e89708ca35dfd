// SPDX-License-Identifier: GPL-2.0-or-later
// Rows of the lab's benchmarks: a borrowed function beside something else in the same host.
#pragma once

#include <string_view>
#include <vector>

#include "lab/host.h"

namespace pcilend::scenarios {

inline constexpr std::string_view kOwnDrive = "a drive of the host's own";

double median(std::vector<double> values);

// How long `script` takes on the host, in milliseconds by its clock.
Result<double> time_of(const lab::Host& host, const std::string& script);

void print_row(std::string_view what, double borrowed, std::string_view peer, double its,
               std::string_view unit);

}  // namespace pcilend::scenarios
