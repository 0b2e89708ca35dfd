// SPDX-License-Identifier: GPL-2.0-or-later
// What happens in the phases of a domain's life (https://libvirt.org/hooks.html).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>

#include "domain_xml.h"
#include "pcilend/client.h"
#include "pcilend/environment.h"
#include "pcilend/pci_names.h"
#include "supervisor.h"

namespace pcilend {

enum class Phase {
  Prepare,    // before libvirt looks at the domain's devices
  Release,    // QEMU is gone
  Reconnect,  // libvirtd is back, and the domain has run on: libvirt kills it if the hook fails
  Other,      // nothing to do, whatever the domain is
};

// From the arguments libvirt gives after the domain's name.
Phase phase_of(std::string_view operation, std::string_view sub_operation);

// What the phases take from their surroundings.
struct HookContext {
  const Environment& environment;
  const PciNames& names;
  std::function<Result<std::unique_ptr<Client>>()> open_client;
  std::function<void(std::chrono::milliseconds)> sleep;
  std::function<std::chrono::steady_clock::time_point()> now;
  Steps& steps;
  // Has libvirtd gone away since it started the hook? Nobody waits for the domain to start then.
  std::function<bool()> abandoned = [] { return false; };
  // False for qemu:///session: libvirt runs the hook as the user, who may not borrow.
  bool privileged = true;
};

// Borrows every function the domain names, or chooses by its options, and makes the mediated
// devices that are missing; waits as long as the options say for what can't be borrowed yet. All or
// none: what was done is undone before an error is returned, also when libvirtd is gone meanwhile.
// A function that this host has borrowed for VFIO already, and that nobody has open, is used as it
// is. Does not open netlink for a domain that names none.
//
// One phase of a domain runs at a time: each waits for the end of the former one, or fails while
// that hangs.
Result<> prepare_domain(HookContext& context, const Domain& domain);

// Removes the mediated devices and returns the functions that prepare_domain() recorded for this
// domain, and no others. What can't be undone stays in the record for the next call.
Result<> release_domain(HookContext& context, const Domain& domain);

// The record of a domain that runs has all functions that it holds, so that release_domain() gives
// them back: also if the record was lost meanwhile, or is damaged.
Result<> reconcile_domain(HookContext& context, const Domain& domain);

}  // namespace pcilend
