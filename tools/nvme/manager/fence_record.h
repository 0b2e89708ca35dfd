// SPDX-License-Identifier: GPL-2.0-or-later
// Which nodes are fenced from a drive: in a file, a number on each line, until they are not.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "pcilend/environment.h"

namespace pcilend::nvme {

class FenceRecord {
 public:
  // `drive`: its UUID, which it keeps when PCI addresses change.
  FenceRecord(Environment environment, const std::string& drive);

  // Empty without a file; Failure if that is not what write() writes.
  [[nodiscard]] Result<std::set<uint32_t>> read() const;
  // For good when this returns.
  Result<> write(const std::set<uint32_t>& nodes) const;

 private:
  Environment environment_;
  std::string path_;
};

}  // namespace pcilend::nvme
