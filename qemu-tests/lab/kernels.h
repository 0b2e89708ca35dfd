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
  // Whether an installed Debian runs with it, which needs what Debian has compiled in.
  bool installs;
};

// For the command lines of hosts and guests: without self-tests of crypto and without patching lock
// prefixes away, which take a host 1 s, and a guest 4 s.
inline constexpr std::string_view kQuickBoot =
    "noreplace-smp cryptomgr.notests "
    "initcall_blacklist=jent_mod_init,crypto_kdf108_init,init_encrypted";

// Null if there is none of that name.
const Kernel* find_kernel(std::string_view name);

// "6.12, 6.12-debug or backports".
std::string kernel_names();

// What a lab runs that asks for none: PCILEND_KERNEL in the environment, or else 6.12.
std::string default_kernel();

}  // namespace pcilend::lab
