// SPDX-License-Identifier: GPL-2.0-or-later
// A borrowed function in the hands of a plain user of VFIO (qemu-tests/vfio), which is not QEMU.
#include <linux/pci_regs.h>
#include <linux/vfio.h>

#include <algorithm>
#include <fstream>

#include "testing/swept.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using nlohmann::json;

constexpr const char* kClient = "/usr/lib/pcilend-lab/vfio-client";

// The USB controllers have 16 interrupts each: MSI-X and INTx; MSI and INTx.
class VfioClient : public TwoHosts {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(TwoHosts::SetUp());
    ASSERT_OK(lender().run(fmt::format("pcilend connect {}", borrower().node())));
  }

  void TearDown() override {
    if (!lab_) return;
    if (!uuid_.empty()) {
      const auto removed = borrower().exec(
          fmt::format("d=/sys/bus/mdev/devices/{}; [ ! -e $d ] || echo 1 >$d/remove", uuid_));
      EXPECT_OK(removed);
    }
    EXPECT_OK(lender().exec("pcilend unavailable --force " + address_));
    EXPECT_OK(lender().exec("pcilend remove " + address_));
    TwoHosts::TearDown();
  }

  // Lends that device of host1.
  void share(const std::string& device) {
    const auto address = lender().address(device);
    ASSERT_OK(address);
    address_ = *address;
    const auto offered = offer(lender(), address_);
    ASSERT_OK(offered);
    id_ = offered->at("id");
    uuid_ = offered->at("uuid");
    ASSERT_NO_FATAL_FAILURE(expect_state(borrower(), "available"));
  }
  // Has host2 make a mediated device of that UUID: of the function, or of that type of the adapter.
  [[nodiscard]] std::string make_device(const std::string& uuid) const {
    return fmt::format(
        "echo {} >/sys/bus/pcilend/devices/{}/mdev_supported_types/pcilend-function/create", uuid,
        id_);
  }
  static std::string kind(const std::string& name) {
    return "/sys/bus/pci/drivers/pcilend_mdev/*/mdev_supported_types/pcilend_mdev-" + name;
  }
  static std::string make_of_kind(const std::string& name, const std::string& uuid) {
    return fmt::format("echo {} >$(echo {})/create", uuid, kind(name));
  }
  static std::string remove_device(const std::string& uuid) {
    return fmt::format("echo 1 >/sys/bus/mdev/devices/{}/remove", uuid);
  }
  // Lends that device of host1; host2 has a mediated device of it, which has borrowed it.
  void lend(const std::string& device) {
    ASSERT_NO_FATAL_FAILURE(share(device));
    ASSERT_OK(borrower().run(make_device(uuid_)));
  }
  // Lends that device of host1 to a domain of host2, for VFIO.
  void lend_to_a_domain(const std::string& device) {
    ASSERT_NO_FATAL_FAILURE(share(device));
    ASSERT_OK(borrower().run(
        "pcilend borrow --frontend vfio --owner 5ca1ab1e-0000-4000-8000-000000000001 " + id_));
  }
  // Its PCI address there.
  [[nodiscard]] Result<std::string> place_on_borrower() const {
    const auto function = function_on(borrower(), id_);
    if (!function) return tl::unexpected(function.error());
    return function->at("virtual_bdf").get<std::string>();
  }
  // It is borrowed on host2, by that one.
  void expect_owner(const std::string& owner) const {
    const auto function = function_on(borrower(), id_);
    ASSERT_OK(function);
    EXPECT_EQ(function->at("state"), "borrowed");
    EXPECT_EQ(function->at("frontend"), "vfio");
    EXPECT_EQ(function->at("owner"), owner);
  }
  // How many mediated devices of that kind host2 can make.
  void expect_available(const std::string& name, const std::string& count) const {
    EXPECT_OK(
        borrower().until(fmt::format("[ $(cat {}/available_instances) = {} ]", kind(name), count)));
  }

  void expect_state(const lab::Host& host, const std::string& state) const {
    EXPECT_OK(await_state(host, id_, state));
  }

  [[nodiscard]] std::string client(const std::string& command) const {
    return fmt::format("{} {} {}", kClient, uuid_, command);
  }
  // A client that goes on, and has said that it is ready.
  void start_client(const std::string& command, std::optional<lab::Running>* client) const {
    auto running = borrower().start(this->client(command));
    ASSERT_OK(running);
    client->emplace(std::move(*running));
    ASSERT_OK(await_words(**client, "\"ready\":true"));
  }
  static Result<> await_words(const lab::Running& client, const std::string& words) {
    return lab::eventually("the client says " + words, lab::kPatience,
                           [&] { return client.output_so_far().find(words) != std::string::npos; });
  }

  std::string address_;
  std::string id_;
  std::string uuid_;
};

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ client: what regions and interrupts are there?
 *
 * What it says is what the lender's own kernel and `pcilend lspci --emulated` say.
 */
