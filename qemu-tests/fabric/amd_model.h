// SPDX-License-Identifier: GPL-2.0-or-later
// AMD's NTB (1022:148b): one register file a side.
#pragma once

#include <array>
#include <memory>

#include "adapter_model.h"
#include "ntb_registers.h"

namespace pcilend::fabric {

class AmdModel final : public AdapterModel {
 public:
  static const Identity kIdentity;

  static std::array<std::unique_ptr<AdapterModel>, 2> pair(const WindowSizes& windows);

  [[nodiscard]] const Identity& identity() const override { return kIdentity; }
  [[nodiscard]] bool primary() const override { return registers_.side() == Side::Primary; }
  void read(uint32_t offset, std::span<std::byte> data) override;
  void write(uint32_t offset, std::span<const std::byte> data) override;
  [[nodiscard]] bool is_scratchpad(uint32_t offset) const override;
  void arrive(const Signal& signal) override;
  void set_link(bool up) override;
  void link_event(bool up) override;
  void driver_settled() override { owner().raise(registers_.release_events()); }
  [[nodiscard]] bool ready() const override { return registers_.ready(); }
  [[nodiscard]] bool loss_pending() const override { return registers_.loss_pending(); }
  [[nodiscard]] bool cause_stands(unsigned vector) const override {
    return registers_.cause_stands(vector);
  }
  [[nodiscard]] bool touched() const override { return registers_.touched(); }
  [[nodiscard]] std::span<const Opening> inbound(unsigned window) const override {
    return {&openings_[window], 1};
  }
  void reset() override;

 private:
  AmdModel(Side side, const WindowSizes& windows) : windows_(windows), registers_(side) {}
  void note_translations();

  WindowSizes windows_;
  NtbRegisters registers_;
  AmdModel* peer_ = nullptr;  // lives as long
  bool link_up_ = false;
  std::array<Opening, kWindowCount> openings_{};
};

}  // namespace pcilend::fabric
