// SPDX-License-Identifier: GPL-2.0-or-later
// A controller as its driver meets it: registers, memory for both, interrupts. Leased from
// pcilend.ko, or made up in a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "pcilend/device_buffer.h"

namespace pcilend::nvme {

// Memory that the controller reaches at address(), whole pages, zeroed at first.
class Memory {
 public:
  virtual ~Memory() = default;
  [[nodiscard]] virtual std::span<std::byte> bytes() = 0;
  [[nodiscard]] virtual uint64_t address() const = 0;
  // Why it is not where it would be best, for people; empty if it is.
  [[nodiscard]] virtual std::string remark() const { return {}; }
};

// Memory of others that the controller reaches at address(), until this goes. Its Device must
// outlive it.
class Reach {
 public:
  virtual ~Reach() = default;
  [[nodiscard]] virtual uint64_t address() const = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // For messages.
  [[nodiscard]] virtual std::string name() const = 0;
  // Of BAR 0, by 32 bits (Base 3.1.3); offsets below register_bytes().
  [[nodiscard]] virtual uint32_t load(size_t offset) const = 0;
  virtual void store(size_t offset, uint32_t value) = 0;
  [[nodiscard]] virtual size_t register_bytes() const = 0;
  // `bytes` are rounded up to pages.
  virtual Result<std::unique_ptr<Memory>> allocate(size_t bytes, const Access& access) = 0;
  // Part of a BAR that is memory, as long as this lives; whole pages.
  virtual Result<std::span<std::byte>> bar(uint32_t index, uint64_t offset, size_t bytes) = 0;
  // What is behind a dma-buf (Lease::map()). Unsupported where nothing but what allocate() gives
  // can be had.
  virtual Result<std::unique_ptr<Reach>> map(int dma_buf);
  // An eventfd, not blocking.
  virtual Result<UniqueFd> interrupt(uint32_t vector) = 0;
  virtual Result<> end_interrupt(uint32_t vector) = 0;
  // Changes when nothing counts any more that was set up, or is under way (Lease::epoch()).
  [[nodiscard]] virtual uint64_t epoch() const = 0;
  // Polls EPOLLHUP when the controller is taken away; -1 if it never is.
  [[nodiscard]] virtual int fd() const = 0;
};

// A function that is leased to this process. Unsupported if it is no NVMe controller. `near`: what
// the controller reads and this process only writes, by its Access, is beside a controller of
// another host, as long as its lender has memory for it.
Result<std::unique_ptr<Device>> open_leased(const ThisHost& host, FunctionId id,
                                            std::string_view owner, uint64_t slice = Lease::kSlice,
                                            bool near = true);

}  // namespace pcilend::nvme
