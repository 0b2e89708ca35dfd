// SPDX-License-Identifier: GPL-2.0-or-later
// Borrowed functions as PCI devices of guests: by their addresses, as functions of the host itself.
// VFIO tells the function's own IOMMU what the guest maps.
#include "testing/guest_fio.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

class PciGuest : public TwoHosts {
 protected:
  void TearDown() override {
    if (lab_ && guest_) {
      const auto state = guest_->state();
      if (state && *state == "running") EXPECT_OK(guest_->destroy());
      if (state) EXPECT_OK(guest_->undefine());
    }
    TwoHosts::TearDown();
  }

  // Host1 lends the drive; *xml: what `pcilend vm-xml` prints of it on host2.
  void lend(std::string* xml) {
    ASSERT_OK(job().lend());
    ASSERT_OK(job().see_available());
    const auto hostdev = borrower().run("pcilend vm-xml " + job().id());
    ASSERT_OK(hostdev);
    *xml = *hostdev;
  }

  void expect_used_by(const std::string& frontend) {
    const auto function = job().function_on(borrower());
    ASSERT_OK(function);
    EXPECT_EQ(function->at("frontend"), frontend);
    EXPECT_EQ(function->at("virtual_bdf"), function->at("address"));
    EXPECT_EQ(function->at("driver"), "pcilend_vfio");
  }

  std::optional<lab::Guest> guest_;
};

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ guest ── intel-iommu ── nvme
 *                                  maps and unmaps for each command
 *
 * The lender hears of none of that. Nobody takes the drive from the guest by a return.
 */
