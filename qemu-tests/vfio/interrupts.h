// SPDX-License-Identifier: GPL-2.0-or-later
// Interrupts in all of VFIO's forms, raised by a USB host controller. An error names the step at
// which an interrupt was lost, or came unasked.
#pragma once

#include "vfio/device.h"

namespace pcilend::vfio {

Result<> use_msix(const Device& device);
Result<> use_msi(const Device& device);
Result<> use_intx(const Device& device);

}  // namespace pcilend::vfio
