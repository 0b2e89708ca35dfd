// SPDX-License-Identifier: GPL-2.0-or-later
// The small parts: configuration space, interrupt vectors, wait graph, timers, channels, log.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/pci_regs.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "amd_model.h"
#include "config_space.h"
#include "irq_vectors.h"
#include "link.h"
#include "log.h"
#include "memory_access.h"
#include "timers.h"
#include "wait_graph.h"

namespace pcilend::fabric {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

class ConfigSpaceTest : public testing::Test {
 protected:
  template <class T>
  T read(uint32_t offset) {
    T value;
    config.read(offset, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  template <class T>
  void write(uint32_t offset, T value) {
    config.write(offset, std::as_bytes(std::span(&value, 1)));
  }

  ConfigSpace config{AmdModel::kIdentity, {64ull << 30, 16ull << 30}};
};

TEST_F(ConfigSpaceTest, IsAnAmdNtb) {
  EXPECT_EQ(read<uint32_t>(0), 0x148b1022u);
  EXPECT_EQ(read<uint8_t>(PCI_HEADER_TYPE), 0);
  EXPECT_EQ(read<uint8_t>(PCI_INTERRUPT_PIN), 0);
}

TEST_F(ConfigSpaceTest, CapabilitiesArePcieAndMsix) {
  std::vector<unsigned> ids;
  uint32_t msix = 0;
  for (uint32_t at = read<uint8_t>(PCI_CAPABILITY_LIST); at != 0; at = read<uint8_t>(at + 1)) {
    ids.push_back(read<uint8_t>(at));
    if (ids.back() == PCI_CAP_ID_MSIX) msix = at;
    ASSERT_LT(ids.size(), 8u);
  }
  EXPECT_THAT(ids, ElementsAre(PCI_CAP_ID_EXP, PCI_CAP_ID_MSIX));
  EXPECT_EQ((read<uint16_t>(msix + PCI_MSIX_FLAGS) & PCI_MSIX_FLAGS_QSIZE) + 1, 24);
  EXPECT_EQ(read<uint32_t>(0x100), 0u) << "no extended capabilities";
}

TEST_F(ConfigSpaceTest, BarsHaveTheirSizes) {
  for (uint32_t bar = 0; bar < 6; bar++) write<uint32_t>(PCI_BASE_ADDRESS_0 + 4 * bar, ~0u);
  EXPECT_EQ(read<uint32_t>(PCI_BASE_ADDRESS_0), ~(0x4000u - 1));
  EXPECT_EQ(read<uint32_t>(PCI_BASE_ADDRESS_1), 0u);
  EXPECT_EQ(read<uint64_t>(PCI_BASE_ADDRESS_2), ~((64ull << 30) - 1) | 0xc);
  EXPECT_EQ(read<uint64_t>(PCI_BASE_ADDRESS_4), ~((16ull << 30) - 1) | 0xc);
}

TEST_F(ConfigSpaceTest, OnlyWhatIsWritableIsWritten) {
  for (uint32_t at = 0; at < ConfigSpace::kSize; at++) write<uint8_t>(at, 0xff);
  EXPECT_EQ(read<uint32_t>(0), 0x148b1022u);
  EXPECT_TRUE(config.bus_master());
  EXPECT_EQ(read<uint16_t>(PCI_CLASS_DEVICE), 0x0680);
  config.reset();
  EXPECT_FALSE(config.bus_master());
  EXPECT_EQ(read<uint32_t>(PCI_BASE_ADDRESS_0), 0u);
}

class IrqVectorsTest : public testing::Test {
 protected:
  // A vector's event, as QEMU makes it, and how often it was signalled.
  struct Event {
    UniqueFd fd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    uint64_t count() const {
      uint64_t value = 0;
      return ::read(fd.get(), &value, sizeof value) == sizeof value ? value : 0;
    }
    UniqueFd copy() const { return UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)); }
  };

  Parsed<> set(uint32_t flags, uint32_t start, uint32_t count, std::vector<UniqueFd> fds = {}) {
    return vectors.set({{20, flags, kIrqMsix, start, count}, {}}, std::move(fds),
                       [this](unsigned vector) { return (standing >> vector & 1) != 0; });
  }
  Parsed<> enable(uint32_t start, std::initializer_list<const Event*> events) {
    std::vector<UniqueFd> fds;
    for (const Event* event : events) fds.push_back(event->copy());
    return set(0x24, start, static_cast<uint32_t>(events.size()), std::move(fds));
  }

