// SPDX-License-Identifier: GPL-2.0-or-later
#include "switchtec_model.h"

#include <linux/pci_regs.h>

namespace pcilend::fabric {
namespace {

uint32_t own_registers(unsigned partition) {
  return gas::kDoorbellsMessages + 0x4000 * partition;
}

}  // namespace

SwitchtecModel::SwitchtecModel(unsigned partition, std::shared_ptr<SwitchtecRegisters> registers)
    : partition_(partition),
      identity_{0x11f8,
                0x4000,
                gas::kSize,
                true,
                kVectors,
                own_registers(partition) + gas::kMsixTable,
                own_registers(partition) + gas::kMsixPba,
                PCI_EXP_LNKSTA_CLS_16_0GB | 16 << 4},
      registers_(std::move(registers)) {}

std::array<std::unique_ptr<AdapterModel>, 2> SwitchtecModel::pair(const WindowSizes& windows) {
  const auto registers = std::make_shared<SwitchtecRegisters>(windows);
  return {std::unique_ptr<AdapterModel>(new SwitchtecModel(0, registers)),
          std::unique_ptr<AdapterModel>(new SwitchtecModel(1, registers))};
}

void SwitchtecModel::read(uint32_t offset, std::span<std::byte> data) {
  const bool was_pending = loss_pending();
  registers_->read(partition_, offset, data);
  if (was_pending && !loss_pending()) owner().loss_acknowledged();
}

void SwitchtecModel::write(uint32_t offset, std::span<const std::byte> data) {
  const SwitchtecRegisters::Effects effects = registers_->write(partition_, offset, data);
  owner().raise(effects.vectors);
  for (const Signal& signal : effects.signals) owner().signal_peer(signal);
}

void SwitchtecModel::arrive(const Signal& signal) {
  if (signal.kind == Signal::Kind::Doorbells)
    owner().raise(registers_->ring(partition_, signal.value));
  else
    owner().raise(registers_->take_message(partition_, 1 - partition_, signal.index,
                                           static_cast<uint32_t>(signal.value)));
}

}  // namespace pcilend::fabric
