// SPDX-License-Identifier: GPL-2.0-or-later
// Disks from the image that are no part of every lab (image/build --attached).
#pragma once

#include <string>

#include "lab/options.h"

namespace pcilend::scenarios {

enum class Attached {
  VfioUsers,  // a Debian's root with QEMU's tools and DPDK
  Cluster,    // a Debian's root with corosync, dlm_controld and GFS2's tools
  GuestDisk,  // a disk that firmware boots a Debian from
};

// A device of that host, with that disk as its drive; what is written to it is gone with the lab.
// `device` as in Options::add_device, without the host.
Result<> attach(lab::Options& options, int host, Attached disk, const std::string& device);

}  // namespace pcilend::scenarios
