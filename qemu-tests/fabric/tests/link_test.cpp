// SPDX-License-Identifier: GPL-2.0-or-later
// What hosts see of the link and of each other: events, doorbells, scratchpads, resets, power cuts,
// delay.
#include <gmock/gmock.h>
#include <linux/pci_regs.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/fabric_lab.h"

namespace pcilend::fabric {
namespace {

using test::bytes_from;
using test::Host;
using test::milliseconds;
using test::value_bytes;

constexpr uint64_t kOnes = 0xffffffff;
constexpr uint32_t kUp = static_cast<uint32_t>(LinkEvent::Up);
constexpr uint32_t kDown = static_cast<uint32_t>(LinkEvent::Down);

class LinkTest : public test::FabricLab {
 protected:
  void SetUp() override {
    make(2);
    a = &boot(1, 2);
    b = &boot(2, 1);
  }
  // Both drivers are loaded and have had their first events.
  void load_drivers() {
    for (Host* host : {a, b}) {
      put<uint32_t>(*host, kRegionBar0, reg::kInterruptMask, 0);
      put<uint16_t>(*host, kRegionBar0, reg::kDoorbellMask, 0);
      set_ready(*host);
    }
    advance(milliseconds(300));
    for (Host* host : {a, b}) {
      while (take_event(*host) != 0) {
      }
    }
  }
  uint32_t scratchpad(Host& host, unsigned index) {
    return static_cast<uint32_t>(get(host, kRegionBar0, reg::kScratchpad + 4 * index, 4));
  }
  void set_scratchpad(Host& host, unsigned index, uint32_t value) {
    put<uint32_t>(host, kRegionBar0, reg::kScratchpad + 4 * index, value);
  }

