// SPDX-License-Identifier: GPL-2.0-or-later
// A network between two hosts, whose libvirtds listen on it: what virsh migrates over.
#pragma once

#include <string>

#include "lab/host.h"
#include "lab/options.h"

namespace pcilend::scenarios {

Result<> add_lan(lab::Options& options, int a, int b);
// Again after each boot of the host; changes nothing where it is done.
Result<> join_lan(const lab::Host& host);
// Its cable.
Result<> plug_lan(const lab::Host& host, bool in);

// A command of the host where the domain is.
std::string migrate(const std::string& domain, const lab::Host& to);

}  // namespace pcilend::scenarios
