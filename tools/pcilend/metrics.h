// SPDX-License-Identifier: GPL-2.0-or-later
// What a host lends, borrows and counts, as Prometheus reads it: text format 0.0.4, also by the
// textfile collector of its node exporter.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "answer.h"

namespace pcilend {

// A count since pcilend.ko was loaded; its name is that of the metric, without prefix and suffix.
struct Counter {
  std::string_view name;
  uint64_t Counters::*value;
  std::string_view help;
};
std::span<const Counter> counter_list();

std::string metrics_text(const MetricsAnswer& metrics);

}  // namespace pcilend
