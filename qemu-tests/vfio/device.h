// SPDX-License-Identifier: GPL-2.0-or-later
// A VFIO device in a type1 container of its own. What VFIO may refuse on purpose returns 0 or an
// errno; all else a Result.
#pragma once

#include <linux/vfio.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pcilend/fd.h"

namespace pcilend::vfio {

// Flags of VFIO_DEVICE_SET_IRQS.
inline constexpr uint32_t kNone = VFIO_IRQ_SET_DATA_NONE;
inline constexpr uint32_t kBool = VFIO_IRQ_SET_DATA_BOOL;
inline constexpr uint32_t kEventFd = VFIO_IRQ_SET_DATA_EVENTFD;
inline constexpr uint32_t kTrigger = VFIO_IRQ_SET_ACTION_TRIGGER;
inline constexpr uint32_t kMask = VFIO_IRQ_SET_ACTION_MASK;
inline constexpr uint32_t kUnmask = VFIO_IRQ_SET_ACTION_UNMASK;

// One access of that width.
template <class T>
T load(std::span<const std::byte> bytes, size_t offset) {
  return *reinterpret_cast<const volatile T*>(bytes.data() + offset);
}
template <class T>
void store(std::span<std::byte> bytes, size_t offset, T value) {
  *reinterpret_cast<volatile T*>(bytes.data() + offset) = value;
}

class EventFd {
 public:
  static Result<EventFd> make();

  [[nodiscard]] int get() const { return fd_.get(); }
  // Waits until it is signalled, and takes the signals. Failure after two minutes.
  [[nodiscard]] Result<> wait() const;
  // Signals since it was last asked.
  uint64_t take() const;

 private:
  explicit EventFd(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// Memory that the device reaches at `iova`. The device must outlive it.
class DmaMemory {
 public:
  DmaMemory(DmaMemory&& other) noexcept
      : container_(std::exchange(other.container_, -1)),
        iova_(other.iova_),
        memory_(std::move(other.memory_)) {}
  DmaMemory& operator=(DmaMemory&&) = delete;
  ~DmaMemory();

  [[nodiscard]] std::span<std::byte> bytes() const { return memory_.bytes(); }
  [[nodiscard]] uint64_t iova() const { return iova_; }

 private:
  friend class Device;
  DmaMemory(int container, uint64_t iova, Mapping memory)
      : container_(container), iova_(iova), memory_(std::move(memory)) {}

  int container_;
  uint64_t iova_;
  Mapping memory_;
};

struct Region {
  uint32_t flags = 0;
  uint64_t size = 0;
  uint64_t offset = 0;
  std::vector<uint32_t> capabilities;  // VFIO_REGION_INFO_CAP_*
};

class Device {
 public:
  // The mediated device of that UUID, or the function at that PCI address, through its group.
  static Result<Device> open(const std::string& name);

  [[nodiscard]] int fd() const { return device_.get(); }
  [[nodiscard]] int container() const { return container_.get(); }

  [[nodiscard]] Result<vfio_device_info> info() const;
  [[nodiscard]] Result<Region> region(uint32_t index) const;
  // Nothing: there is no such interrupt.
  [[nodiscard]] std::optional<vfio_irq_info> irq(uint32_t index) const;
  [[nodiscard]] Result<Mapping> map(uint32_t region) const;

  [[nodiscard]] int set_irqs(uint32_t index, uint32_t flags, uint32_t start, uint32_t count,
                             std::span<const std::byte> data = {}) const;
  // As eventfds of [start, start + fds.size()); -1: none.
  [[nodiscard]] int set_eventfds(uint32_t index, uint32_t start, std::span<const int> fds) const;
  [[nodiscard]] int reset() const;

  [[nodiscard]] Result<std::vector<std::byte>> config() const;
  [[nodiscard]] Result<uint16_t> config_word(uint32_t offset) const;
  [[nodiscard]] Result<> set_config_word(uint32_t offset, uint16_t value) const;
  // Memory space and bus mastering on.
  [[nodiscard]] Result<> enable() const;

  [[nodiscard]] Result<DmaMemory> map_dma(uint64_t iova, size_t size) const;

  // The group stays in the container.
  void close_device() { device_.reset(); }

 private:
  UniqueFd container_;
  UniqueFd group_;
  UniqueFd device_;
};

}  // namespace pcilend::vfio
