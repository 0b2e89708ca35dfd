// SPDX-License-Identifier: GPL-2.0-or-later
// Programs that a command leaves some of its work to.
#pragma once

#include <string>
#include <vector>

#include "pcilend/result.h"

namespace pcilend {

// Runs it, without stdin, and waits for its end. A failure has what it said last on stderr, or else
// what it said on stdout.
Result<> run_program(const std::vector<std::string>& words);

// The same; what it has printed on stdout, which may be 1 MiB. More is a failure.
Result<std::string> read_program(const std::vector<std::string>& words);

}  // namespace pcilend
