// SPDX-License-Identifier: GPL-2.0-or-later
// The admin queue of an NVMe controller, driven through VFIO: enough to identify it.
#pragma once

#include "vfio/device.h"

namespace pcilend::vfio {

class Nvme {
 public:
  // Starts the controller; its completions raise MSI-X vector 0. Its queues are two pages
  // from `queues_at` on. The device must outlive it.
  static Result<Nvme> start(const Device& device, uint64_t queues_at);

  // The serial number it has of itself; it writes a page into that memory.
  Result<std::string> identify(const DmaMemory& data);
  // It writes that page to there, whatever that is.
  Result<> identify(uint64_t iova);
  [[nodiscard]] bool ready() const;
  [[nodiscard]] std::span<std::byte> registers() const { return bar_.bytes(); }

 private:
  Nvme(Mapping bar, DmaMemory queues, EventFd interrupt)
      : bar_(std::move(bar)), queues_(std::move(queues)), interrupt_(std::move(interrupt)) {}
  [[nodiscard]] Result<> await_ready(bool ready) const;

  Mapping bar_;
  DmaMemory queues_;  // submission, then completion
  EventFd interrupt_;
  uint32_t commands_ = 0;
};

}  // namespace pcilend::vfio
