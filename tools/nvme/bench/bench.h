// SPDX-License-Identifier: GPL-2.0-or-later
// Reads and writes with known content, each checked.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "pcilend/nvme/paths.h"
#include "pcilend/nvme/queue_pair.h"

namespace pcilend::nvme {

// What is read and written.
struct BenchTarget {
  Device& device;
  Queues& queues;
  NamespaceInfo name_space;
  std::optional<uint16_t> vector;  // that there may be
  Paths* paths = nullptr;          // then by these, started, and not by device and queues
  bool elsewhere = false;          // memory may be lost before the device's epoch tells that
  Memory* data = nullptr;          // of all commands; NULL: memory of this process
};

struct BenchOptions {
  uint64_t block = 0;      // the first
  size_t transfer = 4096;  // bytes of a command, whole blocks
  uint64_t commands = 64;  // of each kind, one behind the other on the medium
  uint32_t depth = 1;
  uint64_t rounds = 1;
  uint64_t seed = 1;    // of the content
  bool write = false;   // all, then a flush, then all is read and compared
  bool verify = false;  // what is read is compared with what that seed has once written
  bool interrupts = false;
  bool staged = false;  // what is written is beside the drive, if there is room
  std::chrono::milliseconds patience{30000};  // for each command
};

struct BenchReport {
  uint64_t rounds = 0;
  uint64_t reads = 0;
  uint64_t writes = 0;
  uint64_t flushes = 0;
  uint64_t compared = 0;   // transfers
  uint64_t doorbells = 0;  // stores to them
  uint64_t interrupts = 0;
  uint64_t repeated = 0;  // commands that were issued again, over another path
  std::chrono::duration<double> seconds{};
  uint32_t cksum = 0;  // of what is on the medium, as POSIX's cksum has it; 0 if not compared
  std::string remark;  // where memory is not where it would be best
};

// Usage if the options don't fit the drive. Failure, with the first place, if what was read is not
// what was written; the drive's errors else. `progress` is told after each round;
// false: that was the last one.
Result<BenchReport> run_bench(const BenchTarget& target, const BenchOptions& options,
                              const std::function<bool(const BenchReport&)>& progress = {});

// Bytes of memory for data, of completions, and of what the drive only reads.
size_t data_bytes(const BenchOptions& options);
size_t completion_bytes(const BenchOptions& options);
size_t queue_bytes(const BenchOptions& options);

// The word of that content at byte `at` of the namespace, a multiple of 8.
uint64_t content(uint64_t seed, uint64_t at);

}  // namespace pcilend::nvme
