// SPDX-License-Identifier: GPL-2.0-or-later
// Disks that pcilend-nvme-disk has made, as listings have them.
#pragma once

#include <vector>

#include "disk/record.h"

namespace pcilend {

// One that no program serves has no pid, and waits, unless it has failed.
Result<std::vector<nvme::DiskRecord>> find_disks(const Environment& environment);

}  // namespace pcilend