  Host* a = nullptr;
  Host* b = nullptr;
};

TEST_F(LinkTest, IsUpWhenBothHostsAreThere) {
  make(2);
  connect(1, 2);
  EXPECT_FALSE(fabric->link(0, 1).up);
  connect(2, 1);
  EXPECT_TRUE(fabric->link(0, 1).up);
  power_off(1, 2);
  EXPECT_FALSE(fabric->link(0, 1).up);
  connect(1, 2);
  EXPECT_TRUE(fabric->link(0, 1).up);
}

TEST_F(LinkTest, TheSecondDriverToLoadIsSeenAtOnceByTheFirst) {
  set_ready(*a);
  advance(milliseconds(1000));
  EXPECT_FALSE(peer_ready(*a));
  EXPECT_EQ(take_event(*a), 0u);
  set_ready(*b);
  EXPECT_TRUE(peer_ready(*a));
  EXPECT_TRUE(peer_ready(*b));
  EXPECT_EQ(take_event(*a), kUp);
  advance(milliseconds(1000));
  EXPECT_EQ(take_event(*b), 0u) << "its own loading is no event to it";
}

TEST_F(LinkTest, NoEventBeforeADriverIsRegistered) {
  set_ready(*a);
  set_ready(*b);
  EXPECT_EQ(take_event(*a), 0u);
  advance(milliseconds(199));
  EXPECT_EQ(take_event(*a), 0u);
  advance(milliseconds(1));
  EXPECT_EQ(take_event(*a), kUp);
}

TEST_F(LinkTest, UnloadingRingsTheLastDoorbellAndHidesReady) {
  load_drivers();
  set_ready(*b, false);
  put<uint16_t>(*b, kRegionBar0, reg::kDoorbellRequest, 1 << 15);
  EXPECT_FALSE(peer_ready(*a));
  EXPECT_EQ(get(*a, kRegionBar0, reg::kDoorbellStatus, 2), 1u << 15);
  set_ready(*b);
  EXPECT_EQ(take_event(*a), kUp);
}

TEST_F(LinkTest, PathsOfAPairAreLinksOfTheirOwn) {
  make(2, {.paths = 2});
  for (const size_t path : {1, 2}) {
    boot(1, 2, 0xfe000000, path);
    EXPECT_FALSE(fabric->link(0, 1, path - 1).up);
    boot(2, 1, 0xfe000000, path);
    EXPECT_TRUE(fabric->link(0, 1, path - 1).up);
  }
  EXPECT_EQ(fabric->adapter(0, 1).name(), "host1-host2");
  EXPECT_EQ(fabric->adapter(1, 0, 1).name(), "host2-host1.2");

  const auto read = [&](size_t path) {
    Host& from = path_host(1, 2, path);
    return get(from, kRegionBar2, 0x1000, 4);
  };
  put<uint32_t>(path_host(1, 2, 2), kRegionBar2, 0x1000, 0x22222222);
  EXPECT_EQ(read(2), 0x22222222u);
  EXPECT_EQ(read(1), 0u) << "another adapter, other memory";
  const auto writes = [&](size_t path) {
    return fabric->traffic(fabric->adapter(0, 1, path - 1))
        .traffic[static_cast<size_t>(Target::Memory)]
        .writes;
  };
  EXPECT_EQ(writes(1), 0u);
  EXPECT_EQ(writes(2), 1u);

  fabric->set_link(0, 1, false, 1);
  EXPECT_EQ(read(2), kOnes);
  EXPECT_EQ(read(1), 0u);
}

TEST_F(LinkTest, DownAndUpAreEventsOnBothSides) {
  load_drivers();
  fabric->set_link(0, 1, false);
  for (Host* host : {a, b}) {
    EXPECT_FALSE(peer_ready(*host));
    EXPECT_EQ(take_event(*host), kDown);
  }
  fabric->set_link(0, 1, true);
  for (Host* host : {a, b}) {
    EXPECT_TRUE(peer_ready(*host)) << "the driver there was never gone";
    EXPECT_EQ(take_event(*host), kUp);
  }
  fabric->set_link(0, 1, true);
  EXPECT_EQ(take_event(*a), 0u) << "nothing changed";
}

TEST_F(LinkTest, AFlapIsSeenAsDownThenUp) {
  load_drivers();
  fabric->set_link(0, 1, false);
  fabric->set_link(0, 1, true);
  EXPECT_EQ(take_event(*a), kDown);
  EXPECT_EQ(take_event(*a), 0u);
  EXPECT_FALSE(fabric->link(0, 1).up) << "the other driver does not know yet";
  EXPECT_EQ(take_event(*b), kDown);
  EXPECT_TRUE(fabric->link(0, 1).up);
  EXPECT_EQ(take_event(*a), kUp);
  EXPECT_EQ(take_event(*b), kUp);
  EXPECT_EQ(take_event(*a), 0u);
}

TEST_F(LinkTest, AHostThatIsNotToldHearsNoEvent) {
  load_drivers();
  fabric->adapter(0, 1).set_told(false);
  fabric->set_link(0, 1, false);
  fabric->set_link(0, 1, true);
  EXPECT_EQ(take_event(*a), 0u);
  EXPECT_EQ(take_event(*b), kDown);
  EXPECT_TRUE(fabric->link(0, 1).up) << "nobody waits for who does not know";
  power_off(2, 1);
  b = &connect(2, 1);
  set_ready(*b);
  EXPECT_EQ(take_event(*a), 0u);
  fabric->adapter(0, 1).set_told(true);
  EXPECT_EQ(take_event(*a), 0u) << "that is over";
  fabric->set_link(0, 1, false);
  EXPECT_EQ(take_event(*a), kDown);
}

TEST_F(LinkTest, AFlapEndsByItself) {
  load_drivers();
  for (size_t host : {0, 1}) fabric->adapter(host, 1 - host).set_told(false);
  fabric->flap(0, 1, milliseconds(600));
  EXPECT_FALSE(fabric->link(0, 1).up);
  advance(milliseconds(599));
  EXPECT_FALSE(fabric->link(0, 1).up);
  advance(milliseconds(1));
  EXPECT_TRUE(fabric->link(0, 1).up);
}

TEST_F(LinkTest, ADriverThatDoesNotListenHoldsNobodyUp) {
  load_drivers();
  put<uint32_t>(*b, kRegionBar0, reg::kInterruptMask, kDown);
  fabric->set_link(0, 1, false);
  fabric->set_link(0, 1, true);
  EXPECT_EQ(take_event(*a), kDown);
  EXPECT_TRUE(fabric->link(0, 1).up);
  fabric->set_link(0, 1, false);
  put<uint32_t>(*b, kRegionBar0, reg::kInterruptMask, 0);
  EXPECT_EQ(take_event(*a), kUp);
  EXPECT_EQ(take_event(*a), kDown);
  fabric->set_link(0, 1, true);
  EXPECT_FALSE(fabric->link(0, 1).up);
  set_ready(*b, false);
  EXPECT_TRUE(fabric->link(0, 1).up) << "its driver is gone";
}

TEST_F(LinkTest, WhileItIsDownNothingCrosses) {
  load_drivers();
  fabric->set_link(0, 1, false);
  EXPECT_EQ(get(*a, kRegionBar2, 0, 4), kOnes);
  put<uint32_t>(*a, kRegionBar2, 0, 7);
  put<uint16_t>(*a, kRegionBar0, reg::kDoorbellRequest, 1);
  EXPECT_EQ(b->ram.get<uint32_t>(0), 0u);
  EXPECT_EQ(get(*b, kRegionBar0, reg::kDoorbellStatus, 2), 0u);
  EXPECT_EQ(lost_reads(1, 2, Loss::LinkDown), 1u);
  EXPECT_EQ(lost_writes(1, 2, Loss::LinkDown), 1u);
  for (Host* host : {a, b}) EXPECT_EQ(take_event(*host), kDown);
  fabric->set_link(0, 1, true);
  EXPECT_EQ(get(*a, kRegionBar2, 0, 4), 0u) << "translations stay";
}

TEST_F(LinkTest, LosingTheLinkAnswersAReadUnderWayOnce) {
  const uint16_t id = begin_read(*a, kRegionBar4, 0);
  const auto request = b->take_request(Command::DmaRead);
  fabric->set_link(0, 1, false);
  EXPECT_EQ(answer_of(*a, id), kOnes);
  b->client.answer(*request, bytes_from("late"));
  run();
  EXPECT_EQ(answer_of(*a, id), std::nullopt);
  EXPECT_EQ(lost_reads(1, 2, Loss::LinkDown), 1u);
  fabric->set_link(0, 1, true);
  const uint16_t again = begin_read(*a, kRegionBar4, 0);
  b->client.answer(*b->take_request(Command::DmaRead), value_bytes<uint32_t>(1));
  EXPECT_EQ(answer_of(*a, again), 1u);
}

TEST_F(LinkTest, AnAnswerBeforeTheLinkIsLostCounts) {
  const uint16_t id = begin_read(*a, kRegionBar4, 0);
  b->client.answer(*b->take_request(Command::DmaRead), value_bytes<uint32_t>(1));
  run();
  fabric->set_link(0, 1, false);
  EXPECT_EQ(answer_of(*a, id), 1u);
}

TEST_F(LinkTest, ScratchpadsAreSeenOnBothSides) {
  set_scratchpad(*a, 3, 0x1234);
  set_scratchpad(*b, 3, 0x5678);
  EXPECT_EQ(scratchpad(*a, 3), 0x5678u);
  set_scratchpad(*b, 11, 9);
  EXPECT_EQ(scratchpad(*a, 11), 9u);
}

TEST_F(LinkTest, ScratchpadsWrittenWhileDownShowAfterwards) {
  fabric->set_link(0, 1, false);
  set_scratchpad(*a, 0, 1);
  set_scratchpad(*b, 8, 2);
  set_scratchpad(*b, 0, 3);  // not its own: forgotten
  EXPECT_EQ(scratchpad(*b, 0), 3u);
  fabric->set_link(0, 1, true);
  EXPECT_EQ(scratchpad(*a, 0), 1u);
  EXPECT_EQ(scratchpad(*b, 0), 1u);
  EXPECT_EQ(scratchpad(*a, 8), 2u);
}

TEST_F(LinkTest, AHostThatDiesLeavesNothingBehind) {
  load_drivers();
  set_scratchpad(*a, 0, 1);
  set_scratchpad(*b, 8, 2);
  power_off(2, 1);
  EXPECT_FALSE(peer_ready(*a));
  EXPECT_EQ(take_event(*a), kDown);
  EXPECT_EQ(get(*a, kRegionBar2, 0, 4), kOnes);
  const auto& dead = fabric->adapter(1, 0);
  EXPECT_EQ(dead.memory().count(), 0u);
  EXPECT_EQ(dead.model().inbound(0)[0].length, 0u);
  EXPECT_EQ(dead.interrupts().enabled(), 0u);

  b = &connect(2, 1);
  EXPECT_EQ(take_event(*a), kUp);
  EXPECT_EQ(scratchpad(*a, 0), 1u);
  EXPECT_EQ(scratchpad(*b, 0), 1u);
  EXPECT_EQ(scratchpad(*a, 8), 0u) << "its scratchpads died with it";
  EXPECT_EQ(get(*a, kRegionBar2, 0, 4), kOnes) << "its windows are closed";
  set_ready(*b);
  EXPECT_EQ(take_event(*a), kUp);
  EXPECT_TRUE(peer_ready(*a));
}

TEST_F(LinkTest, ADyingHostsReadersGetAllOnesOnce) {
  const uint16_t id = begin_read(*a, kRegionBar4, 0);
  power_off(2, 1);
  EXPECT_EQ(answer_of(*a, id), kOnes);
  EXPECT_EQ(fabric->pending_reads(), 0u);
}

TEST_F(LinkTest, ADyingReaderTakesItsReadsAlong) {
  begin_read(*a, kRegionBar4, 0);
  const auto request = b->take_request(Command::DmaRead);
  power_off(1, 2);
  EXPECT_EQ(fabric->pending_reads(), 0u);
  a = &boot(1, 2);
  b->client.answer(*request, bytes_from("late"));
  run();
  a->drain();
  EXPECT_EQ(a->count(Command::RegionRead), 0u);
  EXPECT_TRUE(a->inbox.empty());
}

TEST_F(LinkTest, AWriterThatDiesHasWrittenWhatItSent) {
  a->client.post<uint32_t>(kRegionBar2, 0, 5);
  a->client.hang_up();
  run();
  EXPECT_EQ(b->ram.get<uint32_t>(0), 5u);
}

TEST_F(LinkTest, ARebootWithoutADisconnectIsALinkFlap) {
  load_drivers();
  b->client.send(Command::DeviceReset, {});
  b->client.send(Command::DeviceReset, {});
  run();
  EXPECT_EQ(take_event(*a), kDown);
  EXPECT_EQ(take_event(*a), kUp);
  EXPECT_EQ(take_event(*a), 0u) << "the second reset found nothing to reset";
  EXPECT_FALSE(peer_ready(*a));
  EXPECT_EQ(get(*a, kRegionBar2, 0, 4), kOnes);
  EXPECT_FALSE(fabric->adapter(1, 0).bus_master());
  EXPECT_EQ(fabric->adapter(1, 0).memory().count(), 1u) << "the client keeps its maps";
}

TEST_F(LinkTest, ResetsAtPowerOnAreNoEvents) {
  make(2);
  a = &boot(1, 2);
  set_ready(*a);
  advance(milliseconds(300));
  b = &connect(2, 1);
  EXPECT_EQ(take_event(*a), kUp);
  b->client.send(Command::DeviceReset, {});
  run();
  EXPECT_EQ(take_event(*a), 0u);
}

TEST_F(LinkTest, InterruptsRaisedInAGapAreDelivered) {
  load_drivers();
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const auto count = [&] {
    uint64_t value = 0;
    return ::read(event.get(), &value, sizeof value) == sizeof value ? value : 0;
  };
  b->client.send_set_irqs(0x24, 0, 2, {event.get(), event.get()});
  run();
  put<uint16_t>(*a, kRegionBar0, reg::kDoorbellRequest, 1 << 1);
  EXPECT_EQ(count(), 1u);
  put<uint16_t>(*b, kRegionBar0, reg::kDoorbellStatus, 1 << 1);

  b->client.send_set_irqs(0x21, 0, 0);
  run();
  put<uint16_t>(*a, kRegionBar0, reg::kDoorbellRequest, 1 << 1);
  EXPECT_EQ(get(*b, kRegionBar0, AmdModel::kIdentity.msix_pba, 8), 1u << 1);
  EXPECT_EQ(count(), 0u);
  b->client.send_set_irqs(0x24, 0, 2, {event.get(), event.get()});
  run();
  EXPECT_EQ(count(), 1u);
}

class DelayTest : public LinkTest {
 protected:
  void SetUp() override {
    LinkTest::SetUp();
    load_drivers();
    fabric->set_delay(0, 1, milliseconds(20));
  }
};

TEST_F(DelayTest, HoldsWritesDoorbellsAndScratchpadsInOrder) {
  put<uint32_t>(*a, kRegionBar2, 0, 7);
  set_scratchpad(*a, 0, 8);
  put<uint16_t>(*a, kRegionBar0, reg::kDoorbellRequest, 1);
  EXPECT_EQ(scratchpad(*a, 0), 8u) << "its own view is at once";
  advance(milliseconds(19));
  EXPECT_EQ(b->ram.get<uint32_t>(0), 0u);
  EXPECT_EQ(scratchpad(*b, 0), 0u);
  EXPECT_EQ(get(*b, kRegionBar0, reg::kDoorbellStatus, 2), 0u);
  advance(milliseconds(1));
  EXPECT_EQ(b->ram.get<uint32_t>(0), 7u);
  EXPECT_EQ(scratchpad(*b, 0), 8u);
  EXPECT_EQ(get(*b, kRegionBar0, reg::kDoorbellStatus, 2), 1u);
}

TEST_F(DelayTest, AReadTakesTheDelayTwiceAndSeesTheWritesBeforeIt) {
  a->client.post<uint32_t>(kRegionBar2, 0, 7);
  const uint16_t id = begin_read(*a, kRegionBar2, 0);
  advance(milliseconds(39));
  EXPECT_EQ(answer_of(*a, id), std::nullopt);
  advance(milliseconds(1));
  EXPECT_EQ(answer_of(*a, id), 7u);
}

TEST_F(DelayTest, AWriteBehindAnUnmapOnItsWayIsNotDone) {
  put<uint32_t>(*a, kRegionBar2, 0, 7);
  b->client.send_unmap(Host::kRamBus, Host::kRamSize);
  advance(milliseconds(20));
  EXPECT_EQ(b->ram.get<uint32_t>(0), 0u);
}

TEST_F(DelayTest, LosingTheLinkLosesWhatIsUnderWay) {
  put<uint32_t>(*a, kRegionBar2, 0, 7);
  put<uint32_t>(*a, kRegionBar2, 4, 7);
  const uint16_t id = begin_read(*a, kRegionBar2, 0);
  fabric->set_link(0, 1, false);
  EXPECT_EQ(answer_of(*a, id), kOnes);
  fabric->set_link(0, 1, true);
  advance(milliseconds(100));
  EXPECT_EQ(b->ram.get<uint32_t>(0), 0u);
  EXPECT_EQ(lost_writes(1, 2, Loss::LinkDown), 2u);
  EXPECT_EQ(lost_reads(1, 2, Loss::LinkDown), 1u);
}

TEST_F(DelayTest, LosingTheLinkLosesAnswersUnderWay) {
  const uint16_t id = begin_read(*a, kRegionBar2, 0);
  advance(milliseconds(30));
  fabric->set_link(0, 1, false);
  EXPECT_EQ(answer_of(*a, id), kOnes);
}

TEST_F(DelayTest, AHostThatDiesIsNotDeliveredTo) {
  put<uint32_t>(*a, kRegionBar2, 0, 7);
  const uint16_t id = begin_read(*a, kRegionBar4, 0);
  power_off(2, 1);
  EXPECT_EQ(answer_of(*a, id), kOnes);
  advance(milliseconds(100));
}

TEST_F(DelayTest, AReaderThatDiesIsNotAnswered) {
  begin_read(*a, kRegionBar2, 0);
  advance(milliseconds(30));
  power_off(1, 2);
  a = &boot(1, 2);
  advance(milliseconds(100));
  a->drain();
  EXPECT_TRUE(a->inbox.empty());
}

TEST_F(DelayTest, TakingTheDelayAwayKeepsTheOrder) {
  put<uint32_t>(*a, kRegionBar2, 0, 1);
  fabric->set_delay(0, 1, milliseconds(0));
  put<uint32_t>(*a, kRegionBar2, 0, 2);
  EXPECT_EQ(b->ram.get<uint32_t>(0), 0u);
  advance(milliseconds(20));
  EXPECT_EQ(b->ram.get<uint32_t>(0), 2u);
  put<uint32_t>(*a, kRegionBar2, 0, 3);
  EXPECT_EQ(b->ram.get<uint32_t>(0), 3u);
}

TEST_F(DelayTest, TheLongestDelayStaysBelowTheReadTimeout) {
  fabric->set_delay(0, 1, milliseconds(kMaxDelayMs));
  const uint16_t id = begin_read(*a, kRegionBar4, 0);
  advance(milliseconds(kMaxDelayMs));
  b->client.answer(*b->take_request(Command::DmaRead), value_bytes<uint32_t>(1));
  run();
  advance(milliseconds(kMaxDelayMs));
  EXPECT_EQ(answer_of(*a, id), 1u);
}

}  // namespace
}  // namespace pcilend::fabric
