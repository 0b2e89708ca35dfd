// SPDX-License-Identifier: GPL-2.0-or-later
// Makes the state of this host what its configuration says, and writes a configuration of the
// state.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "pcilend/client.h"
#include "pcilend/policy/config.h"

namespace pcilend::policy {

// What would be lost if a function were taken from its driver.
struct InUse {
  std::vector<std::string> disks;       // reasons with their cures; of open device nodes, too
  std::vector<std::string> interfaces;  // network interfaces that are up
  std::optional<std::string> vfio;      // who has it for VFIO: not taken by force either
};

struct Host {
  Client& client;
  const Environment& environment;
  std::function<Result<InUse>(const PciAddress&)> in_use;
};

enum class Action {
  Find,
  RemoveKind,
  AddKind,
  Connect,
  Add,
  Label,
  Allow,
  Available,
  Unavailable,
  Borrow
};
enum class Outcome { Done, Planned, LeftAlone, Failed };
std::string_view name_of(Action action);
std::string_view name_of(Outcome outcome);

struct Step {
  Action action = Action::Find;
  std::string kind;                   // RemoveKind, AddKind: its text
  uint32_t node = 0;                  // Connect
  std::optional<PciAddress> adapter;  // Connect, and pin it to this
  std::optional<PciAddress> address;
  std::optional<Uuid> uuid;      // Find, of an entry that names one; Borrow
  std::optional<FunctionId> id;  // Add; Borrow, once a lender offers it
  std::string label;             // Label
  Audience allow;                // Allow
  std::string place;             // what in the configuration asks for it
  Outcome outcome = Outcome::Planned;
  std::string reason;  // LeftAlone, Failed; Done: what was lost
};

struct RestoreOptions {
  bool dry_run = false;
  // Only this function, or only functions that match; and no kinds or connections.
  std::optional<PciAddress> device;
  std::optional<Pattern> only;
};

// False if the configuration says nothing of this function, so that nothing is to be restored. A
// host with many functions asks for each when it boots.
Result<bool> concerns(const Host& host, const Config& config, const PciAddress& device);

// Does what is missing, and goes on after a failure. What is so already gives no step. Fails itself
// only if it can't look at this host.
Result<std::vector<Step>> restore(const Host& host, const Config& config,
                                  const RestoreOptions& options);

// Of all that, the kinds. Those that no entry names are left as they are.
std::vector<Step> restore_kinds(const Environment& environment, const std::vector<KindEntry>& kinds,
                                bool dry_run);

// How restore_borrows() waits.
struct Patience {
  std::chrono::milliseconds limit{0};
  std::function<void(std::chrono::milliseconds)> sleep;
  std::function<std::chrono::steady_clock::time_point()> now;
};

// Borrows what is configured and not borrowed yet; waits for lenders, and for the drivers of this
// host to bind. One step for each that was not there.
Result<std::vector<Step>> restore_borrows(Client& client, const std::vector<BorrowEntry>& borrows,
                                          const Patience& patience, bool dry_run);

// The present connections, pins and functions. What the kernel does not tell is taken from
// `configured`: which functions may be taken by force, connections of nodes that no link leads to
// now, and pins to adapters that are not there.
Result<Config> present_state(Client& client, const Config& configured);

}  // namespace pcilend::policy
