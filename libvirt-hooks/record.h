// SPDX-License-Identifier: GPL-2.0-or-later
// What the hook has done for a domain, so that it undoes that and nothing else. One file per domain
// below /run/pcilend/domains, written before each step is taken.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pcilend/environment.h"
#include "pcilend/ids.h"

namespace pcilend {

struct FunctionRecord {
  FunctionId id;
  std::optional<Uuid> mdev;  // its mediated device; nothing: the guest has it as a PCI device
  bool created = false;      // the mediated device is ours to remove; else it may hold the lease
};

struct Record {
  std::string name;  // of the domain
  Uuid domain;       // the owner of its leases
  std::vector<FunctionRecord> functions;
};

// Nothing if there is no record of that domain.
Result<std::optional<Record>> load_record(const Environment& environment, const Uuid& domain);

// Replaces the record; one without functions is removed.
Result<> save_record(const Environment& environment, const Record& record);

}  // namespace pcilend
