// SPDX-License-Identifier: GPL-2.0-or-later
// The kernel's side of a disk of ours: made, started and ended by commands to /dev/ublk-control.
#pragma once

#include <liburing.h>

#include <chrono>
#include <memory>
#include <optional>

#include "disk/ublk_abi.h"
#include "pcilend/fd.h"

namespace pcilend::nvme {

// Owns one io_uring; for one thread.
class Uring {
 public:
  static Result<std::unique_ptr<Uring>> make(unsigned entries, unsigned flags);
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;
  ~Uring() {
    if (ready_) ::io_uring_queue_exit(&ring_);
  }

  [[nodiscard]] io_uring* get() { return &ring_; }
  [[nodiscard]] int fd() const { return ring_.ring_fd; }
  // An entry for a command to that file, zeroed; there is room as long as what was given before is
  // submitted, and no more than `entries` are.
  io_uring_sqe* command(int file, uint32_t operation, uint64_t user_data);

 private:
  Uring() = default;
  io_uring ring_{};
  bool ready_ = false;
};

class UblkControl {
 public:
  // Unsupported if this kernel has no ublk, or not yet.
  static Result<std::unique_ptr<UblkControl>> open();

  // What is there of that number; nothing if there is none.
  Result<std::optional<ublksrv_ctrl_dev_info>> info(uint32_t number);
  // With the number and the limits that the kernel has made of it.
  Result<ublksrv_ctrl_dev_info> add(const ublksrv_ctrl_dev_info& wanted);
  Result<> set_parameters(uint32_t number, const ublk_params& parameters);
  // The disk is there when it returns. All of its queues must be served by then.
  Result<> start(uint32_t number);
  // Takes over a disk whose former program is gone, which may take the kernel a while to see:
  // waited for until `end`. Then its queues must be served, then end_recovery().
  Result<> start_recovery(uint32_t number, std::chrono::steady_clock::time_point end);
  Result<> end_recovery(uint32_t number);
  // What is asked of it fails from now on, if nobody serves it any more; the disk is gone when it
  // returns.
  Result<> stop(uint32_t number);
  // Its number is free again once nobody has it open.
  Result<> remove(uint32_t number);

 private:
  UblkControl(UniqueFd device, std::unique_ptr<Uring> ring)
      : device_(std::move(device)), ring_(std::move(ring)) {}

  // 0 or more; a negative errno. Unreachable if the kernel does not answer: then this object is of
  // no use any more.
  Result<int> execute(uint32_t operation, const ublksrv_ctrl_cmd& command);
  Result<> done(const char* what, uint32_t number, const Result<int>& answer) const;

  UniqueFd device_;
  std::unique_ptr<Uring> ring_;
  // What the kernel reads and writes in the course of a command.
  ublksrv_ctrl_dev_info info_{};
  ublk_params parameters_{};
  bool stuck_ = false;
};

}  // namespace pcilend::nvme
