// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "lab/lab.h"
#include "testing/asserts.h"

namespace pcilend::scenarios {

// What processes with leases that are gone could have left behind on either host: references on the
// module, interrupts, segments, memory that is mapped for a function.
inline std::string left_by_processes(lab::Lab& lab) {
  std::string all;
  for (int number : {1, 2}) {
    const auto said = lab.host(number).run(
        "awk '$1 == \"pcilend\" { print $3 }' /proc/modules; "
        "grep -c pcilend-lease /proc/interrupts; pcilend segment list --json");
    EXPECT_OK(said);
    all += said.value_or("");
  }
  return all;
}

}  // namespace pcilend::scenarios