TEST_F(VfioClient, TheDeviceIsWhatPcilendShows) {
  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  const auto shown = lender().json("pcilend lspci --emulated --json " + id_);
  ASSERT_OK(shown);
  const json& function = shown->at("functions").at(0);
  const auto said = borrower().json(client("info"));
  ASSERT_OK(said);
  // But for where it is on the borrower, that VFIO has switched it on, and Device Control, of which
  // the borrower's kernel sets some.
  const auto without_place = [](const json& config) {
    auto digits = config.get<std::string>();
    for (const auto& [begin, end] : {std::pair{PCI_COMMAND, PCI_STATUS},
                                     {PCI_BASE_ADDRESS_0, PCI_CARDBUS_CIS},
                                     {PCI_ROM_ADDRESS, PCI_CAPABILITY_LIST},
                                     {0x80 + PCI_EXP_DEVCTL, 0x80 + PCI_EXP_DEVSTA}})
      std::fill(digits.begin() + 2 * begin, digits.begin() + 2 * end, '0');
    return digits;
  };
  EXPECT_EQ(without_place(said->at("config")), without_place(function.at("config")));
  EXPECT_EQ(said->at("flags"), VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET);
  EXPECT_EQ(said->at("num_regions"), VFIO_PCI_NUM_REGIONS);
  EXPECT_EQ(said->at("num_irqs"), VFIO_PCI_NUM_IRQS);

  const auto size = lender().run(fmt::format(
      "set -- $(head -n 1 /sys/bus/pci/devices/{}/resource); echo $(($2 - $1 + 1))", address_));
  ASSERT_OK(size);
  constexpr uint32_t kReadWrite = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
  const auto region = [](int index, uint32_t flags, uint64_t bytes,
                         const json& capabilities = json::array()) {
    return json{
        {"index", index}, {"flags", flags}, {"size", bytes}, {"capabilities", capabilities}};
  };
  json regions = json::array();
  regions.push_back(region(VFIO_PCI_BAR0_REGION_INDEX,
                           kReadWrite | VFIO_REGION_INFO_FLAG_MMAP | VFIO_REGION_INFO_FLAG_CAPS,
                           std::stoull(*size), {VFIO_REGION_INFO_CAP_MSIX_MAPPABLE}));
  for (int index = VFIO_PCI_BAR1_REGION_INDEX; index <= VFIO_PCI_BAR5_REGION_INDEX; ++index)
    regions.push_back(region(index, 0, 0));
  regions.push_back(region(VFIO_PCI_ROM_REGION_INDEX, VFIO_REGION_INFO_FLAG_READ, kRomBarBytes));
  regions.push_back(region(VFIO_PCI_CONFIG_REGION_INDEX, kReadWrite, 4096));
  EXPECT_EQ(said->at("regions"), regions);

  const auto irq = [](int index, uint32_t flags, int count) {
    return json{{"index", index}, {"flags", VFIO_IRQ_INFO_EVENTFD | flags}, {"count", count}};
  };
  EXPECT_EQ(
      said->at("irqs"),
      json({irq(VFIO_PCI_INTX_IRQ_INDEX, VFIO_IRQ_INFO_MASKABLE | VFIO_IRQ_INFO_AUTOMASKED, 1),
            irq(VFIO_PCI_MSI_IRQ_INDEX, VFIO_IRQ_INFO_NORESIZE, 0),
            irq(VFIO_PCI_MSIX_IRQ_INDEX, 0, 65),
            irq(VFIO_PCI_ERR_IRQ_INDEX, VFIO_IRQ_INFO_NORESIZE, 1),
            irq(VFIO_PCI_REQ_IRQ_INDEX, VFIO_IRQ_INFO_NORESIZE, 1)}));
  expect_owner("mdev:" + uuid_);
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ client: its expansion ROM, and the ROM's BAR
 */
TEST_F(VfioClient, TheExpansionRomIsThatOfTheLender) {
  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  expect_rom(lender().run(read_rom("/sys/bus/pci/devices/" + address_)));
  const auto said = borrower().json(client("rom"));
  ASSERT_OK(said);
  constexpr uint32_t kMask = ~static_cast<uint32_t>(kRomBarBytes - 1);
  EXPECT_EQ(said->at("bar"), json({kMask, 0xfebf8001, 0}));
  std::ifstream file(rom().path(), std::ios::binary);
  std::string expected;
  for (std::istreambuf_iterator<char> at(file), end; at != end; ++at)
    expected += fmt::format("{:02x}", static_cast<unsigned char>(*at));
  expected.resize(2 * kRomBarBytes, 'f');  // as VFIO fills it up
  EXPECT_EQ(said->at("bytes").get<std::string>(), expected);
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   xhci ═════════════════════════ client: no expansion ROM, as there is no image in it
 */
TEST_F(VfioClient, ARomWithoutAnImageIsNotShown) {
  ASSERT_NO_FATAL_FAILURE(lend("msix"));
  EXPECT_NE(lender().log().find("borrowers see no expansion ROM (32 KiB): there is no image"),
            std::string::npos);
  const auto none = borrower().json(client("rom"));
  ASSERT_OK(none);
  EXPECT_EQ(none->at("bar"), json({0, 0, 0}));
  EXPECT_EQ(none->at("bytes"), "");
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ client: Identify, and its interrupt; reset; once more
 *
 * The queues are in memory below 4 GiB, the data is above, and half of it was mapped later.
 */
TEST_F(VfioClient, DmaAndResetWork) {
  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  const auto said = borrower().json(client("nvme"));
  ASSERT_OK(said);
  EXPECT_EQ(said->at("serials"), json(std::vector<std::string>(12, kSerial)));
  EXPECT_EQ(said->at("stopped"), json::array({true, true}));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ client: has it write to its memory, and all around that
 *
 * What the client has mapped is written to, and nothing else on either host.
 */
TEST_F(VfioClient, AFunctionReachesItsUsersMemoryAndNothingElse) {
  expect_in_log("^DMAR: DRHD: handling fault status reg");
  expect_in_log(
      "^DMAR: \\[DMA Write NO_PASID\\] Request device \\[(0000:)?00:(10|04)\\.0\\] fault ");
  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  uint64_t strays = 0;
  const auto run = [&](const char* command) {
    EXPECT_OK(lab_->fabric().counters(true));
    const auto said = borrower().json(client(command));
    EXPECT_OK(said);
    const auto counters = lab_->fabric().counters();
    EXPECT_OK(counters);
    if (!said || !counters) return lab::PathCounters();
    EXPECT_EQ(said->at("serials"), json({kSerial, kSerial}));
    strays = said->at("strays");
    return counters->path(1, 2);
  };
  const auto stayed = run("stay");
  ASSERT_EQ(strays, 0U);
  EXPECT_GT(stayed.memory.write_bytes, 8192U);
  const auto strayed = run("stray");
  ASSERT_GT(strays, 250U);
  // Each command that went astray has raised an interrupt, and written its completion of 16 bytes.
  // The lender's heartbeats are some bytes more, or less; a page would be too much.
  EXPECT_EQ(strayed.interrupt.writes, stayed.interrupt.writes + strays);
  EXPECT_LT(strayed.memory.write_bytes, stayed.memory.write_bytes + 16 * strays + 4096);
  // Near to its user's memory it is the borrower's IOMMU that stops it, elsewhere the lender's.
  EXPECT_GT(strayed.dropped_writes, 0U);
  EXPECT_EQ(strayed.bar.writes, strayed.dropped_writes);
  EXPECT_NE(borrower().log().find("DMA Write NO_PASID"), std::string::npos);
  EXPECT_NE(lender().log().find("DMA Write NO_PASID"), std::string::npos);
}

/*
 *   host1 (lender) <── reads all of it ── host2 (borrower)
 *   nvme ════════════════════════════════ client, with two pages of memory
 *   host1 (lender) ── reads all of it ──> host2 (borrower)
 */
TEST_F(VfioClient, APeerReachesWhatIsLentAndNoPageMore) {
  for (const char* fault : kSweepFaults) expect_in_log(fault);
  expect_stopped_accesses();
  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  const auto idle = function_on(borrower(), id_);
  ASSERT_OK(idle);
  expect_reach(*lab_, "not in use", bar_bytes(*idle), 0);
  std::optional<lab::Running> running;
  ASSERT_NO_FATAL_FAILURE(start_client("look", &running));
  const auto used = function_on(borrower(), id_);
  ASSERT_OK(used);
  EXPECT_EQ(used->at("guest_bytes"), 8192);
  expect_reach(*lab_, "in use", bar_bytes(*used), used->at("guest_bytes"));
  ASSERT_OK(lender().run("pcilend unavailable --force " + address_));
  ASSERT_NO_FATAL_FAILURE(expect_state(borrower(), "added"));
  ASSERT_OK(running->wait());
  expect_reach(*lab_, "revoked", 0, 0);
}

/*
 *   host1 (lender)                  host2 (borrower)
 *   xhci ══ messages ═════════════ a domain's: into the interrupt controller
 *   nvme ── message ── pcilend ══ relayed ══ another tenant's: it reaches none of that
 *
 * Interrupt remapping takes both for the adapter, so only one of them may reach it.
 */
TEST_F(VfioClient, AnotherTenantOfTheAdapterDoesNotReachItsInterrupts) {
  expect_in_log("^DMAR: DRHD: handling fault status reg");
  expect_in_log(
      "^DMAR: \\[DMA Write NO_PASID\\] Request device \\[(0000:)?00:10\\.0\\] fault addr 0xfe000");
  const auto relayed = [&](const lab::Host& host) {
    const auto function = function_on(host, id_);
    EXPECT_OK(function);
    return function && function->at("relayed") == true;
  };
  const auto messages = [&](const std::string& command) {
    EXPECT_OK(lab_->fabric().counters(true));
    EXPECT_OK(borrower().run(command));
    const auto counters = lab_->fabric().counters();
    EXPECT_OK(counters);
    return counters ? counters->path(1, 2).interrupt.writes : 0;
  };
  ASSERT_NO_FATAL_FAILURE(lend_to_a_domain("msix"));
  const std::string first = address_;
  const std::string first_id = id_;
  EXPECT_FALSE(relayed(borrower()));
  const auto place = place_on_borrower();
  ASSERT_OK(place);

  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  EXPECT_TRUE(relayed(borrower()));
  EXPECT_TRUE(relayed(lender()));
  EXPECT_OK(borrower().run("dmesg | grep 'another tenant has functions over 0000:00:04.0'"));
  EXPECT_EQ(messages(client("write-interrupts")), 0U);
  EXPECT_NE(lender().log().find("fault addr 0xfe000"), std::string::npos);
  EXPECT_GT(messages(fmt::format("{} {} msix", kClient, *place)), 0U);

  ASSERT_OK(borrower().run("pcilend return --force " + first_id));
  ASSERT_OK(lender().run(fmt::format("pcilend unavailable {0} && pcilend remove {0}", first)));
  EXPECT_TRUE(relayed(borrower())) << "until it is borrowed anew";
  ASSERT_OK(borrower().run(remove_device(uuid_)));
  ASSERT_OK(borrower().run(make_device(uuid_)));
  EXPECT_FALSE(relayed(borrower()));
  EXPECT_GT(messages(client("nvme")), 0U);
}

/*
 *   host1 (lender)                  host2 (borrower)
 *   xhci ═════════════════════════ a domain's: it reaches the interrupt controller
 *   xhci (MSI) ── pcilend ════════ client: a single MSI, three, after a reset, all 16: relayed
 */
TEST_F(VfioClient, RelayedMsiInAllForms) {
  ASSERT_NO_FATAL_FAILURE(lend_to_a_domain("msix"));
  const std::string first = address_;
  const std::string first_id = id_;
  ASSERT_NO_FATAL_FAILURE(share("msi"));
  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + id_));
  const auto place = place_on_borrower();
  ASSERT_OK(place);
  EXPECT_OK(lab_->fabric().counters(true));
  for (int i = 0; i < 3; ++i) EXPECT_OK(borrower().run(fmt::format("{} {} msi", kClient, *place)));
  const auto counters = lab_->fabric().counters();
  ASSERT_OK(counters);
  EXPECT_EQ(counters->path(1, 2).interrupt.writes, 0U);
  ASSERT_OK(borrower().run("pcilend return " + id_));
  EXPECT_OK(lender().run("! grep pcilend-relay /proc/interrupts"));
  ASSERT_OK(borrower().run("pcilend return --force " + first_id));
  ASSERT_OK(lender().run(fmt::format("pcilend unavailable {0} && pcilend remove {0}", first)));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   xhci ═════════════════════════ client: MSI-X, grown, shrunk, after a reset, all 16; then INTx,
 *                                  masked and unmasked by itself, by calls, by an eventfd
 */
TEST_F(VfioClient, MsixAndIntxInAllForms) {
  ASSERT_NO_FATAL_FAILURE(lend("msix"));
  // Its lender can reset it by the bridge above only, whose lock that takes: the kernel would say
  // so.
  EXPECT_OK(
      lender().run(fmt::format("grep -x bus /sys/bus/pci/devices/{}/reset_method", address_)));
  EXPECT_OK(borrower().run(client("msix")));
  EXPECT_OK(borrower().run(client("intx")));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   xhci ═════════════════════════ client: a single MSI, three, after a reset, all 16; then INTx
 */
TEST_F(VfioClient, MsiInAllForms) {
  ASSERT_NO_FATAL_FAILURE(lend("msi"));
  EXPECT_OK(borrower().run(client("msi")));
  EXPECT_OK(borrower().run(client("intx")));
}

/*
 *   host1 (lender)                  host2 (borrower)
 *   unavailable --grace 90 ───────> client is asked, and closes the device
 *   mdev is removed ──────────────> the same
 */
TEST_F(VfioClient, AClientThatIsAskedLetsGo) {
  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  std::optional<lab::Running> running;
  ASSERT_NO_FATAL_FAILURE(start_client("let-go", &running));
  ASSERT_OK(borrower().run(remove_device(uuid_)));
  auto ended = running->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "available"));

  ASSERT_OK(borrower().run(make_device(uuid_)));
  ASSERT_NO_FATAL_FAILURE(start_client("let-go", &running));
  const auto start = std::chrono::steady_clock::now();
  ASSERT_OK(lender().run("pcilend unavailable --grace 90 " + address_));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(90)) << "taken";
  ended = running->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "added"));
}

