// SPDX-License-Identifier: GPL-2.0-or-later
// A USB host controller of QEMU, whose interrupts are raised at will.
#pragma once

#include "vfio/device.h"

namespace pcilend::vfio {

class Xhci {
 public:
  static constexpr unsigned kInterrupters = 16;

  // The device must outlive it.
  static Result<Xhci> start(const Device& device);

  // Makes it what start() has made it, after a reset.
  Result<> set_up(const Device& device);
  // Interrupter `number` interrupts, and stays pending until it is acknowledged.
  void raise(unsigned number) const;
  void acknowledge(unsigned number) const;

 private:
  Xhci(Mapping bar, DmaMemory memory) : bar_(std::move(bar)), memory_(std::move(memory)) {}
  [[nodiscard]] size_t interrupter(unsigned number) const { return runtime_ + 0x20 * (number + 1); }

  Mapping bar_;
  DmaMemory memory_;  // the event rings' segment table, and the event ring
  size_t runtime_ = 0;
};

}  // namespace pcilend::vfio
