// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "near_pages.h"

namespace pcilend::nvme {

// A device some of whose memory is beside it, or in itself, while there is room. Both must outlive
// it.
class NearDevice : public Device {
 public:
  NearDevice(Device& device, std::span<std::byte> bytes, uint64_t address)
      : device_(device), pages_(bytes, address) {}

  [[nodiscard]] std::string name() const override { return device_.name(); }
  [[nodiscard]] uint32_t load(size_t offset) const override { return device_.load(offset); }
  void store(size_t offset, uint32_t value) override { device_.store(offset, value); }
  [[nodiscard]] size_t register_bytes() const override { return device_.register_bytes(); }
  Result<std::unique_ptr<Memory>> allocate(size_t bytes, const Access& access) override {
    if (auto memory = near_allocate(bytes, access)) return memory;
    return device_.allocate(bytes, access);
  }
  Result<std::span<std::byte>> bar(uint32_t index, uint64_t offset, size_t bytes) override {
    return device_.bar(index, offset, bytes);
  }
  Result<std::unique_ptr<Reach>> map(int dma_buf) override { return device_.map(dma_buf); }
  Result<UniqueFd> interrupt(uint32_t vector) override { return device_.interrupt(vector); }
  Result<> end_interrupt(uint32_t vector) override { return device_.end_interrupt(vector); }
  [[nodiscard]] uint64_t epoch() const override { return device_.epoch(); }
  [[nodiscard]] int fd() const override { return device_.fd(); }

 protected:
  // Nothing if it is not for there, or there is no room.
  std::unique_ptr<Memory> near_allocate(size_t bytes, const Access& access) {
    return pages_.allocate(bytes, access);
  }

 private:
  Device& device_;
  NearPages pages_;
};

}  // namespace pcilend::nvme
