// SPDX-License-Identifier: GPL-2.0-or-later
// What the lab's benchmarks share: rows of a borrowed function beside something else.
#pragma once

#include <string_view>
#include <vector>

#include "lab/host.h"

namespace pcilend::scenarios {

inline constexpr std::string_view kOwnDrive = "a drive of the host's own";

// main() of a benchmark: its exit code, after it has said on stderr what is wrong.
int run_bench(std::string_view name, Result<> (*bench)());

double median(std::vector<double> values);

// How long `script` takes on the host, in milliseconds by its clock.
Result<double> time_of(const lab::Host& host, const std::string& script);

void print_row(std::string_view what, double borrowed, std::string_view peer, double its,
               std::string_view unit);

}  // namespace pcilend::scenarios
