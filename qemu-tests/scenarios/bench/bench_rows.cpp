// SPDX-License-Identifier: GPL-2.0-or-later
#include "scenarios/bench/bench_rows.h"

#include <algorithm>

namespace pcilend::scenarios {

int run_bench(std::string_view name, Result<> (*bench)()) {
  const auto result = bench();
  if (result) return 0;
  fmt::print(stderr, "{}: {}\n", name, result.error().message);
  return static_cast<int>(result.error().kind);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.at(values.size() / 2);
}

Result<double> time_of(const lab::Host& host, const std::string& script) {
  const auto ns = host.run(fmt::format(
      "start=$(date +%s%N) && {{ {}; }} >/dev/null && echo $(($(date +%s%N) - start))", script));
  if (!ns) return tl::unexpected(ns.error());
  return std::stod(*ns) / 1e6;
}

void print_row(std::string_view what, double borrowed, std::string_view peer, double its,
               std::string_view unit) {
  fmt::print("| {} | {:.1f} {} | {} | {:.1f} {} | {:.2f} |\n", what, borrowed, unit, peer, its,
             unit, borrowed / its);
}

}  // namespace pcilend::scenarios
