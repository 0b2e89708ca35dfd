// SPDX-License-Identifier: GPL-2.0-or-later
// What must hold of any virtual configuration space, whatever it was made from and whatever was
// written to it. Returns what is wrong, or an empty text.
#pragma once

#include <linux/pci_regs.h>

#include <set>
#include <string>

#include "pcilend/vconfig.h"
#include "pcilend/wire.h"

namespace vconfig_check {

inline u32 Read(const pcilend_vconfig& config, u32 at, u32 length) {
  return pcilend_vconfig_read(&config, at, length);
}

inline std::string StandardList(const pcilend_vconfig& config) {
  const std::set<u32> allowed = {PCI_CAP_ID_PM,  PCI_CAP_ID_MSI, PCI_CAP_ID_MSIX,
                                 PCI_CAP_ID_EXP, PCI_CAP_ID_AF,  PCI_CAP_ID_VNDR};
  std::set<u32> seen_at;
  std::multiset<u32> seen_id;
  const bool listed = (Read(config, PCI_STATUS, 2) & PCI_STATUS_CAP_LIST) != 0;
  u32 at = Read(config, PCI_CAPABILITY_LIST, 1);
  if (listed != (at != 0)) return "capability list bit and pointer disagree";
  for (; at != 0; at = Read(config, at + 1, 1)) {
    if (at % 4 != 0 || at < 0x40 || at > 0xfc) return "capability at a bad offset";
    if (!seen_at.insert(at).second) return "capability list loops";
    const u32 id = Read(config, at, 1);
    if (allowed.count(id) == 0) return "capability " + std::to_string(id) + " is shown";
    seen_id.insert(id);
    const u16 found = id == PCI_CAP_ID_PM     ? config.power
                      : id == PCI_CAP_ID_MSI  ? config.msi
                      : id == PCI_CAP_ID_MSIX ? config.msix
                      : id == PCI_CAP_ID_EXP  ? config.express
                      : id == PCI_CAP_ID_AF   ? config.advanced
                                              : static_cast<u16>(at);
    if (found != at) return "capability is not where the struct says";
  }
  for (const u32 id :
       {PCI_CAP_ID_PM, PCI_CAP_ID_MSI, PCI_CAP_ID_MSIX, PCI_CAP_ID_EXP, PCI_CAP_ID_AF}) {
    if (seen_id.count(id) > 1) return "capability " + std::to_string(id) + " twice";
  }
  if (seen_id.count(PCI_CAP_ID_PM) != (config.power != 0) ||
      seen_id.count(PCI_CAP_ID_MSI) != (config.msi != 0) ||
      seen_id.count(PCI_CAP_ID_MSIX) != (config.msix != 0) ||
      seen_id.count(PCI_CAP_ID_EXP) != (config.express != 0) ||
      seen_id.count(PCI_CAP_ID_AF) != (config.advanced != 0)) {
    return "a capability the struct names is not in the list";
  }
  if (config.msi != 0 && config.msix != 0) return "MSI beside MSI-X";
  return "";
}

inline std::string ExtendedList(const pcilend_vconfig& config) {
  std::set<u32> seen;
  u32 at = 0x100;
  if (Read(config, at, 4) == 0) return "";
  while (at != 0) {
    if (at % 4 != 0 || at < 0x100) return "extended capability at a bad offset";
    if (!seen.insert(at).second) return "extended capability list loops";
    const u32 header = Read(config, at, 4);
    const u32 id = header & 0xffff;
    const bool head = at == 0x100 && header >> 20 != 0;
    if (id == 0 ? !head : id != PCI_EXT_CAP_ID_DSN && id != PCI_EXT_CAP_ID_VNDR) {
      return "extended capability " + std::to_string(id) + " is shown";
    }
    at = header >> 20;
  }
  return "";
}

inline std::string Msix(const pcilend_vconfig& config) {
  if (config.msix == 0) return "";
  const u64 vectors = (Read(config, config.msix + 2, 2) & PCI_MSIX_FLAGS_QSIZE) + 1;
  const u32 table = Read(config, config.msix + PCI_MSIX_TABLE, 4);
  const u32 pba = Read(config, config.msix + PCI_MSIX_PBA, 4);
  if ((table & 7) > 5 || (table & ~7u) + vectors * 16 > config.bar[table & 7].size) {
    return "MSI-X table outside its BAR";
  }
  if ((pba & 7) > 5 || (pba & ~7u) + (vectors + 63) / 64 * 8 > config.bar[pba & 7].size) {
    return "MSI-X pending bits outside their BAR";
  }
  return "";
}

inline std::string Bars(const pcilend_vconfig& config) {
  for (unsigned i = 0; i < 7; ++i) {
    const u64 size = config.bar[i].size;
    if ((size & (size - 1)) != 0) return "BAR size is not a power of two";
    if (size != 0 && pcilend_vconfig_bar_address(&config, i) % size != 0) {
      return "BAR address is not aligned to its size";
    }
    if (size == 0 && pcilend_vconfig_bar_address(&config, i) != 0) return "address without BAR";
  }
  if ((Read(config, PCI_BASE_ADDRESS_0, 1) & PCI_BASE_ADDRESS_SPACE_IO) != 0) return "I/O BAR";
  return "";
}

inline std::string All(const pcilend_vconfig& config) {
  if ((Read(config, PCI_HEADER_TYPE, 1)) != 0) return "header type";
  const u32 pin = Read(config, PCI_INTERRUPT_PIN, 1);
  if (pin > 4) return "a pin that is none of INTA to INTD";
  if (pin == 0 && pcilend_vconfig_intx(&config) != PCILEND_INTX_OFF) return "INTx without a pin";
  if ((Read(config, PCI_COMMAND, 2) & ~0x0546u) != 0) return "command bits nobody may set";
  if (config.msi != 0) {
    const u32 flags = Read(config, config.msi + 2, 2);
    if ((flags >> 4 & 7) > (flags >> 1 & 7) || (flags >> 1 & 7) > 5) return "too many vectors";
  }
  if (config.power != 0) {
    const u32 state = Read(config, config.power + 4, 2) & 3;
    if (state != 0 && state != 3) return "power state that isn't supported";
  }
  for (u32 at = 0; at < PCILEND_VCONFIG_BYTES; ++at) {
    const bool forwarded = (config.forward[at / 8] >> (at % 8) & 1) != 0;
    if (forwarded && config.writable[at] != 0) return "forwarded and kept here at once";
    if (forwarded && at < 0x44) return "the header is forwarded";
    const u32 taken = pcilend_vconfig_hardware_bits(&config, at, 1);
    const u32 flags = config.msi != 0 ? Read(config, config.msi + 2, 2) : 0;
    const u32 end = config.msi + ((flags & PCI_MSI_FLAGS_64BIT) != 0 ? 14u : 10u) +
                    ((flags & PCI_MSI_FLAGS_MASKBIT) != 0 ? 10u : 0u);
    const bool of_msi = config.msi != 0 && at >= config.msi + 2u && at < end;
    if (taken != 0 && !forwarded && !of_msi) return "the lender takes what is not the borrower's";
    if (of_msi && taken != config.writable[at]) return "other bits of MSI on both sides";
  }
  for (const auto& check : {StandardList, ExtendedList, Msix, Bars}) {
    const std::string wrong = check(config);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace vconfig_check
