// SPDX-License-Identifier: GPL-2.0-or-later
// What the commands for configuration return.
#pragma once

#include <string>
#include <vector>

#include "pcilend/policy/kinds.h"
#include "pcilend/policy/restore.h"

namespace pcilend {

struct RestoreAnswer {
  std::vector<policy::Step> steps;
  bool dry_run = false;
};

struct FiltersAnswer {
  std::vector<policy::Filter> filters;
};

struct KindsAnswer {
  std::vector<policy::PresentKind> kinds;
};

struct SavedAnswer {
  std::string file;
  size_t connections = 0;
  size_t functions = 0;
  std::string text;  // what it would write, for file "-"
};

}  // namespace pcilend
