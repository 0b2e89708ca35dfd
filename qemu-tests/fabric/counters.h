// SPDX-License-Identifier: GPL-2.0-or-later
// What crossed the fabric. Counts are since the start or the last reset.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pcilend::fabric {

// What a transaction ended at.
enum class Target { Memory, Bar, Interrupt };
inline constexpr size_t kTargetCount = 3;
inline constexpr std::array<std::string_view, kTargetCount> kTargetNames{"memory", "bar",
                                                                         "interrupt"};

// Why a read was answered with all-ones, or a write dropped.
enum class Loss {
  Cycle,     // hosts waited for each other: only in the simulator
  Timeout,   // the peer's QEMU didn't answer in time: only in the simulator
  Overflow,  // the peer's QEMU takes no messages: only in the simulator
  LinkDown,
  Requester,  // who reads is not in the adapter's table
  Unmapped,   // window closed, no translation, or refused by the peer's bus
};
inline constexpr size_t kLossCount = 6;
inline constexpr std::array<std::string_view, kLossCount> kLossNames{
    "cycle", "timeout", "overflow", "link_down", "requester", "unmapped"};

struct Traffic {
  uint64_t reads = 0;
  uint64_t writes = 0;
  uint64_t read_bytes = 0;
  uint64_t write_bytes = 0;
};

// From one host through one adapter to its peer.
struct PathCounters {
  std::array<Traffic, kTargetCount> traffic;
  std::array<uint64_t, kLossCount> lost_reads{};
  std::array<uint64_t, kLossCount> lost_writes{};

  void count_read(Target target, uint64_t bytes) {
    Traffic& t = traffic[static_cast<size_t>(target)];
    t.reads++;
    t.read_bytes += bytes;
  }
  void count_write(Target target, uint64_t bytes) {
    Traffic& t = traffic[static_cast<size_t>(target)];
    t.writes++;
    t.write_bytes += bytes;
  }
  void count_lost_read(Loss loss) { lost_reads[static_cast<size_t>(loss)]++; }
  void count_lost_write(Loss loss) { lost_writes[static_cast<size_t>(loss)]++; }
};

// Accesses of one host to one adapter's registers.
struct AdapterCounters {
  uint64_t registers = 0;    // all of them, those below included
  uint64_t scratchpads = 0;  // reads and writes
  uint64_t doorbells = 0;    // bits rung on the peer
  uint64_t maps = 0;         // DMA_MAP messages
  uint64_t unmaps = 0;       // DMA_UNMAP messages
  size_t posted_peak = 0;    // most messages queued for this host's QEMU at once
};

}  // namespace pcilend::fabric
