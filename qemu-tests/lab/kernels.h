// SPDX-License-Identifier: GPL-2.0-or-later
// The kernels that host VMs can run.
#pragma once

#include <string>
#include <string_view>

namespace pcilend::lab {

struct Kernel {
  std::string_view name;
  // For its command line.
  std::string_view arguments;
  // MiB that it takes from a host, more than a stock kernel.
  int memory;
  // How much longer than on a stock kernel anything may take (lab/deadline.h).
  int patience;
};

// Null if there is none of that name.
const Kernel* find_kernel(std::string_view name);

// "6.12, 6.12-debug or backports".
std::string kernel_names();

// What a lab runs that asks for none: PCILEND_KERNEL in the environment, or else 6.12.
std::string default_kernel();

}  // namespace pcilend::lab