/*
 *   host1 (lender)
 *   client has the drive, by its own kernel's vfio-pci: it is not taken from it, and nobody waits
 */
TEST_F(VfioClient, WhatItsLenderUsesThroughVfioIsNotTaken) {
  const auto address = lender().address("msi");
  ASSERT_OK(address);
  address_ = *address;
  const std::string device = "/sys/bus/pci/devices/" + address_;
  ASSERT_OK(lender().run(fmt::format(
      "modprobe vfio-pci && echo vfio-pci >{0}/driver_override && echo {1} >{0}/driver/unbind; "
      "echo {1} >/sys/bus/pci/drivers_probe && pcilend add {1}",
      device, address_)));
  // By the kernel's own vfio-pci, which does not lock the bridge.
  expect_in_log("unlocked secondary bus reset via: __pci_reset_function_locked");
  auto client = lender().start(fmt::format("{} {} let-go", kClient, address_));
  ASSERT_OK(client);
  ASSERT_OK(await_words(*client, "\"ready\":true"));
  for (const char* force : {"", "--force "}) {
    const auto refused = lender().exec(fmt::format("pcilend available {}{}", force, address_));
    ASSERT_OK(refused);
    EXPECT_EQ(refused->code, static_cast<int>(ErrorClass::State));
    EXPECT_NE(refused->err.find("another user of VFIO has it (vfio-client (pid "),
              std::string::npos)
        << refused->err;
  }
  // What asks the client to let go is the driver that is taken from it.
  ASSERT_OK(lender().run(fmt::format("echo {1} >{0}/driver/unbind", device, address_)));
  const auto ended = client->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  ASSERT_OK(
      lender().run(fmt::format("echo >{0}/driver_override; echo {1} "
                               ">/sys/bus/pci/drivers_probe",
                               device, address_)));
}

