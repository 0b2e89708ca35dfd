// SPDX-License-Identifier: GPL-2.0-or-later
// What a borrowed drive costs a guest, beside a drive of its host that is passed through.
#pragma once

#include "main_job.h"

namespace pcilend::scenarios {

// `own`: address of an NVMe drive of the borrower. `job`: lent, and not borrowed.
Result<> measure_guests(const MainJob& job, const std::string& own);

}  // namespace pcilend::scenarios
