// SPDX-License-Identifier: GPL-2.0-or-later
// The MSI-X vectors of one adapter: the event descriptors QEMU gives for them, and the interrupts
// raised while it has taken them away.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "pcilend/fd.h"
#include "protocol.h"

namespace pcilend::fabric {

class IrqVectors {
 public:
  // `count`: at most 32.
  explicit IrqVectors(unsigned count) : fds_(count) {}

  // Raises every vector in `vectors`. One without a descriptor is latched: QEMU disables all
  // vectors and sets them again, one chunk after another, each time a guest enables one more.
  void raise(uint32_t vectors);

  // EINVAL for a range outside the table, a count that differs from that of the descriptors, or an
  // action MSI-X doesn't have. A latched interrupt is raised when its vector comes back, if
  // `stands(vector)`; else it is forgotten.
  Parsed<> set(const IrqRequest& request, std::vector<UniqueFd> fds,
               const std::function<bool(unsigned)>& stands);

  [[nodiscard]] uint32_t latched() const { return latched_; }
  // Since the start or forget_raised().
  [[nodiscard]] uint64_t raised() const { return raised_; }
  void forget_raised() { raised_ = 0; }
  [[nodiscard]] unsigned enabled() const;
  void forget_latched() { latched_ = 0; }
  // The client is gone.
  void clear();

 private:
  void signal(unsigned vector);

  std::vector<UniqueFd> fds_;
  uint32_t latched_ = 0;
  uint64_t raised_ = 0;
};

}  // namespace pcilend::fabric
