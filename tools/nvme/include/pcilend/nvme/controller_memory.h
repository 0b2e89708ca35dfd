// SPDX-License-Identifier: GPL-2.0-or-later
// Memory that a controller has itself, in one of its BARs: its controller memory buffer
// (Base 3.1.3.11 to 3.1.3.15).
#pragma once

#include <cstdint>

#include "pcilend/error.h"

namespace pcilend::nvme {

struct ControllerMemory {
  uint32_t bar = 0;
  uint64_t offset = 0;   // in the BAR, whole pages
  uint64_t bytes = 0;    // whole pages
  uint64_t address = 0;  // by which the controller takes it for its own
};

// Below the slices of leases (from 2^36 on: core/slice.h), and above what else a leased function
// reaches.
inline constexpr uint64_t kControllerMemoryAddress = uint64_t{1} << 35;

// Of registers CMBLOC and CMBSZ. Unsupported if commands, lists of pages and data of writes are not
// to be there, or it is so large that it reaches into slices.
Result<ControllerMemory> parse_controller_memory(uint32_t location, uint32_t size);

}  // namespace pcilend::nvme
