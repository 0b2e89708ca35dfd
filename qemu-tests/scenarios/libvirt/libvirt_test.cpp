// SPDX-License-Identifier: GPL-2.0-or-later
// A borrowed function in the hands of libvirt: libvirtd comes and goes, functions are plugged in,
// and virsh manages their mediated devices.
#include <regex>

#include "testing/pci_hostdev.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

class Libvirt : public TwoHosts {
 protected:
  void start_and_use() {
    ASSERT_OK(job().lend());
    ASSERT_OK(job().see_available());
    ASSERT_OK(job().start_guest());
    ASSERT_OK(job().await_guest_disk());
    use();
  }
  void use() { EXPECT_OK(job().guest().run(MainJob::kUseDisk)); }

  // Who has borrowed it on host2.
  void expect_owner(const std::string& owner) {
    const auto function = job().function_on(borrower());
    ASSERT_OK(function);
    EXPECT_EQ(function->at("state"), "borrowed");
    EXPECT_EQ(function->at("owner"), owner);
  }

  void kill_libvirtd() {
    ASSERT_OK(borrower().run("pkill -KILL -x libvirtd"));
    ASSERT_OK(borrower().until("! pgrep -x libvirtd"));
  }
  // It has seen to all domains when it answers.
  void start_libvirtd() {
    ASSERT_OK(borrower().run("libvirtd -d"));
    ASSERT_OK(borrower().until("virsh list --all --name | grep -x guest"));
  }
  // virsh's name of the one mediated device that is defined and not there.
  void find_defined(std::string* device) {
    const std::string list = "virsh nodedev-list --inactive --cap mdev | grep .";
    ASSERT_OK(borrower().until(list));
    const auto name = borrower().run(list);
    ASSERT_OK(name);
    *device = name->substr(0, name->find('\n'));
  }
  void expect_returned() {
    EXPECT_OK(job().await_state(borrower(), "available"));
    EXPECT_OK(job().await_state(lender(), "available"));
    EXPECT_OK(borrower().until("[ -z \"$(ls /sys/bus/mdev/devices)\" ]"));
    EXPECT_OK(borrower().until("[ -z \"$(ls /run/pcilend/domains)\" ]"));
  }
};

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ guest under I/O; libvirtd is killed, and started anew
 *
 * The guest notices nothing, and gives its function back in the end: also if the hook's record of
 * it was lost meanwhile.
 */
