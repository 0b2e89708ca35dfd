// SPDX-License-Identifier: GPL-2.0-or-later
// As what the manager of a shared drive knows a client.
#pragma once

#include <cstdint>

namespace pcilend::nvme {

// The lease alone is no name: the lender numbers leases from 1 on again when its host has booted.
struct ClientName {
  uint32_t lease = 0;  // 0: none, of a drive that is not shared
  uint64_t key = 0;    // that the client has given with its hello (mail.h); 0: nobody may clear it

  bool operator==(const ClientName&) const = default;
};

}  // namespace pcilend::nvme
