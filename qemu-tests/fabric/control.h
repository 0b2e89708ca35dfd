// SPDX-License-Identifier: GPL-2.0-or-later
// The commands of the control socket, as JSON. Requests and answers are described in README.md.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "fabric.h"
#include "sweep.h"

namespace pcilend::fabric {

using Respond = std::function<void(const nlohmann::json& answer)>;

// Something a command started that goes on; destroying it cancels it, and nothing is answered then.
class Work {
 public:
  virtual ~Work() = default;
};

// Carries out one request line. Calls `respond` once, at once or later; in the latter case what is
// returned must be kept until then.
std::unique_ptr<Work> carry_out(Fabric& fabric, std::string_view line, const Respond& respond);

}  // namespace pcilend::fabric
