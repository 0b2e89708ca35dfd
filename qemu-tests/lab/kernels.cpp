// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/kernels.h"

#include <cstdlib>
#include <iterator>

namespace pcilend::lab {
namespace {

// The names are those of image/kernels.txt.
constexpr Kernel kKernels[] = {
    {"6.12", "", 0, 1, true},
    // KASAN alone takes an eighth of the memory, and halves the speed. Every report counts.
    // What is mapped for a borrowed function is mapped for the NTB in its name, which DMA-API
    // debugging takes for mapped twice: it looks at the NTB only.
    {"6.12-debug",
     " kasan_multi_shot sysctl.kernel.hung_task_warnings=-1 dma_debug_driver=ntb_hw_amd", 1024, 4,
     false},
    {"backports", "", 0, 1, true},
};

}  // namespace

const Kernel* find_kernel(std::string_view name) {
  for (const Kernel& kernel : kKernels)
    if (kernel.name == name) return &kernel;
  return nullptr;
}

std::string kernel_names() {
  std::string names;
  for (const Kernel& kernel : kKernels) {
    if (!names.empty()) names += &kernel == std::end(kKernels) - 1 ? " or " : ", ";
    names += kernel.name;
  }
  return names;
}

std::string default_kernel() {
  const char* name = std::getenv("PCILEND_KERNEL");
  return name && *name ? name : "6.12";
}

}  // namespace pcilend::lab
