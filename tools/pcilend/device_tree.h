// SPDX-License-Identifier: GPL-2.0-or-later
// What hangs below a PCI function in sysfs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pcilend/environment.h"
#include "pcilend/ids.h"

namespace pcilend {

// Directories whose descendants depend on the function: its own, and those of NVMe subsystems it
// is a controller of (a multipath disk hangs below its subsystem, not below a controller).
Result<std::vector<std::filesystem::path>> dependent_trees(const Environment& environment,
                                                           const PciAddress& address);

// Names in /sys/class/CLASS of what is in these directories.
std::vector<std::string> class_members(const Environment& environment, std::string_view class_name,
                                       const std::vector<std::filesystem::path>& trees);

// Of an attribute's text; empty if there is none.
std::string first_line(const Result<std::string>& text);

}  // namespace pcilend
