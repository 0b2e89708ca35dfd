// SPDX-License-Identifier: GPL-2.0-or-later
// What commands return: data, which the printers turn into text or JSON.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "pcilend/model.h"

namespace pcilend {

struct FunctionsAnswer {
  enum class Detail { Line, Full };

  std::vector<Function> functions;
  uint32_t this_node = 0;
  Detail detail = Detail::Line;
};

struct LinksAnswer {
  std::vector<Link> links;
};

// Functions to be passed to a VM as mdevs.
struct HostdevsAnswer {
  std::vector<Function> functions;
};

struct NothingAnswer {};

using Answer = std::variant<NothingAnswer, FunctionsAnswer, LinksAnswer, Node, HostdevsAnswer>;

}  // namespace pcilend
