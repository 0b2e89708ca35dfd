// SPDX-License-Identifier: GPL-2.0-or-later
// What the rogue node needs of its adapter: each product's registers do it in their own way, as
// Linux's driver for it does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "pcilend/result.h"
#include "rogue/port.h"

namespace pcilend::rogue {

class Driver {
 public:
  static constexpr size_t kSharedBytes = 64 << 10;

  // That of the port's adapter, by its PCI ids. `shared`: kSharedBytes of the program's memory, on
  // its bus at `shared_bus`, for drivers that need some.
  static Result<std::unique_ptr<Driver>> make(Port& port, std::span<std::byte> shared,
                                              uint64_t shared_bus);
  virtual ~Driver() = default;

  // A window: where it is for this node, and how large.
  struct Window {
    uint32_t region;
    uint64_t offset;
    uint64_t size;
  };
  // By the numbers that messages name them by. Both sides see the same.
  [[nodiscard]] virtual Window window(unsigned number) const = 0;
  // Which of the peer's windows leads to this node's memory, and which to its functions' BARs.
  [[nodiscard]] virtual unsigned memory_window() const = 0;
  [[nodiscard]] unsigned bar_window() const { return 1 - memory_window(); }

  // Lets the peer reach the bus from 0 on, and BARs from `bars` on.
  virtual Result<> open(uint64_t bars) = 0;
  // Has the peer see a driver here, or none.
  virtual void set_ready(bool ready) = 0;
  virtual void ring(uint16_t doorbells) = 0;
  virtual void set_scratchpad(unsigned index, uint32_t value) = 0;
  // What the peer has set, from 0 on. False if the fabric does not answer.
  virtual bool scratchpads(std::span<uint32_t> values) = 0;
  // A driver that listens takes each event of the link.
  virtual void take_events() = 0;
};

}  // namespace pcilend::rogue
