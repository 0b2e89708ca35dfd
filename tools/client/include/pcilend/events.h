// SPDX-License-Identifier: GPL-2.0-or-later
// What pcilend.ko announces, as it happens.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <variant>

#include "pcilend/fd.h"
#include "pcilend/model.h"
#include "pcilend/transport.h"

namespace pcilend {

class EventStream {
 public:
  virtual ~EventStream() = default;

  // The next event, or why there is none. After Wake::Lost look at the state again: events were
  // dropped because they were not read in time. Waits `limit` at most; for ever without one.
  virtual Result<std::variant<Event, Wake>> next(
      std::optional<std::chrono::milliseconds> limit) = 0;
};

// Events of the running kernel from now on; any user may have them. Wake::Stopped once `stop` is
// readable (it may be no descriptor). Unreachable if pcilend.ko is not loaded.
Result<std::unique_ptr<EventStream>> open_events(UniqueFd stop);

// The same over a transport of the caller's choice.
Result<std::unique_ptr<EventStream>> open_events(std::unique_ptr<EventTransport> transport);

}  // namespace pcilend
