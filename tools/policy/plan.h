// SPDX-License-Identifier: GPL-2.0-or-later
// What is wanted of each function of this host.
#pragma once

#include "pcilend/policy/restore.h"

namespace pcilend::policy {

struct Goal {
  LocalFunction local;
  std::optional<Function> present;  // as the kernel has it, if it is added
  bool add = false;
  bool available = false;
  bool unavailable = false;  // it must not be available
  bool by_filter = false;    // nobody named this very function
  std::optional<FunctionId> id;
  std::optional<std::string> label;
  std::optional<Audience> allow;
  bool force = false;
  bool direct = false;
  bool sanitize = false;
  std::optional<uint64_t> near;
  std::string place;
  std::string excluded;    // place of the unavailable filter that matches
  bool overruled = false;  // by that filter: an entry says available
};

struct Plan {
  std::vector<Goal> goals;
  std::vector<Step> missing;  // entries that no function of this host fits
};

Result<Plan> make_plan(const Host& host, const Config& config, const RestoreOptions& options);

}  // namespace pcilend::policy
