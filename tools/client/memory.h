// SPDX-License-Identifier: GPL-2.0-or-later
// New memory of this process that devices can be given.
#pragma once

#include <string>

#include "pcilend/fd.h"

namespace pcilend {

// Its bytes, zeroed, and the dma-buf that is them.
struct Memory {
  Mapping mapping;
  UniqueFd buffer;
};

// `bytes`, rounded up to pages, of 2 MiB with `huge`; `what` it is, in one word. Usage if that is
// nothing, or more than /dev/udmabuf takes at once.
Result<Memory> make_memory(const std::string& what, size_t bytes, bool huge);

}  // namespace pcilend
