// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "lab/host.h"

namespace pcilend::scenarios {

// Whether there is an image of the lab's kernel for it.
bool can_kexec();

// The host's kernel starts itself anew, without its firmware and without a reset of any device.
// Returns when it is up.
Result<> kexec(const lab::Host& host);

}  // namespace pcilend::scenarios
