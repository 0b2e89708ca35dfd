// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/vconfig.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <sstream>
#include <string>

#include "golden.h"
#include "snapshots.h"
#include "vconfig_check.h"

namespace {

using snapshots::Snapshot;

class Config {
 public:
  explicit Config(const Snapshot& snapshot) {
    EXPECT_EQ(
        pcilend_vconfig_init(&raw, snapshot.bytes.data(), snapshot.length, snapshot.bar.data()), 0);
    EXPECT_EQ(vconfig_check::All(raw), "") << snapshot.name;
  }
  u32 Read(u32 at, u32 length) const { return pcilend_vconfig_read(&raw, at, length); }
  unsigned Write(u32 at, u32 length, u32 value) {
    return pcilend_vconfig_write(&raw, at, length, value);
  }
  u32 Bar(unsigned index) const { return Read(PCI_BASE_ADDRESS_0 + 4 * index, 4); }

  pcilend_vconfig raw;
};

int Init(const Snapshot& snapshot, size_t length) {
  auto config = std::make_unique<pcilend_vconfig>();
  return pcilend_vconfig_init(config.get(), snapshot.bytes.data(), length, snapshot.bar.data());
}

// What a driver finds, which bits it can change, and what is asked from the hardware.
TEST(Vconfig, Goldens) {
  for (const Snapshot& snapshot : snapshots::All()) {
    const Config config(snapshot);
    std::ostringstream text;
    for (u32 at = 0; at < PCILEND_VCONFIG_BYTES; at += 4) {
      u32 writable = 0;
      std::memcpy(&writable, config.raw.writable + at, 4);
      const bool forwards = pcilend_vconfig_forwards(&config.raw, at, 4);
      if (config.Read(at, 4) == 0 && writable == 0 && !forwards) continue;
      char line[64];
      std::snprintf(line, sizeof(line), "%03x: %08x writable %08x%s\n", at, config.Read(at, 4),
                    writable, forwards ? " hardware" : "");
      text << line;
    }
    ExpectGolden("vconfig_" + snapshot.name + ".txt", text.str());
  }
}

// Every bit that the lender takes from a borrower, and nothing else is.
std::string TakenByTheLender(const Config& config) {
  std::ostringstream text;
  for (u32 at = 0; at < PCILEND_VCONFIG_BYTES; at += 4) {
    u32 bits = 0;
    for (u32 i = 0; i < 4; ++i)
      bits |= pcilend_vconfig_hardware_bits(&config.raw, at + i, 1) << (8 * i);
    if (bits == 0) continue;
    char line[32];
    std::snprintf(line, sizeof(line), "%03x: %08x\n", at, bits);
    text << line;
  }
  return text.str();
}

TEST(Vconfig, TakenByTheLenderGoldens) {
  for (const Snapshot& snapshot : snapshots::All()) {
    ExpectGolden("hardware_" + snapshot.name + ".txt", TakenByTheLender(Config(snapshot)));
  }
}

// As of a QLogic ISP2532: VPD, by which the card's EEPROM is written, is right behind MSI.
TEST(Vconfig, WhatIsBehindMsiIsNotTheBorrowers) {
  Snapshot snapshot = snapshots::Ahci();
  snapshot.Put8(PCI_CAPABILITY_LIST, 0x88);
  snapshot.Put8(0x88, PCI_CAP_ID_MSI);
  snapshot.Put8(0x89, 0x98);
  snapshot.Put16(0x8a, PCI_MSI_FLAGS_64BIT | 5 << 1);
  snapshot.Put8(0x98, PCI_CAP_ID_VPD);
  snapshot.Put8(0x99, 0xa0);
  snapshot.Put8(0xa0, PCI_CAP_ID_MSIX);
  snapshot.Put8(0xa1, 0);
  snapshot.Put16(0xa2, 31);
  snapshot.Put32(0xa4, 5);           // table at the start of BAR 5
  snapshot.Put32(0xa8, 0x200 | 5u);  // and pending bits behind it
  Snapshot without_bar = snapshot;
  without_bar.bar[5] = {0, 0};

  const Config msi(without_bar);
  ASSERT_EQ(msi.raw.msi, 0x88);
  EXPECT_EQ(TakenByTheLender(msi),
            "088: 00710000\n"
            "08c: fffffffc\n"
            "090: ffffffff\n"
            "094: 0000ffff\n");
  EXPECT_EQ(pcilend_vconfig_hardware_bits(&msi.raw, 0x94, 2), 0xffffu);
  EXPECT_EQ(pcilend_vconfig_hardware_bits(&msi.raw, 0x94, 4), 0u) << "touches what is not MSI";
  EXPECT_EQ(pcilend_vconfig_hardware_bits(&msi.raw, 0x88, 4), 0u) << "touches the list";
  for (const u32 length : {1u, 2u, 4u}) {
    for (u32 at = 0x98; at < 0xa0; at += length)
      EXPECT_EQ(pcilend_vconfig_hardware_bits(&msi.raw, at, length), 0u) << at;
  }
  // Read-only bits stay as the hardware has them, and the borrower gets no more messages than are.
  const u16 flags = PCI_MSI_FLAGS_64BIT | 2 << 1;
  EXPECT_EQ(pcilend_vconfig_hardware_value(&msi.raw, 0x8a, 2, flags, 0xffff),
            flags | 2u << 4 | PCI_MSI_FLAGS_ENABLE);
  EXPECT_EQ(pcilend_vconfig_hardware_value(&msi.raw, 0x98, 4, 0x1234, 0xffffffff), 0x1234u);

  snapshot.bar[5] = {0x1000, 0};
  const Config msix(snapshot);
  ASSERT_EQ(msix.raw.msix, 0xa0);
  EXPECT_EQ(TakenByTheLender(msix), "") << "with MSI-X nobody needs its MSI";
}

TEST(Vconfig, RefusesWhatIsNoEndpoint) {
  Snapshot snapshot = snapshots::Nvme();
  for (const size_t length : {0, 1, 64, 255, 257, 4095, 4097}) {
    EXPECT_EQ(Init(snapshot, length), -EINVAL) << length;
  }
  EXPECT_EQ(Init(snapshot, 256), 0);
  for (const u8 type : {1, 2, 0x7f, 0x81, 0xff}) {
    snapshot.Put8(PCI_HEADER_TYPE, type);
    EXPECT_EQ(Init(snapshot, 4096), -EINVAL) << int(type);
  }
  snapshot = snapshots::Nvme();
  snapshot.bytes.fill(0xff);
  EXPECT_EQ(Init(snapshot, 4096), -EINVAL) << "a function that is gone";
}

TEST(Vconfig, StartsQuiet) {
  for (const Snapshot& snapshot : snapshots::All()) {
    const Config config(snapshot);
    EXPECT_EQ(config.Read(PCI_COMMAND, 2), 0u);
    EXPECT_FALSE(pcilend_vconfig_bus_master(&config.raw));
    EXPECT_FALSE(pcilend_vconfig_memory(&config.raw));
    EXPECT_EQ(config.Read(PCI_STATUS, 2), u32{PCI_STATUS_CAP_LIST});
    EXPECT_EQ(config.Read(PCI_INTERRUPT_PIN, 1), snapshot.bytes[PCI_INTERRUPT_PIN]);
    EXPECT_EQ(config.Read(PCI_INTERRUPT_LINE, 1), 0u) << "the lender's";
    EXPECT_EQ(config.Read(PCI_HEADER_TYPE, 1), 0u) << "the only function of its device";
    for (unsigned bar = 0; bar < 7; ++bar) {
      EXPECT_EQ(pcilend_vconfig_bar_address(&config.raw, bar), 0u);
    }
    if (config.raw.msix != 0) {
      EXPECT_EQ(config.Read(config.raw.msix + 2, 2) & PCI_MSIX_FLAGS_ENABLE, 0u);
    }
  }
}

TEST(Vconfig, SizingBars) {
  struct Case {
    u64 size;
    u32 flags;
    u32 low;
    u32 high;
  };
  const std::vector<Case> cases = {
      {16, 0, 0xfffffff0, 0},
      {0x4000, 0, 0xffffc000, 0},
      {0x80000000, 0, 0x80000000, 0},
      {0x1000, PCILEND_BAR_PREFETCH, 0xfffff008, 0},
      {0x4000, PCILEND_BAR_MEM64, 0xffffc004, 0xffffffff},
      {0x100000000, PCILEND_BAR_MEM64, 0x00000004, 0xffffffff},
      {0x1000000000, PCILEND_BAR_MEM64 | PCILEND_BAR_PREFETCH, 0x0000000c, 0xfffffff0},
      {1ULL << 63, PCILEND_BAR_MEM64, 0x00000004, 0x80000000},
      // What can't be: not implemented.
      {0, PCILEND_BAR_MEM64, 0, 0},
      {8, 0, 0, 0},
      {0x3000, 0, 0, 0},
      {0x100000000, 0, 0, 0},
      {0x20, PCILEND_BAR_IO, 0, 0},
  };
  for (const Case& c : cases) {
    Snapshot snapshot = snapshots::Nvme();
    snapshot.bar[2] = {c.size, c.flags};
    Config config(snapshot);
    const unsigned effects = config.Write(PCI_BASE_ADDRESS_2, 4, 0xffffffff) |
                             config.Write(PCI_BASE_ADDRESS_3, 4, 0xffffffff);
    EXPECT_EQ(config.Bar(2), c.low) << c.size;
    EXPECT_EQ(config.Bar(3), c.high) << c.size;
    EXPECT_EQ(effects, c.low != 0 ? unsigned{PCILEND_EFFECT_BAR} : 0u) << c.size;
    EXPECT_EQ(vconfig_check::All(config.raw), "");
  }
}

TEST(Vconfig, UpperHalfOfA64BitBarIsNoBar) {
  Snapshot snapshot = snapshots::Nvme();
  snapshot.bar[1] = {0x1000, 0};
  const Config config(snapshot);
  EXPECT_EQ(config.raw.bar[1].size, 0u);
  snapshot.bar[5] = {0x1000, PCILEND_BAR_MEM64};
  EXPECT_EQ(Config(snapshot).raw.bar[5].size, 0u) << "no room for an upper half";
}

TEST(Vconfig, BarAddresses) {
  Config config(snapshots::Virtio());
  EXPECT_EQ(config.Write(PCI_BASE_ADDRESS_4, 4, 0x12345678), unsigned{PCILEND_EFFECT_BAR});
  EXPECT_EQ(config.Write(PCI_BASE_ADDRESS_5, 4, 0xab), unsigned{PCILEND_EFFECT_BAR});
  EXPECT_EQ(pcilend_vconfig_bar_address(&config.raw, 4), 0xab12344000u);
  EXPECT_EQ(pcilend_vconfig_bar_address(&config.raw, 5), 0u);
  EXPECT_EQ(config.Write(PCI_BASE_ADDRESS_1 + 2, 2, 0xfebd), unsigned{PCILEND_EFFECT_BAR});
  EXPECT_EQ(pcilend_vconfig_bar_address(&config.raw, 1), 0xfebd0000u);
  EXPECT_EQ(config.Write(PCI_BASE_ADDRESS_0, 4, 0x1000), 0u) << "not implemented";
  EXPECT_EQ(pcilend_vconfig_bar_address(&config.raw, 0), 0u);
  EXPECT_EQ(pcilend_vconfig_bar_address(&config.raw, 7), 0u);
  EXPECT_EQ(pcilend_vconfig_bar_address(&config.raw, ~0u), 0u);
}

TEST(Vconfig, ExpansionRom) {
  Config config(snapshots::E1000e());
  EXPECT_EQ(config.Write(PCI_ROM_ADDRESS, 4, 0xfffff800), unsigned{PCILEND_EFFECT_BAR});
  EXPECT_EQ(config.Read(PCI_ROM_ADDRESS, 4), 0xfffc0000u);
  config.Write(PCI_ROM_ADDRESS, 4, 0xfeb80001);
  EXPECT_EQ(config.Read(PCI_ROM_ADDRESS, 4), 0xfeb80001u);
  EXPECT_EQ(pcilend_vconfig_bar_address(&config.raw, 6), 0xfeb80000u);
  Config none(snapshots::Nvme());
  EXPECT_EQ(none.Write(PCI_ROM_ADDRESS, 4, 0xffffffff), 0u);
  EXPECT_EQ(none.Read(PCI_ROM_ADDRESS, 4), 0u);
}

TEST(Vconfig, Command) {
  Config config(snapshots::Nvme());
  EXPECT_EQ(config.Write(PCI_COMMAND, 2, PCI_COMMAND_MEMORY), unsigned{PCILEND_EFFECT_COMMAND});
  EXPECT_TRUE(pcilend_vconfig_memory(&config.raw));
  EXPECT_FALSE(pcilend_vconfig_bus_master(&config.raw));
  EXPECT_EQ(config.Write(PCI_COMMAND, 2, PCI_COMMAND_MEMORY), 0u) << "no change";
  EXPECT_EQ(config.Write(PCI_COMMAND, 2, PCI_COMMAND_MEMORY | PCI_COMMAND_INTX_DISABLE),
            unsigned{PCILEND_EFFECT_INTX});
  EXPECT_EQ(config.Write(PCI_COMMAND, 4, 0xffffffff), unsigned{PCILEND_EFFECT_COMMAND});
  EXPECT_TRUE(pcilend_vconfig_bus_master(&config.raw));
  EXPECT_EQ(config.Read(PCI_COMMAND, 2), 0x0546u) << "no I/O, no special cycles";
  EXPECT_EQ(config.Read(PCI_STATUS, 2), u32{PCI_STATUS_CAP_LIST}) << "write 1 to clear, all clear";
}

TEST(Vconfig, IntxWhileNeitherMsiNorMsixIsEnabled) {
  const auto intx = [](const Config& config) { return pcilend_vconfig_intx(&config.raw); };
  for (const Snapshot& snapshot : {snapshots::Nvme(), snapshots::Ahci()}) {
    Config config(snapshot);
    const u32 flags = config.raw.msix != 0 ? config.raw.msix + 2u : config.raw.msi + 2u;
    const u32 enable = config.raw.msix != 0 ? u32{PCI_MSIX_FLAGS_ENABLE} : 1u;
    EXPECT_EQ(intx(config), PCILEND_INTX_OPEN) << snapshot.name;
    config.Write(PCI_COMMAND + 1, 1, PCI_COMMAND_INTX_DISABLE >> 8);
    EXPECT_EQ(intx(config), PCILEND_INTX_MASKED) << snapshot.name;
    EXPECT_EQ(config.Write(flags, 2, enable) & PCILEND_EFFECT_INTX, PCILEND_EFFECT_INTX);
    EXPECT_EQ(intx(config), PCILEND_INTX_OFF) << snapshot.name;
    EXPECT_EQ(config.Write(PCI_COMMAND, 2, 0) & PCILEND_EFFECT_INTX, 0) << "off all the same";
    EXPECT_EQ(config.Write(flags, 2, 0) & PCILEND_EFFECT_INTX, PCILEND_EFFECT_INTX);
    EXPECT_EQ(intx(config), PCILEND_INTX_OPEN) << snapshot.name;
  }
}

TEST(Vconfig, WithoutAPinNoIntx) {
  for (const u8 pin : {0, 5, 255}) {
    Snapshot snapshot = snapshots::Ahci();
    snapshot.Put8(PCI_INTERRUPT_PIN, pin);
    Config config(snapshot);
    EXPECT_EQ(config.Read(PCI_INTERRUPT_PIN, 1), 0u);
    EXPECT_EQ(pcilend_vconfig_intx(&config.raw), PCILEND_INTX_OFF);
    EXPECT_EQ(config.Write(PCI_COMMAND, 2, PCI_COMMAND_INTX_DISABLE), 0u);
  }
}

TEST(Vconfig, IdentityIsReadOnly) {
  Config config(snapshots::Nvme());
  for (const u32 at :
       {PCI_VENDOR_ID, PCI_CLASS_REVISION, PCI_SUBSYSTEM_VENDOR_ID, PCI_CAPABILITY_LIST}) {
    const u32 before = config.Read(at, 4);
    EXPECT_EQ(config.Write(at, 4, ~before), 0u);
    EXPECT_EQ(config.Read(at, 4), before);
  }
  EXPECT_EQ(config.Read(0, 4), 0x00101b36u);
  EXPECT_EQ(config.Read(0, 2), 0x1b36u);
  EXPECT_EQ(config.Read(3, 1), 0x00u);
  EXPECT_EQ(config.Read(2, 1), 0x10u);
  EXPECT_EQ(config.Read(PCI_CLASS_REVISION, 4), 0x01080202u);
}

TEST(Vconfig, FunctionLevelReset) {
  Config nvme(snapshots::Nvme());
  const u32 devctl = nvme.raw.express + PCI_EXP_DEVCTL;
  EXPECT_EQ(nvme.Read(devctl, 2), 0x2810u);
  EXPECT_EQ(nvme.Write(devctl, 2, 0x2810 | PCI_EXP_DEVCTL_BCR_FLR), unsigned{PCILEND_EFFECT_RESET});
  EXPECT_EQ(nvme.Read(devctl, 2), 0x2810u) << "initiate-FLR reads 0";
  EXPECT_EQ(nvme.Write(devctl + 1, 1, 0x80), unsigned{PCILEND_EFFECT_RESET});
  EXPECT_EQ(nvme.Write(devctl, 4, 0x8000), unsigned{PCILEND_EFFECT_RESET});
  EXPECT_EQ(nvme.Write(devctl, 1, 0x80), 0u);
  Config xhci(snapshots::Xhci());
  EXPECT_EQ(xhci.Write(xhci.raw.express + PCI_EXP_DEVCTL, 2, 0x8000),
            unsigned{PCILEND_EFFECT_RESET})
      << "it has none of its own: the lender resets it in another way";
  Config ahci(snapshots::Ahci());
  ASSERT_NE(ahci.raw.advanced, 0);
  EXPECT_EQ(ahci.Write(ahci.raw.advanced + PCI_AF_CTRL, 1, 1), unsigned{PCILEND_EFFECT_RESET});
  EXPECT_EQ(ahci.Read(ahci.raw.advanced + PCI_AF_CTRL, 1), 0u);
  EXPECT_EQ(ahci.Read(ahci.raw.advanced + PCI_AF_STATUS, 1), 0u);
}

TEST(Vconfig, Msix) {
  Config config(snapshots::Nvme());
  const u32 flags = config.raw.msix + PCI_MSIX_FLAGS;
  EXPECT_EQ(config.Read(flags, 2), 64u);
  EXPECT_EQ(config.Write(flags, 2, PCI_MSIX_FLAGS_ENABLE),
            unsigned{PCILEND_EFFECT_MSIX | PCILEND_EFFECT_INTX});
  EXPECT_EQ(config.Read(flags, 2), 64u | PCI_MSIX_FLAGS_ENABLE);
  EXPECT_EQ(config.Write(flags, 2, PCI_MSIX_FLAGS_ENABLE), 0u) << "no change";
  EXPECT_EQ(config.Write(flags, 2, 0xffff), unsigned{PCILEND_EFFECT_MSIX});
  EXPECT_EQ(config.Read(flags, 2), 0xc040u);
  EXPECT_EQ(config.Write(config.raw.msix + PCI_MSIX_TABLE, 4, 0), 0u);
  EXPECT_EQ(config.Read(config.raw.msix + PCI_MSIX_TABLE, 4), 0x2000u);
  EXPECT_EQ(config.Read(config.raw.msix + PCI_MSIX_PBA, 4), 0x3000u);
}

TEST(Vconfig, MsixMustLieInItsBar) {
  const auto msix = [](u16 vectors, u32 table, u32 pba) {
    Snapshot snapshot = snapshots::Nvme();
    snapshot.Put16(0x42, vectors - 1);
    snapshot.Put32(0x44, table);
    snapshot.Put32(0x48, pba);
    return Config(snapshot).raw.msix;
  };
  EXPECT_EQ(msix(65, 0x2000, 0x3000), 0x40);
  EXPECT_EQ(msix(0x200, 0x2000, 0x3fc0), 0x40) << "ends with the BAR";
  EXPECT_EQ(msix(0x201, 0x2000, 0), 0);
  EXPECT_EQ(msix(2048, 0, 0), 0);
  EXPECT_EQ(msix(1, 0x4000, 0), 0);
  EXPECT_EQ(msix(1, 0xfffffff8, 0), 0);
  EXPECT_EQ(msix(1, 0, 0x4000), 0);
  EXPECT_EQ(msix(1, 1, 0), 0) << "upper half of BAR 0";
  EXPECT_EQ(msix(1, 2, 0), 0) << "BAR that isn't there";
  EXPECT_EQ(msix(1, 6, 0), 0) << "reserved BIR";
  EXPECT_EQ(msix(1, 0, 7), 0);
}

TEST(Vconfig, MsiOnlyWithoutMsix) {
  EXPECT_EQ(Config(snapshots::E1000e()).raw.msi, 0) << "MSI-X is there";
  Snapshot snapshot = snapshots::E1000e();
  snapshot.Put32(0xa4, 0xfffffff8);
  EXPECT_EQ(Config(snapshot).raw.msi, 0xd0) << "an unusable MSI-X doesn't hide MSI";
}

TEST(Vconfig, Msi) {
  Snapshot snapshot = snapshots::Ahci();
  snapshot.Put16(0x82, PCI_MSI_FLAGS_64BIT | PCI_MSI_FLAGS_MASKBIT | 2 << 1 | 0x0601);
  Config config(snapshot);
  const u32 msi = config.raw.msi;
  ASSERT_EQ(msi, 0x80u);
  EXPECT_EQ(config.Read(msi + PCI_MSI_FLAGS, 2),
            u32{PCI_MSI_FLAGS_64BIT | PCI_MSI_FLAGS_MASKBIT | 2 << 1})
      << "disabled, no extended data";
  EXPECT_EQ(config.Read(msi + PCI_MSI_ADDRESS_LO, 4), 0u) << "the lender's address is not shown";
  EXPECT_EQ(config.Write(msi + PCI_MSI_ADDRESS_LO, 4, 0xffffffff), unsigned{PCILEND_EFFECT_MSI});
  EXPECT_EQ(config.Read(msi + PCI_MSI_ADDRESS_LO, 4), 0xfffffffcu);
  EXPECT_EQ(config.Write(msi + PCI_MSI_ADDRESS_HI, 4, 1), unsigned{PCILEND_EFFECT_MSI});
  EXPECT_EQ(config.Write(msi + PCI_MSI_DATA_64, 4, 0xffff4021), unsigned{PCILEND_EFFECT_MSI});
  EXPECT_EQ(config.Read(msi + PCI_MSI_DATA_64, 4), 0x4021u);
  EXPECT_EQ(config.Write(msi + PCI_MSI_MASK_64, 4, 0xffffffff), unsigned{PCILEND_EFFECT_MSI});
  EXPECT_EQ(config.Read(msi + PCI_MSI_MASK_64, 4), 0xfu) << "four vectors";
  EXPECT_TRUE(pcilend_vconfig_forwards(&config.raw, msi + PCI_MSI_PENDING_64, 4));
  EXPECT_FALSE(pcilend_vconfig_forwards(&config.raw, msi + PCI_MSI_MASK_64, 4));
  EXPECT_EQ(config.Write(msi + PCI_MSI_PENDING_64, 4, 0xffffffff), 0u) << "read-only";
  EXPECT_EQ(config.Write(msi + PCI_MSI_FLAGS, 2, 0x0071),
            unsigned{PCILEND_EFFECT_MSI | PCILEND_EFFECT_INTX});
  EXPECT_EQ(config.Read(msi + PCI_MSI_FLAGS, 2) & PCI_MSI_FLAGS_QSIZE, 2u << 4)
      << "not more vectors than there are";
  EXPECT_EQ(config.Write(msi + PCI_MSI_FLAGS, 2, 0x0011), unsigned{PCILEND_EFFECT_MSI});
  EXPECT_EQ(config.Read(msi + PCI_MSI_FLAGS, 2) & PCI_MSI_FLAGS_QSIZE, 1u << 4);
}

TEST(Vconfig, MsiForms) {
  struct Case {
    u16 flags;
    u32 data;     // offset
    u32 pending;  // offset, 0: none
  };
  for (const Case& c :
       {Case{0, 8, 0}, Case{PCI_MSI_FLAGS_64BIT, 12, 0}, Case{PCI_MSI_FLAGS_MASKBIT, 8, 16},
        Case{PCI_MSI_FLAGS_64BIT | PCI_MSI_FLAGS_MASKBIT, 12, 20}}) {
    Snapshot snapshot = snapshots::Ahci();
    snapshot.Put16(0x82, c.flags | 7 << 1);
    Config config(snapshot);
    EXPECT_EQ(config.Read(0x82, 2), c.flags | 5u << 1) << "at most 32 vectors";
    EXPECT_EQ(config.Write(0x80 + c.data, 2, 0x1234), unsigned{PCILEND_EFFECT_MSI});
    for (u32 at = 0; at < 28; at += 4) {
      EXPECT_EQ(pcilend_vconfig_forwards(&config.raw, 0x80 + at, 4),
                c.pending != 0 && at == c.pending);
    }
    if (c.pending != 0) {
      config.Write(0x80 + c.pending - 4, 4, 0xffffffff);
      EXPECT_EQ(config.Read(0x80 + c.pending - 4, 4), 0xffffffffu);
    }
  }
}

TEST(Vconfig, PowerManagement) {
  Config config(snapshots::E1000e());
  const u32 pm = config.raw.power;
  ASSERT_EQ(pm, 0xc8u);
  EXPECT_EQ(config.Read(pm + PCI_PM_PMC, 2), 0x0022u) << "no wake-up, no D1 or D2";
  EXPECT_EQ(config.Read(pm + PCI_PM_CTRL, 2), u32{PCI_PM_CTRL_NO_SOFT_RESET})
      << "nothing is lost in D3, as the hardware does not go there";
  EXPECT_EQ(config.Write(pm + PCI_PM_CTRL, 2, 0xffff), unsigned{PCILEND_EFFECT_POWER});
  EXPECT_EQ(config.Read(pm + PCI_PM_CTRL, 2), 3u | PCI_PM_CTRL_NO_SOFT_RESET);
  EXPECT_EQ(config.Write(pm + PCI_PM_CTRL, 2, 1), 0u) << "D1 is not supported: ignored";
  EXPECT_EQ(config.Read(pm + PCI_PM_CTRL, 2), 3u | PCI_PM_CTRL_NO_SOFT_RESET);
  EXPECT_EQ(config.Write(pm + PCI_PM_CTRL, 2, 2), 0u);
  EXPECT_EQ(config.Write(pm + PCI_PM_CTRL, 1, 0), unsigned{PCILEND_EFFECT_POWER});
  EXPECT_EQ(config.Read(pm + PCI_PM_CTRL, 2), u32{PCI_PM_CTRL_NO_SOFT_RESET});
}

TEST(Vconfig, VendorSpecificGoesToTheHardware) {
  Config config(snapshots::Virtio());
  EXPECT_FALSE(pcilend_vconfig_forwards(&config.raw, 0x84, 4)) << "the list is ours";
  EXPECT_TRUE(pcilend_vconfig_forwards(&config.raw, 0x88, 1));
  EXPECT_TRUE(pcilend_vconfig_forwards(&config.raw, 0x94, 4));
  EXPECT_FALSE(pcilend_vconfig_forwards(&config.raw, 0x98, 4)) << "MSI-X follows";
  EXPECT_TRUE(pcilend_vconfig_forwards(&config.raw, 0x87, 2)) << "touches";
  EXPECT_EQ(config.Write(0x94, 4, 5), unsigned{PCILEND_EFFECT_FORWARD});
  EXPECT_EQ(config.Write(0x84, 4, 0xffffffff), 0u);
  EXPECT_FALSE(pcilend_vconfig_forwards(&config.raw, 0x104, 4));
  EXPECT_TRUE(pcilend_vconfig_forwards(&config.raw, 0x108, 4));
  EXPECT_TRUE(pcilend_vconfig_forwards(&config.raw, 0x114, 4));
  EXPECT_FALSE(pcilend_vconfig_forwards(&config.raw, 0x118, 4));
}

TEST(Vconfig, WhatIsWithheldGoesNowhere) {
  Config config(snapshots::Virtio());
  const Config fresh(snapshots::Virtio());
  pcilend_vconfig_withhold(&config.raw);
  for (u32 at = 0; at < PCILEND_VCONFIG_BYTES; ++at) {
    EXPECT_EQ(config.Write(at, 1, 0xff) & PCILEND_EFFECT_FORWARD, 0u) << at;
    EXPECT_FALSE(pcilend_vconfig_forwards(&config.raw, at, 1)) << at;
  }
  EXPECT_EQ(config.Read(0x94, 4), fresh.Read(0x94, 4)) << "as the lender had it";
}

TEST(Vconfig, VendorCapabilityBehindAShortMsi) {
  Snapshot snapshot = snapshots::Ahci();
  snapshot.Put16(0x82, 0);  // 10 bytes
  snapshot.Cap(0x8c, PCI_CAP_ID_VNDR);
  snapshot.Put8(0x8e, 8);
  Config config(snapshot);
  EXPECT_EQ(config.Write(0x90, 4, 1), unsigned{PCILEND_EFFECT_FORWARD});
}

TEST(Vconfig, ExtendedListBeginsWithNullIfItsHeadIsHidden) {
  const Config config(snapshots::E1000e());
  EXPECT_EQ(config.Read(0x100, 4), 0x14000000u);
  EXPECT_EQ(config.Read(0x140, 4), 0x00010003u);
  EXPECT_EQ(config.Read(0x144, 4), 0xff123456u);
  EXPECT_EQ(Config(snapshots::Virtio()).Read(0x100, 4), 0x0001000bu);
  EXPECT_EQ(Config(snapshots::Nvme()).Read(0x100, 4), 0u);
  Snapshot none = snapshots::Xhci();
  none.Extended(0x100, PCI_EXT_CAP_ID_SRIOV, 1);
  EXPECT_EQ(Config(none).Read(0x100, 4), 0u) << "nothing to show";
}

TEST(Vconfig, DeviceSpecificRegistersAsTheyWere) {
  Config config(snapshots::Xhci());
  EXPECT_EQ(config.Read(0x60, 1), 0x30u);
  EXPECT_EQ(config.Write(0x60, 4, 0xffffffff), 0u);
  EXPECT_EQ(config.Read(0x60, 4), 0x30u);
}

TEST(Vconfig, HiddenCapabilitiesReadZero) {
  Snapshot snapshot = snapshots::Nvme();
  snapshot.Cap(0xd0, PCI_CAP_ID_VPD);
  snapshot.Put32(0xd4, 0x12345678);
  const Config config(snapshot);
  EXPECT_EQ(config.Read(0xd0, 4), 0u);
  EXPECT_EQ(config.Read(0xd4, 4), 0u);
}

TEST(Vconfig, BrokenListsAreCut) {
  Snapshot loop = snapshots::Nvme();
  loop.Put8(0x61, 0x40);  // the last one points back to the first
  Config looped(loop);
  EXPECT_EQ(looped.raw.msix, 0x40);
  EXPECT_EQ(looped.raw.power, 0x60);
  EXPECT_EQ(looped.Read(0x61, 1), 0u);

  Snapshot self = snapshots::Nvme();
  self.Put8(0x41, 0x40);
  EXPECT_EQ(Config(self).raw.express, 0);

  Snapshot header = snapshots::Nvme();
  header.Put8(0x41, 0x10);
  EXPECT_EQ(Config(header).raw.express, 0) << "into the header";

  Snapshot inside = snapshots::Nvme();
  inside.Put8(0x81, 0x88);
  inside.Put8(0x88, PCI_CAP_ID_PM);
  EXPECT_EQ(Config(inside).raw.power, 0) << "inside another capability";

  Snapshot end = snapshots::Nvme();
  end.Put8(0x81, 0xfc);
  end.Put8(0xfc, PCI_CAP_ID_PM);
  EXPECT_EQ(Config(end).raw.power, 0) << "past the end";

  Snapshot odd = snapshots::Nvme();
  odd.Put8(PCI_CAPABILITY_LIST, 0x43);
  EXPECT_EQ(Config(odd).raw.msix, 0x40) << "the low two bits are reserved";

  Snapshot unlisted = snapshots::Nvme();
  unlisted.Put16(PCI_STATUS, 0);
  EXPECT_EQ(Config(unlisted).Read(PCI_CAPABILITY_LIST, 1), 0u);

  Snapshot extended = snapshots::E1000e();
  extended.Put32(0x140, 0x00010003 | 0x140u << 20);
  EXPECT_EQ(Config(extended).Read(0x140, 4), 0x00010003u);
  extended.Put32(0x140, 0x00010003 | 0x104u << 20);
  EXPECT_EQ(Config(extended).Read(0x140, 4), 0x00010003u);
}

TEST(Vconfig, SecondOfAKindIsHidden) {
  Snapshot snapshot = snapshots::Nvme();
  snapshot.Power(0xd0, 3, 0);
  const Config config(snapshot);
  EXPECT_EQ(config.raw.power, 0x60);
  EXPECT_EQ(config.Read(0xd0, 4), 0u);
}

TEST(Vconfig, PortsAreNoEndpoints) {
  for (const u16 type : {2, 3, 4, 5, 6, 7, 8, 10, 15}) {
    Snapshot snapshot = snapshots::Nvme();
    snapshot.Put16(0x82, 2 | type << 4);
    EXPECT_EQ(Config(snapshot).raw.express, 0) << type;
  }
}

TEST(Vconfig, AccessesOutOfRange) {
  Config config(snapshots::Nvme());
  EXPECT_EQ(config.Read(4096, 1), 0xffu);
  EXPECT_EQ(config.Read(4095, 2), 0xffffu);
  EXPECT_EQ(config.Read(4093, 4), 0xffffffffu);
  EXPECT_EQ(config.Read(0xffffffff, 4), 0xffffffffu);
  EXPECT_EQ(config.Read(0, 3), 0xffffffffu);
  EXPECT_EQ(config.Read(0, 0), 0xffffffffu);
  EXPECT_EQ(config.Write(4096, 4, 1), 0u);
  EXPECT_EQ(config.Write(0xfffffffe, 4, 1), 0u);
  EXPECT_EQ(config.Write(PCI_COMMAND, 3, 6), 0u);
  EXPECT_FALSE(pcilend_vconfig_forwards(&config.raw, 4096, 4));
  EXPECT_EQ(config.Read(4092, 4), 0u);
}

TEST(Vconfig, ResetIsPowerOn) {
  std::mt19937 random(5);
  for (const Snapshot& snapshot : snapshots::All()) {
    const Config fresh(snapshot);
    Config config(snapshot);
    for (int i = 0; i < 2000; ++i) {
      const u32 length = 1u << (random() % 3);
      config.Write((random() % 4096) & ~(length - 1), length, random());
    }
    ASSERT_NE(std::memcmp(&config.raw, &fresh.raw, sizeof(fresh.raw)), 0);
    pcilend_vconfig_reset(&config.raw);
    EXPECT_EQ(std::memcmp(&config.raw, &fresh.raw, sizeof(fresh.raw)), 0) << snapshot.name;
  }
}

// Random bytes with just enough sense in them to get deep into the parser.
Snapshot Hostile(std::mt19937_64& random) {
  Snapshot s = snapshots::All()[random() % 6];
  const int noise = random() % 3;
  if (noise != 0) {
    for (u32 at = 0x40; at < s.length; ++at) {
      if (noise == 2 || random() % 4 == 0) s.bytes[at] = static_cast<u8>(random());
    }
  }
  const u8 ids[] = {1, 2, 3, 5, 5, 7, 9, 9, 0x0a, 0x10, 0x10, 0x11, 0x11, 0x12, 0x13, 0x14, 0xff};
  for (int i = random() % 12; i > 0; --i) {
    const u32 at = random() % 256;
    const u32 to = random() % 8 == 0 ? random() % 256 : 0x40 + random() % 48 * 4;
    s.Put8(at >= 0x40 && random() % 8 != 0 ? at & ~3u : PCI_CAPABILITY_LIST, static_cast<u8>(to));
    s.Put8(to, ids[random() % sizeof(ids)]);
    if (to + 1 < 256) s.Put8(to + 1, static_cast<u8>(0x40 + random() % 48 * 4));
    if (to + 2 < 256 && random() % 2 == 0) s.Put8(to + 2, static_cast<u8>(random() % 64));
  }
  const u16 extended[] = {0, 1, 3, 3, 0xb, 0xb, 0xe, 0x10, 0x15, 0x23, 0xffff};
  for (int i = random() % 8; i > 0; --i) {
    const u32 at = i == 1 ? 0x100 : 0x100 + random() % 60 * 4;
    s.Put32(at, extended[random() % 11] | 1 << 16 | (0x100u + random() % 60 * 4) << 20);
    s.Put32(at + 4, static_cast<u32>(random() % 128) << 20);
  }
  for (auto& bar : s.bar) {
    if (random() % 3 == 0) bar = {1ULL << (random() % 64), static_cast<u32>(random() % 8)};
    if (random() % 16 == 0) bar.size = random();
  }
  s.Put8(PCI_HEADER_TYPE, static_cast<u8>(random() & 0x80));
  return s;
}

class VconfigProperty : public ::testing::TestWithParam<u64> {};

TEST_P(VconfigProperty, HostileSnapshots) {
  std::mt19937_64 random(GetParam());
  for (int round = 0; round < 300; ++round) {
    const Snapshot snapshot = Hostile(random);
    Config config(snapshot);
    ASSERT_EQ(vconfig_check::All(config.raw), "");
    const Config fresh(snapshot);
    for (int i = 0; i < 200; ++i) {
      const u32 length = 1u << (random() % 3);
      const u32 at = (random() % 2 == 0 ? random() % 0x140 : random() % 4096) & ~(length - 1);
      const unsigned effects = config.Write(at, length, static_cast<u32>(random()));
      ASSERT_EQ(effects & ~0xffu, 0u);
      if ((effects & PCILEND_EFFECT_FORWARD) != 0) {
        ASSERT_TRUE(pcilend_vconfig_forwards(&config.raw, at, length));
      }
    }
    ASSERT_EQ(vconfig_check::All(config.raw), "");
    for (u32 at = 0; at < PCILEND_VCONFIG_BYTES; ++at) {
      ASSERT_EQ((config.raw.value[at] ^ fresh.raw.value[at]) & ~config.raw.writable[at], 0)
          << "read-only bit changed at " << at;
    }
    ASSERT_EQ(std::memcmp(config.raw.writable, fresh.raw.writable, sizeof(fresh.raw.writable)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, VconfigProperty, ::testing::Range<u64>(1, 17));

}  // namespace
