// SPDX-License-Identifier: GPL-2.0-or-later
// Which programs have device nodes open.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pcilend/environment.h"

namespace pcilend {

// Programs that have one of these files open, as "qemu-system-x86 (pid 812)", by pid. Those whose
// descriptors the caller may not read are left out.
std::vector<std::string> programs_with(const Environment& environment,
                                       const std::vector<std::string>& nodes);

// The user of VFIO that has this PCI function, such as a VM; nothing if there is none. The kernel
// says so to whoever may open VFIO's groups, and /proc who it is: "a process" if it does not.
std::optional<std::string> vfio_user(const Environment& environment, std::string_view bdf);

}  // namespace pcilend
