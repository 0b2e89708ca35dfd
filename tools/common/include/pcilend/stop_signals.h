// SPDX-License-Identifier: GPL-2.0-or-later
// Ctrl-C as something to wait for.
#pragma once

#include "pcilend/fd.h"
#include "pcilend/result.h"

namespace pcilend {

// Readable once this process was sent SIGINT or SIGTERM, which no longer end it.
Result<UniqueFd> open_stop_signals();

}  // namespace pcilend