/*
 *   host1 (lender)                  host2 (borrower)
 *   unavailable --grace 3 ────────> client is asked, and goes on with the device
 *   taken when the time is over     all it reads is all-ones; it lives
 */
TEST_F(VfioClient, WhatIsHeldTooLongIsTaken) {
  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  // It does not know at once that the drive was taken: what it does until then is stopped by the
  // lender's IOMMU, as faults of the adapter (00:04.0) in the export region.
  expect_in_log("DMAR: DRHD: handling fault status reg");
  expect_in_log(
      R"(DMAR: \[DMA (Read|Write) NO_PASID\] Request device \[(0000:)?00:04\.0\] fault addr 0x100[0-9a-f]{8} )");
  std::optional<lab::Running> running;
  ASSERT_NO_FATAL_FAILURE(start_client("hold", &running));
  ASSERT_OK(lender().run("pcilend unavailable --grace 3 " + address_));
  const auto ended = running->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  std::istringstream lines(ended->out);
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  EXPECT_EQ(json::parse(line), json({{"asked", true}, {"serial", kSerial}}));
  std::getline(lines, line);
  EXPECT_EQ(json::parse(line), json({{"mapped", 0xffffffff},
                                     {"read", 0xffffffff},
                                     {"rom", 0xffffffff},
                                     {"config", true},
                                     {"interrupts", "ENODEV"},
                                     {"reset", "ENODEV"}}));
  ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "added"));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ client is killed with the drive started; another one comes;
 *                                  the mediated device goes
 */
