// SPDX-License-Identifier: GPL-2.0-or-later
// What is done to what an adapter sends through its windows: posted writes are held on their way,
// behind the place where the link is cut; the link is cut in the middle of a transfer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace pcilend::fabric {

// Counts what functions do in memory of the peer: not what the hosts' own processors do there.
struct Trip {
  std::optional<uint64_t> reads;  // that are answered before the link goes down
  std::optional<uint64_t> writes;
  std::chrono::milliseconds flap{};  // until it comes back; 0: it does not

  [[nodiscard]] bool is_due() const { return reads == 0U || writes == 0U; }
};

struct HeldWrite {
  unsigned window = 0;
  uint64_t offset = 0;
  std::vector<std::byte> data;
};

struct Tampering {
  bool holds = false;
  std::vector<HeldWrite> held;
  size_t held_bytes = 0;
  std::optional<Trip> trip;

  void forget() { *this = {}; }
};

}  // namespace pcilend::fabric
