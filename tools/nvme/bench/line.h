// SPDX-License-Identifier: GPL-2.0-or-later
// By what the bench's commands go to the drive: a pair of queues, or one over each of several
// paths. Each command has a place, below the depth, with memory for its data.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "pcilend/nvme/path_queue.h"

namespace pcilend::nvme {

struct LineOptions {
  uint32_t depth = 1;
  size_t transfer = kPage;
  bool staged = false;
  Memory* data = nullptr;  // for `depth` of them, each in whole pages; it outlives the line
  std::optional<uint16_t> vector;
  std::function<void(uint32_t place, std::span<std::byte> to)> fill;  // what is written
};

class Line {
 public:
  virtual ~Line() = default;
  virtual Result<> submit(uint32_t place, const Task& task) = 0;
  virtual Result<PathDone> wait(std::chrono::milliseconds patience) = 0;
  // What a read has brought, until the next of these two.
  [[nodiscard]] virtual std::span<const std::byte> data(uint32_t place) const = 0;
  // Where the next read's data will be is nothing that was read before.
  virtual void spoil(uint32_t place) = 0;
  [[nodiscard]] virtual uint32_t under_way() const = 0;
  [[nodiscard]] virtual uint64_t doorbells() const = 0;
  [[nodiscard]] virtual uint64_t interrupts() = 0;
  [[nodiscard]] virtual uint64_t repeated() const { return 0; }
  [[nodiscard]] virtual std::string remark() const = 0;
};

Result<std::unique_ptr<Line>> open_line(Device& device, Queues& queues,
                                        const NamespaceInfo& name_space,
                                        const LineOptions& options);
// Starts the paths, and stops them when it goes.
Result<std::unique_ptr<Line>> open_line(Paths& paths, const NamespaceInfo& name_space,
                                        const LineOptions& options);

}  // namespace pcilend::nvme
