// SPDX-License-Identifier: GPL-2.0-or-later
// The registers of a Switchtec, driven as Linux's switchtec and ntb_hw_switchtec do: same
// registers, same order, same widths. Two hosts, one switch.
#include "switchtec_registers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/pci_regs.h>

#include <bit>

namespace pcilend::fabric {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kLutBytes = 64 << 10;
constexpr uint64_t kLutArea = 512 * kLutBytes;
constexpr uint64_t kBar2 = 64 << 20;
constexpr uint64_t kBar4 = 16ull << 30;
constexpr uint64_t kShared = 0x12340000;  // address of a host's shared memory
constexpr uint32_t kDoorbellVector = 1;
constexpr uint32_t kMessageVector = 2;
constexpr uint64_t kLinkUp = 1;
constexpr uint64_t kForceDown = 4;

class SwitchtecTest : public testing::Test {
 protected:
  // The driver of one host.
  struct Driver {
    Driver(SwitchtecRegisters& registers, unsigned partition)
        : registers(registers), partition(partition) {}

    template <class T>
    T read(uint32_t offset) {
      T value{};
      registers.read(partition, offset, std::as_writable_bytes(std::span(&value, 1)));
      return value;
    }
    template <class T>
    void write(uint32_t offset, T value) {
      auto effects = registers.write(partition, offset, std::as_bytes(std::span(&value, 1)));
      raised |= effects.vectors;
      for (const Signal& signal : effects.signals) sent.push_back(signal);
    }
    uint32_t read32(uint32_t offset) { return read<uint32_t>(offset); }
    void write32(uint32_t offset, uint32_t value) { write(offset, value); }
    uint32_t take_raised() { return std::exchange(raised, 0); }
    [[nodiscard]] uint32_t control(unsigned of) const { return gas::kControl + 0x2000 * of; }
    [[nodiscard]] uint32_t own_control() const { return control(partition); }
    [[nodiscard]] uint32_t peer_control() const { return control(1 - partition); }
    [[nodiscard]] uint32_t messages() const { return gas::kDoorbellsMessages + 0x4000 * partition; }

    // State that the operation ends in.
    uint32_t operate(uint32_t control, uint32_t operation) {
      write32(control + gas::kOperation, operation);
      return read32(control + gas::kStatus) & 0xffff;
    }

