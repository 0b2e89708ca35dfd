// SPDX-License-Identifier: GPL-2.0-or-later
#include <linux/pci_regs.h>

#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

/*
 *   host1 (lender, node 4)                        host2 (borrower, node 8)
 *   virtio-blk ── port with AER ── pcilend ══════ virtio-pci of the host
 *   pair, other: functions of one device behind such a port
 *
 * QEMU's drive, e1000e and igb report no errors: they have no bits for it in Device Control.
 */
class PciExpress : public TwoHosts {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "pci-express";
    // Of a faster link the kernel awaits that it is active again, which QEMU's is not after a
    // reset.
    options.qemu_arguments[1] = {"-global", "pcie-root-port.x-speed=2_5"};
    ASSERT_OK(options.add_device(
        "host1:virtio-blk-pci,id=disk,aer=on,iommu_platform=on,disable-legacy=on,drive-size=16M,"
        "root-port=on,x-max-bounce-buffer-size=16M"));
    ASSERT_OK(options.add_device(
        "host1:virtio-blk-pci,id=pair,aer=on,iommu_platform=on,disable-legacy=on,drive-size=16M,"
        "root-port=on,multifunction=on,x-max-bounce-buffer-size=16M"));
    ASSERT_OK(options.add_device(
        "host1:virtio-rng-pci,id=other,iommu_platform=on,disable-legacy=on,bus=pair-port,"
        "addr=0.1"));
    ASSERT_OK(start_lab(options, lab_));
  }

  // It is borrowed, and has data.
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(TwoHosts::SetUp());
    ASSERT_OK(job().lend());
    ASSERT_OK(job().see_available());
    const auto borrowed = borrower().json("pcilend borrow --wait --json " + job().id());
    ASSERT_OK(borrowed);
    place_ = borrowed->at("functions").at(0).at("virtual_bdf");
    ASSERT_OK(find_disk());
    ASSERT_OK(borrower().run(fmt::format(
        "head -c 64K /dev/urandom >/tmp/data && dd if=/tmp/data of={} bs=16k oflag=direct",
        disk_)));
  }

  Result<> find_disk() {
    const auto name =
        borrower().until(fmt::format("ls /sys/bus/pci/devices/{}/virtio*/block | grep .", place_));
    if (!name) return tl::unexpected(name.error());
    disk_ = "/dev/" + name->text();
    return {};
  }
  [[nodiscard]] Result<> compare() const {
    PCILEND_TRY(borrower().run(fmt::format(
        "dd if={} of=/tmp/read bs=16k count=4 iflag=direct && cmp /tmp/data /tmp/read", disk_)));
    return {};
  }

  std::string place_;  // on the borrower
  std::string disk_;
};

/*
 *   host1: an error that takes the link below the port along: reset ═══ host2: is told, and binds
 *                                                                      the driver anew: the same
 */
TEST_F(PciExpress, AFatalErrorCostsAResetAndNoLease) {
  const auto before = job().function_on(lender());
  ASSERT_OK(before);
  ASSERT_OK(lender().inject_pcie_error("disk", PCI_ERR_UNC_MALF_TLP));
  ASSERT_OK(lender().until("dmesg | grep 'was reset, because .*an error of PCI Express'"));
  // Its driver has no error handlers, so it is not started anew by itself.
  ASSERT_OK(borrower().until("dmesg | grep 'was reset by its lender'"));
  ASSERT_OK(
      borrower().run(fmt::format("cd /sys/bus/pci/drivers/virtio-pci && echo {0} >unbind && "
                                 "echo {0} >bind",
                                 place_)));
  ASSERT_OK(find_disk());
  EXPECT_OK(compare());
  const auto after = job().function_on(lender());
  ASSERT_OK(after);
  EXPECT_EQ(after->at("lease"), before->at("lease"));
  EXPECT_GT(after->at("resets"), before->at("resets"));
  EXPECT_OK(lender().until("dmesg | grep 'device recovery successful'"));
}

/*
 *   host1: the same, of a device with another function, which no driver has: the PCI core resets
 *   both, gives up, and tells nobody, or (newer kernels) that both have failed for good ═══
 *   host2: is told, and goes on
 */
