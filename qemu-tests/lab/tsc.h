// SPDX-License-Identifier: GPL-2.0-or-later
// The rate of this machine's time stamp counter, which under TCG is that of the hosts too.
#pragma once

#include <cstdint>

namespace pcilend::lab {

// In kHz, to about 0.1 %: measured against the monotonic clock in 20 ms.
uint64_t tsc_khz();

}  // namespace pcilend::lab
