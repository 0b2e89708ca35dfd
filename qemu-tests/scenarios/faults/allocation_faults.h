// SPDX-License-Identifier: GPL-2.0-or-later
// Makes memory allocations fail below the code of one module, on a host with the debug kernel.
#pragma once

#include <string>

#include "lab/host.h"

namespace pcilend::scenarios {

class AllocationFaults {
 public:
  // From now on only allocations with `module` on the stack count, and those below the kernel's
  // functions from `first` to `last` don't, which are next to each other in its text. The host must
  // outlive this, and be up when it goes.
  static Result<AllocationFaults> in(const lab::Host& host, const std::string& module,
                                     const std::string& first = "acpi_pci_irq_enable",
                                     const std::string& last = "acpi_pci_irq_disable");
  AllocationFaults(AllocationFaults&& other) noexcept;
  AllocationFaults& operator=(AllocationFaults&&) = delete;
  ~AllocationFaults();

  // Runs a program whose nth allocation (from 1) fails; what the kernel does for it in other
  // threads is not meant.
  Result<lab::Output> run(const std::string& program, int nth) const;
  // From now on every nth allocation fails, whoever makes it, until `times` have failed.
  Result<> every(int nth, int times) const;
  // How many have failed since the last run() or every(). Ends every().
  Result<int> failed() const;

 private:
  AllocationFaults(const lab::Host& host, int) : host_(&host) {}

  const lab::Host* host_;
  mutable int times_ = 0;
};

}  // namespace pcilend::scenarios
