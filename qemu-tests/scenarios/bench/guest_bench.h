// SPDX-License-Identifier: GPL-2.0-or-later
// What a borrowed drive costs a guest, beside a drive of its host that is passed through.
#pragma once

#include "main_job/main_job.h"

namespace pcilend::scenarios {

// Addresses of functions of the borrower that are passed through to guests.
struct Peers {
  std::string drive;    // NVMe
  std::string adapter;  // of the NTB, that nothing is borrowed over
};

// `job`: lent, and not borrowed.
Result<> measure_guests(const MainJob& job, const Peers& peers);

}  // namespace pcilend::scenarios