    // switchtec_pci_probe()
    void load_switchtec() {
      write32(gas::kPartitionConfig + 0x400 * partition + gas::kMrpcEvent,
              gas::kEventOccurred | gas::kEventInterrupts);
      for (uint32_t port = 0; port < 4; port++)
        write32(gas::kPorts + 0x1000 * port + gas::kPortLinkEvent,
                gas::kEventOccurred | gas::kEventInterrupts);
    }
    // config_req_id_table()
    void enter_requesters() {
      ASSERT_EQ(operate(own_control(), gas::kLock), gas::kLocked);
      for (uint32_t i = 0; i < 2; i++)
        write32(own_control() + gas::kRequesters + 4 * i, 0x100 * i << 16 | gas::kEntryEnabled);
      ASSERT_EQ(operate(own_control(), gas::kConfigure), gas::kNormal);
    }
    // config_rsvd_lut_win()
    void share_memory(uint64_t address) {
      const uint32_t bar = peer_control() + gas::kBars + 16 * 2;
      ASSERT_EQ(operate(peer_control(), gas::kLock), gas::kLocked);
      uint32_t control = read32(bar) & 0xff;
      control |= gas::kBarLut | std::countr_zero(kLutBytes) << 8 | 511 << 14;
      write32(bar, control);
      write<uint64_t>(peer_control() + gas::kLut, 1 | partition << 1 | address);
      ASSERT_EQ(operate(peer_control(), gas::kConfigure), gas::kNormal);
    }
    // switchtec_ntb_init_db(), _msgs(), _db_msg_irq()
    void listen() {
      write<uint64_t>(messages() + gas::kInMask, 0xf000000000000000);
      write<uint64_t>(messages() + gas::kOutMask, 0x0fffffffull << (partition == 0 ? 32 : 0));
      uint32_t map = 0;
      for (uint32_t i = 0; i < 4; i++) map |= (i | (1 - partition) << 2) << 8 * i;
      write32(messages() + gas::kMessageMap, map);
      for (uint32_t i = 0; i < 4; i++)
        write<uint64_t>(messages() + gas::kInMessages + 8 * i, 1ull << 32 | 1ull << 40);
      listen_vectors();
    }
    void listen_vectors() {
      for (uint32_t i = 0; i < 64; i++)
        write<uint8_t>(messages() + gas::kVectors + i, i < 60 ? kDoorbellVector : kMessageVector);
    }
    // switchtec_ntb_mw_set_direct() within its operations; the last one's state.
    uint32_t translate(unsigned bar, uint64_t address, uint64_t size) {
      EXPECT_EQ(operate(peer_control(), gas::kLock), gas::kLocked);
      const uint32_t entry = peer_control() + gas::kBars + 16 * bar;
      write32(entry, read32(entry) | gas::kBarDirect);
      write32(entry + gas::kBarSize, static_cast<uint32_t>(std::bit_width(size) - 1) |
                                         (static_cast<uint32_t>(size) & ~0xfffu));
      write32(peer_control() + gas::kBarExtra + 16 * bar, static_cast<uint32_t>(size >> 32));
      write<uint64_t>(entry + gas::kBarTarget, partition | address);
      return operate(peer_control(), gas::kConfigure);
    }
    // switchtec_ntb_mw_clr_direct()
    void close(unsigned bar) {
      operate(peer_control(), gas::kLock);
      const uint32_t entry = peer_control() + gas::kBars + 16 * bar;
      write32(entry, read32(entry) & ~gas::kBarDirect);
      write32(entry + gas::kBarSize, 0);
      write32(peer_control() + gas::kBarExtra + 16 * bar, 0);
      write<uint64_t>(entry + gas::kBarTarget, partition);
      EXPECT_EQ(operate(peer_control(), gas::kConfigure), gas::kNormal);
    }
    // The message interrupt's handler: what it saw.
    std::vector<uint32_t> handle_messages() {
      std::vector<uint32_t> seen;
      for (uint32_t i = 0; i < 4; i++) {
        const auto message = read<uint64_t>(messages() + gas::kInMessages + 8 * i);
        if ((message >> 32 & 1) == 0) continue;
        write<uint8_t>(messages() + gas::kInMessages + 8 * i + 4, 1);
        seen.push_back(static_cast<uint32_t>(message));
      }
      return seen;
    }
    void load() {
      load_switchtec();
      enter_requesters();
      listen();
      share_memory(kShared + 0x10000000ull * partition);
    }

    SwitchtecRegisters& registers;
    unsigned partition;
    uint32_t raised = 0;
    std::vector<Signal> sent;
  };

  // What `from` has sent arrives at the other host.
  void deliver(Driver& from, Driver& to) {
    for (const Signal& signal : std::exchange(from.sent, {}))
      to.raised |= signal.kind == Signal::Kind::Doorbells
                       ? registers.ring(to.partition, signal.value)
                       : registers.take_message(to.partition, from.partition, signal.index,
                                                static_cast<uint32_t>(signal.value));
  }

