// SPDX-License-Identifier: GPL-2.0-or-later
#include "disks.h"

namespace pcilend {

Result<std::vector<nvme::DiskRecord>> find_disks(const Environment& environment) {
  auto records = nvme::read_records(environment);
  if (!records) return records;
  for (nvme::DiskRecord& record : *records) {
    if (is_served(environment, record)) continue;
    record.pid = 0;
    if (record.state != "failed") record.state = "waiting";
  }
  return records;
}

}  // namespace pcilend
