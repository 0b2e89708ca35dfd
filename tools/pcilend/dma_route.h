// SPDX-License-Identifier: GPL-2.0-or-later
// Whether a lent function's DMA can get to the adapters: from device to device, which PCIe leaves
// to the root complex (PCI Express 6.0, 1.3.1: a root complex need not route between its ports).
#pragma once

#include <string>
#include <vector>

#include "answer.h"
#include "pcilend/environment.h"
#include "pcilend/ids.h"

namespace pcilend {

// One finding for each adapter (PCI address). What can't be told from here is a note.
std::vector<Finding> check_dma_route(const Environment& environment, const PciAddress& function,
                                     const std::vector<std::string>& adapters);

}  // namespace pcilend
