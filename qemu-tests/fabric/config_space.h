// SPDX-License-Identifier: GPL-2.0-or-later
// PCI configuration space of the adapter: 4096 bytes with a PCIe and an MSI-X capability. QEMU
// takes types and sizes of the BARs from here and emulates their addresses itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "adapter_model.h"

namespace pcilend::fabric {

class ConfigSpace {
 public:
  static constexpr uint32_t kSize = 4096;

  // `window_sizes`: of BAR2 and BAR4 in bytes, powers of two.
  ConfigSpace(const Identity& identity, const WindowSizes& window_sizes);

  // The range lies inside kSize.
  void read(uint32_t offset, std::span<std::byte> data) const;
  void write(uint32_t offset, std::span<const std::byte> data);

  // The function may start transactions on its host's bus.
  [[nodiscard]] bool bus_master() const;

  void reset();

 private:
  template <class T>
  void set(uint32_t offset, T value, T writable = 0);

  std::array<std::byte, kSize> bytes_{};
  std::array<std::byte, kSize> writable_{};  // a set bit can be written
  std::array<std::byte, kSize> initial_{};
};

}  // namespace pcilend::fabric
