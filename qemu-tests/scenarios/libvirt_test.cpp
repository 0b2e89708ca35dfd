// SPDX-License-Identifier: GPL-2.0-or-later
// A borrowed function in the hands of libvirt: libvirtd comes and goes, functions are plugged in,
// and virsh manages their mediated devices.
#include "two_hosts.h"

namespace pcilend::scenarios {
namespace {

class Libvirt : public TwoHosts {
 protected:
  void start_and_use() {
    ASSERT_OK(job().lend());
    ASSERT_OK(job().see_available());
    ASSERT_OK(job().start_guest());
    ASSERT_OK(job().await_guest_disk());
    use();
  }
  void use() { EXPECT_OK(job().guest().run(kIo)); }

  void kill_libvirtd() {
    ASSERT_OK(borrower().run("pkill -KILL -x libvirtd"));
    ASSERT_OK(await("! pgrep -x libvirtd"));
  }
  // It has seen to all domains when it answers.
  void start_libvirtd() {
    ASSERT_OK(borrower().run("libvirtd -d"));
    ASSERT_OK(await("virsh list --all --name | grep -x guest"));
  }
  Result<lab::Output> await(const std::string& command) {
    return borrower().until(command, [](const lab::Output& output) { return output.code == 0; });
  }
  void expect_returned() {
    EXPECT_OK(job().await_state(borrower(), "available"));
    EXPECT_OK(job().await_state(lender(), "available"));
    EXPECT_OK(await("[ -z \"$(ls /sys/bus/mdev/devices)\" ]"));
    EXPECT_OK(await("[ -z \"$(ls /run/pcilend/domains)\" ]"));
  }

  static constexpr const char* kIo =
      "dd if=/dev/urandom of=/tmp/x bs=16k count=4 2>/dev/null && "
      "dd if=/tmp/x of=/dev/nvme0n1 bs=16k oflag=direct 2>/dev/null && "
      "dd if=/dev/nvme0n1 of=/tmp/y bs=16k count=4 iflag=direct 2>/dev/null && cmp /tmp/x /tmp/y";
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
 *   nvme ═════════════════════════ running guest: virsh attach-device, detach-device, twice
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
  ASSERT_OK(MainJob::await_answer(guest));
  ASSERT_OK(borrower().run(
      fmt::format("mdevctl start -u {} -p {} -t pcilend-function", uuid, job().id())));
  ASSERT_OK(borrower().run(fmt::format("pcilend vm-xml {} >/tmp/function.xml", job().id())));
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(borrower().run("virsh attach-device empty /tmp/function.xml"));
    ASSERT_OK(MainJob::await_disk(guest));
    EXPECT_OK(guest.run(kIo));
    EXPECT_OK(job().await_state(lender(), "borrowed"));
    ASSERT_OK(borrower().run("virsh detach-device empty /tmp/function.xml"));
    EXPECT_OK(job().await_state(borrower(), "available"));
  }
  ASSERT_OK(borrower().run("mdevctl stop -u " + uuid));
  ASSERT_OK(guest.destroy());
  ASSERT_OK(guest.undefine());
}

/*
 *   host2: mdevctl define; virsh nodedev-start, -autostart, -destroy, -undefine
 *
 * What is defined is the admin's: the hook uses it, and leaves it; and a domain starts without it.
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
  const std::string list = "virsh nodedev-list --inactive --cap mdev | grep .";
  ASSERT_OK(await(list));
  const auto name = borrower().run(list);
  ASSERT_OK(name);
  const std::string device = name->substr(0, name->find('\n'));
  ASSERT_OK(borrower().run("virsh nodedev-start " + device));
  EXPECT_OK(borrower().run(is_active));
  ASSERT_OK(borrower().run("virsh nodedev-autostart " + device));

  ASSERT_OK(job().start_guest());
  ASSERT_OK(job().await_guest_disk());
  use();
  ASSERT_OK(job().guest().destroy());
  EXPECT_OK(job().await_state(borrower(), "available"));
  EXPECT_OK(borrower().run(is_active));

  ASSERT_OK(borrower().run("virsh nodedev-destroy " + device));
  ASSERT_OK(job().guest().start());
  ASSERT_OK(job().await_guest_disk());
  ASSERT_OK(job().guest().destroy());
  expect_returned();
  ASSERT_OK(borrower().run("virsh nodedev-undefine " + device));
}

}  // namespace
}  // namespace pcilend::scenarios