TEST_F(VfioClient, AClientThatIsKilledGivesItBack) {
  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  std::optional<lab::Running> running;
  ASSERT_NO_FATAL_FAILURE(start_client("hold", &running));
  ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "borrowed"));
  const auto second = borrower().exec(client("info"));
  ASSERT_OK(second);
  EXPECT_NE(second->err.find("busy"), std::string::npos) << second->err;
  ASSERT_OK(borrower().run("pkill -KILL -x vfio-client"));
  ASSERT_OK(running->wait());
  const auto said = borrower().json(client("nvme"));
  ASSERT_OK(said);
  EXPECT_EQ(said->at("serials").size(), 12U);
  expect_owner("mdev:" + uuid_);
  ASSERT_OK(borrower().run(remove_device(uuid_)));
  ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "available"));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ client by the function's PCI address; with the kernel's vfio-pci
 *
 * It is where `pcilend list` has said, for the client alone, and back with the lender afterwards.
 */
TEST_F(VfioClient, AnyUserOfVfioHasItByItsPciAddress) {
  ASSERT_NO_FATAL_FAILURE(share("nvme"));
  const auto place = borrower().run("pcilend list -n -o address | tr -d '\\n'");
  ASSERT_OK(place);
  EXPECT_EQ(*place, "8004:01:00.0");
  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + id_));
  ASSERT_OK(borrower().until(
      fmt::format("readlink /sys/bus/pci/devices/{}/driver | grep -q /pcilend_vfio$", *place)));
  uuid_ = *place;
  const auto use = [&] {
    const auto said = borrower().json(client("nvme"));
    ASSERT_OK(said);
    EXPECT_EQ(said->at("serials"), json(std::vector<std::string>(12, kSerial)));
    EXPECT_EQ(said->at("stopped"), json::array({true, true}));
  };
  use();
  for (const char* driver : {"vfio-pci", "pcilend_vfio"}) {
    ASSERT_OK(borrower().run(
        fmt::format("modprobe vfio-pci; cd /sys/bus/pci/devices/{} && echo {} >driver_override && "
                    "echo {} >driver/unbind && echo {} >/sys/bus/pci/drivers_probe && "
                    "readlink driver | grep /{}$",
                    *place, driver, *place, *place, driver)));
    use();
  }

  std::optional<lab::Running> running;
  ASSERT_NO_FATAL_FAILURE(start_client("let-go", &running));
  const auto refused = borrower().exec("pcilend return " + id_);
  ASSERT_OK(refused);
  EXPECT_EQ(refused->code, static_cast<int>(ErrorClass::State)) << refused->err;
  ASSERT_OK(lender().run("pcilend unavailable --grace 90 " + address_));
  const auto ended = running->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "added"));
  EXPECT_OK(borrower().run(fmt::format("[ ! -e /sys/bus/pci/devices/{} ]", *place)));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ client by PCI address: its memory, and all around that
 */
TEST_F(VfioClient, ByItsPciAddressItReachesItsUsersMemoryAndNothingElse) {
  expect_in_log("^DMAR: DRHD: handling fault status reg");
  expect_in_log(
      "^DMAR: \\[DMA Write NO_PASID\\] Request device \\[(0000:)?00:(10|04)\\.0\\] fault ");
  ASSERT_NO_FATAL_FAILURE(share("nvme"));
  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + id_));
  uuid_ = "8004:01:00.0";
  const auto said = borrower().json(client("stray"));
  ASSERT_OK(said);
  EXPECT_EQ(said->at("serials"), json({kSerial, kSerial}));
  EXPECT_GT(said->at("strays").get<int>(), 250);
  // Within a granule it is the borrower's IOMMU that stops it, elsewhere the lender's.
  EXPECT_NE(borrower().log().find("DMA Write NO_PASID"), std::string::npos);
  EXPECT_NE(lender().log().find("DMA Write NO_PASID"), std::string::npos);
  ASSERT_OK(borrower().run("pcilend return " + id_));
}

/*
 *   host1 (lender)                      host2 (borrower)
 *   nvme ══════════════════════════════ client, stopped (SIGSTOP)
 *   unavailable --force                 the drive is lost to it, and it can't let go
 *   xhci ══════════════════════════════ another client: at another place of the window
 *                                       the first one goes on: what it reads is all-ones
 */
