// SPDX-License-Identifier: GPL-2.0-or-later
// The virtio-serial ports that the agent serves, one worker process for each.
#pragma once

#include <map>
#include <string>

#include "pcilend/environment.h"

namespace pcilend::lab::agent {

// Ports named NAME, NAME.1, NAME.2…: port name -> device node, from /sys/class/virtio-ports.
std::map<std::string, std::string> find_ports(const Environment& environment,
                                              const std::string& name);

// Serves every port of that name for ever, those that appear later too. Returns an error if none is
// there after ten seconds.
Result<> serve_ports(const Environment& environment, const std::string& name);

}  // namespace pcilend::lab::agent