TEST_F(PciGuest, BehindAnIommuOfItsOwn) {
  std::string hostdev;
  ASSERT_NO_FATAL_FAILURE(lend(&hostdev));
  auto spec = borrower().guest_spec("iommu", {});
  ASSERT_OK(spec);
  spec->iommu = lab::GuestIommu::Intel;
  spec->devices = hostdev;
  guest_.emplace(borrower().guest(*spec));
  ASSERT_OK(guest_->define());
  ASSERT_OK(guest_->start());
  ASSERT_OK(MainJob::await_disk(*guest_));
  ASSERT_NO_FATAL_FAILURE(expect_used_by("vfio"));
  EXPECT_OK(guest_->run("dmesg | grep -q 'DMAR: Intel(R) Virtualization Technology for Directed'"));
  EXPECT_OK(guest_->run("[ $(cat /sys/class/nvme/nvme0/device/iommu_group/type) != identity ]"));

  ASSERT_OK(guest_->run(MainJob::kUseDisk));
  const auto before = job().lender_effort();
  ASSERT_OK(before);
  ASSERT_OK(guest_->run(MainJob::kUseDisk));
  const auto after = job().lender_effort();
  ASSERT_OK(after);
  EXPECT_EQ(after->messages, before->messages);

  const auto refused = borrower().exec("pcilend return --force " + job().id());
  ASSERT_OK(refused);
  EXPECT_EQ(refused->code, static_cast<int>(ErrorClass::State)) << refused->err;
  EXPECT_NE(refused->err.find("end that, or detach the device there, first"), std::string::npos)
      << refused->err;
  EXPECT_OK(guest_->run(MainJob::kUseDisk));
  ASSERT_OK(guest_->destroy());
  EXPECT_OK(job().await_state(borrower(), "available"));
  EXPECT_OK(job().await_state(lender(), "available"));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ guest ── virtio-iommu ── nvme
 *
 * QEMU tells the guest which addresses it can't map: those that VFIO has reserved.
 */
TEST_F(PciGuest, BehindAVirtioIommu) {
  std::string hostdev;
  ASSERT_NO_FATAL_FAILURE(lend(&hostdev));
  auto spec = borrower().guest_spec("virtio-iommu", {});
  ASSERT_OK(spec);
  spec->iommu = lab::GuestIommu::Virtio;
  spec->devices = hostdev;
  guest_.emplace(borrower().guest(*spec));
  ASSERT_OK(guest_->define());
  ASSERT_OK(guest_->start());
  ASSERT_OK(MainJob::await_disk(*guest_));
  ASSERT_NO_FATAL_FAILURE(expect_used_by("vfio"));
  EXPECT_OK(guest_->run("ls /sys/bus/virtio/drivers/virtio_iommu/virtio*"));
  const auto group = guest_->run(
      "cd /sys/class/nvme/nvme0/device/iommu_group && cat type "
      "reserved_regions");
  ASSERT_OK(group);
  EXPECT_EQ(group->rfind("DMA", 0), 0U) << *group;
  for (const char* reserved : {"0x00000000fe000000 0x00000000fe0fffff", "0x000000fd00000000 "})
    EXPECT_NE(group->find(reserved), std::string::npos) << *group;

  EXPECT_OK(guest_->run("reach /dev/nvme0n1 64 100000-10000000"));
  const auto before = job().lender_effort();
  ASSERT_OK(before);
  for (int i = 0; i < 4; ++i) EXPECT_OK(guest_->run(MainJob::kUseDisk));
  const auto after = job().lender_effort();
  ASSERT_OK(after);
  EXPECT_EQ(after->messages, before->messages);

  ASSERT_OK(guest_->run("modprobe -r nvme && ! [ -e /dev/nvme0n1 ] && modprobe nvme"));
  ASSERT_OK(MainJob::await_disk(*guest_));
  EXPECT_OK(guest_->run(MainJob::kUseDisk));
  ASSERT_OK(guest_->destroy());
  EXPECT_OK(job().await_state(borrower(), "available"));
  EXPECT_OK(job().await_state(lender(), "available"));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ guest ── intel-iommu, then virtio-iommu ── nvme
 *                                  fio verifies, with four commands at a time
 */
TEST_F(PciGuest, FioVerifiesBehindEitherIommu) {
  std::string hostdev;
  ASSERT_NO_FATAL_FAILURE(lend(&hostdev));
  for (const auto iommu : {lab::GuestIommu::Intel, lab::GuestIommu::Virtio}) {
    SCOPED_TRACE(iommu == lab::GuestIommu::Intel ? "intel" : "virtio");
    auto spec = borrower().guest_spec("fio", {});
    ASSERT_OK(spec);
    spec->iommu = iommu;
    spec->devices = hostdev + kDiskWithFio;
    guest_.emplace(borrower().guest(*spec));
    ASSERT_OK(guest_->define());
    ASSERT_OK(guest_->start());
    ASSERT_OK(MainJob::await_disk(*guest_));
    EXPECT_OK(guest_->run("grep -q ^DMA /sys/class/nvme/nvme0/device/iommu_group/type"));
    ASSERT_OK(mount_fio(*guest_));
    const auto before = job().lender_effort();
    ASSERT_OK(before);
    ASSERT_OK(lab_->fabric().counters(true));
    EXPECT_OK(guest_->run(verify_by_fio(1, 1024), {{}, std::chrono::minutes(10)}));
    const auto counters = lab_->fabric().counters();
    ASSERT_OK(counters);
    EXPECT_GT(counters->path(1, 2).memory.read_bytes, 1024U << 10) << "data written";
    EXPECT_GT(counters->path(1, 2).memory.write_bytes, 1024U << 10) << "data read";
    const auto after = job().lender_effort();
    ASSERT_OK(after);
    EXPECT_EQ(after->messages, before->messages) << "for maps and unmaps";
    ASSERT_OK(guest_->destroy());
    EXPECT_OK(job().await_state(borrower(), "available"));
    ASSERT_OK(guest_->undefine());
  }
  guest_.reset();
}

// A boot sector that writes kBooted to the serial line:
//   xor ax, ax; mov ds, ax; mov si, 0x7c16; mov dx, 0x3f8; next: lodsb; test al, al; jz done;
//   out dx, al; jmp next; done: hlt; jmp done
constexpr const char* kBootSector =
    R"(\372\061\300\216\330\276\026\174\272\370\003\254\204\300\164\003\356\353\370\364\353\375)";
constexpr const char* kBooted = "this sector came from the lender";

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ SeaBIOS of a pc, and of a q35: <boot order='1'/>
 */
TEST_F(PciGuest, FirmwareBootsFromIt) {
  const auto disk = job().lender_disk();
  ASSERT_OK(disk);
  ASSERT_OK(lender().run(
      fmt::format("printf '{}{}\\n' | dd of={} conv=notrunc 2>/dev/null && printf '\\125\\252' | "
                  "dd of={} bs=1 seek=510 conv=notrunc 2>/dev/null && sync",
                  kBootSector, kBooted, *disk, *disk)));
  std::string hostdev;
  ASSERT_NO_FATAL_FAILURE(lend(&hostdev));
  hostdev.insert(hostdev.find("</hostdev>"), "<boot order='1'/>");
  for (const char* machine : {"pc", "q35"}) {
    SCOPED_TRACE(machine);
    ASSERT_OK(borrower().write("/tmp/boots.xml",
                               fmt::format("<domain type='kvm'><name>boots</name>"
                                           "<memory unit='MiB'>128</memory><vcpu>1</vcpu>"
                                           "<os><type arch='x86_64' machine='{}'>hvm</type></os>"
                                           "<features><acpi/><apic/></features>"
                                           "<cpu mode='maximum'/><devices>"
                                           "<serial type='file'><source path='/tmp/{}'/></serial>"
                                           "<controller type='usb' model='none'/>"
                                           "<memballoon model='none'/>{}</devices></domain>",
                                           machine, machine, hostdev)));
    ASSERT_OK(borrower().run("virsh create /tmp/boots.xml"));
    EXPECT_OK(borrower().until(fmt::format("grep -q '{}' /tmp/{}", kBooted, machine)));
    ASSERT_OK(borrower().run("virsh destroy boots"));
    EXPECT_OK(job().await_state(borrower(), "available"));
  }
}

}  // namespace
}  // namespace pcilend::scenarios
