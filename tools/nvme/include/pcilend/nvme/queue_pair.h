// SPDX-License-Identifier: GPL-2.0-or-later
// Reads and writes of a drive: a pair of queues of this process's own.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "pcilend/nvme/device.h"
#include "pcilend/nvme/identify.h"
#include "pcilend/nvme/queues.h"
#include "pcilend/nvme/ring.h"

namespace pcilend::nvme {

struct QueuePairOptions {
  uint32_t depth = 1;              // commands under way at once
  size_t transfer = kPage;         // bytes of one, at most
  std::optional<uint16_t> vector;  // wait() sleeps until that interrupt; else it polls: spins for
                                   // 1 ms, then looks each 50 us
};

// Deleted when it goes: then the controller touches neither the queues nor the data of what was
// under way. For one thread at a time. Its Device and its Queues must outlive it, and the memory of
// data everything that is under way.
class QueuePair {
 public:
  // Usage if the drive takes less than the options say.
  static Result<std::unique_ptr<QueuePair>> create(Device& device, Queues& queues,
                                                   const QueuePairOptions& options);
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;
  ~QueuePair();

  // The slot, below the depth, that Done names; nothing if all are in use. Data is at the device
  // address `address`, a multiple of 4. The drive hears of it with ring() or wait(). Usage if it is
  // out of the namespace, or more than options.transfer; State as Ring::submit().
  Result<std::optional<uint32_t>> read(const NamespaceInfo& name_space, uint64_t block,
                                       uint32_t blocks, uint64_t address);
  Result<std::optional<uint32_t>> write(const NamespaceInfo& name_space, uint64_t block,
                                        uint32_t blocks, uint64_t address);
  // What was done before is on the medium when it is done.
  Result<std::optional<uint32_t>> flush(const NamespaceInfo& name_space);

  // What disks need besides, if the drive knows it (ControllerInfo). As write(), but it is on the
  // medium when it is done; zeroes, as many as write() takes; what is not needed any more, one
  // range, which is at the device address `address` for as long as it is under way.
  Result<std::optional<uint32_t>> write_through(const NamespaceInfo& name_space, uint64_t block,
                                                uint32_t blocks, uint64_t address);
  Result<std::optional<uint32_t>> write_zeroes(const NamespaceInfo& name_space, uint64_t block,
                                               uint32_t blocks);
  Result<std::optional<uint32_t>> deallocate(const NamespaceInfo& name_space, uint64_t address);
  // The eventfd of its interrupt, which interrupts() reads; -1 if it polls.
  [[nodiscard]] int event() const { return event_.get(); }

  void ring() { ring_.ring(); }

  // The next one that is done, if one is; errors as Ring::take().
  Result<std::optional<Done>> take() { return ring_.take(); }
  // The same, waited for. Unreachable if none is in that time: delete the pair then, for what is
  // under way may be done still. Not to be called with nothing under way.
  Result<Done> wait(std::chrono::milliseconds patience);

  [[nodiscard]] uint32_t under_way() const { return ring_.under_way(); }
  [[nodiscard]] uint64_t doorbells() const { return ring_.doorbells(); }
  // That have come until now.
  [[nodiscard]] uint64_t interrupts();
  // Why commands are not where they would be best, for people.
  [[nodiscard]] std::string remark() const { return ring_.submission_memory().remark(); }

 private:
  using Make = Command (*)(uint32_t, uint64_t, uint32_t, const DataPointer&);

  QueuePair(Device& device, Queues& queues, const QueuePairOptions& options, Ring ring)
      : device_(device), queues_(queues), options_(options), ring_(std::move(ring)) {}

  Result<std::optional<uint32_t>> transfer(Make make, const NamespaceInfo& name_space,
                                           uint64_t block, uint32_t blocks, uint64_t address);
  Result<std::optional<uint32_t>> submit(const Command& command);
  [[nodiscard]] Result<> check(const NamespaceInfo& name_space, uint64_t block,
                               uint32_t blocks) const;
  [[nodiscard]] Result<> sleep(std::chrono::milliseconds limit);

  Device& device_;
  Queues& queues_;
  QueuePairOptions options_;
  Ring ring_;
  std::unique_ptr<Memory> lists_;  // a page for each slot
  UniqueFd event_;
  std::optional<uint16_t> id_;
  uint64_t interrupts_ = 0;
};

}  // namespace pcilend::nvme
