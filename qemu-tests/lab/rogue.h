// SPDX-License-Identifier: GPL-2.0-or-later
// The rogue node of a lab (qemu-tests/fabric/README.md, "The rogue node").
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "pcilend/result.h"

namespace pcilend::lab {

class Rogue {
 public:
  explicit Rogue(std::string control) : control_(std::move(control)) {}

  // Does something to a host, and returns when it is done: the rogue's report.
  Result<nlohmann::json> attack(const std::string& name, int victim,
                                std::chrono::milliseconds time = std::chrono::seconds(1),
                                uint32_t value = 0) const;
  // What the rogue knows of its links.
  Result<nlohmann::json> status() const;

 private:
  Result<nlohmann::json> request(const nlohmann::json& request) const;

  std::string control_;
};

}  // namespace pcilend::lab