TEST_F(PciExpress, AResetThatNobodyIsToldOfIsNoticed) {
  const auto pair = lender().address("pair");
  ASSERT_OK(pair);
  const auto other = lender().address("other");
  ASSERT_OK(other);
  // They are a set, as nothing isolates them from one another.
  ASSERT_OK(
      lender().run(fmt::format("pcilend add {0} && pcilend add {1} && "
                               "pcilend available {0} && pcilend available {1}",
                               *pair, *other)));
  const auto lent = function_at(lender(), lender(), *pair);
  ASSERT_OK(lent);
  const std::string id = lent->at("id");
  ASSERT_OK(await_state(borrower(), id, "available"));
  const auto borrowed = borrower().json("pcilend borrow --wait --json " + id);
  ASSERT_OK(borrowed);
  const std::string place = borrowed->at("functions").at(0).at("virtual_bdf");
  const auto before = function_on(lender(), id);
  ASSERT_OK(before);
  ASSERT_OK(lender().run(fmt::format("echo {} >/sys/bus/pci/drivers/pcilend/unbind", *other)));

  ASSERT_OK(lender().inject_pcie_error("pair", PCI_ERR_UNC_MALF_TLP));
  ASSERT_OK(lender().until("dmesg | grep 'device recovery failed'"));
  ASSERT_OK(lender().until(fmt::format("dmesg | grep '{}: was reset, because'", *pair)));
  ASSERT_OK(borrower().until(fmt::format("dmesg | grep '{}.*was reset by its lender'", place)));
  ASSERT_OK(
      borrower().run(fmt::format("cd /sys/bus/pci/drivers/virtio-pci && echo {0} >unbind && "
                                 "echo {0} >bind && ls /sys/bus/pci/devices/{0}/virtio*/block | "
                                 "sed s,^,/dev/, | xargs head -c 64K >/dev/null",
                                 place)));
  const auto after = function_on(lender(), id);
  ASSERT_OK(after);
  EXPECT_EQ(after->at("state"), "borrowed");
  EXPECT_EQ(after->at("lease"), before->at("lease"));
  EXPECT_OK(borrower().run("pcilend return " + id));
  EXPECT_OK(lender().run(fmt::format("pcilend unavailable {0} && pcilend remove {0}", *pair)));
  EXPECT_OK(lender().run(fmt::format("pcilend remove {0}", *other)));
}

/*
 *   host1: an error that cost one transaction ═══ host2: goes on, not reset
 */
TEST_F(PciExpress, AnErrorThatIsNotFatalCostsNothing) {
  const auto before = job().function_on(lender());
  ASSERT_OK(before);
  ASSERT_OK(lender().inject_pcie_error("disk", PCI_ERR_UNC_COMP_TIME));
  ASSERT_OK(lender().until("dmesg | grep 'device recovery successful'"));
  EXPECT_OK(compare());
  const auto after = job().function_on(lender());
  ASSERT_OK(after);
  EXPECT_EQ(after->at("lease"), before->at("lease"));
  EXPECT_EQ(after->at("resets"), before->at("resets"));
}

/*
 *   host2: writes to a vendor's register (virtio's, of type 5), of whose answers its drivers would
 * see none ═══ host1: the function does not get it
 */
TEST_F(PciExpress, VendorsRegistersAreNotWrittenByDriversOfTheHost) {
  const auto capability = lender().run(
      fmt::format("lspci -vv -s {} | sed -n 's/.*\\[\\(..\\)\\] Vendor Specific Information: "
                  "VirtIO: <unknown>.*/\\1/p'",
                  *lender().address(0)));
  ASSERT_OK(capability);
  const auto at = std::stoul(*capability, nullptr, 16) + 8;
  const auto held = [&](const lab::Host& host, const std::string& place) {
    const auto value = host.run(fmt::format("setpci -s {} {:x}.l", place, at));
    EXPECT_OK(value);
    return value.value_or("");
  };
  const std::string before = held(lender(), *lender().address(0));
  ASSERT_OK(borrower().run(fmt::format("setpci -s {} {:x}.l=1234", place_, at)));
  EXPECT_EQ(held(lender(), *lender().address(0)), before);
  EXPECT_EQ(held(borrower(), place_), before);
}

}  // namespace
}  // namespace pcilend::scenarios
