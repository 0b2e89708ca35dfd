// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/guest_fio.h"

#include <fmt/format.h>

namespace pcilend::scenarios {

namespace {

constexpr const char* kRoot = "/tmp/host";

}  // namespace

Result<> mount_fio(const lab::Guest& guest) {
  // The host writes to it meanwhile, and its journal is none of the guest's business.
  PCILEND_TRY(guest.run(
      fmt::format("i=0; until [ -b /dev/vda ]; do i=$((i+1)); [ $i -lt 600 ] || exit 1; sleep 0.1; "
                  "done; mkdir -p {0} && mount -t ext4 -o ro,noload /dev/vda {0} && "
                  "mount -o bind /dev {0}/dev && mount -t proc proc {0}/proc && "
                  "mount -t sysfs sys {0}/sys",
                  kRoot)));
  return {};
}

std::string verify_by_fio(int offset_mib, int size_kib) {
  return fmt::format(
      "chroot {} fio --name=verify --thread --filename=/dev/nvme0n1 --direct=1 --ioengine=libaio "
      "--iodepth=4 --rw=randwrite --bs=4k --offset={}M --size={}k --verify=crc32c --verify_fatal=1 "
      "--verify_state_save=0",
      kRoot, offset_mib, size_kib);
}

}  // namespace pcilend::scenarios
