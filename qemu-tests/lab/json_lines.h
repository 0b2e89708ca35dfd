// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lab/deadline.h"
#include "pcilend/fd.h"
#include "pcilend/result.h"

namespace pcilend::lab {

// One conversation: JSON objects, one a line, on a stream socket. Used for QMP and for the fabric's
// control socket.
class JsonLines {
 public:
  explicit JsonLines(UniqueFd stream) : stream_(std::move(stream)) {}

  Result<> send(const nlohmann::json& message, const Deadline& deadline);
  // The next line; Unreachable if none comes by the deadline or the other side has gone.
  Result<nlohmann::json> receive(const Deadline& deadline);

 private:
  UniqueFd stream_;
  std::string pending_;
};

}  // namespace pcilend::lab
