// SPDX-License-Identifier: GPL-2.0-or-later
// Who makes I/O queues. Only the one who has the controller's admin queue can: in a lease for one
// process that process, in a shared one its manager, who is asked by mail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "pcilend/error.h"

namespace pcilend::nvme {

struct QueueLimits {
  uint32_t entries = 0;  // of a queue, at most
  size_t transfer = 0;   // bytes of a command, at most
};

// Memory for a pair of queues, zeroed, in one piece each.
struct QueueRequest {
  uint32_t entries = 0;
  uint64_t submission = 0;  // device addresses
  uint64_t completion = 0;
  std::optional<uint16_t> vector;  // that completions raise
};

// A pair that is there: its id, and where its doorbells are among the registers.
struct QueueGrant {
  uint16_t id = 0;
  size_t submission_doorbell = 0;
  size_t completion_doorbell = 0;
};

class Queues {
 public:
  virtual ~Queues() = default;

  [[nodiscard]] virtual QueueLimits limits() const = 0;
  // State if no queue is left.
  virtual Result<QueueGrant> create(const QueueRequest& request) = 0;
  // Once this returns the controller does not touch the pair's memory: it was deleted, or, if that
  // was not confirmed, all of the controller was stopped (which fails what is asked of it later).
  virtual void remove(uint16_t id) = 0;
};

}  // namespace pcilend::nvme
