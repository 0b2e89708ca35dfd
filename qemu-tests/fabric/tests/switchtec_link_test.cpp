// SPDX-License-Identifier: GPL-2.0-or-later
// Two hosts at the ends of a Switchtec: what its registers do to windows, doorbells and the link.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/pci_regs.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "control.h"
#include "switchtec_registers.h"
#include "tests/fabric_lab.h"

namespace pcilend::fabric::test {
namespace {

constexpr uint64_t kOnes = 0xffffffff;
constexpr uint64_t kLutBytes = 64 << 10;

class SwitchtecLinkTest : public FabricLab {
 protected:
  void SetUp() override {
    FabricOptions options;
    options.products = {Product::Switchtec};
    make(2, options);
    a = &boot(1, 2);
    b = &boot(2, 1);
  }

  // As FabricLab::boot(), which opens AMD's windows.
  Host& boot(size_t from, size_t to) {
    Host& host = connect(from, to);
    const uint16_t id = host.client.send_map(Host::kRamBus, Host::kRamSize, host.ram.fd());
    put<uint16_t>(host, kRegionConfig, PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
    EXPECT_TRUE(host.take_reply(Command::DmaMap, id));
    const uint32_t port = gas::kPorts + gas::kPortLinkEvent;
    for (uint32_t i = 0; i < 4; i++) put<uint32_t>(host, kRegionBar0, port + 0x1000 * i, 9);
    return host;
  }
  // The host of `partition` shows its RAM through entry 0 of the other's look-up table.
  void share(Host& host, uint32_t partition) {
    const uint32_t peer = gas::kControl + 0x2000 * (1 - partition);
    put<uint32_t>(host, kRegionBar0, peer + gas::kOperation, gas::kLock);
    put<uint32_t>(host, kRegionBar0, peer + gas::kBars + 32, gas::kBarLut | 16 << 8 | 511u << 14);
    put<uint64_t>(host, kRegionBar0, peer + gas::kLut, Host::kRamBus | partition << 1 | 1);
    put<uint32_t>(host, kRegionBar0, peer + gas::kOperation, gas::kConfigure);
  }
  uint32_t link_events(Host& host, uint32_t partition) {
    return static_cast<uint32_t>(get(host, kRegionBar0,
                                     gas::kPorts + 0x2000 * (1 - partition) + gas::kPortLinkEvent,
                                     4)) >>
           gas::kEventCounter;
  }
  // Gives the host the vectors that its drivers use.
  void take_interrupts(Host& host) {
    std::vector<int> fds;
    for (int i = 0; i < 4; i++) fds.push_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    host.client.send_set_irqs(0x24, 0, 4, fds);
    run();
    for (const int fd : fds) ::close(fd);
  }

  Host* a = nullptr;
  Host* b = nullptr;
};

TEST_F(SwitchtecLinkTest, IsASwitchtec) {
  EXPECT_EQ(get(*a, kRegionConfig, 0, 4), 0x400011f8u);
  EXPECT_EQ(get(*a, kRegionConfig, PCI_CLASS_DEVICE, 2), 0x0680u);
  EXPECT_EQ(get(*a, kRegionBar0, gas::kPartitionId, 1), 0u);
  EXPECT_EQ(get(*b, kRegionBar0, gas::kPartitionId, 1), 1u);
}

TEST_F(SwitchtecLinkTest, SharedMemoryIsReachedThroughTheTable) {
  share(*a, 0);
  a->ram.put<uint32_t>(0x40, 0x12345678);
  EXPECT_EQ(get(*b, kRegionBar2, 0x40, 4), 0x12345678u);
  put<uint32_t>(*b, kRegionBar2, 0x44, 7);
  EXPECT_EQ(a->ram.get<uint32_t>(0x44), 7u);
  EXPECT_EQ(get(*b, kRegionBar2, kLutBytes, 4), kOnes) << "the second entry is closed";
  EXPECT_EQ(get(*a, kRegionBar2, 0, 4), kOnes) << "so is the other direction";
  EXPECT_EQ(get(*b, kRegionBar4, 0, 4), kOnes);
}

TEST_F(SwitchtecLinkTest, ALostLinkIsToldAndReadsAsOnes) {
  share(*a, 0);
  const uint32_t before = link_events(*b, 1);
  fabric->set_link(0, 1, false);
  EXPECT_EQ(link_events(*b, 1), before + 1);
  EXPECT_EQ(get(*b, kRegionBar2, 0, 4), kOnes);
  fabric->set_link(0, 1, true);
  EXPECT_EQ(link_events(*b, 1), before + 2);
  EXPECT_NE(get(*b, kRegionBar2, 0, 4), kOnes);
}

TEST_F(SwitchtecLinkTest, ItTrainsAgainOnceBothHaveReadTheirEvents) {
  take_interrupts(*a);
  std::ignore = link_events(*a, 0);
  fabric->set_link(0, 1, false);
  fabric->set_link(0, 1, true);
  EXPECT_FALSE(fabric->link(0, 1).up) << "host1 takes interrupts and is late";
  std::ignore = link_events(*a, 0);
  EXPECT_TRUE(fabric->link(0, 1).up);
}

TEST_F(SwitchtecLinkTest, ItStaysUpWhileNobodyHasReadThatItIs) {
  for (Host* host : {a, b}) take_interrupts(*host);
  fabric->set_link(0, 1, false);
  fabric->set_link(0, 1, true);
  std::ignore = link_events(*a, 0);
  EXPECT_FALSE(fabric->link(0, 1).up);
  std::ignore = link_events(*b, 1);
  EXPECT_TRUE(fabric->link(0, 1).up);
  take_interrupts(*a);
  EXPECT_TRUE(fabric->link(0, 1).up);
  std::ignore = link_events(*b, 1);
  EXPECT_TRUE(fabric->link(0, 1).up);
}

TEST_F(SwitchtecLinkTest, WhoTakesNoInterruptsIsNotWaitedFor) {
  take_interrupts(*a);
  std::ignore = link_events(*a, 0);
  fabric->set_link(0, 1, false);
  fabric->set_link(0, 1, true);
  EXPECT_FALSE(fabric->link(0, 1).up);
  a->client.send_set_irqs(0x21, 0, 0);
  run();
  EXPECT_TRUE(fabric->link(0, 1).up);
}

TEST_F(SwitchtecLinkTest, DoorbellsAndMessagesCross) {
  const uint32_t own = gas::kDoorbellsMessages;
  const uint32_t peers = own + 0x4000;
  put<uint64_t>(*a, kRegionBar0, own + gas::kOutMask, 0xfull << 32);
  put<uint64_t>(*a, kRegionBar0, own + gas::kOutDoorbells, 1ull << 32);
  EXPECT_EQ(get(*b, kRegionBar0, peers + gas::kInDoorbells, 8), 1ull << 32);
  put<uint32_t>(*a, kRegionBar0, own + gas::kOutMessages, 3);
  EXPECT_EQ(get(*b, kRegionBar0, peers + gas::kInMessages, 8), 3 | 1ull << 32)
      << "the map at power-on is that of partition 0's first";
  put<uint64_t>(*b, kRegionBar0, peers + gas::kInDoorbells, UINT64_MAX);
  fabric->set_link(0, 1, false);
  put<uint64_t>(*a, kRegionBar0, own + gas::kOutDoorbells, 2ull << 32);
  fabric->set_link(0, 1, true);
  EXPECT_EQ(get(*b, kRegionBar0, peers + gas::kInDoorbells, 8), 0u) << "lost with the link";
}

TEST_F(SwitchtecLinkTest, AMessageIsDeliveredByCommand) {
  nlohmann::json told;
  const auto order = [&](const char* request) {
    carry_out(*fabric, request, [&](const auto& answer) { told = answer; });
    return told["ok"] == true;
  };
  EXPECT_TRUE(order(R"({"op":"message","from":"host1","to":"host2","value":4})")) << told;
  EXPECT_EQ(get(*b, kRegionBar0, gas::kDoorbellsMessages + 0x4000 + gas::kInMessages, 8),
            4 | 1ull << 32);
  EXPECT_FALSE(order(R"({"op":"message","from":"host1","to":"host2","value":"4"})"));
  EXPECT_FALSE(order(R"({"op":"message","from":"host1","to":"host2","value":4294967296})"));
  EXPECT_FALSE(order(R"({"op":"message","from":"host1","to":"host1","value":4})"));
}

TEST_F(SwitchtecLinkTest, StatusNamesRequesters) {
  const uint32_t own = gas::kControl;
  put<uint32_t>(*a, kRegionBar0, own + gas::kOperation, gas::kLock);
  put<uint32_t>(*a, kRegionBar0, own + gas::kRequesters, 0x0180 << 16 | 1);
  put<uint32_t>(*a, kRegionBar0, own + gas::kOperation, gas::kConfigure);
  nlohmann::json status;
  carry_out(*fabric, R"({"op":"status"})", [&](const auto& answer) { status = answer; });
  EXPECT_EQ(status["adapters"][0]["requesters"],
            nlohmann::json::parse(R"([{"id":"01:10.0","proxy":"01.0"}])"));
  EXPECT_EQ(status["adapters"][1]["requesters"], nlohmann::json::array());
}

// A function's reads end in guests' memory, a processor's do not.
TEST_F(SwitchtecLinkTest, ReadsOfFunctionsThatAreNotInTheTableAreRefused) {
  constexpr uint64_t kGuest = 8ull << 30;
  const uint32_t id_of_guest = b->client.send_map(kGuest, Host::kRamSize, b->ram.fd());
  run();
  std::ignore = id_of_guest;
  b->ram.put<uint32_t>(0x40, 7);
  put<uint32_t>(*b, kRegionBar0, gas::kControl + gas::kOperation, gas::kLock);
  put<uint32_t>(*b, kRegionBar0, gas::kControl + gas::kBars + 64, gas::kBarDirect);
  put<uint32_t>(*b, kRegionBar0, gas::kControl + gas::kBars + 64 + gas::kBarSize, 20 | 1 << 20);
  put<uint64_t>(*b, kRegionBar0, gas::kControl + gas::kBars + 64 + gas::kBarTarget, kGuest | 1);
  put<uint32_t>(*b, kRegionBar0, gas::kControl + gas::kOperation, gas::kConfigure);
  ASSERT_EQ(get(*a, kRegionBar4, 0x40, 4), 7u);

  const auto order = [&](const char* what) {
    nlohmann::json told;
    carry_out(*fabric,
              fmt::format(R"({{"op":"requesters","host":"host1","peer":"host2",{}}})", what),
              [&](const auto& answer) { told = answer; });
    EXPECT_EQ(told["ok"], true) << told;
  };
  order(R"("strict":true)");
  EXPECT_EQ(get(*a, kRegionBar4, 0x40, 4), kOnes);
  EXPECT_EQ(lost_reads(1, 2, Loss::Requester), 1u);
  order(R"("full":true)");
  EXPECT_EQ(get(*a, kRegionBar4, 0x40, 4), kOnes) << "those are nobody's here";
  EXPECT_EQ(fabric->adapter(0, 1).model().requesters().size(),
            SwitchtecRegisters::kRequesterEntries);
  order(R"("full":false)");
  EXPECT_TRUE(fabric->adapter(0, 1).model().requesters().empty());
  put<uint32_t>(*a, kRegionBar0, gas::kControl + gas::kOperation, gas::kLock);
  put<uint32_t>(*a, kRegionBar0, gas::kControl + gas::kRequesters, 0x0080 << 16 | 1);
  put<uint32_t>(*a, kRegionBar0, gas::kControl + gas::kOperation, gas::kConfigure);
  EXPECT_EQ(get(*a, kRegionBar4, 0x40, 4), 7u);
}

TEST_F(SwitchtecLinkTest, AHostThatDiesLosesItsWindows) {
  share(*b, 1);
  EXPECT_NE(get(*a, kRegionBar2, 0, 4), kOnes);
  power_off(2, 1);
  EXPECT_EQ(get(*a, kRegionBar2, 0, 4), kOnes);
  EXPECT_EQ(get(*a, kRegionBar0, gas::kControl + gas::kLut, 8), Host::kRamBus | 3)
      << "what it set in the other's partition stays";
  b = &boot(2, 1);
  EXPECT_EQ(get(*a, kRegionBar2, 0, 4), 0u) << "and leads to its memory again";
}

TEST_F(FabricLab, AFabricHasBothProducts) {
  FabricOptions options;
  options.paths = 2;
  options.products = {Product::Amd, Product::Switchtec};
  make(2, options);
  EXPECT_EQ(get(connect(1, 2, 1), kRegionConfig, 0, 4), 0x148b1022u);
  EXPECT_EQ(get(connect(2, 1, 2), kRegionConfig, 0, 4), 0x400011f8u);
}

}  // namespace
}  // namespace pcilend::fabric::test
