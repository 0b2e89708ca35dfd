// SPDX-License-Identifier: GPL-2.0-or-later
// fio in guests: their initramfs has none, so it comes from the root file system of their host.
#pragma once

#include <string>

#include "lab/host.h"
#include "pcilend/result.h"

namespace pcilend::scenarios {

// The disk that such a guest needs, for GuestSpec::devices: its host's own, which it only reads.
inline constexpr const char* kDiskWithFio =
    "<disk type='block' device='disk'><driver name='qemu' type='raw'/><source dev='/dev/vda'/>"
    "<target dev='vda' bus='virtio'/><readonly/></disk>";

// Once in each boot of it.
Result<> mount_fio(const lab::Guest& guest);

// A command in that guest: writes blocks of 4 KiB in random order, four at a time, to so much of
// /dev/nvme0n1 from there on; reads them back, and fails if one has not the checksum that it had.
std::string verify_by_fio(int offset_mib, int size_kib);

}  // namespace pcilend::scenarios
