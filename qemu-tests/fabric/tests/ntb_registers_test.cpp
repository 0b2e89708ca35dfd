// SPDX-License-Identifier: GPL-2.0-or-later
// The register model, driven as Linux's ntb_hw_amd does: same registers, same order, same widths.
#include "ntb_registers.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>

namespace pcilend::fabric {
namespace {

constexpr uint32_t kEventBit = 1u << kEventVector;
constexpr uint32_t kUp = static_cast<uint32_t>(LinkEvent::Up);
constexpr uint32_t kDown = static_cast<uint32_t>(LinkEvent::Down);

// One side, its driver's view of it, and the vectors raised so far.
struct SideOfLink {
  explicit SideOfLink(Side side) : registers(side) {}

  template <class T>
  T read(uint32_t offset) {
    T value{};
    registers.read(offset, std::as_writable_bytes(std::span(&value, 1)), peer);
    return value;
  }
  template <class T>
  NtbRegisters::Effects write(uint32_t offset, T value) {
    auto effects = registers.write(offset, std::as_bytes(std::span(&value, 1)));
    raised |= effects.vectors;
    return effects;
  }
  uint32_t read32(uint32_t offset) { return read<uint32_t>(offset); }
  uint16_t read16(uint32_t offset) { return read<uint16_t>(offset); }
  void write32(uint32_t offset, uint32_t value) { write(offset, value); }
  void write16(uint32_t offset, uint16_t value) { write(offset, value); }
  void release() { raised |= registers.release_events(); }
  void event(LinkEvent event) { raised |= registers.link_event(event); }
  uint32_t take_raised() { return std::exchange(raised, 0); }

  // What the driver does from probe to the registration of its device.
  void load_driver() {
    interrupt_mask = 0x7f;
    secondary = (read32(reg::kSideInfo) & reg::kSideSecondary) != 0;
    write32(reg::kInterruptMask, interrupt_mask);
    write16(reg::kDoorbellMask, 0x7fff);
    interrupt_mask &= ~(kUp | kDown);
    write32(reg::kInterruptMask, interrupt_mask);
    const uint32_t side = read32(reg::kSideInfo);
    if ((side & reg::kSideReady) == 0) write32(reg::kSideInfo, side | reg::kSideReady);
    write32(reg::kCntl, read32(reg::kCntl) | 1 << 21 | 1 << 20);
    read32(reg::kPeer + reg::kSideInfo);
  }

  void unload_driver() {
    write32(reg::kSideInfo, read32(reg::kSideInfo) & ~reg::kSideReady);
    read32(reg::kSideInfo);
    write32(reg::kCntl, read32(reg::kCntl) & ~(1u << 21 | 1u << 20));
    EXPECT_EQ(write<uint16_t>(reg::kDoorbellRequest, 1 << 15).peer_doorbells, 1 << 15);
    write32(reg::kDoorbellMask, 0x7fff);
  }

  // The interrupt handler of an event vector; returns what it saw.
  uint32_t handle_event() {
    const uint32_t status = read32(reg::kInterruptStatus);
    write32(reg::kSmuAck, read32(reg::kSmuAck) | status);
    write32(reg::kInterruptStatus, status);
    return status;
  }

  bool set_translation(unsigned window, uint64_t address, uint64_t size) {
    const uint32_t translation = reg::kPeer + reg::kTranslation + 8 * window;
    const uint32_t limit = reg::kPeer + reg::kLimit + 8 * window;
    write(translation, address);
    if (read<uint64_t>(translation) != address) return false;
    write(limit, size);
    return read<uint64_t>(limit) == size;
  }

