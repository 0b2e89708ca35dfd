// SPDX-License-Identifier: GPL-2.0-or-later
// Memory beside the drive, or in it, that this process stores to and never loads from, as that
// would wait for the NTB. Given out by pages.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "pcilend/nvme/command.h"
#include "pcilend/nvme/device.h"

namespace pcilend::nvme {

// Must outlive what it gives out; the memory must outlive it.
class NearPages {
 public:
  // `address`: where the drive finds the first of these bytes.
  NearPages(std::span<std::byte> bytes, uint64_t address)
      : bytes_(bytes), address_(address), used_(bytes.size() / kPage) {}

  // What is best there, as nobody waits for it.
  static bool wants(const Access& access) {
    return !access.device_writes && best_place(access) == Place::Function;
  }
  // In one piece, zeroed; nothing if that is not what is wanted, or there is no room.
  std::unique_ptr<Memory> allocate(size_t bytes, const Access& access) {
    return wants(access) ? take(bytes) : nullptr;
  }
  // The same, whatever it is for.
  std::unique_ptr<Memory> take(size_t bytes) {
    const size_t pages = (bytes + kPage - 1) / kPage;
    const auto at = std::search_n(used_.begin(), used_.end(), pages, false);
    if (pages == 0 || at == used_.end()) return nullptr;
    std::fill_n(at, pages, true);
    return std::make_unique<Block>(*this, static_cast<size_t>(at - used_.begin()), pages);
  }

 private:
  class Block final : public Memory {
   public:
    Block(NearPages& pages, size_t first, size_t count)
        : pages_(pages), first_(first), count_(count) {
      std::ranges::fill(Block::bytes(), std::byte{});
    }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block() override {
      std::fill_n(pages_.used_.begin() + static_cast<ptrdiff_t>(first_), count_, false);
    }
    std::span<std::byte> bytes() override {
      return pages_.bytes_.subspan(first_ * kPage, count_ * kPage);
    }
    [[nodiscard]] uint64_t address() const override { return pages_.address_ + first_ * kPage; }

   private:
    NearPages& pages_;
    size_t first_;
    size_t count_;
  };

  std::span<std::byte> bytes_;
  uint64_t address_;
  std::vector<bool> used_;
};

}  // namespace pcilend::nvme
