// SPDX-License-Identifier: GPL-2.0-or-later
// Firmware starts an installed Debian from a lent drive (qemu-tests/image/artefacts/guest-disk.sh).
#include "testing/attached.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

// Firmware and GRUB read some 30 MB in small pieces, each of them across the NTB.
constexpr auto kBoot = 20min;

class InstalledGuest : public TwoHosts {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "installed";
    ASSERT_OK(
        attach(options, 1, Attached::GuestDisk, fmt::format("nvme,id=nvme,serial={}", kSerial)));
    ASSERT_OK(start_lab(options, lab_));
  }

  void TearDown() override {
    if (!lab_) return;
    EXPECT_OK(borrower().exec("virsh destroy installed"));
    TwoHosts::TearDown();
  }

  void lend() {
    ASSERT_OK(job().lend());
    ASSERT_OK(job().see_available());
  }

  static std::string with_order(std::string hostdev) {
    return hostdev.insert(hostdev.find("</hostdev>"), "<boot order='1'/>");
  }
  // What libvirt has no word for in a mediated device.
  static constexpr const char* kOrderOfMdev =
      "<qemu:override><qemu:device alias='hostdev0'><qemu:frontend>"
      "<qemu:property name='bootindex' type='unsigned' value='1'/>"
      "</qemu:frontend></qemu:device></qemu:override>";

  // A guest with that <hostdev> and nothing else to boot from starts, says that it is up, and
  // powers itself off.
  void expect_boots(const std::string& machine, const std::string& firmware,
                    const std::string& hostdev, const std::string& override = {}) {
    const auto began = std::chrono::steady_clock::now();
    const std::string loader =
        firmware == "UEFI" ? "<loader type='rom'>/usr/share/ovmf/OVMF.fd</loader>" : "";
    ASSERT_OK(borrower().write(
        "/tmp/installed.xml",
        fmt::format("<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>"
                    "<name>installed</name><memory unit='MiB'>384</memory><vcpu>1</vcpu>"
                    "<os><type arch='x86_64' machine='{}'>hvm</type>{}</os>"
                    "<features><acpi/><apic/></features><cpu mode='maximum'/>"
                    "<clock offset='utc'><timer name='hpet' present='no'/></clock>"
                    "<devices><serial type='file'><source path='/tmp/serial'/></serial>"
                    "<controller type='usb' model='none'/><memballoon model='none'/>{}</devices>{}"
                    "</domain>",
                    machine, loader, hostdev, override)));
    ASSERT_OK(borrower().run("rm -f /tmp/serial && virsh create /tmp/installed.xml"));
    const auto off = borrower().until(
        "for i in $(seq 20); do [ -e /run/libvirt/qemu/installed.pid ] || exit 0; sleep 1; done; "
        "exit 1",
        kBoot);
    const auto said = borrower().run("cat /tmp/serial");
    ASSERT_OK(said);
    ASSERT_TRUE(off) << *said;
    for (const char* part : {" is up by ", ": root /dev/nvme0n1p3, init "})
      EXPECT_NE(said->find(part), std::string::npos) << *said;
    EXPECT_NE(said->find(" is up by " + firmware), std::string::npos) << *said;
    EXPECT_OK(job().await_state(borrower(), "available"));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    fmt::print(stderr, "up and off again in {:.0f} s\n", took.count());
  }

  [[nodiscard]] std::string hostdev(const std::string& options = {}) const {
    const auto xml = borrower().run(fmt::format("pcilend vm-xml {} {}", options, job().id()));
    EXPECT_OK(xml);
    return xml.value_or("");
  }

  // The lender, whose own driver has the drive, runs that with the drive's root file system in
  // /mnt.
  [[nodiscard]] Result<std::string> with_root(const std::string& command) const {
    const auto disk = job().lender_disk();
    if (!disk) return tl::unexpected(disk.error());
    return lender().run(fmt::format(
        "mount {}p3 /mnt && {{ {}; code=$?; umount /mnt && exit $code; }}", *disk, command));
  }
};

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme with a Debian ═══════════ SeaBIOS of a pc, and of a q35; OVMF of a q35: <boot order='1'/>
 *
 * GRUB, kernel, systemd: all of it comes from the lent drive, and the lender sees what was written.
 */
TEST_F(InstalledGuest, BootsFromALentDrive) {
  ASSERT_OK(with_root("rm -f /mnt/var/lib/boots"));
  ASSERT_NO_FATAL_FAILURE(lend());
  const std::string function = with_order(hostdev());
  const std::pair<const char*, const char*> kinds[] = {
      {"pc", "BIOS"}, {"q35", "BIOS"}, {"q35", "UEFI"}};
  for (const auto& [machine, firmware] : kinds) {
    SCOPED_TRACE(fmt::format("{}, {}", machine, firmware));
    ASSERT_NO_FATAL_FAILURE(expect_boots(machine, firmware, function));
  }
  ASSERT_OK(job().await_state(lender(), "available"));
  ASSERT_OK(lender().run("pcilend unavailable " + *lender().address(0)));
  EXPECT_EQ(with_root("grep -c 'is up by' /mnt/var/lib/boots").value_or(""), "3\n");
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme with a Debian ═══════════ SeaBIOS of a q35; a mediated device, with QEMU's own bootindex,
 *                                  since libvirt refuses <boot order> for those
 */
TEST_F(InstalledGuest, BootsFromAMediatedDevice) {
  ASSERT_NO_FATAL_FAILURE(lend());
  const std::string function = hostdev("--mdev");
  ASSERT_OK(
      borrower().write("/tmp/order.xml",
                       "<domain type='kvm'><name>order</name>"
                       "<memory unit='MiB'>128</memory><os><type machine='q35'>hvm</type></os>"
                       "<devices>" +
                           with_order(function) + "</devices></domain>"));
  const auto refused = borrower().exec(
      "virsh define --validate /tmp/order.xml || "
      "virsh create /tmp/order.xml");
  ASSERT_OK(refused);
  EXPECT_NE(refused->code, 0) << "libvirt knows <boot order> of mediated devices now";
  ASSERT_NO_FATAL_FAILURE(expect_boots("q35", "BIOS", function, kOrderOfMdev));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme with a Debian ═══════════ guest: its kernel starts the next one itself (kexec)
 */
TEST_F(InstalledGuest, ItsKernelStartsAnother) {
  ASSERT_OK(with_root("touch /mnt/var/lib/kexec"));
  ASSERT_NO_FATAL_FAILURE(lend());
  ASSERT_NO_FATAL_FAILURE(expect_boots("pc", "BIOS", with_order(hostdev())));
  EXPECT_OK(borrower().run("grep -q 'goes on by kexec' /tmp/serial"));
}

}  // namespace
}  // namespace pcilend::scenarios