  NtbRegisters registers;
  NtbRegisters::PeerView peer;
  uint32_t interrupt_mask = 0;
  uint32_t raised = 0;
  bool secondary = false;
};

TEST(NtbRegisters, EachSideKnowsWhichItIs) {
  SideOfLink primary(Side::Primary);
  SideOfLink secondary(Side::Secondary);
  EXPECT_EQ(primary.read32(reg::kSideInfo), 0u);
  EXPECT_EQ(secondary.read32(reg::kSideInfo), reg::kSideSecondary);
  EXPECT_EQ(primary.read32(reg::kPeer + reg::kSideInfo), reg::kSideSecondary);
  EXPECT_EQ(secondary.read32(reg::kPeer + reg::kSideInfo), 0u);
}

TEST(NtbRegisters, ProbeRaisesNothingAndLatchesReady) {
  for (const Side side : {Side::Primary, Side::Secondary}) {
    SideOfLink one(side);
    EXPECT_FALSE(one.registers.touched());
    one.load_driver();
    EXPECT_EQ(one.secondary, side == Side::Secondary);
    EXPECT_EQ(one.take_raised(), 0u);
    EXPECT_TRUE(one.registers.ready());
    EXPECT_TRUE(one.registers.touched());
    EXPECT_EQ(one.read32(reg::kCntl), 0x300000u);
    EXPECT_EQ(one.read16(reg::kDoorbellMask), 0x7fff);
  }
}

TEST(NtbRegisters, ThePeersReadyBitIsTheFabricsToShow) {
  SideOfLink one(Side::Primary);
  one.load_driver();
  one.peer.ready = true;
  EXPECT_EQ(one.read32(reg::kPeer + reg::kSideInfo), 3u);
  one.write32(reg::kPeer + reg::kSideInfo, 1);  // the primary's driver, after a link-down event
  EXPECT_EQ(one.read32(reg::kPeer + reg::kSideInfo), 3u);
}

TEST(NtbRegisters, TranslationsAreWritten8BytesAtOnceAndReadBack) {
  SideOfLink one(Side::Secondary);
  EXPECT_TRUE(one.set_translation(0, 0x1234567890abc000, 0xfffffffff000));
  EXPECT_TRUE(one.set_translation(1, 1ull << 40, 16ull << 30));
  EXPECT_EQ(one.registers.translations()[0].address, 0x1234567890abc000u);
  EXPECT_EQ(one.registers.translations()[0].limit, 0xfffffffff000u);
  EXPECT_EQ(one.registers.translations()[1].address, 1ull << 40);
  EXPECT_EQ(one.registers.translations()[1].limit, 16ull << 30);
  EXPECT_TRUE(one.set_translation(0, 0, 0));
  EXPECT_EQ(one.registers.translations()[0].limit, 0u);
}

TEST(NtbRegisters, TwoHalvesMakeATranslationToo) {
  SideOfLink one(Side::Primary);
  one.write32(reg::kPeer + reg::kTranslation, 0x89abc000);
  one.write32(reg::kPeer + reg::kTranslation + 4, 0x45);
  EXPECT_EQ(one.registers.translations()[0].address, 0x4589abc000u);
}

TEST(NtbRegisters, DebugfsSeesThePeersTranslationsAndZeroesForBar1) {
  SideOfLink one(Side::Primary);
  one.peer.translations[1] = {0xabcd000, 0x10000};
  EXPECT_EQ(one.read<uint64_t>(reg::kTranslation + 8), 0xabcd000u);
  EXPECT_EQ(one.read<uint64_t>(reg::kLimit + 8), 0x10000u);
  EXPECT_EQ(one.read<uint64_t>(0x430), 0u);
  EXPECT_EQ(one.read32(0x414), 0u);
  one.write<uint64_t>(reg::kLimit, 0xe000000000);  // the driver's error path; not ours to set
  EXPECT_EQ(one.read<uint64_t>(reg::kLimit), 0u);
}

TEST(NtbRegisters, ScratchpadsAreKeptAndShown) {
  SideOfLink one(Side::Primary);
  const auto effects = one.write<uint32_t>(reg::kScratchpad + 0x20, 0xfeedface);  // peer's first
  ASSERT_EQ(effects.scratchpads.size(), 1u);
  EXPECT_EQ(effects.scratchpads[0].index, 8u);
  EXPECT_EQ(effects.scratchpads[0].value, 0xfeedfaceu);
  EXPECT_EQ(one.read32(reg::kScratchpad + 0x20), 0xfeedfaceu);
  one.registers.show_scratchpad(15, 7);
  EXPECT_EQ(one.read32(reg::kScratchpad + 4 * 15), 7u);
  EXPECT_TRUE(one.registers.owns_scratchpad(7));
  EXPECT_FALSE(one.registers.owns_scratchpad(8));
}

TEST(NtbRegisters, AnEightByteWriteReachesTwoScratchpads) {
  SideOfLink one(Side::Secondary);
  const auto effects = one.write<uint64_t>(reg::kScratchpad, 0x1111111122222222);
  ASSERT_EQ(effects.scratchpads.size(), 2u);
  EXPECT_EQ(effects.scratchpads[0].value, 0x22222222u);
  EXPECT_EQ(effects.scratchpads[1].value, 0x11111111u);
}

TEST(NtbRegisters, DoorbellsRaiseTheirVectors) {
  SideOfLink from(Side::Primary);
  SideOfLink to(Side::Secondary);
  to.load_driver();
  to.write16(reg::kDoorbellMask, 0);
  EXPECT_EQ(to.registers.ring_doorbells(
                from.write<uint16_t>(reg::kDoorbellRequest, 0x8005).peer_doorbells),
            0x8005u);
  EXPECT_EQ(to.read16(reg::kDoorbellStatus), 0x8005);
  to.write16(reg::kDoorbellStatus, 0x0001);
  EXPECT_EQ(to.read16(reg::kDoorbellStatus), 0x8004);
}

TEST(NtbRegisters, ADoorbellRungAgainRaisesAgain) {
  SideOfLink one(Side::Primary);
  one.write16(reg::kDoorbellMask, 0);
  EXPECT_EQ(one.registers.ring_doorbells(2), 2u);
  EXPECT_EQ(one.registers.ring_doorbells(2), 2u);
}

TEST(NtbRegisters, AMaskedDoorbellWaitsForItsUnmasking) {
  SideOfLink one(Side::Primary);
  one.write16(reg::kDoorbellMask, 0xfffe);
  EXPECT_EQ(one.registers.ring_doorbells(0x3), 0x1u);
  EXPECT_FALSE(one.registers.cause_stands(1));
  one.write16(reg::kDoorbellMask, 0xfffc);
  EXPECT_EQ(one.take_raised(), 0x2u);
  EXPECT_TRUE(one.registers.cause_stands(1));
  one.write16(reg::kDoorbellMask, 0xfffc);
  EXPECT_EQ(one.take_raised(), 0u) << "unmasking what is unmasked raises nothing";
  one.write16(reg::kDoorbellStatus, 0x3);
  one.write16(reg::kDoorbellMask, 0xffff);
  one.write16(reg::kDoorbellMask, 0);
  EXPECT_EQ(one.take_raised(), 0u) << "it was cleared while masked";
}

TEST(NtbRegisters, UnloadingTellsThePeerAndDropsEvents) {
  SideOfLink one(Side::Primary);
  one.load_driver();
  one.release();
  one.event(LinkEvent::Up);
  one.unload_driver();
  EXPECT_FALSE(one.registers.ready());
  EXPECT_EQ(one.read32(reg::kInterruptStatus), 0u);
  one.event(LinkEvent::Down);
  EXPECT_EQ(one.read32(reg::kInterruptStatus), 0u) << "nobody is there to hear it";
}

TEST(NtbRegisters, EventsComeOneAtATimeInOrder) {
  SideOfLink one(Side::Primary);
  one.load_driver();
  EXPECT_EQ(one.registers.release_events(), 0u);
  one.event(LinkEvent::Down);
  EXPECT_EQ(one.take_raised(), kEventBit);
  one.event(LinkEvent::Up);
  EXPECT_EQ(one.take_raised(), 0u) << "the first one is still being handled";
  EXPECT_EQ(one.handle_event(), kDown);
  EXPECT_EQ(one.take_raised(), kEventBit);
  EXPECT_EQ(one.handle_event(), kUp);
  EXPECT_EQ(one.take_raised(), 0u);
  EXPECT_EQ(one.read32(reg::kInterruptStatus), 0u);
}

TEST(NtbRegisters, EventsAreHeldUntilTheDriverIsRegistered) {
  SideOfLink one(Side::Primary);
  one.load_driver();
  one.event(LinkEvent::Up);
  EXPECT_EQ(one.take_raised(), 0u);
  EXPECT_EQ(one.read32(reg::kInterruptStatus), 0u);
  EXPECT_EQ(one.registers.release_events(), kEventBit);
  EXPECT_EQ(one.handle_event(), kUp);
}

TEST(NtbRegisters, MaskedEventsStayUntilLinkEnable) {
  SideOfLink one(Side::Secondary);
  one.load_driver();
  one.release();
  one.write32(reg::kInterruptMask, 0x7f);  // ntb_link_disable
  one.event(LinkEvent::Down);
  one.event(LinkEvent::Up);
  EXPECT_EQ(one.take_raised(), 0u);
  one.write32(reg::kInterruptMask, 0);  // ntb_link_enable
  EXPECT_EQ(one.take_raised(), kEventBit);
  EXPECT_EQ(one.handle_event(), kDown);
  EXPECT_EQ(one.handle_event(), kUp);
}

TEST(NtbRegisters, AFlappingLinkKeepsTheQueueShortAndItsLastState) {
  SideOfLink one(Side::Primary);
  one.load_driver();
  one.release();
  for (int i = 0; i < 1001; i++) one.event(i % 2 == 0 ? LinkEvent::Down : LinkEvent::Up);
  int handled = 0;
  uint32_t last = 0;
  uint32_t before = 0;
  while (const uint32_t status = one.handle_event()) {
    EXPECT_EQ(std::popcount(status), 1);
    EXPECT_NE(status, before) << "up and down take turns";
    before = last = status;
    handled++;
  }
  EXPECT_LT(handled, 12);
  EXPECT_EQ(last, kDown);
}

TEST(NtbRegisters, ResetIsPowerOn) {
  SideOfLink one(Side::Secondary);
  one.load_driver();
  one.set_translation(0, 0x1000, 0x1000);
  one.write32(reg::kScratchpad, 5);
  std::ignore = one.registers.ring_doorbells(1);
  one.registers.reset();
  EXPECT_FALSE(one.registers.touched());
  EXPECT_FALSE(one.registers.ready());
  EXPECT_EQ(one.registers.translations()[0].limit, 0u);
  EXPECT_EQ(one.read32(reg::kScratchpad), 0u);
  EXPECT_EQ(one.read16(reg::kDoorbellStatus), 0);
  EXPECT_EQ(one.read16(reg::kDoorbellMask), 0xffff);
  EXPECT_EQ(one.read32(reg::kSideInfo), reg::kSideSecondary);
}

TEST(NtbRegisters, OddAccessesTouchOnlyTheirBytes) {
  SideOfLink one(Side::Primary);
  one.write32(reg::kScratchpad, 0x11223344);
  one.write<uint8_t>(reg::kScratchpad + 1, 0xaa);
  EXPECT_EQ(one.read32(reg::kScratchpad), 0x1122aa44u);
  EXPECT_EQ(one.read<uint8_t>(reg::kScratchpad + 3), 0x11);
  EXPECT_EQ(one.read16(reg::kScratchpad + 1), 0x22aa);
  one.write16(reg::kScratchpad + 3, 0xbbcc);  // across two registers
  EXPECT_EQ(one.read32(reg::kScratchpad), 0xcc22aa44u);
  EXPECT_EQ(one.read32(reg::kScratchpad + 4), 0xbbu);
}

TEST(NtbRegisters, EveryOffsetCanBeReadAndWritten) {
  SideOfLink one(Side::Primary);
  for (uint32_t offset = 0; offset < 0x2000; offset++) {
    one.write<uint64_t>(offset, UINT64_MAX);
    one.read<uint64_t>(offset);
  }
  EXPECT_EQ(one.read32(0xff8), 0u);
}

}  // namespace
}  // namespace pcilend::fabric