TEST_F(Libvirt, ItIsRestartedUnderARunningGuest) {
  ASSERT_NO_FATAL_FAILURE(start_and_use());
  ASSERT_NO_FATAL_FAILURE(kill_libvirtd());
  use();
  ASSERT_OK(borrower().run("rm /run/pcilend/domains/*"));
  ASSERT_NO_FATAL_FAILURE(start_libvirtd());
  const auto state = job().guest().state();
  ASSERT_OK(state);
  EXPECT_EQ(*state, "running");
  use();
  ASSERT_OK(job().guest().destroy());
  expect_returned();
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ guest: its QEMU dies while libvirtd is not there
 */
TEST_F(Libvirt, AGuestDiesBehindItsBack) {
  ASSERT_NO_FATAL_FAILURE(start_and_use());
  ASSERT_NO_FATAL_FAILURE(kill_libvirtd());
  ASSERT_OK(borrower().run("kill -9 $(cat /run/libvirt/qemu/guest.pid)"));
  ASSERT_NO_FATAL_FAILURE(start_libvirtd());
  ASSERT_OK(lab::eventually("libvirt notices", lab::kPatience, [&] {
    const auto state = job().guest().state();
    return state && *state == "shut off";
  }));
  expect_returned();
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ running guest: virsh attach-device, detach-device: as a PCI
 *                                  device, borrowed by hand; as a mediated one, which borrows
 */
TEST_F(Libvirt, AFunctionIsPluggedIntoARunningGuest) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  const auto function = job().function_on(borrower());
  ASSERT_OK(function);
  const auto uuid = function->at("uuid").get<std::string>();
  auto spec = borrower().guest_spec("empty", {});
  ASSERT_OK(spec);
  spec->free_slots = 1;
  const lab::Guest guest = borrower().guest(*spec);
  ASSERT_OK(guest.define());
  ASSERT_OK(guest.start());
  ASSERT_OK(guest.await_answer());
  struct Way {
    const char* option;
    std::string begin;
    std::string end;
    int times;
  };
  const Way ways[] = {
      {"", "pcilend borrow --frontend vfio " + job().id(), "pcilend return " + job().id(), 2},
      {"--mdev", fmt::format("mdevctl start -u {} -p {} -t pcilend-function", uuid, job().id()),
       "mdevctl stop -u " + uuid, 1}};
  for (const Way& way : ways) {
    SCOPED_TRACE(way.begin);
    ASSERT_OK(borrower().run(way.begin));
    EXPECT_OK(job().await_state(lender(), "borrowed"));
    ASSERT_OK(borrower().run(
        fmt::format("pcilend vm-xml {} {} >/tmp/function.xml", way.option, job().id())));
    // What it has had once it can have again.
    for (int i = 0; i < way.times; ++i) {
      ASSERT_OK(borrower().run("virsh attach-device empty /tmp/function.xml"));
      ASSERT_OK(MainJob::await_disk(guest));
      EXPECT_OK(guest.run(MainJob::kUseDisk));
      ASSERT_OK(borrower().run("virsh detach-device empty /tmp/function.xml"));
      ASSERT_OK(borrower().until("! virsh dumpxml empty | grep -q '<hostdev'"));
      EXPECT_OK(job().await_state(lender(), "borrowed"));
    }
    ASSERT_OK(borrower().run(way.end));
    EXPECT_OK(job().await_state(borrower(), "available"));
  }
  ASSERT_OK(guest.destroy());
  ASSERT_OK(guest.undefine());
}

/*
 *   host2: mdevctl define; virsh nodedev-start, -autostart, -destroy, -undefine
 *
 * What is defined is the admin's: it has its function from its start to its end. The hook uses it,
 * and leaves it; and a domain starts without it.
 */
TEST_F(Libvirt, VirshManagesADefinedDevice) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  const auto function = job().function_on(borrower());
  ASSERT_OK(function);
  const auto uuid = function->at("uuid").get<std::string>();
  const std::string is_active = "ls /sys/bus/mdev/devices | grep -x " + uuid;
  ASSERT_OK(borrower().run(
      fmt::format("mdevctl define -u {} -p {} -t pcilend-function", uuid, job().id())));
  std::string device;
  ASSERT_NO_FATAL_FAILURE(find_defined(&device));
  ASSERT_OK(borrower().run("virsh nodedev-start " + device));
  EXPECT_OK(borrower().run(is_active));
  expect_owner("mdev:" + uuid);
  ASSERT_OK(borrower().run("virsh nodedev-autostart " + device));

  ASSERT_OK(job().start_guest(lab::Hostdev::Mdev));
  ASSERT_OK(job().await_guest_disk());
  use();
  ASSERT_OK(job().guest().destroy());
  EXPECT_OK(borrower().run(is_active));
  expect_owner("mdev:" + uuid);

  ASSERT_OK(borrower().run("virsh nodedev-destroy " + device));
  EXPECT_OK(job().await_state(borrower(), "available"));
  ASSERT_OK(job().guest().start());
  ASSERT_OK(job().await_guest_disk());
  ASSERT_OK(job().guest().destroy());
  expect_returned();
  ASSERT_OK(borrower().run("virsh nodedev-undefine " + device));
}

/*
 *   host2: virsh nodedev-list --cap mdev_types, nodedev-define, -start, -autostart, -destroy,
 *          -undefine, below the kind that the function is of
 */
