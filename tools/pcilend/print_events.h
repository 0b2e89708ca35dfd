// SPDX-License-Identifier: GPL-2.0-or-later
// Events as monitor prints them: a line each.
#pragma once

#include "answer.h"
#include "columns.h"

namespace pcilend {

std::string event_text(const EventAnswer& answer, const PciNames& names);
Json event_json(const EventAnswer& answer, const PciNames& names);
std::string snapshot_text(const SnapshotAnswer& answer, const PciNames& names);
Json snapshot_json(const SnapshotAnswer& answer, const PciNames& names);

}  // namespace pcilend
