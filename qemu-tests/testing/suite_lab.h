// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string_view>

#include "lab/lab.h"

namespace pcilend::scenarios {

// Ends the QEMU device string of an nvme that does I/O while its link is cut: without shadow
// doorbells, as real drives are. QEMU's reads all-ones from them across a dead link, takes that for
// commands without end, and keeps its host's CPU for longer than the lease.
inline constexpr std::string_view kNoShadowDoorbells = ",dbcs=off";

// Starts a lab into `lab`; its steps are shown with the seconds since the beginning. A lab with the
// same options that an earlier suite of this process has ended with is used again.
Result<> start_lab(const lab::Options& options, std::optional<lab::Lab>& lab);

// Ends it, or keeps it for the next suite when no scenario of this one has failed. Failure if one
// of its hosts has leaked memory (the debug kernel tells).
Result<> end_lab(std::optional<lab::Lab>& lab);

}  // namespace pcilend::scenarios
