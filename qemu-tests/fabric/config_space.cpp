// SPDX-License-Identifier: GPL-2.0-or-later
#include "config_space.h"

#include <linux/pci_regs.h>

#include <algorithm>
#include <cstring>

namespace pcilend::fabric {
namespace {

constexpr uint32_t kPcieCapability = 0x40;
constexpr uint32_t kMsixCapability = 0x80;

}  // namespace

template <class T>
void ConfigSpace::set(uint32_t offset, T value, T writable) {
  std::memcpy(initial_.data() + offset, &value, sizeof value);
  std::memcpy(writable_.data() + offset, &writable, sizeof writable);
}

ConfigSpace::ConfigSpace(const Identity& identity, const WindowSizes& window_sizes) {
  set<uint16_t>(PCI_VENDOR_ID, identity.vendor);
  set<uint16_t>(PCI_DEVICE_ID, identity.device);
  set<uint16_t>(PCI_COMMAND, 0,
                PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_PARITY | PCI_COMMAND_SERR |
                    PCI_COMMAND_INTX_DISABLE);
  set<uint16_t>(PCI_STATUS, PCI_STATUS_CAP_LIST);
  set<uint16_t>(PCI_CLASS_DEVICE, 0x0680);  // bridge, other
  set<uint8_t>(PCI_CACHE_LINE_SIZE, 0, 0xff);
  set<uint16_t>(PCI_SUBSYSTEM_VENDOR_ID, identity.vendor);
  set<uint16_t>(PCI_SUBSYSTEM_ID, identity.device);
  set<uint8_t>(PCI_CAPABILITY_LIST, kPcieCapability);
  set<uint8_t>(PCI_INTERRUPT_LINE, 0, 0xff);

  if (identity.register_wide)
    set<uint64_t>(PCI_BASE_ADDRESS_0, PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH,
                  ~(identity.register_size - 1));
  else
    set<uint32_t>(PCI_BASE_ADDRESS_0, PCI_BASE_ADDRESS_MEM_TYPE_32,
                  static_cast<uint32_t>(~(identity.register_size - 1)));
  for (unsigned window = 0; window < kWindowCount; window++) {
    set<uint64_t>(PCI_BASE_ADDRESS_2 + 8 * window,
                  PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH,
                  ~(window_sizes[window] - 1));
  }

  set<uint8_t>(kPcieCapability, PCI_CAP_ID_EXP);
  set<uint8_t>(kPcieCapability + 1, kMsixCapability);
  set<uint16_t>(kPcieCapability + PCI_EXP_FLAGS, 2 | PCI_EXP_TYPE_ENDPOINT << 4);
  set<uint32_t>(kPcieCapability + PCI_EXP_DEVCAP, PCI_EXP_DEVCAP_RBER | 1);  // 256-byte payload
  set<uint16_t>(kPcieCapability + PCI_EXP_DEVCTL, 0,
                static_cast<uint16_t>(~PCI_EXP_DEVCTL_BCR_FLR));
  // The fields of LNKCAP and LNKSTA are alike.
  set<uint32_t>(kPcieCapability + PCI_EXP_LNKCAP, identity.link);
  set<uint16_t>(kPcieCapability + PCI_EXP_LNKCTL, 0, PCI_EXP_LNKCTL_ASPMC | PCI_EXP_LNKCTL_CCC);
  set<uint16_t>(kPcieCapability + PCI_EXP_LNKSTA, identity.link);

  set<uint8_t>(kMsixCapability, PCI_CAP_ID_MSIX);
  set<uint8_t>(kMsixCapability + 1, 0);
  set<uint16_t>(kMsixCapability + PCI_MSIX_FLAGS, static_cast<uint16_t>(identity.vectors - 1),
                PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL);
  set<uint32_t>(kMsixCapability + PCI_MSIX_TABLE, identity.msix_table);
  set<uint32_t>(kMsixCapability + PCI_MSIX_PBA, identity.msix_pba);

  reset();
}

void ConfigSpace::reset() {
  bytes_ = initial_;
}

void ConfigSpace::read(uint32_t offset, std::span<std::byte> data) const {
  std::copy_n(bytes_.begin() + offset, data.size(), data.begin());
}

void ConfigSpace::write(uint32_t offset, std::span<const std::byte> data) {
  for (size_t i = 0; i < data.size(); i++) {
    const std::byte mask = writable_[offset + i];
    bytes_[offset + i] = (bytes_[offset + i] & ~mask) | (data[i] & mask);
  }
}

bool ConfigSpace::bus_master() const {
  return (bytes_[PCI_COMMAND] & std::byte{PCI_COMMAND_MASTER}) != std::byte{0};
}

}  // namespace pcilend::fabric
