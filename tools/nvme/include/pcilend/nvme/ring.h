// SPDX-License-Identifier: GPL-2.0-or-later
// A submission queue and its completion queue in memory (Base 3.3): which commands are under way,
// and whether what comes back is an answer to one of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "pcilend/nvme/command.h"
#include "pcilend/nvme/device.h"
#include "pcilend/nvme/queues.h"

namespace pcilend::nvme {

// A command that has come to its end.
struct Done {
  uint32_t slot = 0;
  uint16_t status = 0;  // 0 is success
  uint32_t result = 0;
};

// An entry has a command from submit() until that has ended, and nothing that a drive would carry
// out before and afterwards: others may ring the doorbell, and stores to memory beside the drive
// may be lost while the doorbell is not.
//
// Not to be moved while the controller knows it. Its Device must outlive it.
class Ring {
 public:
  // For `depth` commands under way at once, 1 to 65,535. The submission queue is mapped read-only
  // for the controller, which only reads it.
  static Result<Ring> make(Device& device, uint32_t depth);

  [[nodiscard]] uint32_t entries() const { return depth() + 1; }
  [[nodiscard]] uint32_t depth() const { return static_cast<uint32_t>(slots_.size()); }
  [[nodiscard]] uint64_t submission() const { return submission_->address(); }
  [[nodiscard]] uint64_t completion() const { return completion_->address(); }
  [[nodiscard]] const Memory& submission_memory() const { return *submission_; }
  // The controller knows it by these now.
  void attach(const QueueGrant& grant) { grant_ = grant; }

  // A slot for one more command, until take() has it back; nothing while all are in use.
  [[nodiscard]] std::optional<uint32_t> free_slot() const;
  [[nodiscard]] uint32_t under_way() const { return under_way_; }
  // In a free slot. The controller hears of it with the next ring(). State if nothing can be
  // submitted any more (failed()).
  Result<> submit(uint32_t slot, Command command);
  void ring();

  // The next command that has ended, if one has. Once it fails nothing that is under way is known
  // to be done or not, and nothing more can be submitted: State, if the controller was reset by
  // others or DMA was lost; Failure, if it answers what was not asked.
  Result<std::optional<Done>> take();
  [[nodiscard]] bool failed() const { return failed_.has_value(); }

  [[nodiscard]] uint64_t doorbells() const { return doorbells_; }  // stores

 private:
  struct Slot {
    bool used = false;
    uint32_t entry = 0;  // that its command is in
  };

  Ring(Device& device, uint32_t depth)
      : device_(&device), epoch_(device.epoch()), slots_(depth), owners_(depth + 1) {}

  [[nodiscard]] tl::unexpected<Error> give_up(ErrorClass kind, std::string text);
  [[nodiscard]] tl::unexpected<Error> disturbed();
  void release_entry();
  // No command is there any more, that a ring of the doorbell would have the drive repeat.
  void scrub(uint32_t entry);

  Device* device_;
  uint64_t epoch_;  // when it was made: with another one the controller does not know it any more
  std::vector<Slot> slots_;
  std::vector<uint32_t> owners_;  // of entries: the slot that had it last
  std::unique_ptr<Memory> submission_;
  std::unique_ptr<Memory> completion_;
  QueueGrant grant_;
  uint32_t tail_ = 0;  // of submissions
  uint32_t rung_ = 0;
  uint32_t head_ = 0;  // of completions
  bool phase_ = true;  // that a new completion has
  uint32_t under_way_ = 0;
  uint64_t doorbells_ = 0;
  std::optional<Error> failed_;
};

}  // namespace pcilend::nvme
