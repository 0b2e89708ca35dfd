// SPDX-License-Identifier: GPL-2.0-or-later
// Ends a lab when its owner is gone, however that ended: a process in a session of its own, which
// whoever kills the owner and all its process group does not meet.
#pragma once

#include <string>
#include <utility>

#include "lab/layout.h"
#include "lab/process.h"
#include "pcilend/result.h"

namespace pcilend::lab {

class Watcher {
 public:
  // Begins to watch this process, which is about to start the lab. It must be older than all that
  // there is of the lab.
  static Result<Watcher> start(const Artefacts& artefacts, const std::string& lab,
                               const ProcessId& owner);

  Watcher(Watcher&& other) noexcept : process_(std::exchange(other.process_, {})) {}
  Watcher& operator=(Watcher&&) = delete;
  // Ends it, unless a lab has it.
  ~Watcher();

  // From now on it ends with the lab.
  Result<> give_to(const Layout& layout);

 private:
  explicit Watcher(const ProcessId& process) : process_(process) {}

  ProcessId process_;
};

// Ends the watcher of a lab, if it has one: it stays when its owner goes.
Result<> dismiss_watcher(const Layout& layout);

// What the watcher's process does: waits for the owner's end, then ends the lab.
Result<> watch(const ProcessId& owner, const std::string& lab);

}  // namespace pcilend::lab
