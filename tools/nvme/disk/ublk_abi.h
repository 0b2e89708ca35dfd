// SPDX-License-Identifier: GPL-2.0-or-later
// The kernel's interface of ublk, with what older releases' headers of it have not. All kernels
// from 6.12 on have it.
#pragma once

#include <linux/ublk_cmd.h>
#include <sys/ioctl.h>

#include <cstdint>

namespace pcilend::nvme {

// Opcodes in the form that all kernels take (UBLK_U_*).
constexpr uint32_t ublk_control(unsigned number) {
  return static_cast<uint32_t>(_IOWR('u', number, ublksrv_ctrl_cmd));
}
constexpr uint32_t ublk_io(unsigned number) {
  return static_cast<uint32_t>(_IOWR('u', number, ublksrv_io_cmd));
}
// Those that only report: UBLK_U_CMD_GET_DEV_INFO, UBLK_U_CMD_DEL_DEV_ASYNC are of this form.
constexpr uint32_t ublk_report(unsigned number) {
  return static_cast<uint32_t>(_IOR('u', number, ublksrv_ctrl_cmd));
}
inline constexpr unsigned kUblkRemoveLater = 0x14;  // without waiting for those who have it open

// UBLK_F_USER_COPY: data is copied by pread() and pwrite() at the place of a queue's tag.
inline constexpr uint64_t kUblkUserCopy = uint64_t{1} << 7;
constexpr uint64_t ublk_data_at(unsigned queue, unsigned tag) {
  return UBLKSRV_IO_BUF_OFFSET + (uint64_t{queue} << 41) + (uint64_t{tag} << 25);
}

// Where the requests of a queue are, in what is mapped of /dev/ublkcN.
inline constexpr size_t kUblkRequestsStride = UBLK_MAX_QUEUE_DEPTH * sizeof(ublksrv_io_desc);

inline constexpr unsigned kSectorShift = 9;

}  // namespace pcilend::nvme
