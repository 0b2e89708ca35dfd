// SPDX-License-Identifier: GPL-2.0-or-later
// What a client has of a drive that others share. By a lease of pcilend.ko, or made up in a test.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pcilend/nvme/device.h"
#include "pcilend/nvme/drive.h"

namespace pcilend::nvme {

class ClientLease {
 public:
  virtual ~ClientLease() = default;

  [[nodiscard]] virtual std::string name() const = 0;  // of the drive
  [[nodiscard]] virtual uint32_t lease() const = 0;
  [[nodiscard]] virtual uint32_t vectors() const = 0;
  // Into the page of doorbells, behind all that was stored before, to memory beside the drive, too.
  virtual void ring(size_t offset, uint32_t value) = 0;
  // In the slice.
  virtual Result<std::unique_ptr<Memory>> allocate(size_t bytes, const Access& access) = 0;
  // A segment of the drive's host, to be written only, as long as this lives. By the same adapter
  // as the doorbells, so that what is stored there comes first.
  virtual Result<std::span<std::byte>> connect(FunctionId segment) = 0;
  // Part of a BAR that the manager gives this client, as Device::bar().
  virtual Result<std::span<std::byte>> bar(uint32_t index, uint64_t offset, size_t bytes) = 0;
  // As Device::map().
  virtual Result<std::unique_ptr<Reach>> map(int dma_buf);
  virtual Result<UniqueFd> interrupt(uint32_t vector) = 0;
  virtual Result<> end_interrupt(uint32_t vector) = 0;
  // The manager's answer. Unreachable if none comes in time, State if it is over.
  virtual Result<std::vector<std::byte>> ask(std::span<const std::byte> question,
                                             std::chrono::milliseconds patience) = 0;
  // Ends it now. Memory that was allocated stays where it is, whoever frees it, until the manager
  // has confirmed that the drive does not use it; that of connect() can be stored to still.
  virtual void leave() = 0;
  [[nodiscard]] virtual uint64_t epoch() const = 0;
  [[nodiscard]] virtual bool over() const = 0;
  [[nodiscard]] virtual int fd() const = 0;
};

// `patience`: for each answer. Key: as JoinOptions.
Result<std::unique_ptr<Drive>> join_by(
    std::unique_ptr<ClientLease> lease,
    std::chrono::milliseconds patience = std::chrono::seconds(30), uint64_t key = 0);

}  // namespace pcilend::nvme