TEST_F(VfioClient, AStoppedUserReachesNothingOfTheNextLease) {
  expect_in_log("DMAR: DRHD: handling fault status reg");
  expect_in_log(
      R"(DMAR: \[DMA (Read|Write) NO_PASID\] Request device \[(0000:)?00:04\.0\] fault addr 0x100[0-9a-f]{8} )");
  ASSERT_NO_FATAL_FAILURE(share("nvme"));
  const std::string first = address_;
  const std::string first_id = id_;
  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + id_));
  uuid_ = "8004:01:00.0";
  std::optional<lab::Running> stopped;
  ASSERT_NO_FATAL_FAILURE(start_client("look", &stopped));
  ASSERT_OK(borrower().run("pkill -STOP -x vfio-client"));
  ASSERT_OK(lender().run("pcilend unavailable --force " + first));
  EXPECT_OK(
      borrower().until(fmt::format("pcilend list -n -o id,frontend | grep -q '{}.*vfio' && "
                                   "dmesg | grep -q 'its user is asked to let go'",
                                   first_id)));
  const auto busy = borrower().exec("pcilend borrow " + first_id);
  ASSERT_OK(busy);
  EXPECT_NE(busy->code, 0) << "it is still held";

  const auto bar_of = [&](const std::string& place) {
    return borrower().run(fmt::format("head -n 1 /sys/bus/pci/devices/{}/resource", place));
  };
  const auto first_bar = bar_of("8004:01:00.0");
  ASSERT_OK(first_bar);
  ASSERT_NO_FATAL_FAILURE(share("msix"));
  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + id_));
  const auto second = borrower().json("pcilend show --json " + id_);
  ASSERT_OK(second);
  const auto second_bar = bar_of(second->at("functions").at(0).at("virtual_bdf"));
  ASSERT_OK(second_bar);
  EXPECT_NE(first_bar->substr(0, 18), second_bar->substr(0, 18));

  ASSERT_OK(borrower().run("pkill -CONT -x vfio-client"));
  const auto ended = stopped->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  EXPECT_NE(ended->out.find("\"mapped\":4294967295"), std::string::npos) << ended->out;
  EXPECT_OK(borrower().until("[ ! -e /sys/bus/pci/devices/8004:01:00.0 ]"));
  ASSERT_OK(borrower().run("pcilend return " + id_));
  ASSERT_OK(lender().exec("pcilend remove " + first));
}

