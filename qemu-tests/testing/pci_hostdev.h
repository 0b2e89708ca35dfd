// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

namespace pcilend::scenarios {

// libvirt's <hostdev> of a function of the host itself, at that PCI address, by vfio-pci.
std::string pci_hostdev(const std::string& address);

}  // namespace pcilend::scenarios
