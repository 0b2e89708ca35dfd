// SPDX-License-Identifier: GPL-2.0-or-later
#include "amd_model.h"

#include <linux/pci_regs.h>

#include <algorithm>

namespace pcilend::fabric {

// As many vectors as ntb_hw_amd asks for; 8 GT/s, 16 lanes.
const Identity AmdModel::kIdentity{0x1022, 0x148b, 16 << 10, false,
                                   24,     0x2000, 0x3000,   PCI_EXP_LNKSTA_CLS_8_0GB | 16 << 4};

std::array<std::unique_ptr<AdapterModel>, 2> AmdModel::pair(const WindowSizes& windows) {
  std::unique_ptr<AmdModel> primary(new AmdModel(Side::Primary, windows));
  std::unique_ptr<AmdModel> secondary(new AmdModel(Side::Secondary, windows));
  primary->peer_ = secondary.get();
  secondary->peer_ = primary.get();
  return {std::move(primary), std::move(secondary)};
}

void AmdModel::read(uint32_t offset, std::span<std::byte> data) {
  const NtbRegisters& peer = peer_->registers_;
  registers_.read(offset, data, {peer.ready() && link_up_, peer.translations()});
}

void AmdModel::write(uint32_t offset, std::span<const std::byte> data) {
  const bool was_ready = registers_.ready();
  const bool was_pending = registers_.loss_pending();
  const NtbRegisters::Effects effects = registers_.write(offset, data);
  note_translations();
  owner().raise(effects.vectors);
  for (const auto& written : effects.scratchpads)
    owner().signal_peer({Signal::Kind::Scratchpad, written.index, written.value});
  if (effects.peer_doorbells != 0)
    owner().signal_peer({Signal::Kind::Doorbells, 0, effects.peer_doorbells});
  if (registers_.ready() != was_ready) owner().ready_changed();
  if (was_pending && !registers_.loss_pending()) owner().loss_acknowledged();
}

bool AmdModel::is_scratchpad(uint32_t offset) const {
  return offset >= reg::kScratchpad && offset < reg::kScratchpad + 4 * kScratchpadCount;
}

void AmdModel::arrive(const Signal& signal) {
  if (signal.kind == Signal::Kind::Scratchpad)
    registers_.show_scratchpad(signal.index, static_cast<uint32_t>(signal.value));
  else
    owner().raise(registers_.ring_doorbells(static_cast<uint16_t>(signal.value)));
}

void AmdModel::set_link(bool up) {
  link_up_ = up;
  // What was written while the link was down shows now; each side's own scratchpads count.
  for (unsigned index = 0; up && index < kScratchpadCount; index++) {
    if (registers_.owns_scratchpad(index))
      peer_->registers_.show_scratchpad(index, registers_.scratchpad(index));
  }
}

void AmdModel::link_event(bool up) {
  owner().raise(registers_.link_event(up ? LinkEvent::Up : LinkEvent::Down));
}

void AmdModel::reset() {
  registers_.reset();
  note_translations();
}

void AmdModel::note_translations() {
  for (unsigned window = 0; window < kWindowCount; window++) {
    const Translation& translation = registers_.translations()[window];
    openings_[window] = {0, std::min(translation.limit, windows_[window]), translation.address};
  }
}

}  // namespace pcilend::fabric
