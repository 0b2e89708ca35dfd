// SPDX-License-Identifier: GPL-2.0-or-later
// Mediated devices in sysfs (Linux: Documentation/driver-api/vfio-mediated-device.rst).
#pragma once

#include "pcilend/environment.h"
#include "pcilend/ids.h"

namespace pcilend {

bool mdev_exists(const Environment& environment, const Uuid& uuid);

// The function whose mediated device it is.
Result<FunctionId> function_of_mdev(const Environment& environment, const Uuid& uuid);

// Makes the mediated device of a remote function.
Result<> create_mdev(const Environment& environment, FunctionId function, const Uuid& uuid);

// Blocks while somebody has the device open. Succeeds if there is none.
Result<> remove_mdev(const Environment& environment, const Uuid& uuid);

}  // namespace pcilend
