// SPDX-License-Identifier: GPL-2.0-or-later
// A namespace as a block device of this host.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "disk/record.h"

namespace pcilend::nvme {

struct DiskOptions {
  FunctionId function;
  uint32_t name_space = 1;
  bool alone = false;
  uint16_t queues = 1;
  uint32_t depth = 64;
  bool read_only = false;
  bool shared_fs = false;
  std::vector<std::string> paths;     // adapters to go over; none: all over which it is offered
  std::chrono::seconds wait{0};       // for its lender, at the start
  std::chrono::seconds patience{60};  // for a drive that was lost; then what is asked of it fails
  // Of CLOCK_MONOTONIC: when it was lost first of the times that nothing was done in between.
  std::optional<std::chrono::milliseconds> lost_since;
};

inline constexpr uint32_t kDiskDepthMax = 256;

// As a command line, without the program.
std::vector<std::string> to_words(const DiskOptions& options);

// Makes the disk, or takes over the one of a former run, serves it until SIGTERM or SIGINT, and
// ends it. Executes this program anew when the drive is lost. What goes wrong is in the record,
// too.
Result<> run_disk(const Environment& environment, const DiskOptions& options);

// Ends a disk that nobody serves any more: what is asked of it fails.
Result<> remove_disk(const Environment& environment, FunctionId function);

}  // namespace pcilend::nvme
