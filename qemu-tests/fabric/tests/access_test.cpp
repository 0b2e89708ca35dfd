// SPDX-License-Identifier: GPL-2.0-or-later
// Accesses through windows: where they land, how they are counted, in which order they arrive.
#include <gmock/gmock.h>
#include <linux/pci_regs.h>

#include <numeric>

#include "tests/fabric_lab.h"

namespace pcilend::fabric {
namespace {

using test::bytes_from;
using test::Host;
using test::milliseconds;
using test::Received;

constexpr uint64_t kOnes = 0xffffffff;
constexpr uint64_t kBarBus = 0xfe000000;  // where window 1 leads: no memory there

class AccessTest : public test::FabricLab {
 protected:
  void SetUp() override {
    make(2);
    a = &boot(1, 2);
    b = &boot(2, 1);
  }

  Host* a = nullptr;
  Host* b = nullptr;
};

TEST_F(AccessTest, WritesReachThePeersMemoryAndReadsSeeIt) {
  put<uint64_t>(*a, kRegionBar2, 0x1008, 0x1122334455667788);
  EXPECT_EQ(b->ram.get<uint64_t>(0x1008), 0x1122334455667788u);
  EXPECT_EQ(get(*a, kRegionBar2, 0x1008, 8), 0x1122334455667788u);
  EXPECT_EQ(get(*a, kRegionBar2, 0x100a, 2), 0x5566u);
  EXPECT_EQ(get(*a, kRegionBar2, 0x100f, 1), 0x11u);
  EXPECT_EQ(a->ram.get<uint64_t>(0x1008), 0u);
  b->drain();
  EXPECT_TRUE(b->inbox.empty()) << "memory costs no message";

  const Traffic& memory = traffic(1, 2, Target::Memory);
  EXPECT_EQ(memory.writes, 1u);
  EXPECT_EQ(memory.write_bytes, 8u);
  EXPECT_EQ(memory.reads, 3u);
  EXPECT_EQ(memory.read_bytes, 11u);
  EXPECT_EQ(traffic(2, 1, Target::Memory).writes, 0u);
}

TEST_F(AccessTest, BothDirectionsAtOnce) {
  put<uint32_t>(*a, kRegionBar2, 0, 1);
  put<uint32_t>(*b, kRegionBar2, 0, 2);
  EXPECT_EQ(b->ram.get<uint32_t>(0), 1u);
  EXPECT_EQ(a->ram.get<uint32_t>(0), 2u);
}

TEST_F(AccessTest, LargeAccesses) {
  std::vector<std::byte> data(200'000);
  for (size_t i = 0; i < data.size(); i++) data[i] = static_cast<std::byte>(i * 7);
  for (size_t at = 0; at < data.size(); at += 50'000) {
    a->client.send_write(kRegionBar2, 12'345 + at, std::span(data).subspan(at, 50'000));
    run();
  }
  EXPECT_TRUE(std::equal(data.begin(), data.end(), b->ram.bytes().begin() + 12'345));
  const uint16_t id = a->client.send_read(kRegionBar2, 12'345, 200'000);
  std::optional<Received> answer;
  for (int round = 0; round < 100 && !answer; round++) {
    run();
    answer = a->take_reply(Command::RegionRead, id);
  }
  ASSERT_TRUE(answer);
  EXPECT_THAT(answer->data(), testing::ElementsAreArray(data));
}

TEST_F(AccessTest, AClosedWindowAnswersAllOnes) {
  set_translation(*b, 0, 0, 0);  // ntb_mw_clear_trans
  EXPECT_EQ(get(*a, kRegionBar2, 0, 4), kOnes);
  put<uint32_t>(*a, kRegionBar2, 0, 5);
  EXPECT_EQ(b->ram.get<uint32_t>(0), 0u);
  EXPECT_EQ(lost_reads(1, 2, Loss::Unmapped), 1u);
  EXPECT_EQ(lost_writes(1, 2, Loss::Unmapped), 1u);
  EXPECT_TRUE(logged("FAULT unmapped read: host1-host2"));
}

TEST_F(AccessTest, ATranslationToBusAddress0IsOpen) {
  const uint16_t id = b->client.send_map(0, 0x10000, b->ram.fd(), 0x20000);
  run();
  ASSERT_FALSE(b->take_reply(Command::DmaMap, id)->failed());
  set_translation(*b, 0, 0, 64ull << 30);
  b->ram.put<uint32_t>(0x20010, 0x77);
  EXPECT_EQ(get(*a, kRegionBar2, 0x10, 4), 0x77u);
}

TEST_F(AccessTest, TheLimitIsExact) {
  set_translation(*b, 0, Host::kRamBus, 0x1004);
  b->ram.put<uint64_t>(0x1000, 0x5555555544444444);
  EXPECT_EQ(get(*a, kRegionBar2, 0x1000, 4), 0x44444444u);
  EXPECT_EQ(get(*a, kRegionBar2, 0x1000, 8), 0xffffffff44444444u);
  EXPECT_EQ(get(*a, kRegionBar2, 0x1004, 4), kOnes);
  put<uint64_t>(*a, kRegionBar2, 0x1000, 0x9999999988888888);
  EXPECT_EQ(b->ram.get<uint64_t>(0x1000), 0x5555555588888888u);
}

TEST_F(AccessTest, ATranslationThatWrapsReachesNothingBehindTheTop) {
  const uint16_t id = b->client.send_map(0, 0x1000, b->ram.fd());
  set_translation(*b, 0, UINT64_MAX - 0xfff, 0x2000);
  ASSERT_FALSE(b->take_reply(Command::DmaMap, id)->failed());
  EXPECT_EQ(get(*a, kRegionBar2, 0x1000, 4), kOnes);
}

TEST_F(AccessTest, WithoutBusMasterNothingIsReached) {
  put<uint16_t>(*b, kRegionConfig, PCI_COMMAND, PCI_COMMAND_MEMORY);
  EXPECT_EQ(get(*a, kRegionBar2, 0, 4), kOnes);
  EXPECT_EQ(get(*a, kRegionBar4, 0, 4), kOnes);
  b->drain();
  EXPECT_TRUE(b->inbox.empty());
}

TEST_F(AccessTest, AnAccessAcrossTwoMapsTouchesBoth) {
  b->client.send_unmap(Host::kRamBus, Host::kRamSize);
  b->client.send_map(Host::kRamBus, 0x1000, b->ram.fd(), 0x5000);
  b->client.send_map(Host::kRamBus + 0x1000, 0x1000, b->ram.fd(), 0x1000);
  run();
  put<uint64_t>(*a, kRegionBar2, 0xffc, 0x8877665544332211);
  EXPECT_EQ(b->ram.get<uint32_t>(0x5ffc), 0x44332211u);
  EXPECT_EQ(b->ram.get<uint32_t>(0x1000), 0x88776655u);
  EXPECT_EQ(get(*a, kRegionBar2, 0xffc, 8), 0x8877665544332211u);
}

TEST_F(AccessTest, AReadAcrossMemoryAndARegisterIsPutTogether) {
  set_translation(*b, 1, Host::kRamBus + Host::kRamSize - 4, 8);
  b->ram.put<uint32_t>(Host::kRamSize - 4, 0x11111111);
  const uint16_t id = begin_read(*a, kRegionBar4, 0, 8);
  const auto request = b->take_request(Command::DmaRead);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->head<DmaAccess>().address, Host::kRamBus + Host::kRamSize);
  EXPECT_EQ(request->head<DmaAccess>().count, 4u);
  b->client.answer(*request, bytes_from("\x22\x22\x22\x22"));
  EXPECT_EQ(answer_of(*a, id), 0x2222222211111111u);
}

TEST_F(AccessTest, ReadOnlyMemoryIsNotWritten) {
  b->client.send_unmap(Host::kRamBus, Host::kRamSize);
  b->client.send_map(Host::kRamBus, 0x1000, b->ram.fd(), 0, DmaMap::kRead);
  run();
  put<uint32_t>(*a, kRegionBar2, 0, 5);
  EXPECT_EQ(b->ram.get<uint32_t>(0), 0u);
  EXPECT_EQ(lost_writes(1, 2, Loss::Unmapped), 1u);
  EXPECT_EQ(get(*a, kRegionBar2, 0, 4), 0u);
}

TEST_F(AccessTest, RomIsReadByMessageAndCountsAsMemory) {
  b->client.send_map(kBarBus, 0x1000, -1, 0, DmaMap::kRead);
  run();
  const uint16_t id = begin_read(*a, kRegionBar4, 0x10);
  const auto request = b->take_request(Command::DmaRead);
  ASSERT_TRUE(request);
  b->client.answer(*request, bytes_from("rom!"));
  EXPECT_TRUE(answer_of(*a, id));
  EXPECT_EQ(traffic(1, 2, Target::Memory).reads, 1u);
  EXPECT_EQ(traffic(1, 2, Target::Bar).reads, 0u);
}

TEST_F(AccessTest, RegistersOfThePeersFunctionsAreReadByMessage) {
  const uint16_t id = begin_read(*a, kRegionBar4, 0x101c);
  EXPECT_EQ(answer_of(*a, id), std::nullopt);
  const auto request = b->take_request(Command::DmaRead);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->head<DmaAccess>().address, kBarBus + 0x101c);
  b->client.answer(*request, bytes_from("\x01\x02\x03\x04"));
  EXPECT_EQ(answer_of(*a, id), 0x04030201u);
  EXPECT_EQ(traffic(1, 2, Target::Bar).reads, 1u);
  EXPECT_EQ(traffic(1, 2, Target::Bar).read_bytes, 4u);
  EXPECT_EQ(fabric->pending_reads(), 0u);
}

TEST_F(AccessTest, ARefusedReadIsAllOnes) {
  const uint16_t id = begin_read(*a, kRegionBar4, 0x20, 8);
  b->client.answer_error(*b->take_request(Command::DmaRead), EFAULT);
  EXPECT_EQ(answer_of(*a, id), UINT64_MAX);
  EXPECT_EQ(lost_reads(1, 2, Loss::Unmapped), 1u);
  EXPECT_EQ(traffic(1, 2, Target::Bar).reads, 0u);
}

TEST_F(AccessTest, ATruncatedAnswerIsAllOnes) {
  const uint16_t id = begin_read(*a, kRegionBar4, 0x20, 8);
  b->client.answer(*b->take_request(Command::DmaRead), bytes_from("1234"));
  EXPECT_EQ(answer_of(*a, id), UINT64_MAX);
}

TEST_F(AccessTest, WritesToRegistersArePosted) {
  put<uint32_t>(*a, kRegionBar4, 0x1000, 42);
  const auto request = b->take_request(Command::DmaWrite);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->header.flags, Header::kNoReply);
  EXPECT_EQ(request->head<DmaAccess>().address, kBarBus + 0x1000);
  EXPECT_EQ(request->value<uint32_t>(), 42u);
  EXPECT_EQ(traffic(1, 2, Target::Bar).writes, 1u);
  b->client.answer_error(*request, ENODEV);
  run();
  EXPECT_EQ(lost_writes(1, 2, Loss::Unmapped), 1u);
  EXPECT_TRUE(logged("refused a posted write"));
}

// A doorbell of a drive that is busy in itself.
TEST_F(AccessTest, WritesThatQemuIsTooBusyForAreSentAgain) {
  put<uint32_t>(*a, kRegionBar4, 0x1000, 42);
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto request = b->take_request(Command::DmaWrite);
    ASSERT_TRUE(request) << attempt;
    EXPECT_EQ(request->head<DmaAccess>().address, kBarBus + 0x1000);
    EXPECT_EQ(request->value<uint32_t>(), 42u);
    b->client.answer_error(*request, EPERM);
    run();
    EXPECT_FALSE(b->take_request(Command::DmaWrite)) << "not at once";
    advance(milliseconds(5));
  }
  EXPECT_EQ(lost_writes(1, 2, Loss::Unmapped), 0u);
  // What was written since counts.
  const auto old = b->take_request(Command::DmaWrite);
  ASSERT_TRUE(old);
  put<uint32_t>(*a, kRegionBar4, 0x1000, 43);
  ASSERT_TRUE(b->take_request(Command::DmaWrite));
  b->client.answer_error(*old, EPERM);
  run();
  advance(milliseconds(5));
  EXPECT_FALSE(b->take_request(Command::DmaWrite));
}

