// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/kernels.h"

#include <cstdlib>

namespace pcilend::lab {
namespace {

constexpr Kernel kKernels[] = {
    {"6.12", "", 0, 1},
    // KASAN alone takes an eighth of the memory, and halves the speed. Every report counts.
    {"6.12-debug", " kasan_multi_shot sysctl.kernel.hung_task_warnings=-1", 1024, 4},
    {"7.2", "", 0, 1},
};

}  // namespace

const Kernel* find_kernel(std::string_view name) {
  for (const Kernel& kernel : kKernels)
    if (kernel.name == name) return &kernel;
  return nullptr;
}

std::string default_kernel() {
  const char* name = std::getenv("PCILEND_KERNEL");
  return name && *name ? name : "6.12";
}

}  // namespace pcilend::lab
