// SPDX-License-Identifier: GPL-2.0-or-later
// Configuration spaces as QEMU's device models present them (hw/nvme/ctrl.c, hw/net/e1000e.c,
// hw/net/igb.c, hw/usb/hcd-xhci-pci.c, hw/ide/ich.c), for tests and as seeds of the fuzzer.
#pragma once

#include <linux/pci_regs.h>

#include <array>
#include <string>
#include <vector>

#include "pcilend/vconfig.h"
#include "pcilend/wire.h"

namespace snapshots {

struct Snapshot {
  std::string name;
  std::array<u8, PCILEND_VCONFIG_BYTES> bytes = {};
  size_t length = PCILEND_VCONFIG_BYTES;
  std::array<pcilend_vconfig_bar, 7> bar = {};

  void Put8(u32 at, u8 value) { bytes[at] = value; }
  void Put16(u32 at, u16 value) {
    Put8(at, static_cast<u8>(value));
    Put8(at + 1, static_cast<u8>(value >> 8));
  }
  void Put32(u32 at, u32 value) {
    Put16(at, static_cast<u16>(value));
    Put16(at + 2, static_cast<u16>(value >> 16));
  }

  Snapshot(std::string title, u32 ids, u32 class_revision, u32 subsystem) : name(std::move(title)) {
    Put32(PCI_VENDOR_ID, ids);
    // As the lender's driver left it: decoding, bus master, INTx off; some status bits set.
    Put16(PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_INTX_DISABLE);
    Put16(PCI_STATUS, PCI_STATUS_CAP_LIST | PCI_STATUS_REC_MASTER_ABORT);
    Put32(PCI_CLASS_REVISION, class_revision);
    Put32(PCI_SUBSYSTEM_VENDOR_ID, subsystem);
    Put8(PCI_CACHE_LINE_SIZE, 0x10);
    Put8(PCI_INTERRUPT_LINE, 11);
    Put8(PCI_INTERRUPT_PIN, 1);
  }

  void Bar(unsigned index, u64 size, u32 flags, u64 address) {
    bar[index] = {size, flags};
    u32 type = (flags & PCILEND_BAR_IO) != 0 ? PCI_BASE_ADDRESS_SPACE_IO : 0;
    if ((flags & PCILEND_BAR_MEM64) != 0) {
      type |= PCI_BASE_ADDRESS_MEM_TYPE_64;
      Put32(PCI_BASE_ADDRESS_0 + 4 * index + 4, static_cast<u32>(address >> 32));
    }
    if ((flags & PCILEND_BAR_PREFETCH) != 0) type |= PCI_BASE_ADDRESS_MEM_PREFETCH;
    Put32(PCI_BASE_ADDRESS_0 + 4 * index, static_cast<u32>(address) | type);
  }
  // Appends to the capability list.
  void Cap(u8 at, u8 id) {
    u8 tail = PCI_CAPABILITY_LIST;
    while (bytes[tail] != 0) tail = bytes[tail] + 1;
    bytes[tail] = at;
    Put8(at, id);
  }
  void Extended(u16 at, u16 id, u8 version) {
    if (at != 0x100) {
      u16 tail = 0x100;
      while (Next(tail) != 0) tail = Next(tail);
      Put16(tail + 2, static_cast<u16>((bytes[tail + 2] & 0xf) | at << 4));
    }
    Put32(at, id | version << 16);
  }
  u16 Next(u16 at) const { return static_cast<u16>((bytes[at + 3] << 8 | bytes[at + 2]) >> 4); }

