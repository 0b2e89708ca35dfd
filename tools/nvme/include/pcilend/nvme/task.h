// SPDX-License-Identifier: GPL-2.0-or-later
// What is wanted of a drive, whichever queue it goes by.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pcilend::nvme {

enum class Work { Read, Write, Flush, Deallocate, WriteZeroes };

struct Task {
  Work work = Work::Flush;
  uint64_t block = 0;
  uint32_t blocks = 0;
  size_t bytes = 0;      // of data, to or from the drive
  bool through = false;  // a write that must be on the medium when it is done
};

}  // namespace pcilend::nvme
