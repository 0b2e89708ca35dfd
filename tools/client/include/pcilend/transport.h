// SPDX-License-Identifier: GPL-2.0-or-later
// Carries netlink datagrams to the kernel and back; tests put constructed messages in its place.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "pcilend/fd.h"
#include "pcilend/result.h"

namespace pcilend {

class Transport {
 public:
  virtual ~Transport() = default;

  // One datagram with one request.
  virtual Result<> send(std::span<const std::byte> message) = 0;

  // The next datagram from the kernel: one or more messages. Unreachable if none comes in time.
  virtual Result<std::vector<std::byte>> receive() = 0;
};

// Why a wait for events ended without one.
enum class Wake {
  Lost,     // the kernel dropped events that were not read in time
  Timeout,  // the limit has passed
  Stopped,  // the caller was asked to stop
};

class EventTransport : public Transport {
 public:
  // Subscribes to a multicast group.
  virtual Result<> join(uint32_t group) = 0;

  // The next datagram from the kernel; without a limit it waits for ever.
  virtual Result<std::variant<std::vector<std::byte>, Wake>> wait(
      std::optional<std::chrono::milliseconds> limit) = 0;
};

// A generic-netlink socket of this process, with extended acknowledgements on.
Result<std::unique_ptr<Transport>> open_netlink_socket();

// The same for events; a wait ends once `stop` is readable.
Result<std::unique_ptr<EventTransport>> open_event_socket(UniqueFd stop);

}  // namespace pcilend
