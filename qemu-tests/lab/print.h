// SPDX-License-Identifier: GPL-2.0-or-later
// The lab's answers as text for people. The JSON forms come from the data itself.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lab/fabric_client.h"
#include "lab/lab.h"

namespace pcilend::lab {

// Aligned columns; numbers to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { add(std::move(header)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string counters_text(const Counters& counters);
std::string sweep_text(const SweepReport& report, const std::string& victim,
                       const std::string& from);

// {"lab": …, "kernel": …, "iommu": …, "dir": …, "fabric": "running"|"off"|"none",
//  "hosts": [{"name", "node", "state", "pid", "memory_mib", "console", "adapters": [{"peer",
//  "address"}], "devices": [{"id", "device", "address", "drive"}]}],
//  "links": [{"a", "b", "enabled", "up", "delay_ms"}]}
nlohmann::json status_json(Lab& lab);
std::string status_text(const nlohmann::json& status);

}  // namespace pcilend::lab