  IrqVectors vectors{24};
  uint32_t standing = ~0u;
  Event a, b;
};

TEST_F(IrqVectorsTest, SignalsTheVectorsRaised) {
  ASSERT_TRUE(enable(3, {&a, &b}));
  vectors.raise(1 << 4);
  EXPECT_EQ(a.count(), 0u);
  EXPECT_EQ(b.count(), 1u);
  EXPECT_EQ(vectors.enabled(), 2u);
  EXPECT_EQ(vectors.raised(), 1u);
}

TEST_F(IrqVectorsTest, AnInterruptInTheGapIsNotLost) {
  ASSERT_TRUE(enable(0, {&a, &b}));
  ASSERT_TRUE(set(0x21, 0, 0));  // QEMU disables all, then sets them again
  vectors.raise(1 << 1);
  EXPECT_EQ(b.count(), 0u);
  EXPECT_EQ(vectors.latched(), 2u);
  ASSERT_TRUE(enable(0, {&a, &b}));
  EXPECT_EQ(b.count(), 1u);
  EXPECT_EQ(a.count(), 0u);
  EXPECT_EQ(vectors.latched(), 0u);
}

TEST_F(IrqVectorsTest, ALatchedInterruptWithoutACauseIsForgotten) {
  vectors.raise(1);
  standing = 0;
  ASSERT_TRUE(enable(0, {&a}));
  EXPECT_EQ(a.count(), 0u);
  EXPECT_EQ(vectors.latched(), 0u);
}

TEST_F(IrqVectorsTest, QemusFirstMessageHasACountButNoDescriptor) {
  EXPECT_TRUE(set(0x24, 0, 1));
  EXPECT_EQ(vectors.enabled(), 0u);
}

TEST_F(IrqVectorsTest, ADescriptorIsTakenAwayOneByOneToo) {
  ASSERT_TRUE(enable(0, {&a, &b}));
  ASSERT_TRUE(set(0x24, 1, 1));
  EXPECT_EQ(vectors.enabled(), 1u);
}

TEST_F(IrqVectorsTest, BadRangesAreRefused) {
  EXPECT_FALSE(set(0x24, 24, 1));
  EXPECT_FALSE(set(0x24, 0, 25));
  EXPECT_FALSE(set(0x24, UINT32_MAX, UINT32_MAX));
  EXPECT_FALSE(set(0x24, 23, UINT32_MAX));
  std::vector<UniqueFd> one;
  one.push_back(a.copy());
  EXPECT_FALSE(set(0x24, 0, 2, std::move(one)));
  EXPECT_FALSE(set(0x09, 0, 1)) << "MSI-X vectors are masked in their table";
  std::vector<UniqueFd> surplus;
  surplus.push_back(a.copy());
  EXPECT_FALSE(set(0x21, 0, 0, std::move(surplus)));
}

TEST_F(IrqVectorsTest, TheClientCanRaiseThemItself) {
  ASSERT_TRUE(enable(0, {&a, &b}));
  ASSERT_TRUE(set(0x21, 0, 2));
  EXPECT_EQ(a.count(), 1u);
  const Bytes which{std::byte{0}, std::byte{1}};
  ASSERT_TRUE(vectors.set({{22, 0x22, kIrqMsix, 0, 2}, which}, {}, [](unsigned) { return true; }));
  EXPECT_EQ(a.count(), 0u);
  EXPECT_EQ(b.count(), 2u);
}

TEST_F(IrqVectorsTest, AFullPipeInPlaceOfAnEventDoesNotBlock) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::vector<UniqueFd> fds;
  fds.emplace_back(ends[1]);
  ASSERT_TRUE(set(0x24, 0, 1, std::move(fds)));
  for (int i = 0; i < 20'000; i++) vectors.raise(1);
  ::close(ends[0]);
}

TEST(WaitGraph, FindsCirclesOfAnyLength) {
  WaitGraph graph(4);
  graph.add(0, 1);
  EXPECT_FALSE(graph.reaches(1, 0));
  graph.add(1, 2);
  graph.add(2, 3);
  EXPECT_TRUE(graph.reaches(0, 3));
  EXPECT_FALSE(graph.reaches(3, 0));
  graph.add(3, 0);
  EXPECT_TRUE(graph.reaches(1, 0));
  graph.add(1, 2);
  graph.remove(1, 2);
  EXPECT_TRUE(graph.reaches(1, 0)) << "one of two waits is left";
  graph.remove(1, 2);
  EXPECT_FALSE(graph.reaches(1, 0));
}

TEST(Timers, RunInOrderAndCanBeCancelled) {
  Timers timers;
  const TimePoint start{};
  std::vector<int> ran;
  timers.arm(start + milliseconds(2), [&] { ran.push_back(2); });
  const auto cancelled = timers.arm(start + milliseconds(1), [&] { ran.push_back(-1); });
  timers.arm(start + milliseconds(1), [&] {
    ran.push_back(1);
    timers.arm(start + milliseconds(1), [&] { ran.push_back(11); });
  });
  timers.cancel(cancelled);
  EXPECT_EQ(timers.next(), start + milliseconds(1));
  timers.run(start);
  EXPECT_TRUE(ran.empty());
  timers.run(start + milliseconds(5));
  EXPECT_THAT(ran, ElementsAre(1, 11, 2));
  EXPECT_EQ(timers.next(), std::nullopt);
  timers.cancel(cancelled);
}

TEST(Channel, KeepsOrderWhenTheDelayShrinks) {
  Channel channel;
  const TimePoint start{};
  std::vector<int> got;
  channel.push(start, milliseconds(10), {[&] { got.push_back(1); }, [] {}});
  channel.push(start, milliseconds(0), {[&] { got.push_back(2); }, [] {}});
  channel.run(start + milliseconds(9));
  EXPECT_TRUE(got.empty());
  channel.run(start + milliseconds(10));
  EXPECT_THAT(got, ElementsAre(1, 2));
}

TEST(Channel, WhatIsLostIsNotDelivered) {
  Channel channel;
  int delivered = 0;
  int lost = 0;
  for (int i = 0; i < 3; i++)
    channel.push({}, milliseconds(1), {[&] { delivered++; }, [&] { lost++; }});
  channel.lose_all();
  channel.run(TimePoint{} + milliseconds(10));
  EXPECT_EQ(delivered, 0);
  EXPECT_EQ(lost, 3);
}

TEST(Log, LimitsArtefactsAndSaysSo) {
  TimePoint now{};
  std::vector<std::string> lines;
  Log log([&] { return now; }, [&](std::string_view line) { lines.emplace_back(line); });
  for (int i = 0; i < 25; i++) log.artefact("cycle", "number {}", i);
  log.artefact("timeout", "another kind");
  EXPECT_EQ(lines.size(), 11u);
  EXPECT_THAT(lines[0], HasSubstr("ARTEFACT cycle: number 0"));
  now += milliseconds(1500);
  log.artefact("cycle", "later");
  EXPECT_THAT(lines[11], HasSubstr("15 more left out"));
  EXPECT_THAT(lines[12], HasSubstr("1.500000 ARTEFACT cycle: later"));
  log.info("up");
  EXPECT_EQ(lines.back(), "1.500000 up\n");
}

TEST(MemoryAccess, EverySizeAndAlignment) {
  alignas(8) std::array<std::byte, 64> memory{};
  for (size_t size = 1; size <= 16; size++) {
    for (size_t at = 0; at < 16; at++) {
      std::vector<std::byte> data(size);
      for (size_t i = 0; i < size; i++) data[i] = static_cast<std::byte>(size * 16 + at + i);
      memory.fill(std::byte{0xee});
      store(std::span(memory).subspan(at, size), data);
      std::vector<std::byte> back(size);
      load(back, std::span(memory).subspan(at, size));
      EXPECT_EQ(back, data);
      EXPECT_EQ(memory[at + size], std::byte{0xee});
      if (at > 0) {
        EXPECT_EQ(memory[at - 1], std::byte{0xee});
      }
    }
  }
}

}  // namespace
}  // namespace pcilend::fabric