  void Power(u8 at, u16 pmc, u16 control) {
    Cap(at, PCI_CAP_ID_PM);
    Put16(at + PCI_PM_PMC, pmc);
    Put16(at + PCI_PM_CTRL, control);
  }
  void Msix(u8 at, u16 vectors, u32 table, u32 pba) {
    Cap(at, PCI_CAP_ID_MSIX);
    Put16(at + PCI_MSIX_FLAGS, static_cast<u16>((vectors - 1) | PCI_MSIX_FLAGS_ENABLE));
    Put32(at + PCI_MSIX_TABLE, table);
    Put32(at + PCI_MSIX_PBA, pba);
  }
  void Msi(u8 at, u16 flags) {
    Cap(at, PCI_CAP_ID_MSI);
    Put16(at + PCI_MSI_FLAGS, flags);
    Put32(at + PCI_MSI_ADDRESS_LO, 0xfee01000);
  }
  void Express(u8 at, u16 flags, u32 devcap) {
    Cap(at, PCI_CAP_ID_EXP);
    Put16(at + PCI_EXP_FLAGS, flags);
    Put32(at + PCI_EXP_DEVCAP, devcap);
    Put16(at + PCI_EXP_DEVCTL, 0x2010);
    Put16(at + PCI_EXP_DEVSTA, PCI_EXP_DEVSTA_CED);
    Put32(at + PCI_EXP_LNKCAP, 0x00000c11);
    Put16(at + PCI_EXP_LNKSTA, 0x0011);
    if ((flags & PCI_EXP_FLAGS_VERS) >= 2) {
      Put32(at + PCI_EXP_DEVCAP2, 0x00ff003f);
      Put32(at + PCI_EXP_LNKCAP2, 0x0000001e);
    }
  }
};

inline Snapshot Nvme() {
  Snapshot s("nvme", 0x00101b36, 0x01080202, 0x11001af4);
  s.Bar(0, 0x4000, PCILEND_BAR_MEM64, 0xfebd0000);
  s.Msix(0x40, 65, 0x2000, 0x3000);
  s.Express(0x80, 0x0092, PCI_EXP_DEVCAP_FLR | PCI_EXP_DEVCAP_RBER);  // integrated endpoint, v2
  s.Power(0x60, 0x0003, PCI_PM_CTRL_NO_SOFT_RESET);
  return s;
}

inline Snapshot E1000e() {
  Snapshot s("e1000e", 0x10d38086, 0x02000000, 0x00008086);
  s.Bar(0, 0x20000, 0, 0xfea40000);
  s.Bar(1, 0x20000, 0, 0xfea60000);
  s.Bar(2, 0x20, PCILEND_BAR_IO, 0xc040);
  s.Bar(3, 0x4000, 0, 0xfea80000);
  s.bar[6] = {0x40000, 0};
  s.Power(0xc8, 0xc822, 0x2000);
  s.Msi(0xd0, PCI_MSI_FLAGS_64BIT);
  s.Express(0xe0, 0x0001, PCI_EXP_DEVCAP_RBER | 0x0cc1);
  s.Msix(0xa0, 5, 3, 0x2003);
  s.Extended(0x100, PCI_EXT_CAP_ID_ERR, 2);
  s.Extended(0x140, PCI_EXT_CAP_ID_DSN, 1);
  s.Put32(0x144, 0xff123456);
  s.Put32(0x148, 0x525400ff);
  return s;
}

inline Snapshot Igb() {
  Snapshot s("igb", 0x10c98086, 0x02000001, 0xa02c8086);
  s.Put8(PCI_HEADER_TYPE, 0x80);
  s.Bar(0, 0x20000, 0, 0xfe800000);
  s.Bar(1, 0x20000, 0, 0xfe820000);
  s.Bar(2, 0x20, PCILEND_BAR_IO, 0xd020);
  s.Bar(3, 0x4000, 0, 0xfe840000);
  s.Power(0x40, 0xc823, 0x2008);
  s.Msi(0x50, PCI_MSI_FLAGS_64BIT | PCI_MSI_FLAGS_MASKBIT);
  s.Msix(0x70, 10, 3, 0x2003);
  s.Express(0xa0, 0x0002, PCI_EXP_DEVCAP_FLR | PCI_EXP_DEVCAP_RBER | 0x0ce1);
  s.Extended(0x100, PCI_EXT_CAP_ID_ERR, 2);
  s.Extended(0x140, PCI_EXT_CAP_ID_DSN, 1);
  s.Put32(0x144, 0xff654321);
  s.Put32(0x148, 0x525400ff);
  s.Extended(0x150, PCI_EXT_CAP_ID_ARI, 1);
  s.Extended(0x160, PCI_EXT_CAP_ID_SRIOV, 1);
  s.Put16(0x160 + PCI_SRIOV_TOTAL_VF, 8);
  s.Extended(0x1c0, PCI_EXT_CAP_ID_LTR, 1);
  return s;
}

inline Snapshot Xhci() {
  Snapshot s("xhci", 0x000d1b36, 0x0c033001, 0x11001af4);
  s.Bar(0, 0x4000, PCILEND_BAR_MEM64, 0xfebf0000);
  s.Put8(0x60, 0x30);  // serial bus release number, xHCI 1.2 §5.2.3
  s.Msix(0x90, 16, 0x3000, 0x3800);
  s.Express(0xa0, 0x0092, PCI_EXP_DEVCAP_RBER);
  return s;
}

inline Snapshot Ahci() {
  Snapshot s("ahci", 0x29228086, 0x01060102, 0x11001af4);
  s.length = 256;
  s.Bar(4, 0x20, PCILEND_BAR_IO, 0xc060);
  s.Bar(5, 0x1000, 0, 0xfebd5000);
  s.Msi(0x80, PCI_MSI_FLAGS_64BIT);
  s.Cap(0xa8, PCI_CAP_ID_SATA);
  s.Put32(0xac, 0x00000048);
  s.Cap(0xb0, PCI_CAP_ID_AF);
  s.Put8(0xb2, 6);
  s.Put8(0xb3, PCI_AF_CAP_TP | PCI_AF_CAP_FLR);
  s.Put8(0xb5, PCI_AF_STATUS_TP);
  return s;
}

// virtio-net (modern): four vendor-specific capabilities, MSI-X on a BAR of its own.
inline Snapshot Virtio() {
  Snapshot s("virtio", 0x10411af4, 0x02000001, 0x11001af4);
  s.Bar(1, 0x1000, 0, 0xfebd6000);
  s.Bar(4, 0x4000, PCILEND_BAR_MEM64 | PCILEND_BAR_PREFETCH, 0xfe00000000);
  s.Msix(0x98, 4, 1, 0x801);
  u8 at = 0x84;
  for (u8 type = 5; type >= 2; --type) {
    const u8 length = type == 5 || type == 2 ? 20 : 16;
    s.Cap(at, PCI_CAP_ID_VNDR);
    s.Put8(at + 2, length);
    s.Put8(at + 3, type);
    s.Put8(at + 4, 4);
    s.Put32(at + 8, type * 0x1000u);
    s.Put32(at + 12, 0x1000);
    at = static_cast<u8>(at - 0x14);
  }
  s.Express(0xc0, 0x0092, PCI_EXP_DEVCAP_FLR);
  s.Extended(0x100, PCI_EXT_CAP_ID_VNDR, 1);
  s.Put32(0x104, 0x01811234);  // 24 bytes
  s.Put32(0x108, 0xcafe0001);
  return s;
}

inline std::vector<Snapshot> All() {
  return {Nvme(), E1000e(), Igb(), Xhci(), Ahci(), Virtio()};
}

}  // namespace snapshots
