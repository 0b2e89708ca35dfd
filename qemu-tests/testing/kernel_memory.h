// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>

#include "lab/host.h"

namespace pcilend::scenarios {

// What that host's kernel has for itself: slabs, page tables (IOMMUs', too), per-CPU memory,
// stacks; bytes. Caches of files are dropped first.
Result<int64_t> kernel_memory(const lab::Host& host);

}  // namespace pcilend::scenarios
