// SPDX-License-Identifier: GPL-2.0-or-later
// A borrowed function is a device as VFIO has it.
#include "scenarios/bare_metal/vfio_client.h"

#include <linux/pci_regs.h>
#include <linux/vfio.h>

#include <algorithm>
#include <fstream>

namespace pcilend::scenarios {
namespace {

using nlohmann::json;

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

// What Intel's interrupt remapping does, in its order: (a)ctivates, (d)eactivates, (f)rees a
// vector. "" without kprobes (the debug kernel).
class RemappingTrace {
 public:
  explicit RemappingTrace(lab::Host& host) : host_(host) {}
  Result<> begin() {
    PCILEND_TRY(host_.run(R"sh(cd /sys/kernel/tracing && [ -e kprobe_events ] || exit 0
for what in activate deactivate free; do
	echo "p:pcilend_$what intel_irq_remapping_$what" >>kprobe_events
done
echo >trace && echo 1 >events/kprobes/enable)sh"));
    return {};
  }
  Result<std::string> end() {
    const auto seen = host_.run(R"sh(cd /sys/kernel/tracing && [ -e kprobe_events ] || exit 0
echo 0 >events/kprobes/enable; sed -n 's/.* pcilend_\(.\)[a-z]*: .*/\1/p' trace | tr -d '\n'
echo >kprobe_events)sh");
    if (!seen) return tl::unexpected(seen.error());
    return seen->substr(0, seen->find('\n'));
  }

 private:
  lab::Host& host_;
};

/*
 *   host1 (lender)                  host2 (borrower)
 *   xhci ═════════════════════════ a domain's: it reaches the interrupt controller
 *   xhci (MSI) ── pcilend ════════ client: a single MSI, three, after a reset, all 16: relayed
 *
 * When the first vector of a block is freed all of the block's entries are others', so none of it
 * is deactivated after that.
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
  RemappingTrace trace(lender());
  EXPECT_OK(trace.begin());
  for (int i = 0; i < 3; ++i) EXPECT_OK(borrower().run(fmt::format("{} {} msi", kClient, *place)));
  const auto remapped = trace.end();
  ASSERT_OK(remapped);
  if (!remapped->empty()) {
    EXPECT_NE(remapped->find("dddddddddddddddd"), std::string::npos) << *remapped;
    EXPECT_FALSE(std::regex_search(*remapped, std::regex("f[^a]*d"))) << *remapped;
  }
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
