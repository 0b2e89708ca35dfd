// SPDX-License-Identifier: GPL-2.0-or-later
// A function that several processes share (docs/device-api.md, pcilend-lease(3)).
#pragma once

#include <linux/pcilend.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace pcilend {

// Pages of a BAR, of 4 KiB.
struct BarRange {
  uint32_t bar = 0;  // 0 to 5
  uint32_t page = 0;
  uint32_t pages = 0;
  bool pool = false;  // in a policy: as many for each client, one's behind another's; else common
};

// What the manager of a shared function allows each of its clients.
struct SharePolicy {
  uint32_t clients = 0;                        // at most 64; 0: it is not shared any more
  uint32_t vectors = 0;                        // interrupts, at most 32
  uint64_t slice = uint64_t{64} << 20;         // bytes, at most
  std::vector<BarRange> ranges;                // at most 8
  std::optional<std::vector<uint32_t>> nodes;  // whose processes may join; else all that may borrow
};

// What the manager is told of a client, and a client of itself.
struct ClientNotice {
  uint32_t lease = 0;
  uint32_t node = 0;
  uint32_t news = PCILEND_NEWS_JOINED;
  uint32_t round = 0;  // of GONE and QUARANTINED
  uint64_t slice = 0;  // device address
  uint64_t slice_bytes = 0;
  uint32_t vector = 0;  // the function's number of its interrupt 0
  uint32_t vectors = 0;
  uint32_t piece = 0;  // which part of each pool is its own
};

// What a client asks its manager, or that answers. Both ends check what they get: it is bytes of
// somebody else.
inline constexpr size_t kMailMax = 200;
struct Mail {
  uint32_t client = 0;           // its ClientNotice::lease; in a client's own hands 0
  std::vector<std::byte> bytes;  // 1 to kMailMax
};

}  // namespace pcilend
