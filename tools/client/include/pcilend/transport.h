// SPDX-License-Identifier: GPL-2.0-or-later
// Carries netlink datagrams to the kernel and back; tests put constructed messages in its place.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

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

// A generic-netlink socket of this process, with extended acknowledgements on.
Result<std::unique_ptr<Transport>> open_netlink_socket();

}  // namespace pcilend
