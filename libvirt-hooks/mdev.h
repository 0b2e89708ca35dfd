// SPDX-License-Identifier: GPL-2.0-or-later
// Mediated devices in sysfs (Linux: Documentation/driver-api/vfio-mediated-device.rst).
#pragma once

#include "pcilend/environment.h"
#include "pcilend/ids.h"

namespace pcilend {

bool mdev_exists(const Environment& environment, const Uuid& uuid);

// mdevctl, and so virsh, has it defined: who did that starts and stops it.
bool mdev_is_defined(const Environment& environment, const Uuid& uuid);

// VMMs find the IOMMU group of its function.
bool mdev_is_ready(const Environment& environment, const Uuid& uuid);

// The function that it was made of; an error if it was made of a kind.
Result<FunctionId> function_of_mdev(const Environment& environment, const Uuid& uuid);

// Makes a mediated device of a remote function, which borrows that unless it is borrowed for VFIO.
Result<> create_mdev(const Environment& environment, FunctionId function, const Uuid& uuid);

// Returns what the device has borrowed, and blocks while somebody has that open. Succeeds if there
// is no device.
Result<> remove_mdev(const Environment& environment, const Uuid& uuid);

}  // namespace pcilend
