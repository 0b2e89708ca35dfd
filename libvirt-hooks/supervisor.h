// SPDX-License-Identifier: GPL-2.0-or-later
// Runs work that may block in the kernel for good, so that libvirt never waits for it for good.
#pragma once

#include <chrono>
#include <functional>
#include <string_view>

#include "pcilend/result.h"

namespace pcilend {

// Told by the work what it does next ("borrowing 40001 from node 4"), and what to look at if that
// does not end. Each step has the time limit for itself.
class Steps {
 public:
  virtual ~Steps() = default;
  virtual void begin(std::string_view what, std::string_view advice) = 0;
};

// Runs `work` in a child process without standard streams, and returns what it returns. If a step
// exceeds the limit the child is killed (as soon as the kernel lets go of it) and the step is
// named in the error, of class Unreachable. Call it from a process with one thread.
Result<> supervise(std::chrono::milliseconds limit, const std::function<Result<>(Steps&)>& work);

}  // namespace pcilend
