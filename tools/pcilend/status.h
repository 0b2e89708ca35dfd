// SPDX-License-Identifier: GPL-2.0-or-later
// What of a host's state somebody should see to.
#pragma once

#include "answer.h"

namespace pcilend {

// One line each; empty if all is well: a node without id, links that are not up, functions of this
// host in quarantine.
std::vector<std::string> needs_attention(const StatusAnswer& status);

}  // namespace pcilend
