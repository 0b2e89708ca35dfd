// SPDX-License-Identifier: GPL-2.0-or-later
// The last small posted writes of a session, such as doorbells: QEMU may refuse one for no reason
// that hardware knows, and then it is sent again, unless its place was written again since.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>

namespace pcilend::fabric {

struct SmallWrite {
  uint16_t id = 0;  // of its message
  uint64_t address = 0;
  std::array<std::byte, 8> bytes{};
  size_t size = 0;
  unsigned attempts = 1;

  [[nodiscard]] std::span<const std::byte> data() const { return std::span(bytes).first(size); }
};

class RecentWrites {
 public:
  void note(uint16_t id, uint64_t address, std::span<const std::byte> data, unsigned attempts) {
    SmallWrite write{.id = id, .address = address, .size = data.size(), .attempts = attempts};
    if (data.size() > write.bytes.size()) return;
    std::ranges::copy(data, write.bytes.begin());
    if (writes_.size() == kKept) writes_.pop_front();
    writes_.push_back(write);
  }
  // If nothing was written to its address since.
  [[nodiscard]] std::optional<SmallWrite> find_last(uint16_t id) const {
    const auto found = std::find_if(writes_.rbegin(), writes_.rend(),
                                    [id](const SmallWrite& write) { return write.id == id; });
    if (found == writes_.rend()) return std::nullopt;
    const bool again = std::any_of(writes_.rbegin(), found, [&](const SmallWrite& write) {
      return write.address == found->address;
    });
    return again ? std::nullopt : std::optional(*found);
  }

 private:
  static constexpr size_t kKept = 256;

  std::deque<SmallWrite> writes_;
};

}  // namespace pcilend::fabric
