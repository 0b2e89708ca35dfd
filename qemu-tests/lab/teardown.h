// SPDX-License-Identifier: GPL-2.0-or-later
// How labs end, in whatever state they are: by an order, by the death of their owner, or because
// another lab takes the place of what was left of one.
#pragma once

#include <string>
#include <vector>

#include "lab/lab_lock.h"
#include "lab/layout.h"
#include "lab/process.h"
#include "pcilend/result.h"

namespace pcilend::lab {

// What a lab is, if there is anything of it.
struct Standing {
  bool there = false;
  bool in_use = false;  // somebody counts on it
  std::string text;     // "started by hand", "of pcilend-demo (process 12), which is dead", …
};

Standing standing_of(const std::string& lab);

// All labs that have a directory or processes.
std::vector<std::string> lab_names();

// Ends a lab's processes, but for its watcher, and removes its directory; logs and consoles are
// copied to $PCILEND_LAB_LOGS/NAME before, if that is set. True if there was anything. The caller
// has the lab's lock.
Result<bool> clear(const Layout& layout);

// Clears a lab, and ends its lock and its watcher.
Result<bool> end(const Layout& layout, LabLock lock);

// Ends a lab, whoever it belongs to; true if there was anything. Whoever is starting it, and so has
// its lock, fails by the loss of its processes.
Result<bool> end_lab(const std::string& lab);

// Ends a lab if it belongs to `owner`; also what `owner` had begun to make of it.
Result<bool> end_lab_of(const ProcessId& owner, const std::string& lab);

}  // namespace pcilend::lab
