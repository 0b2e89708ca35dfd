// SPDX-License-Identifier: GPL-2.0-or-later
// What a careless or hostile user of VFIO may try, and how each attempt ends.
#pragma once

#include <map>

#include "vfio/device.h"

namespace pcilend::vfio {

// What was tried -> the name of its errno, or "0".
using Answers = std::map<std::string, std::string>;

// On an NVMe drive: MSI-X, no MSI, BAR 0 alone, 4096 bytes of configuration space.
Result<Answers> try_bad_input(const Device& device);

}  // namespace pcilend::vfio