const json& refusals() {
  static const json answers = {
      {"device info, argsz too small", "EINVAL"},
      {"device info, argsz 0", "EINVAL"},
      {"device info, no memory", "EFAULT"},
      {"region info, argsz too small", "EINVAL"},
      {"region info, argsz 0", "EINVAL"},
      {"region info, no memory", "EFAULT"},
      {"region info, index 9", "EINVAL"},
      {"region info, index 4294967295", "EINVAL"},
      {"irq info, argsz too small", "EINVAL"},
      {"irq info, argsz 0", "EINVAL"},
      {"irq info, no memory", "EFAULT"},
      {"irq info, index 5", "EINVAL"},
      {"irq info, index 4294967295", "EINVAL"},
      {"hot reset info", "ENODEV"},
      {"no such request", "ENOTTY"},

      {"set irqs, argsz too small", "EINVAL"},
      {"set irqs, argsz 0", "EINVAL"},
      {"set irqs, no memory", "EFAULT"},
      {"set irqs, index 5", "EINVAL"},
      {"set irqs, last index", "EINVAL"},
      {"error irq", "0"},  // it never comes
      {"MSI of a function without", "EINVAL"},
      {"not enabled: disable", "EINVAL"},
      {"not enabled: trigger", "EINVAL"},
      {"not enabled: INTx trigger", "EINVAL"},
      {"not enabled: INTx mask", "EINVAL"},
      {"not enabled: INTx unmask", "EINVAL"},
      {"enabled", "0"},
      {"two kinds at once", "EINVAL"},
      {"no data type", "EINVAL"},
      {"two data types", "EINVAL"},
      {"no action", "ENOTTY"},
      {"two actions", "ENOTTY"},
      {"flag of no meaning", "EINVAL"},
      {"mask", "ENOTTY"},
      {"unmask", "ENOTTY"},
      {"start behind the last", "EINVAL"},
      {"count beyond the last", "EINVAL"},
      {"start and count overflow", "EINVAL"},
      {"no eventfds for two", "EINVAL"},
      {"no bytes for one", "EINVAL"},
      {"count 0 with eventfds", "0"},
      {"no eventfd", "EINVAL"},
      {"no fd", "EBADF"},
      {"a vector that has none: trigger", "0"},
      {"disabled", "0"},
      {"INTx enabled", "0"},
      {"INTx, second", "EINVAL"},
      {"INTx, no action", "ENOTTY"},
      {"INTx, two actions", "ENOTTY"},
      {"INTx, count 0 to unmask", "EINVAL"},
      {"INTx, eventfd that masks", "ENOTTY"},
      {"INTx, no eventfd", "EINVAL"},
      {"INTx, no eventfd to unmask", "EINVAL"},
      {"INTx disabled", "0"},
      {"request, no eventfd", "EINVAL"},
      {"request, two", "EINVAL"},
      {"request, mask", "ENOTTY"},

      {"BAR, at its end", "EINVAL"},
      {"BAR, across its end", "3 bytes"},
      {"BAR, behind its end", "EINVAL"},
      {"BAR, write behind its end", "EINVAL"},
      {"BAR, odd", "7 bytes"},
      {"BAR, no memory", "EFAULT"},
      {"BAR, write from no memory", "EFAULT"},
      {"BAR, nothing", "0 bytes"},
      {"config, at its end", "EFAULT"},
      {"config, across its end", "EFAULT"},
      {"config, write across its end", "EFAULT"},
      {"config, behind its end", "EFAULT"},
      {"config, odd", "7 bytes"},
      {"config, no memory", "EFAULT"},
      {"ROM, at its end", "EINVAL"},
      {"ROM, across its end", "3 bytes"},
      {"ROM, behind its end", "EINVAL"},
      {"ROM, odd", "7 bytes"},
      {"ROM, no memory", "EFAULT"},
      {"ROM, write", "EINVAL"},
      {"map, ROM", "EINVAL"},
      {"region 1", "EINVAL"},
      {"region 8", "EINVAL"},
      {"region 9", "EINVAL"},
      {"region 1000", "EINVAL"},
      {"the last offset", "EINVAL"},
      {"a negative offset", "EINVAL"},
      {"map, private", "EINVAL"},
      {"map, behind its end", "EINVAL"},
      {"map, across its end", "EINVAL"},
      {"map, config", "EINVAL"},
      {"map, region 1", "EINVAL"},
      {"map, region 1000", "EINVAL"},

      {"config, write to 0x0", "4 bytes"},
      {"config, write to 0x8", "4 bytes"},
      {"config, write to 0x2c", "4 bytes"},
      {"config, write to 0x34", "4 bytes"},
      {"config, size of a BAR", "0x4000"},
      {"config, all else", "the same"},

      {"DMA map, the same", "EEXIST"},
      {"DMA map, overlap", "EEXIST"},
      {"DMA map, odd", "EINVAL"},
      {"DMA map, nothing", "EINVAL"},
      {"DMA map, neither read nor write", "EINVAL"},
      {"DMA unmap, a part", "EINVAL"},
      {"DMA unmap, odd", "EINVAL"},
      {"DMA unmap, nothing there", "0"},
      {"DMA map, no memory", "EFAULT"},
      {"DMA map, read-only", "0"},
      // For the guest's other functions: a function does not reach its own.
      {"DMA map, its own BAR", "0"},
      {"DMA map, at 0", "0"},
      {"DMA map, where messages go", "EINVAL"},
      {"DMA map, the last page", "EINVAL"},
      {"DMA unmap, no memory", "0"},
      {"DMA unmap, read-only", "0"},
      {"DMA unmap, its own BAR", "0"},
      {"DMA unmap, at 0", "0"},
      {"DMA unmap, where messages go", "0"},
      {"DMA unmap, the last page", "0"},
  };
  return answers;
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ client, by a mediated device of a kind
 *
 * With the UUID of a function it is that one, and never one of another kind; with any other UUID
 * one that is free. A function is one device at a time. The adapter may go under it, and come back.
 */
TEST_F(VfioClient, ADeviceOfAKindIsTheFunctionOfItsUuid) {
  constexpr const char* kOther = "9c2c1b0a-8899-4abb-8cdd-eeff00112233";
  ASSERT_NO_FATAL_FAILURE(share("nvme"));
  expect_available("storage", "1");
  expect_available("network", "0");
  const auto expect_not_made = [&](const std::string& make, const std::string& why) {
    const auto made = borrower().exec(make);
    ASSERT_OK(made);
    EXPECT_NE(made->code, 0);
    EXPECT_OK(borrower().run(fmt::format("dmesg | grep '{}'", why)));
  };
  expect_not_made(make_of_kind("network", uuid_), "is not of kind network");
  expect_not_made(make_of_kind("network", kOther), "no function of kind network is free");
  ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "available"));

  ASSERT_OK(borrower().run(make_of_kind("storage", uuid_)));
  expect_owner("mdev:" + uuid_);
  expect_available("storage", "0");
  expect_not_made(make_device(kOther), "is mediated device " + uuid_ + " already");
  expect_not_made(make_of_kind("storage", kOther), "no function of kind storage is free");
  const auto used = borrower().json(client("nvme"));
  ASSERT_OK(used);
  EXPECT_EQ(used->at("serials").at(0), kSerial);
  std::optional<lab::Running> running;
  ASSERT_NO_FATAL_FAILURE(start_client("let-go", &running));
  ASSERT_OK(borrower().run(remove_device(uuid_)));
  const auto asked = running->wait();
  ASSERT_OK(asked);
  EXPECT_EQ(asked->code, 0) << asked->err;
  ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "available"));
  expect_available("storage", "1");

  ASSERT_OK(borrower().run(make_of_kind("storage", kOther)));
  expect_owner(fmt::format("mdev:{}", kOther));
  EXPECT_OK(borrower().json(fmt::format("{} {} nvme", kClient, kOther)));
  ASSERT_OK(borrower().run(remove_device(kOther)));
  expect_available("storage", "1");

  ASSERT_OK(borrower().run(make_of_kind("storage", uuid_)));
  ASSERT_NO_FATAL_FAILURE(start_client("let-go", &running));
  ASSERT_OK(borrower().run("echo 0000:00:04.0 >/sys/bus/pci/drivers/ntb_hw_amd/unbind"));
  const auto without = running->wait();
  ASSERT_OK(without);
  EXPECT_EQ(without->code, 0) << without->err;
  ASSERT_OK(borrower().run("echo 0000:00:04.0 >/sys/bus/pci/drivers/ntb_hw_amd/bind"));
  ASSERT_OK(borrower().until(fmt::format("[ -e /sys/bus/mdev/devices/{}/iommu_group ]", uuid_),
                             lab::kPatience));
  expect_owner("mdev:" + uuid_);
  EXPECT_OK(borrower().json(client("nvme")));
  ASSERT_OK(borrower().run(remove_device(uuid_)));
  expect_available("storage", "1");
}

