// SPDX-License-Identifier: GPL-2.0-or-later
// Somebody to talk to: host1 has an adapter of its own, `wire`, where a server sends back what it
// gets. Functions of host1 on the same wire reach it from wherever they are lent to.
#pragma once

#include <string>

#include "lab/host.h"
#include "lab/options.h"

namespace pcilend::scenarios {

inline constexpr const char* kEchoServer = "10.9.0.1";  // of 10.9.0.0/24

// Puts the adapter on the wire.
Result<> add_wire(lab::Options& options);
// QEMU's netdev for another function on it, of the same name.
void attach_to_wire(lab::Options& options, const std::string& id);

// Until the answer goes.
Result<lab::Running> start_echo_server(const lab::Host& lender);

// A command that sends as much there, and fails unless the same comes back. Also for guests.
std::string send_around(unsigned kibibytes);

}  // namespace pcilend::scenarios
