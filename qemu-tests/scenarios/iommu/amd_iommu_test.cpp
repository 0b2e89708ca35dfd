// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

class AmdIommu : public TwoHosts {
 protected:
  static void start(lab::Options options) {
    ASSERT_OK(options.add_device("host1:nvme,serial=amd,drive-size=64M"));
    ASSERT_OK(start_lab(options, lab_));
  }

  void lend_and_use() {
    ASSERT_OK(job().fill_drive());
    ASSERT_OK(job().lend());
    ASSERT_OK(job().see_available());
    const auto drive = job().borrow();
    ASSERT_OK(drive);
    EXPECT_OK(borrower().run(
        fmt::format("mount -o ro {0} /mnt && cd /mnt && sha256sum -c SUMS && cd / && umount /mnt "
                    "&& grep -w {1}q1 /proc/interrupts",
                    drive->disk, drive->controller)));
    ASSERT_OK(borrower().run("pcilend return " + job().id()));
  }

  void lend_to_a_guest() {
    ASSERT_OK(job().fill_drive());
    ASSERT_OK(job().lend());
    ASSERT_OK(job().see_available());
    ASSERT_OK(job().start_guest());
    ASSERT_OK(job().read_in_guest());
    ASSERT_OK(job().write_in_guest());
    ASSERT_OK(job().shut_down_guest());
    ASSERT_OK(job().take_back());
  }
};

class AmdLender : public AmdIommu {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "amd-lender";
    options.other_iommu[1] = lab::Iommu::Amd;
    // 7.3 remaps no interrupts without a southbridge at 00:14.0, which QEMU has not.
    if (options.kernel == "backports")
      options.kernel_arguments[1] = {"pcilend.unsafe_interrupts=1"};
    start(options);
  }
};

/*
 *   host1 (lender, AMD-Vi)              host2 (borrower, VT-d)
 *   nvme ── private domain ── NTB ═════ NTB ── nvme driver of the host
 */
TEST_F(AmdLender, LendsToTheHost) {
  EXPECT_OK(lender().run("ls /sys/class/iommu | grep ivhd"));
  lend_and_use();
}

/*
 *   host1 (lender, AMD-Vi)              host2 (borrower, VT-d)
 *   nvme ── private domain ── NTB ═════ NTB ── guest
 */
TEST_F(AmdLender, LendsToAGuest) {
  lend_to_a_guest();
}

/*
 *   host1 (lender, AMD-Vi)              host2 (borrower, VT-d)
 *   nvme ── private domain ── NTB ═════ NTB ── a user of VFIO maps memory where AMD-Vi has none
 */
TEST_F(AmdLender, WhatItsIommuDoesNotTranslateIsNotMapped) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + job().id()));
  const auto function = job().function_on(borrower());
  ASSERT_OK(function);
  const auto said = borrower().json(fmt::format("/usr/lib/pcilend-lab/vfio-client {} map-reserved",
                                                function->at("virtual_bdf").get<std::string>()));
  ASSERT_OK(said);
  EXPECT_EQ(*said, nlohmann::json({{"below", true}, {"reserved", false}}));
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
}

class AmdBorrower : public AmdIommu {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "amd-borrower";
    options.other_iommu[2] = lab::Iommu::Amd;
    // QEMU's AMD-Vi remaps no interrupt that another process writes (lab-facts).
    options.kernel_arguments[2] = {"intremap=off", "pcilend.unsafe_interrupts=1",
                                   "vfio_iommu_type1.allow_unsafe_interrupts=1"};
    start(options);
  }
};

/*
 *   host1 (lender, VT-d)                host2 (borrower, AMD-Vi)
 *   nvme ── private domain ── NTB ═════ NTB ── nvme driver of the host
 */
TEST_F(AmdBorrower, BorrowsForItself) {
  EXPECT_OK(borrower().run("ls /sys/class/iommu | grep ivhd"));
  lend_and_use();
}

/*
 *   host1 (lender, VT-d)                host2 (borrower, AMD-Vi)
 *   nvme ── private domain ── NTB ═════ NTB ── guest
 */
TEST_F(AmdBorrower, BorrowsForAGuest) {
  lend_to_a_guest();
}

}  // namespace
}  // namespace pcilend::scenarios
