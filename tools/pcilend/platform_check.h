// SPDX-License-Identifier: GPL-2.0-or-later
// What sysfs and the file system say about a host's fitness to lend and borrow.
#pragma once

#include <vector>

#include "answer.h"
#include "pcilend/environment.h"

namespace pcilend {

// pcilend.ko, the IOMMU, the NTB adapters.
std::vector<Finding> check_platform(const Environment& environment);

// What this host and its VMs need to borrow; `offered`: peers offer functions to it.
std::vector<Finding> check_frontends(const Environment& environment, bool offered);

}  // namespace pcilend
