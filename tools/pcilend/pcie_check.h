// SPDX-License-Identifier: GPL-2.0-or-later
// What a host's firmware and kernel have set in the configuration spaces of functions and of the
// ports above them, as far as DMA through an NTB and the loss of a peer depend on it. What can't be
// read (another user than root sees the first 64 bytes only) is not judged.
#pragma once

#include <string>
#include <vector>

#include "answer.h"
#include "pcilend/environment.h"
#include "pcilend/ids.h"

namespace pcilend {

// An adapter, and the ports between it and the root complex.
std::vector<Finding> check_adapter_path(const Environment& environment, const std::string& adapter);

// A function that is lent, or shall be, over any of these adapters.
std::vector<Finding> check_function_settings(const Environment& environment,
                                             const PciAddress& function,
                                             const std::vector<std::string>& adapters);

}  // namespace pcilend
