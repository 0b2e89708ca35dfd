// SPDX-License-Identifier: GPL-2.0-or-later
// fence_pcilend: a fence agent (ClusterLabs' Fence Agent API) that cuts a node's processes off from
// a shared NVMe drive, by asking the drive's manager.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "pcilend/ids.h"
#include "pcilend/nvme/mail.h"

namespace pcilend::nvme {

struct FenceOptions {
  std::string action = "off";
  std::string function;  // id of the drive
  std::string plug;      // the node
};

// Lines of KEY=VALUE, as cluster managers say them; what is not known is for other agents.
void read_options(std::string_view lines, FenceOptions& options);

// The manager's answer: is that node fenced from now on?
using AskManager = std::function<Result<bool>(FunctionId drive, const mail::Fence& fence)>;

struct FenceResult {
  int code =
      0;  // what the agent exits with: 0, or 2 for a node that is fenced, when asked for its status
  std::string said;
};

// Usage if the options make no sense; else what the manager says.
Result<FenceResult> run_fence(const FenceOptions& options, const AskManager& ask);

}  // namespace pcilend::nvme