TEST_F(AccessTest, InterruptMessagesArePostedAndCountedApart) {
  set_translation(*b, 0, 0, 64ull << 30);
  put<uint32_t>(*a, kRegionBar2, 0xfee01004, 0x31);
  const auto request = b->take_request(Command::DmaWrite);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->head<DmaAccess>().address, 0xfee01004u);
  EXPECT_EQ(request->value<uint32_t>(), 0x31u);
  EXPECT_EQ(traffic(1, 2, Target::Interrupt).writes, 1u);
  EXPECT_EQ(traffic(1, 2, Target::Bar).writes, 0u);
}

TEST_F(AccessTest, NothingCanBeReadAtInterruptAddresses) {
  set_translation(*b, 0, 0, 64ull << 30);
  EXPECT_EQ(get(*a, kRegionBar2, 0xfee00000, 4), kOnes);
  b->drain();
  EXPECT_TRUE(b->inbox.empty());
}

TEST_F(AccessTest, MemoryMappedOverInterruptAddressesIsNotReached) {
  b->client.send_map(0xfee00000, 0x1000, b->ram.fd());
  run();
  set_translation(*b, 0, 0, 64ull << 30);
  put<uint32_t>(*a, kRegionBar2, 0xfee00000, 9);
  EXPECT_EQ(b->ram.get<uint32_t>(0), 0u);
  EXPECT_TRUE(b->take_request(Command::DmaWrite));
}

