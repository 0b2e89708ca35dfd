// SPDX-License-Identifier: GPL-2.0-or-later
// The PCI functions of this host, whether they are lent or not.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pcilend/environment.h"
#include "pcilend/ids.h"

namespace pcilend::policy {

struct LocalFunction {
  PciAddress address;
  uint16_t vendor = 0;
  uint16_t device = 0;
  uint32_t class_code = 0;  // 24 bits: base class, subclass, interface
  bool bridge = false;      // of any kind: never lent
  // What pcilend.ko calls it once it is added. Absent if its serial number can't be read: that
  // takes root.
  std::optional<Uuid> uuid;
};

// One of them; nothing if it is not there.
std::optional<LocalFunction> local_function(const Environment& environment,
                                            const PciAddress& address, uint32_t node);

// Functions in domains up to ffff (borrowed ones are above), by address, without the PCI devices of
// kinds. `node` is this host's.
// What goes away meanwhile is left out.
Result<std::vector<LocalFunction>> local_functions(const Environment& environment, uint32_t node);

}  // namespace pcilend::policy
