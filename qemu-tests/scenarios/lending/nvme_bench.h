// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>

namespace pcilend::scenarios {

// pcilend-nvme-bench, as it is on the lab's hosts.
inline constexpr const char* kBench = "/usr/lib/pcilend-lab/nvme-bench";
inline constexpr uint64_t kMany = 1000000;  // rounds that nobody waits for

}  // namespace pcilend::scenarios
