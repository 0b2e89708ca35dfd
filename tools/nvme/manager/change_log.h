// SPDX-License-Identifier: GPL-2.0-or-later
// Which namespaces of a drive have changed since when: the drive tells it once, to its manager, and
// each client asks.
#pragma once

#include <cstdint>
#include <map>

#include "pcilend/nvme/drive_event.h"

namespace pcilend::nvme {

class ChangeLog {
 public:
  void note(const NamespaceChanges& changes);
  // How often something was noted.
  [[nodiscard]] uint64_t now() const { return now_; }
  // What was noted after now() was that; all if it never was.
  [[nodiscard]] NamespaceChanges since(uint64_t then) const;

 private:
  uint64_t now_ = 0;
  uint64_t all_ = 0;                    // when it was all of them
  std::map<uint32_t, uint64_t> noted_;  // by namespace, the last time
};

}  // namespace pcilend::nvme