/*
 *   host1 (lender)                      host2 (borrower)
 *   nvme: not offered                   its mediated device is made, and waits
 *         available ══════════════════> has it; asked for it, lets go
 *         not offered, available ═════> has it again; loses it by force
 *         available ══════════════════> has it again
 *   reset; available ═════════════════> has it again
 */
TEST_F(VfioClient, ADeviceMadeBeforeItsFunctionIsOfferedGetsIt) {
  ASSERT_NO_FATAL_FAILURE(share("nvme"));
  const auto withdraw = [&] {
    ASSERT_OK(lender().run("pcilend unavailable --grace 90 " + address_));
    ASSERT_OK(lender().run("pcilend remove " + address_));
    ASSERT_OK(borrower().until(fmt::format("! pcilend list -n -o id | grep -q {}", id_)));
  };
  const auto expect_had = [&] {
    ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "borrowed"));
    ASSERT_NO_FATAL_FAILURE(expect_state(borrower(), "borrowed"));
    expect_owner("mdev:" + uuid_);
    ASSERT_OK(borrower().until(fmt::format("[ -e /sys/bus/mdev/devices/{}/iommu_group ]", uuid_)));
    const auto used = borrower().json(client("nvme"));
    ASSERT_OK(used);
    EXPECT_EQ(used->at("serials").at(0), kSerial);
  };
  const auto expect_none = [&] {
    const auto without = borrower().exec(client("info"));
    ASSERT_OK(without);
    EXPECT_NE(without->code, 0);
  };
  ASSERT_NO_FATAL_FAILURE(withdraw());
  ASSERT_OK(borrower().run(make_of_kind("storage", uuid_)));
  EXPECT_OK(borrower().run("dmesg | grep 'waits for its function'"));
  expect_none();
  ASSERT_OK(offer(lender(), address_));
  ASSERT_NO_FATAL_FAILURE(expect_had());

  std::optional<lab::Running> running;
  ASSERT_NO_FATAL_FAILURE(start_client("let-go", &running));
  ASSERT_NO_FATAL_FAILURE(withdraw());
  const auto ended = running->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  expect_none();
  ASSERT_OK(offer(lender(), address_));
  ASSERT_NO_FATAL_FAILURE(expect_had());

  ASSERT_OK(lender().run("pcilend unavailable --force " + address_));
  ASSERT_NO_FATAL_FAILURE(expect_state(borrower(), "added"));
  expect_none();
  ASSERT_OK(lender().run("pcilend available " + address_));
  ASSERT_NO_FATAL_FAILURE(expect_had());

  ASSERT_OK(lender().reset());
  ASSERT_OK(lender().run(fmt::format("pcilend connect --force {}", borrower().node())));
  ASSERT_OK(offer(lender(), address_));
  ASSERT_NO_FATAL_FAILURE(expect_had());
  ASSERT_OK(borrower().run(remove_device(uuid_)));
  ASSERT_NO_FATAL_FAILURE(expect_state(lender(), "available"));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═══════ down ════════════ client: its BAR is memory of host2, and reads all-ones
 *   nvme: reset ══════════════════ the drive is there again, as after a reset
 */
TEST_F(VfioClient, NothingGoesToADriveWhoseLinkIsDown) {
  expect_stopped_accesses();  // from when the link is up until the drive was reset
  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  std::optional<lab::Running> running;
  ASSERT_NO_FATAL_FAILURE(start_client("outlive-link", &running));
  ASSERT_OK(lab_->fabric().link_down(1, 2));
  EXPECT_OK(await_words(*running, R"({"away":true,"read":true,"written":true})"));
  ASSERT_OK(lab_->fabric().link_up(1, 2));
  const auto ended = running->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  EXPECT_NE(ended->out.find(kSerial), std::string::npos) << ended->out;
  EXPECT_OK(borrower().run("dmesg | grep 'was reset by its lender, because the link was lost'"));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ is near the adapter, so that its guests can be put there
 */
TEST_F(VfioClient, AFunctionIsNearItsAdapter) {
  expect_in_log("Overriding NUMA node");
  const std::string adapter = "/sys/bus/pci/devices/0000:00:04.0/numa_node";
  const auto before = borrower().run("cat " + adapter);
  ASSERT_OK(before);
  ASSERT_OK(borrower().run(fmt::format("echo 0 >{}", adapter)));
  ASSERT_NO_FATAL_FAILURE(share("nvme"));
  EXPECT_OK(borrower().run(fmt::format("grep -x 0 /sys/bus/pcilend/devices/{}/numa_node", id_)));
  ASSERT_OK(
      borrower().run(fmt::format("echo {} >{}", before->substr(0, before->find('\n')), adapter)));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ client: all that is wrong; then Identify
 *
 * Each attempt is refused as vfio-pci would, and neither host complains.
 */
TEST_F(VfioClient, BadInputIsRefused) {
  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  const auto said = borrower().json(client("bad-input"));
  ASSERT_OK(said);
  EXPECT_EQ(*said, refusals()) << json::diff(*said, refusals());
  const auto sane = borrower().json(client("nvme"));
  ASSERT_OK(sane);
  EXPECT_EQ(sane->at("serials").size(), 12U);
}

}  // namespace
}  // namespace pcilend::scenarios