TEST_F(AccessTest, OneHostsWritesArriveInOrder) {
  for (uint32_t i = 0; i < 100; i++) a->client.post<uint32_t>(kRegionBar4, 4 * i, i);
  const uint16_t id = begin_read(*a, kRegionBar4, 0);
  b->drain();
  uint32_t expected = 0;
  for (const Received& message : b->inbox) {
    if (message.command() == Command::DmaRead) {
      EXPECT_EQ(expected, 100u) << "the read pushes all writes before it";
      b->client.answer(message, bytes_from("done"));
      break;
    }
    EXPECT_EQ(message.value<uint32_t>(), expected++);
  }
  EXPECT_TRUE(answer_of(*a, id));
}

TEST_F(AccessTest, AReadLargerThanOneMessageTakesSeveral) {
  const uint16_t id = a->client.send_read(kRegionBar4, 0, 150'000);
  run();
  std::vector<Received> requests;
  while (auto request = b->take_request(Command::DmaRead)) requests.push_back(*request);
  ASSERT_EQ(requests.size(), 3u);
  for (size_t i = requests.size(); i-- > 0;) {  // answered in the wrong order
    const auto access = requests[i].head<DmaAccess>();
    EXPECT_LE(access.count, kMaxDmaRead);
    b->client.answer(requests[i], Bytes(access.count, static_cast<std::byte>(i + 1)));
    run();
  }
  std::optional<Received> answer;
  for (int round = 0; round < 100 && !answer; round++) {
    run();
    answer = a->take_reply(Command::RegionRead, id);
  }
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->data()[0], std::byte{1});
  EXPECT_EQ(answer->data()[kMaxDmaRead], std::byte{2});
  EXPECT_EQ(answer->data()[149'999], std::byte{3});
}

TEST_F(AccessTest, ARegisterReadIsAnsweredWhileAWindowReadWaits) {
  const uint16_t id = begin_read(*a, kRegionBar4, 0);
  EXPECT_EQ(get(*a, kRegionBar0, reg::kSideInfo, 4), 0u);
  EXPECT_EQ(get(*a, kRegionBar2, 0, 4), 0u);
  EXPECT_EQ(answer_of(*a, id), std::nullopt);
}

TEST_F(AccessTest, PostedWritesToAStuckHostAreDroppedAtTheLimit) {
  make(2, FabricOptions{.posted_limit = 1 << 20});
  a = &boot(1, 2);
  boot(2, 1);
  const std::vector<std::byte> data(4096);
  for (int i = 0; i < 600; i++) {
    a->client.send_write(kRegionBar4, 0, data);
    run();
  }
  EXPECT_GT(lost_writes(1, 2, Loss::Overflow), 0u);
  EXPECT_TRUE(logged("ARTEFACT overflow"));
  const auto& adapter = fabric->adapter(1, 0);
  EXPECT_LE(adapter.session()->connection().queued_bytes(), 1u << 20);
  EXPECT_GT(adapter.counters().posted_peak, 100u);
  Host& stuck = host(2, 1);
  const uint16_t id = begin_read(stuck, kRegionBar0, reg::kSideInfo);
  std::optional<uint64_t> answer;
  for (int round = 0; round < 100 && !answer; round++) answer = answer_of(stuck, id);
  EXPECT_EQ(answer, reg::kSideSecondary) << "answers are never dropped";
}

TEST_F(AccessTest, CountersReset) {
  put<uint32_t>(*a, kRegionBar2, 0, 1);
  get(*a, kRegionBar0, reg::kScratchpad, 4);
  EXPECT_EQ(fabric->adapter(0, 1).counters().scratchpads, 1u);
  EXPECT_GT(fabric->adapter(0, 1).counters().registers, 1u);
  fabric->reset_counters();
  EXPECT_EQ(traffic(1, 2, Target::Memory).writes, 0u);
  EXPECT_EQ(fabric->adapter(0, 1).counters().registers, 0u);
}

TEST_F(AccessTest, ConfigurationSpaceIsReadInOneMessage) {
  const uint16_t id = a->client.send_read(kRegionConfig, 0, 4096);
  run();
  const auto answer = a->take_reply(Command::RegionRead, id);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->data().size(), 4096u);
  EXPECT_EQ(answer->value<uint32_t>(), 0x148b1022u);
}

// Both orders of an unmap and an access.
TEST_F(AccessTest, AWriteBeforeAnUnmapArrivesAndOneBehindItDoesNot) {
  a->client.post<uint32_t>(kRegionBar2, 0, 1);
  run();
  const uint16_t id = b->client.send_unmap(Host::kRamBus, Host::kRamSize);
  run();
  EXPECT_FALSE(b->take_reply(Command::DmaUnmap, id)->failed());
  put<uint32_t>(*a, kRegionBar2, 0, 2);
  EXPECT_EQ(b->ram.get<uint32_t>(0), 1u);
  // Nothing is mapped there now, so the host's bus is asked, and refuses.
  b->client.answer_error(*b->take_request(Command::DmaWrite), EFAULT);
  run();
  EXPECT_EQ(lost_writes(1, 2, Loss::Unmapped), 1u);
}

TEST_F(AccessTest, AnUnmapDoesNotDisturbAReadUnderWay) {
  const uint16_t read = begin_read(*a, kRegionBar4, 0);
  const auto request = b->take_request(Command::DmaRead);
  b->client.send_unmap(0, 0, DmaUnmap::kAll);
  run();
  EXPECT_EQ(fabric->adapter(1, 0).memory().count(), 0u);
  b->client.answer(*request, bytes_from("late"));
  EXPECT_TRUE(answer_of(*a, read));
}

TEST_F(AccessTest, AMapOverAnotherIsRefusedAndLogged) {
  const uint16_t id = b->client.send_map(Host::kRamBus + 0x1000, 0x1000, b->ram.fd());
  run();
  EXPECT_EQ(b->take_reply(Command::DmaMap, id)->header.error, static_cast<uint32_t>(EEXIST));
  EXPECT_TRUE(logged("ARTEFACT bad map: host2-host1"));
}

}  // namespace
}  // namespace pcilend::fabric