  SwitchtecRegisters registers{{kBar2, kBar4}};
  Driver a{registers, 0};
  Driver b{registers, 1};
};

TEST_F(SwitchtecTest, TheQuirkFindsTheProxiesOfTheOtherPartition) {
  EXPECT_EQ(b.read<uint8_t>(gas::kNtb + 1), 1);  // partition id
  EXPECT_EQ(b.read<uint64_t>(gas::kNtb + gas::kEndpointMap), 3u);
  EXPECT_EQ(b.read<uint16_t>(b.control(0) + gas::kRequesterSize), 64);
  EXPECT_EQ(b.read32(b.control(0) + gas::kRequesters) >> 1 & 0xff, 8u) << "01.0";
  EXPECT_EQ(b.read32(b.control(0) + gas::kRequesters + 4 * 63) >> 1 & 0xff, 71u);
  EXPECT_EQ(a.read<uint16_t>(a.control(33) + gas::kRequesterSize), 0)
      << "where the quirk looks by mistake";
}

TEST_F(SwitchtecTest, SwitchtecLearnsWhoItIs) {
  EXPECT_EQ(a.read<uint8_t>(gas::kPartitionId), 0);
  EXPECT_EQ(b.read<uint8_t>(gas::kPartitionId), 1);
  EXPECT_EQ(a.read<uint8_t>(gas::kNtb), 2) << "partitions";
  unsigned ports = 0;
  while (a.read<uint16_t>(gas::kPorts + 0x1000 * ports) == 0x11f8) ports++;
  EXPECT_EQ(ports, 4u);
  const uint32_t config = gas::kPartitionConfig + 0x400;
  EXPECT_EQ(b.read32(config + gas::kUpstreamPort), 2u);
  EXPECT_EQ(b.read32(config + gas::kEndpointPort) & 0xff, 3u);
  for (uint32_t i = 0; i < 47; i++)
    EXPECT_EQ(b.read32(config + gas::kDownstreamPorts + 4 * i), 0xffu);
  EXPECT_EQ(a.read32(0x81c), 0u) << "no MRPC by DMA";
  EXPECT_EQ(a.read32(config + gas::kEventVector), 0u) << "of 32 bits, as the NTB's driver reads it";
}

TEST_F(SwitchtecTest, EventsAreAskedForOnceLoaded) {
  EXPECT_FALSE(registers.ready(0));
  EXPECT_FALSE(registers.touched(0));
  EXPECT_EQ(registers.link_event(0, false), 0u) << "nobody has asked";
  EXPECT_FALSE(registers.loss_unread(0));
  a.load_switchtec();
  EXPECT_TRUE(registers.ready(0));
  EXPECT_TRUE(registers.touched(0));
  EXPECT_FALSE(registers.ready(1));
  EXPECT_EQ(a.take_raised(), 0u);
}

TEST_F(SwitchtecTest, AnUnknownCommandIsAnsweredAtOnce) {
  a.load_switchtec();
  a.write32(gas::kMrpcCommand, 0x41);
  EXPECT_EQ(a.take_raised(), 1u << SwitchtecRegisters::kEvents);
  EXPECT_TRUE(registers.cause_stands(0, SwitchtecRegisters::kEvents));
  EXPECT_EQ(a.read32(gas::kMrpcStatus), 2u);
  EXPECT_NE(a.read32(gas::kMrpcReturn), 0u);
  const uint32_t event = gas::kPartitionConfig + gas::kMrpcEvent;
  a.write32(event, a.read32(event));
  EXPECT_FALSE(registers.cause_stands(0, SwitchtecRegisters::kEvents));
  EXPECT_EQ(a.read32(event), gas::kEventInterrupts);
  EXPECT_EQ(b.read32(gas::kMrpcStatus), 0u);
}

TEST_F(SwitchtecTest, TheTargetIsTheOtherPartition) {
  EXPECT_EQ(a.read32(gas::kNtb + gas::kPartitionInfo + gas::kTargetLow), 2u);
  EXPECT_EQ(b.read32(gas::kNtb + gas::kPartitionInfo + 16 + gas::kTargetLow), 1u);
  EXPECT_EQ(a.read32(gas::kNtb + gas::kPartitionInfo + 8), 0u);
  EXPECT_EQ(a.read32(gas::kNtb + gas::kPartitionInfo), 0u) << "no crosslink";
}

TEST_F(SwitchtecTest, TwoBarsAreWindowsAndOneHasALookUpTable) {
  for (const uint32_t control : {a.own_control(), a.peer_control()}) {
    for (uint32_t bar = 0; bar < 6; bar++)
      EXPECT_EQ(a.read32(control + gas::kBars + 16 * bar), bar == 2 || bar == 4 ? 1u : 0u);
    EXPECT_EQ(a.read<uint16_t>(control + gas::kLutSize), 512);
  }
  a.write32(a.own_control() + gas::kBars, gas::kBarValid | gas::kBarDirect);
  EXPECT_EQ(a.read32(a.own_control() + gas::kBars), 0u);
}

TEST_F(SwitchtecTest, RequestersAreEnteredUnderTheLock) {
  EXPECT_THAT(registers.requesters(1), IsEmpty());
  EXPECT_EQ(b.read<uint16_t>(gas::kNtb + gas::kRequesterId), 0);
  ASSERT_EQ(b.operate(b.own_control(), gas::kLock), gas::kLocked);
  EXPECT_EQ(b.read32(b.own_control() + gas::kStatus) >> 16, 1u) << "who has locked it";
  b.write32(b.own_control() + gas::kRequesters + 4, 0x0108 << 16 | gas::kEntryEnabled);
  EXPECT_EQ(b.read32(b.own_control() + gas::kRequesters + 4), 0x01080000u | 9 << 1 | 1)
      << "with its proxy, before it is configured";
  EXPECT_THAT(registers.requesters(1), IsEmpty());
  ASSERT_EQ(b.operate(b.own_control(), gas::kConfigure), gas::kNormal);
  ASSERT_EQ(registers.requesters(1).size(), 1u);
  EXPECT_EQ(registers.requesters(1)[0].id, 0x108);
  EXPECT_EQ(registers.requesters(1)[0].proxy, 9);
  EXPECT_THAT(registers.requesters(0), IsEmpty());

  b.operate(b.own_control(), gas::kLock);
  b.write32(b.own_control() + gas::kRequesters + 4, 0);
  b.operate(b.own_control(), gas::kConfigure);
  EXPECT_THAT(registers.requesters(1), IsEmpty());
}

TEST_F(SwitchtecTest, SharedMemoryIsTheFirstEntryOfTheOthersTable) {
  a.share_memory(kShared);
  EXPECT_THAT(registers.openings(1, 0), ElementsAre(Opening{0, kLutBytes, kShared}))
      << "b's window leads to a";
  EXPECT_THAT(registers.openings(0, 0), IsEmpty());
  EXPECT_EQ(b.read<uint64_t>(b.own_control() + gas::kLut), kShared | 1)
      << "both see the same registers";
}

TEST_F(SwitchtecTest, ATableThatDoesNotFitItsBarIsAnError) {
  const uint32_t bar = a.peer_control() + gas::kBars + 16 * 2;
  a.operate(a.peer_control(), gas::kLock);
  a.write32(bar, a.read32(bar) | gas::kBarLut | 20 << 8 | 511 << 14);
  EXPECT_EQ(a.operate(a.peer_control(), gas::kConfigure), gas::kLocked);
  EXPECT_EQ(a.read32(a.peer_control() + gas::kBarError), 1u << 2);
}

TEST_F(SwitchtecTest, DirectWindowsBeginBehindTheTable) {
  a.load();
  EXPECT_EQ(a.translate(2, 0x200000000, kLutArea), gas::kNormal);
  EXPECT_EQ(a.translate(4, 1ull << 40, kBar4), gas::kNormal);
  EXPECT_THAT(registers.openings(1, 0), ElementsAre(Opening{0, kLutBytes, kShared},
                                                    Opening{kLutArea, kLutArea, 0x200000000}));
  EXPECT_THAT(registers.openings(1, 1), ElementsAre(Opening{0, kBar4, 1ull << 40}));
  a.close(2);
  EXPECT_THAT(registers.openings(1, 0), ElementsAre(Opening{0, kLutBytes, kShared}));
  EXPECT_THAT(registers.openings(1, 1), ElementsAre(Opening{0, kBar4, 1ull << 40}));
}

TEST_F(SwitchtecTest, NothingChangesBeforeItIsConfigured) {
  a.load();
  a.operate(a.peer_control(), gas::kLock);
  a.write<uint64_t>(a.peer_control() + gas::kLut, 0);
  EXPECT_THAT(registers.openings(1, 0), ElementsAre(Opening{0, kLutBytes, kShared}));
  a.operate(a.peer_control(), gas::kConfigure);
  EXPECT_THAT(registers.openings(1, 0), IsEmpty());
}

TEST_F(SwitchtecTest, AWindowOfAnOddSizeRepeatsItself) {
  a.load();
  // 3 MiB: ilog2 is 21, so the second MiB's address bits end below 2 MiB.
  EXPECT_EQ(a.translate(4, 0x400000, 3 << 20), gas::kNormal);
  EXPECT_THAT(registers.openings(1, 1),
              ElementsAre(Opening{0, 2 << 20, 0x400000}, Opening{2 << 20, 1 << 20, 0x400000}));
}

TEST_F(SwitchtecTest, AWindowThatDoesNotFitItsBarIsAnErrorUntilItIsTakenBack) {
  a.load();
  EXPECT_EQ(a.translate(2, 0, 2 * kLutArea), gas::kLocked);
  EXPECT_EQ(a.read32(a.peer_control() + gas::kBarError), 1u << 2);
  EXPECT_THAT(registers.openings(1, 0), IsEmpty());
  a.close(2);
  EXPECT_EQ(a.read32(a.peer_control() + gas::kBarError), 0u);
  EXPECT_THAT(registers.openings(1, 0), ElementsAre(Opening{0, kLutBytes, kShared}));
}

TEST_F(SwitchtecTest, WhoComesSecondWaitsForTheLock) {
  ASSERT_EQ(a.operate(a.own_control(), gas::kLock), gas::kLocked);
  EXPECT_EQ(b.operate(b.peer_control(), gas::kLock), gas::kLocking);
  EXPECT_EQ(b.operate(b.peer_control(), gas::kConfigure), gas::kLocking) << "not its turn";
  EXPECT_EQ(a.operate(a.own_control(), gas::kConfigure), gas::kNormal);
  EXPECT_EQ(b.read32(b.peer_control() + gas::kStatus) & 0xffff, gas::kLocked);
  EXPECT_EQ(a.operate(a.own_control(), gas::kLock), gas::kLocking);
  registers.reset(1);
  EXPECT_EQ(a.read32(a.own_control() + gas::kStatus) & 0xffff, gas::kLocked);
}

TEST_F(SwitchtecTest, AnOperationIsGivenUpByAReset) {
  a.operate(a.peer_control(), gas::kLock);
  EXPECT_EQ(a.operate(a.peer_control(), gas::kReset), gas::kNormal);
}

TEST_F(SwitchtecTest, DoorbellsAreHalvesOfOneRegister) {
  a.load();
  b.load();
  a.write<uint64_t>(a.messages() + gas::kOutDoorbells, 1ull << 32);
  deliver(a, b);
  EXPECT_EQ(b.take_raised(), 0u) << "masked";
  b.write<uint64_t>(b.messages() + gas::kInMask, 0xf0000000ull << 32 | 1ull << 32);
  EXPECT_EQ(b.take_raised(), 1u << kDoorbellVector) << "it had waited";
  EXPECT_TRUE(registers.cause_stands(1, kDoorbellVector));
  EXPECT_EQ(b.read<uint64_t>(b.messages() + gas::kInDoorbells) >> 32, 1u);
  b.write<uint64_t>(b.messages() + gas::kInDoorbells, 1ull << 32);
  EXPECT_EQ(b.read<uint64_t>(b.messages() + gas::kInDoorbells), 0u);
  EXPECT_FALSE(registers.cause_stands(1, kDoorbellVector));

  a.write<uint64_t>(a.messages() + gas::kOutDoorbells, 1ull << 32);
  deliver(a, b);
  EXPECT_EQ(b.take_raised(), 1u << kDoorbellVector);
  a.write<uint64_t>(a.messages() + gas::kOutDoorbells, 1);
  EXPECT_THAT(a.sent, IsEmpty()) << "not one of those that are the other's";
  EXPECT_EQ(a.read<uint64_t>(a.messages() + gas::kInDoorbells), 0u);
}

TEST_F(SwitchtecTest, MessagesComeOneAfterTheOther) {
  a.load();
  b.load();
  a.write32(a.messages() + gas::kOutMessages, kForceDown);
  a.write32(a.messages() + gas::kOutMessages, kLinkUp);
  deliver(a, b);
  EXPECT_EQ(b.take_raised(), 1u << kMessageVector);
  EXPECT_TRUE(registers.cause_stands(1, kMessageVector));
  EXPECT_EQ(b.read<uint8_t>(b.messages() + gas::kInMessages + 6), 0) << "who has sent it";
  EXPECT_THAT(b.handle_messages(), ElementsAre(kForceDown));
  EXPECT_EQ(b.take_raised(), 1u << kMessageVector);
  EXPECT_THAT(b.handle_messages(), ElementsAre(kLinkUp));
  EXPECT_EQ(b.take_raised(), 0u);
  EXPECT_FALSE(registers.cause_stands(1, kMessageVector));
}

TEST_F(SwitchtecTest, AMessageFromBeforeItsVectorWasSetIsSeenWithTheNext) {
  b.listen();
  for (uint32_t i = 0; i < 64; i++) b.write<uint8_t>(b.messages() + gas::kVectors + i, 0);
  a.write32(a.messages() + gas::kOutMessages, kForceDown);
  deliver(a, b);
  EXPECT_EQ(b.take_raised(), 1u) << "to the vector of events";
  b.listen_vectors();
  a.write32(a.messages() + gas::kOutMessages, kLinkUp);
  deliver(a, b);
  EXPECT_EQ(b.take_raised(), 1u << kMessageVector);
  EXPECT_THAT(b.handle_messages(), ElementsAre(kForceDown));
  EXPECT_EQ(b.take_raised(), 1u << kMessageVector);
  EXPECT_THAT(b.handle_messages(), ElementsAre(kLinkUp));
}

TEST_F(SwitchtecTest, AMessageThatNobodyMapsIsLost) {
  a.load();
  a.write32(a.messages() + gas::kOutMessages, kForceDown);
  deliver(a, b);
  b.load();
  EXPECT_THAT(b.handle_messages(), IsEmpty());
}

TEST_F(SwitchtecTest, ALinkEventIsCountedAtTheOthersPort) {
  a.load();
  const uint32_t event = gas::kPorts + 0x2000 + gas::kPortLinkEvent;
  EXPECT_EQ(registers.link_event(0, false), 1u << SwitchtecRegisters::kEvents);
  EXPECT_TRUE(registers.loss_unread(0));
  EXPECT_TRUE(registers.cause_stands(0, SwitchtecRegisters::kEvents));
  EXPECT_EQ(a.read32(event) >> 5 & 0xff, 1u);
  EXPECT_FALSE(registers.loss_unread(0));
  std::ignore = registers.link_event(0, true);
  EXPECT_FALSE(registers.loss_unread(0)) << "that was none";
  EXPECT_TRUE(registers.cause_stands(0, SwitchtecRegisters::kEvents));
  EXPECT_EQ(a.read32(event) >> 5 & 0xff, 2u);
  EXPECT_EQ(a.read32(gas::kPorts + gas::kPortLinkEvent) >> 5, 0u) << "its own port has none";
  EXPECT_EQ(b.read32(event), 0u);
  EXPECT_EQ(a.read32(event + gas::kPortLink - gas::kPortLinkEvent) >> 16,
            PCI_EXP_LNKSTA_CLS_16_0GB | 16u << 4);
}

TEST_F(SwitchtecTest, AHostThatIsResetLosesItsPartitionOnly) {
  a.load();
  b.load();
  a.translate(4, 0, kBar4);
  b.translate(4, 0, kBar4);
  registers.reset(1);
  EXPECT_FALSE(registers.touched(1));
  EXPECT_FALSE(registers.ready(1));
  EXPECT_THAT(registers.openings(1, 0), IsEmpty());
  EXPECT_THAT(registers.openings(1, 1), IsEmpty());
  EXPECT_THAT(registers.requesters(1), IsEmpty());
  EXPECT_EQ(registers.openings(0, 1).size(), 1u);
  EXPECT_TRUE(registers.ready(0));
  EXPECT_EQ(b.read32(b.own_control() + gas::kBars + 16 * 4), gas::kBarValid);
}

TEST_F(SwitchtecTest, EveryOffsetCanBeReadAndWritten) {
  for (uint32_t offset = 0; offset < gas::kSize; offset += 4) {
    a.write<uint64_t>(offset, UINT64_MAX);
    a.read<uint64_t>(offset);
  }
  for (uint32_t offset = gas::kControl; offset < gas::kControl + 0x200; offset++) {
    a.write<uint16_t>(offset, 0xffff);
    a.read<uint16_t>(offset);
  }
}

}  // namespace
}  // namespace pcilend::fabric
