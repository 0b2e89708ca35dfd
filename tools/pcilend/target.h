// SPDX-License-Identifier: GPL-2.0-or-later
// How people name a function on the command line.
#pragma once

#include <variant>

#include "session.h"

namespace pcilend {

using Target = std::variant<FunctionId, Uuid, PciAddress>;

// "40001", "70636c64-…" or "0000:00:05.0"; Usage if it is none of them.
Result<Target> parse_target(std::string_view text);

// The function `text` names, as this host knows it: one of its own or a peer's.
Result<Function> find_function(Session& session, std::string_view text);

// The address on this host of the function `text` names; it need not be added.
Result<PciAddress> find_local_address(Session& session, std::string_view text);

// The same, of a function that is added.
Result<Function> find_local_function(Session& session, std::string_view text);

// Both: a function of this host that is added, and its address.
struct LocalFunction {
  Function function;
  PciAddress address;
};
Result<LocalFunction> find_added(Session& session, std::string_view text);

// What --adapter names, as the kernel writes addresses; empty if it was not given.
Result<std::string> adapter_of(const Options& options);

}  // namespace pcilend
