// SPDX-License-Identifier: GPL-2.0-or-later
// What --sanitize needs of a function and of this host.
#pragma once

#include "session.h"

namespace pcilend {

// Refuses a function that `pcilend sanitize` can't erase.
Result<> check_can_be_sanitized(const Session& session, const Function& function);

}  // namespace pcilend
