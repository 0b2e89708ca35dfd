// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/kernel_memory.h"

namespace pcilend::scenarios {

Result<int64_t> kernel_memory(const lab::Host& host) {
  const auto kib = host.run(
      "sync; echo 2 >/proc/sys/vm/drop_caches; awk '/^(Slab|PageTables|SecPageTables|Percpu|"
      "KernelStack):/ { sum += $2 } END { print sum }' /proc/meminfo");
  if (!kib) return tl::unexpected(kib.error());
  return std::stoll(*kib) * 1024;
}

}  // namespace pcilend::scenarios
