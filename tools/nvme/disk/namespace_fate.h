// SPDX-License-Identifier: GPL-2.0-or-later
// What has become of a namespace that is a disk.
#pragma once

#include <cstdint>

#include "pcilend/error.h"
#include "pcilend/nvme/identify.h"

namespace pcilend::nvme {

enum class NamespaceFate {
  Same,     // for the disk it is what it was
  Grown,    // it has the disk's blocks, and more
  Other,    // it is gone, or what the disk has written is not at its place any more
  Unknown,  // the drive did not answer
};

// `blocks`: that the disk has.
NamespaceFate fate_of(const NamespaceInfo& known, uint64_t blocks,
                      const Result<NamespaceInfo>& now);

}  // namespace pcilend::nvme
