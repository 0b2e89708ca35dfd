// SPDX-License-Identifier: GPL-2.0-or-later
// What is known of the disks that pcilend-nvme-disk makes: a file for each, which it writes and
// `pcilend nvme` reads. It outlives the program, so that a next one goes on with the same disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pcilend/environment.h"
#include "pcilend/ids.h"
#include "pcilend/nvme/client_name.h"

namespace pcilend::nvme {

struct DiskRecord {
  FunctionId function;
  uint32_t name_space = 1;
  std::string state;  // starting, ready, recovering, failed
  std::string error;  // of a failed one, or what there is to say of another one, for people
  int error_kind = 0;
  std::optional<uint32_t> number;  // of /dev/ublkbN, once there is one
  uint64_t blocks = 0;
  uint32_t block_bytes = 0;
  std::string model;
  std::string serial;
  std::string identity;  // of the namespace
  bool alone = false;
  bool read_only = false;
  bool shared_fs = false;
  uint32_t queues = 0;
  uint32_t depth = 0;
  uint64_t power_cycles = 0;        // of the drive
  std::vector<std::string> paths;   // adapters, of a client
  std::vector<ClientName> clients;  // of the drive's manager, that may have queues
  uint32_t pid = 0;
  uint32_t recoveries = 0;  // since it was attached
  uint64_t start = 0;       // of the program: no two of them have the same

  [[nodiscard]] std::string disk() const { return "ublkb" + std::to_string(number.value_or(0)); }
};

// Usage: a disk that can be written, of a drive that others may write to, too, with a file system
// of one host.
Result<> check_writers(bool alone, bool read_only, bool shared_fs);

inline constexpr const char* kDiskDirectory = "/run/pcilend/nvme";

std::string record_path(FunctionId function);
// What its command line has besides the function, for systemd.
std::string options_path(FunctionId function);
// What udev is told of it.
std::string properties_path(const DiskRecord& record);
// That only one program at a time has it.
std::string lock_path(FunctionId function);

// NotFound if there is none; Failure if it is none of ours.
Result<DiskRecord> read_record(const Environment& environment, FunctionId function);
Result<std::vector<DiskRecord>> read_records(const Environment& environment);
Result<> write_record(const Environment& environment, const DiskRecord& record);
// And what goes with it.
Result<> remove_record(const Environment& environment, const DiskRecord& record);

// Its program runs.
bool is_served(const Environment& environment, const DiskRecord& record);

}  // namespace pcilend::nvme
