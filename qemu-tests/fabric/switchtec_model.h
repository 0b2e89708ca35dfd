// SPDX-License-Identifier: GPL-2.0-or-later
// Microchip's Switchtec PFX 100xG4 (11f8:4000): two NT endpoints of one switch.
#pragma once

#include <array>
#include <memory>

#include "adapter_model.h"
#include "switchtec_registers.h"

namespace pcilend::fabric {

class SwitchtecModel final : public AdapterModel {
 public:
  static constexpr uint32_t kVectors = 4;

  static std::array<std::unique_ptr<AdapterModel>, 2> pair(const WindowSizes& windows);

  [[nodiscard]] const Identity& identity() const override { return identity_; }
  [[nodiscard]] bool primary() const override { return partition_ == 0; }
  void read(uint32_t offset, std::span<std::byte> data) override;
  void write(uint32_t offset, std::span<const std::byte> data) override;
  // Its scratchpads are memory of the hosts.
  [[nodiscard]] bool is_scratchpad(uint32_t /*offset*/) const override { return false; }
  void arrive(const Signal& signal) override;
  void set_link(bool /*up*/) override {}
  void link_event(bool up) override { owner().raise(registers_->link_event(partition_, up)); }
  void driver_settled() override {}
  [[nodiscard]] bool ready() const override { return registers_->ready(partition_); }
  [[nodiscard]] bool loss_pending() const override {
    return registers_->loss_unread(partition_) && owner().takes_interrupts();
  }
  [[nodiscard]] bool cause_stands(unsigned vector) const override {
    return registers_->cause_stands(partition_, vector);
  }
  [[nodiscard]] bool touched() const override { return registers_->touched(partition_); }
  [[nodiscard]] std::span<const Opening> inbound(unsigned window) const override {
    return registers_->openings(1 - partition_, window);
  }
  [[nodiscard]] std::vector<Requester> requesters() const override {
    return registers_->requesters(partition_);
  }
  [[nodiscard]] bool lets_functions_through() const override {
    return registers_->lets_functions_through(partition_);
  }
  void fill_requesters(bool full) override { registers_->fill_requesters(partition_, full); }
  [[nodiscard]] bool takes_messages() const override { return true; }
  void reset() override { registers_->reset(partition_); }

 private:
  SwitchtecModel(unsigned partition, std::shared_ptr<SwitchtecRegisters> registers);

  unsigned partition_;
  Identity identity_;
  std::shared_ptr<SwitchtecRegisters> registers_;  // of both
};

}  // namespace pcilend::fabric