TEST_F(Libvirt, VirshListsAndDefinesByTheKind) {
  constexpr const char* kKind = "pci_8000_00_01_0";
  constexpr const char* kType = "pcilend_mdev-storage";
  const auto count = [&](int available) {
    return borrower().until(
        fmt::format("virsh nodedev-dumpxml {} | grep -A 3 \"<type id='{}'>\" | "
                    "grep -q '<availableInstances>{}</availableInstances>'",
                    kKind, kType, available));
  };
  ASSERT_OK(
      borrower().until(fmt::format("virsh nodedev-list --cap mdev_types | grep -x {}", kKind)));
  ASSERT_OK(count(0));
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  ASSERT_OK(count(1));
  const auto function = job().function_on(borrower());
  ASSERT_OK(function);
  const auto uuid = function->at("uuid").get<std::string>();
  ASSERT_OK(borrower().run(
      fmt::format("echo \"<device><parent>{}</parent><capability type='mdev'><type id='{}'/>"
                  "<uuid>{}</uuid></capability></device>\" >/tmp/device.xml",
                  kKind, kType, uuid)));
  ASSERT_OK(borrower().run("virsh nodedev-define /tmp/device.xml"));
  std::string device;
  ASSERT_NO_FATAL_FAILURE(find_defined(&device));
  ASSERT_OK(borrower().run("virsh nodedev-start " + device));
  ASSERT_OK(borrower().run("virsh nodedev-autostart " + device));
  EXPECT_OK(borrower().run(
      fmt::format("readlink -f /sys/bus/mdev/devices/{} | grep /8000:00:01.0/", uuid)));

  expect_owner("mdev:" + uuid);
  ASSERT_OK(count(0));

  ASSERT_OK(job().start_guest(lab::Hostdev::Mdev));
  ASSERT_OK(job().await_guest_disk());
  use();
  ASSERT_OK(job().guest().destroy());
  expect_owner("mdev:" + uuid);

  ASSERT_OK(borrower().run("virsh nodedev-destroy " + device));
  expect_returned();
  ASSERT_OK(count(1));
  ASSERT_OK(borrower().run("virsh nodedev-undefine " + device));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ virsh nodedev-detach, -reset, -reattach; then a guest with
 *                                  managed='yes', twice: borrowed by hand, and by the hook
 *
 * libvirt has the kernel's vfio-pci bound, unless it is told another driver, and lets go of the
 * function by clearing its override: the frontend's driver has it again then, and no other.
 */
TEST_F(Libvirt, VirshDetachesAndReattaches) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  const auto function = job().function_on(borrower());
  ASSERT_OK(function);
  const std::string address = function->at("address");
  const std::string device = "pci_" + std::regex_replace(address, std::regex("[:.]"), "_");
  const auto expect_driver = [&](const std::string& driver) {
    const auto now = job().function_on(borrower());
    ASSERT_OK(now);
    EXPECT_EQ(now->at("driver"), driver);
    EXPECT_EQ(now->at("owner"), "user root");
  };
  const auto borrow = [&] {
    ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + job().id()));
    ASSERT_OK(borrower().until("virsh nodedev-list --cap pci | grep -x " + device));
  };
  ASSERT_NO_FATAL_FAILURE(borrow());
  for (const auto& [option, driver] :
       {std::pair{"", "vfio-pci"}, std::pair{"--driver pcilend_vfio", "pcilend_vfio"}}) {
    SCOPED_TRACE(driver);
    ASSERT_OK(borrower().run(fmt::format("virsh nodedev-detach {} {}", device, option)));
    expect_driver(driver);
    EXPECT_OK(borrower().run("virsh nodedev-reset " + device));
    ASSERT_OK(borrower().run("virsh nodedev-reattach " + device));
    expect_driver("pcilend_vfio");
  }

  auto spec = borrower().guest_spec("managed", {});
  ASSERT_OK(spec);
  spec->devices = pci_hostdev(address);
  const lab::Guest guest = borrower().guest(*spec);
  ASSERT_OK(guest.define());
  for (const bool by_hand : {true, false}) {
    SCOPED_TRACE(by_hand);
    ASSERT_OK(guest.start());
    ASSERT_OK(MainJob::await_disk(guest));
    EXPECT_OK(guest.run(MainJob::kUseDisk));
    const auto refused = borrower().exec("virsh nodedev-reattach " + device);
    ASSERT_OK(refused);
    EXPECT_NE(refused->code, 0) << "a guest has it";
    ASSERT_OK(guest.destroy());
    if (!by_hand) continue;
    expect_driver("pcilend_vfio");
    ASSERT_OK(borrower().run("pcilend return " + job().id()));
    EXPECT_OK(job().await_state(borrower(), "available"));
  }
  expect_returned();
  ASSERT_OK(guest.undefine());
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ guest: its kernel panics; what it wrote is still there
 */
