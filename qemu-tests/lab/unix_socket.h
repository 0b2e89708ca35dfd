// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "pcilend/fd.h"
#include "pcilend/result.h"

namespace pcilend::lab {

// Connects to a listening stream socket; Unreachable if nobody listens there.
Result<UniqueFd> connect_unix(const std::string& path);

}  // namespace pcilend::lab
