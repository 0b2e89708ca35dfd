// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "lab/deadline.h"
#include "pcilend/fd.h"
#include "pcilend/result.h"

namespace pcilend::lab {

// One command at a time changes a lab (or a host's power). Processes that are being started share
// the lock until they run their own program, so whoever has it sees all of them.
class LabLock {
 public:
  // State if another command has it until the deadline.
  static Result<LabLock> take(const std::string& path, const Deadline& deadline);

  // Releases the lock and removes its file; those who wait for it make a new one.
  void remove();

 private:
  LabLock(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  UniqueFd fd_;
  std::string path_;
};

}  // namespace pcilend::lab
