// SPDX-License-Identifier: GPL-2.0-or-later
// QEMU's edu device (docs/specs/edu.rst), driven by a process that has leased it. It copies between
// memory and a page of its own, one way at a time.
#pragma once

#include "pcilend/client.h"
#include "pcilend/lease.h"

namespace pcilend {

class Edu {
 public:
  static constexpr size_t kPage = 4096;

  static Result<Edu> open(Client& client, FunctionId id, uint64_t slice = Lease::kSlice);

  [[nodiscard]] const Lease& lease() const { return lease_; }
  [[nodiscard]] uint32_t identification() const { return load(0x00); }
  // What it makes of a number: all bits are the others.
  [[nodiscard]] uint32_t invert(uint32_t number) const {
    registers_.store<uint32_t>(0x04, number);
    return load(0x04);
  }
  // By its interrupt; 0 if none comes.
  [[nodiscard]] Result<uint32_t> factorial(uint32_t number);
  // A page between memory and its own; waits for the interrupt.
  [[nodiscard]] Result<> fetch(uint64_t address) { return copy(address, kOwn, 0); }
  [[nodiscard]] Result<> deliver(uint64_t address, uint64_t bytes = kPage) {
    return copy(kOwn, address, kFromOwn, bytes);
  }
  [[nodiscard]] uint64_t interrupts() const { return interrupts_; }
  // Of two that are not so by themselves.
  [[nodiscard]] bool reads_ones() const { return load(0x00) == ~0U && load(0x08) == ~0U; }
  void scribble() const { registers_.store<uint32_t>(0x04, 0x1234); }

 private:
  static constexpr uint64_t kOwn = 0x40000;
  static constexpr uint64_t kFromOwn = 0x2;

  Edu(Lease lease, Registers registers, UniqueFd event)
      : lease_(std::move(lease)), registers_(std::move(registers)), event_(std::move(event)) {}

  [[nodiscard]] uint32_t load(size_t offset) const { return registers_.load<uint32_t>(offset); }
  [[nodiscard]] Result<> await_interrupt();
  [[nodiscard]] Result<> await_idle() const;
  [[nodiscard]] Result<> copy(uint64_t source, uint64_t destination, uint64_t direction,
                              uint64_t bytes = kPage);

  Lease lease_;
  Registers registers_;
  UniqueFd event_;
  uint64_t interrupts_ = 0;
};

}  // namespace pcilend