TEST_F(Libvirt, ACrashedGuestHasItsFunctionAgain) {
  ASSERT_NO_FATAL_FAILURE(start_and_use());
  const std::string sum = "dd if=/dev/nvme0n1 bs=16k count=4 iflag=direct 2>/dev/null | sha256sum";
  const auto before = job().guest().run(sum);
  ASSERT_OK(before);
  const auto boot = MainJob::boot_id(job().guest());
  ASSERT_OK(boot);
  const auto lease = (*job().function_on(borrower())).at("lease");
  const auto panic = job().guest().start("echo c >/proc/sysrq-trigger", {{}, 5min});
  ASSERT_OK(panic);
  ASSERT_OK(MainJob::await_next_boot(job().guest(), *boot));
  ASSERT_OK(job().await_guest_disk());
  const auto after = job().guest().run(sum);
  ASSERT_OK(after);
  EXPECT_EQ(*after, *before);
  use();
  EXPECT_EQ((*job().function_on(borrower())).at("lease"), lease) << "the same all the time";
  ASSERT_OK(job().guest().destroy());
  expect_returned();
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ guest: autostart, wait='60'
 *   fenced, reset                  reset; libvirtd starts it before the link is up
 */
TEST_F(Libvirt, AGuestThatStartsWithItsHostWaitsForItsFunction) {
  ASSERT_NO_FATAL_FAILURE(start_and_use());
  ASSERT_OK(
      borrower().run("virsh metadata guest urn:pcilend:libvirt:1 --key pcilend --config --set "
                     "\"<functions wait='60'/>\" && virsh autostart guest && sync"));
  ASSERT_OK(borrower().reset());
  ASSERT_OK(job().await_guest_disk());
  use();
  EXPECT_OK(job().await_state(lender(), "borrowed"));
  ASSERT_OK(borrower().run("virsh autostart --disable guest"));
  ASSERT_OK(job().guest().destroy());
  expect_returned();
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme, labelled 'fast' ════════ guest: <choose class='0108' label='fast'/>; waits for it
 */
TEST_F(Libvirt, AGuestTakesWhatFits) {
  constexpr const char* kAny = "9c2c1b0a-8899-4abb-8cdd-eeff00112233";
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  auto spec = borrower().guest_spec("chooser", {});
  ASSERT_OK(spec);
  spec->uuids = {kAny};
  const lab::Guest guest = borrower().guest(*spec);
  ASSERT_OK(guest.define());
  const auto want = [&](int seconds) {
    return borrower().run(fmt::format(
        "virsh metadata chooser urn:pcilend:libvirt:1 --key pcilend --config --set \"<functions "
        "wait='{}'><choose uuid='{}' class='0108' label='fast'/></functions>\"",
        seconds, kAny));
  };
  ASSERT_OK(want(2));
  const auto refused = borrower().exec("virsh start chooser");
  ASSERT_OK(refused);
  EXPECT_NE(refused->code, 0);
  EXPECT_NE(refused->err.find("no host offers a function of class 0108, label fast"),
            std::string::npos)
      << refused->err;
  EXPECT_GE(refused->time, 2s);

  ASSERT_OK(want(60));
  auto start = borrower().start("virsh start chooser", {{}, 5min});
  ASSERT_OK(start);
  ASSERT_OK(lender().run({"pcilend", "label", *lender().address(0), "fast"}));
  const auto started = start->wait();
  ASSERT_OK(started);
  EXPECT_EQ(started->code, 0) << started->err;
  ASSERT_OK(MainJob::await_disk(guest));
  EXPECT_OK(guest.run(MainJob::kUseDisk));
  const auto function = job().function_on(borrower());
  ASSERT_OK(function);
  EXPECT_EQ(function->at("state"), "borrowed");
  EXPECT_EQ(borrower().run("virsh domuuid chooser | tr -d '\\n'").value_or(""),
            function->at("owner"));
  ASSERT_OK(guest.destroy());
  expect_returned();
  ASSERT_OK(guest.undefine());
  ASSERT_OK(lender().run({"pcilend", "label", *lender().address(0), ""}));
}

}  // namespace
}  // namespace pcilend::scenarios
