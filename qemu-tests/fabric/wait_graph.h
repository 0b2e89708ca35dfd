// SPDX-License-Identifier: GPL-2.0-or-later
// Which host waits for which. QEMU holds its big lock while it waits for a read and serves nobody
// meanwhile, so hosts that wait for each other in a circle wait for ever.
#pragma once

#include <cstddef>
#include <vector>

namespace pcilend::fabric {

class WaitGraph {
 public:
  explicit WaitGraph(size_t hosts) : hosts_(hosts), waits_(hosts * hosts) {}

  // Waits are counted: several reads may wait for one host.
  void add(size_t waiter, size_t waited_for) { waits_[waiter * hosts_ + waited_for]++; }
  void remove(size_t waiter, size_t waited_for) { waits_[waiter * hosts_ + waited_for]--; }

  // Host `from` waits for `to`, directly or by way of others.
  [[nodiscard]] bool reaches(size_t from, size_t to) const {
    std::vector<bool> seen(hosts_);
    std::vector<size_t> open{from};
    while (!open.empty()) {
      const size_t host = open.back();
      open.pop_back();
      for (size_t next = 0; next < hosts_; next++) {
        if (waits_[host * hosts_ + next] == 0) continue;
        if (next == to) return true;
        if (!seen[next]) {
          seen[next] = true;
          open.push_back(next);
        }
      }
    }
    return false;
  }

 private:
  size_t hosts_;
  std::vector<unsigned> waits_;
};

}  // namespace pcilend::fabric
