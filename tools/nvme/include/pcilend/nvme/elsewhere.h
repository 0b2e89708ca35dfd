// SPDX-License-Identifier: GPL-2.0-or-later
// Memory for queues and data that is neither this process's nor the drive's: in a BAR of another
// function, or behind a dma-buf of whoever exports it, such as a GPU's driver (docs/nvme.md).
//
//	auto gpu = Elsewhere::in_bar(drive->device(), lease, 2, 0, bytes);
//	auto placed = place_queues(drive->device(), {.queues = gpu->get()});
//	auto pair = QueuePair::create(*placed, drive->queues(), options);
//
// What the drive writes there and its completions have different targets, which nothing keeps in
// order (seen in the lab): behind a completion a CPU may still find what was there before. They are
// in order if completions are in the same memory (QueuePlaces::completions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pcilend/nvme/device.h"

namespace pcilend::nvme {

// Which memory, as people name it.
struct ElsewhereName {
  std::optional<FunctionId> function;
  uint32_t bar = 0;     // of the function
  int buffer = -1;      // else: a descriptor of this process, of a dma-buf
  uint64_t offset = 0;  // bytes, whole pages
};
// "40002:2", "40002:2+64K", "fd:5", "fd:5+1M". Usage, with what it should be.
Result<ElsewhereName> parse_elsewhere(std::string_view text);

// The drive reaches it until this goes, so queues and commands that use it must have ended. Its
// Device must outlive it.
class Elsewhere final : public Memory {
 public:
  // Part of a BAR of a function that this process has leased, which must not be the drive. Usage if
  // the function has no such memory: registers are none. Unsupported if the drive can't reach it.
  static Result<std::unique_ptr<Elsewhere>> in_bar(Device& device, std::shared_ptr<const Lease> of,
                                                   uint32_t bar, uint64_t offset, size_t bytes);
  // Part of what is behind a dma-buf, which the caller may close. Its exporter may take it away.
  static Result<std::unique_ptr<Elsewhere>> behind(Device& device, int dma_buf, uint64_t offset,
                                                   size_t bytes);
  Elsewhere(const Elsewhere&) = delete;
  Elsewhere& operator=(const Elsewhere&) = delete;

  // Not zeroed. As this process sees it, slowly, by words that it loads and stores itself; empty if
  // the exporter does not let it.
  std::span<std::byte> bytes() override;
  [[nodiscard]] uint64_t address() const override { return reach_->address() + offset_; }
  // Changes when it is lost: its function was reset by others, taken back, or the link to it lost.
  // Of a dma-buf never.
  [[nodiscard]] uint64_t epoch() const { return of_ ? of_->epoch() : 0; }

 private:
  Elsewhere() = default;

  std::shared_ptr<const Lease> of_;
  std::optional<Registers> part_;  // of the function
  Mapping view_;                   // of the dma-buf
  std::unique_ptr<Reach> reach_;   // goes first
  uint64_t offset_ = 0;
};

// What is where. NULL: where the device has it.
struct QueuePlaces {
  // What the controller only reads, and this process only writes: commands, lists of pages, staged
  // data.
  Elsewhere* queues = nullptr;
  // Completions: in what is behind so many bytes of it. Each look at them goes there.
  Elsewhere* completions = nullptr;
  size_t completions_at = 0;
  // Whose loss is to change the epoch, too.
  std::vector<const Elsewhere*> also;
};

// `device` with queues there; allocate() fails if there is no room. Its epoch() changes also when
// one of these is lost, so that what was under way does not count. All must outlive it.
std::unique_ptr<Device> place_queues(Device& device, QueuePlaces places);

}  // namespace pcilend::nvme
