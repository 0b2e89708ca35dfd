// SPDX-License-Identifier: GPL-2.0-or-later
// What an installed Debian has and the lab's usual hosts have not: QEMU is not root, AppArmor
// confines it and libvirtd, systemd starts what there is.
#include <regex>

#include "lab/kernels.h"
#include "scenarios/libvirt/installed_host.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

class InstalledDebian : public OnInstalledHost {
 protected:
  void SetUp() override {
    OnInstalledHost::SetUp();
    if (HasFatalFailure()) return;
    const auto address = lender().address("a");
    ASSERT_OK(address);
    job_.emplace(lender(), host(), *address, "guest");
  }
  void TearDown() override {
    if (job_) EXPECT_OK(job().clean_up());
    OnInstalledHost::TearDown();
  }

  [[nodiscard]] MainJob& job() { return *job_; }

  // Data goes to the guest and comes back.
  void lend_to_guest(lab::Hostdev kind) {
    ASSERT_OK(job().fill_drive());
    ASSERT_OK(job().lend());
    ASSERT_OK(job().see_available());
    ASSERT_OK(job().start_guest(kind));
    expect_debians_defaults("guest", lab::kDefaultGuestMemory);
    ASSERT_OK(job().read_in_guest());
    ASSERT_OK(job().write_in_guest());
    EXPECT_OK(job().await_state(lender(), "borrowed"));
    ASSERT_OK(job().shut_down_guest());
    ASSERT_OK(job().take_back());
  }

 private:
  std::optional<MainJob> job_;
};

/*
 *   host1 (lender)                 host2 (installed Debian)
 *   nvme ═════════════════════════ virsh start guest: <hostdev type='pci'>, borrowed by the hook
 */
TEST_F(InstalledDebian, AGuestHasAFunctionByItsPciAddress) {
  lend_to_guest(lab::Hostdev::Pci);
}

/*
 *   host1 (lender)                 host2 (installed Debian)
 *   nvme ═════════════════════════ virsh start guest: <hostdev type='mdev'>, made by the hook
 */
TEST_F(InstalledDebian, AGuestHasAFunctionByAMediatedDevice) {
  lend_to_guest(lab::Hostdev::Mdev);
}

/*
 *   host1 (lender)                 host2 (installed Debian)
 *   nvme, not available ══════════ virsh start guest says why; then it is plugged in, with a
 * profile of AppArmor that was made without it
 */
TEST_F(InstalledDebian, AFunctionIsPluggedIntoAConfinedGuest) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  const auto function = job().function_on(host());
  ASSERT_OK(function);
  ASSERT_OK(lender().run("pcilend unavailable " + job().id()));
  ASSERT_OK(job().await_state(host(), "added"));
  const auto wants = job().another_guest("wants");
  ASSERT_OK(wants);
  ASSERT_OK(wants->define());
  const auto refused = host().exec("virsh start wants");
  ASSERT_OK(refused);
  EXPECT_NE(refused->code, 0);
  EXPECT_NE(refused->err.find("not available"), std::string::npos) << refused->err;
  ASSERT_OK(wants->undefine());

  ASSERT_OK(lender().run("pcilend available " + job().id()));
  ASSERT_OK(job().see_available());
  auto spec = host().guest_spec("empty", {});
  ASSERT_OK(spec);
  spec->free_slots = 1;
  const lab::Guest guest = host().guest(*spec);
  ASSERT_OK(guest.define());
  ASSERT_OK(guest.start());
  ASSERT_OK(guest.await_answer());
  struct Way {
    const char* option;
    std::string begin;
    std::string end;
  };
  const auto uuid = function->at("uuid").get<std::string>();
  for (const Way& way :
       {Way{"", "pcilend borrow --frontend vfio " + job().id(), "pcilend return " + job().id()},
        Way{"--mdev",
            fmt::format("mdevctl start -u {} -p {} -t pcilend-function", uuid, job().id()),
            "mdevctl stop -u " + uuid}}) {
    SCOPED_TRACE(way.begin);
    ASSERT_OK(host().run(way.begin));
    ASSERT_OK(
        host().run(fmt::format("pcilend vm-xml {} {} >/tmp/function.xml", way.option, job().id())));
    ASSERT_OK(host().run("virsh attach-device empty /tmp/function.xml"));
    ASSERT_OK(MainJob::await_disk(guest));
    EXPECT_OK(guest.run(MainJob::kUseDisk));
    expect_debians_defaults("empty", lab::kDefaultGuestMemory);
    ASSERT_OK(host().run("virsh detach-device empty /tmp/function.xml"));
    ASSERT_OK(host().until("! virsh dumpxml empty | grep -q '<hostdev'"));
    ASSERT_OK(host().run(way.end));
    EXPECT_OK(job().await_state(host(), "available"));
  }
  ASSERT_OK(guest.destroy());
  ASSERT_OK(guest.undefine());
}

/*
 *   host2 (installed Debian), --sanitize                   host3
 *   nvme c: erased by pcilend-sanitize@.service, lent ════ borrows it again: zeroes
 */
TEST_F(InstalledDebian, ItErasesWhatABorrowerHasLeft) {
  const auto address = host().address("c");
  ASSERT_OK(address);
  MainJob own(host(), other(), *address, "none");
  ASSERT_OK(own.lend("--sanitize"));
  ASSERT_OK(own.see_available());
  auto drive = own.borrow();
  ASSERT_OK(drive);
  constexpr const char* kErased = "cmp -n 131072 /dev/zero ";
  EXPECT_OK(
      other().run(fmt::format("head -c 128K /dev/urandom >/tmp/data && dd if=/tmp/data of={0} "
                              "bs=16k oflag=direct && ! {1}{0}",
                              drive->disk, kErased)));
  ASSERT_OK(other().run("pcilend return " + own.id()));
  EXPECT_OK(own.await_state(host(), "available"));
  EXPECT_OK(
      host().until(fmt::format("journalctl -u pcilend-sanitize@{} | grep Finished", *address)));
  ASSERT_OK(own.see_available());
  drive = own.borrow();
  ASSERT_OK(drive);
  EXPECT_OK(other().run(kErased + drive->disk));
  EXPECT_OK(own.clean_up());
}

/*
 *   host1 (lender)                 host2 (installed Debian)
 *   nvme ═════════════════════════ virt-install --hostdev: the PCI device that it is once borrowed,
 *                                  with `managed='yes'`, which is virt-install's default, and
 *                                  without; its UUID, borrowed by the hook
 */
TEST_F(InstalledDebian, VirtInstallMakesGuestsWithIt) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  const auto function = job().function_on(host());
  ASSERT_OK(function);
  const std::string address = function->at("address");
  const auto spec = host().guest_spec("made", {});
  ASSERT_OK(spec);
  const lab::Guest guest = host().guest(*spec);
  // virt-install parts its options by commas that are not doubled.
  const std::string quick = std::regex_replace(std::string(lab::kQuickBoot), std::regex(","), ",,");
  struct Way {
    bool before;  // it is borrowed
    std::string hostdev;
  };
  for (const Way& way :
       {Way{true, address + ",driver.name=vfio,xpath1.set=./driver/@model=pcilend_vfio"},
        Way{true, address + ",xpath1.set=./@managed=no"},
        Way{false,
            "type=mdev,xpath1.set=./@managed=no,xpath2.set=./@model=vfio-pci,"
            "xpath3.set=./source/address/@uuid=" +
                function->at("uuid").get<std::string>()}}) {
    SCOPED_TRACE(way.hostdev);
    if (way.before) {
      ASSERT_OK(host().run("pcilend borrow --frontend vfio " + job().id()));
      // libvirt hears of it by udev.
      ASSERT_OK(host().until("virsh nodedev-list --cap pci | grep -x pci_" +
                             std::regex_replace(address, std::regex("[:.]"), "_")));
    }
    ASSERT_OK(host().run(
        fmt::format("virt-install --name made --memory {} --osinfo detect=off,require=off "
                    "--boot 'kernel={}/vmlinux,initrd={}/initrd,kernel_args=console=ttyS0 "
                    "nokaslr mitigations=off mce=off pci=lastbus=0 {}' --disk none --network none "
                    "--graphics none "
                    "--noautoconsole --controller usb,model=none "
                    "--channel 'unix,source.mode=bind,source.path={},target.type=virtio,"
                    "target.name=pcilend.agent' --hostdev {}",
                    spec->memory, spec->directory, spec->directory, quick,
                    lab::guest_agent_socket("made"), way.hostdev),
        {{}, 5min}));
    ASSERT_OK(MainJob::await_disk(guest));
    EXPECT_OK(guest.run(MainJob::kUseDisk));
    expect_debians_defaults("made", spec->memory);
    const auto now = job().function_on(host());
    ASSERT_OK(now);
    EXPECT_EQ(now->at("driver"), "pcilend_vfio");
    ASSERT_OK(guest.destroy());
    if (way.before) {
      EXPECT_EQ((*job().function_on(host())).at("driver"), "pcilend_vfio") << "it stays as it was";
      ASSERT_OK(host().run("pcilend return " + job().id()));
    }
    EXPECT_OK(job().await_state(host(), "available"));
    ASSERT_OK(guest.undefine());
  }
}

/*
 *   host1 (lender)                 host2 (installed Debian)
 *   nvme a ═══════════════════════ reset: borrowed again (borrow --boot); a guest has it as it is
 *   nvme b ═══════════════════════ its mediated device is there again (mdevctl define --auto)
 */
TEST_F(InstalledDebian, ItBootsAndBorrowsAgain) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  const auto second = lender().address("b");
  ASSERT_OK(second);
  ASSERT_OK(lender().run(fmt::format("pcilend add {0} && pcilend available {0}", *second)));
  auto uuid = lender().run(
      fmt::format("pcilend list -n -o bdf,uuid | awk '$1 == \"{}\" {{ printf $2 }}'", *second));
  ASSERT_OK(uuid);
  ASSERT_OK(
      host().until(fmt::format("pcilend list -n -o uuid,state | grep -q '{} *available'", *uuid)));
  ASSERT_OK(host().run("systemctl --quiet enable pcilend-borrow pcilend-mdevs"));
  ASSERT_OK(host().run("pcilend borrow --boot --frontend vfio " + job().id()));
  ASSERT_OK(host().run(fmt::format(
      "mdevctl define -a -u {} -p 8000:00:01.0 -t pcilend_mdev-storage && sync", *uuid)));
  ASSERT_OK(host().reset());

  const auto owner = [&] {
    const auto function = job().function_on(host());
    return function ? function->at("owner") : nlohmann::json();
  };
  EXPECT_OK(lab::eventually("both are borrowed again", lab::kPatience, [&] {
    return owner() == "user root" && host().run("test -e /sys/bus/mdev/devices/" + *uuid);
  }));
  EXPECT_OK(
      host().until(fmt::format("pcilend list -n -o uuid,owner | grep -q '{0} *mdev:{0}'", *uuid)));
  const auto failed = host().run("systemctl --failed --plain --no-legend");
  ASSERT_OK(failed);
  EXPECT_EQ(*failed, "");
  ASSERT_OK(job().start_guest());
  ASSERT_OK(job().await_guest_disk());
  EXPECT_OK(job().guest().run(MainJob::kUseDisk));
  ASSERT_OK(job().guest().destroy());
  EXPECT_EQ(owner(), "user root") << "it stays as it was";

  EXPECT_OK(host().run("pcilend return --boot " + job().id() + " && rm -r /etc/pcilend"));
  EXPECT_OK(host().run(fmt::format("mdevctl stop -u {0} && mdevctl undefine -u {0}", *uuid)));
  EXPECT_OK(host().run("systemctl --quiet disable pcilend-borrow pcilend-mdevs"));
  EXPECT_OK(lender().until(fmt::format("pcilend unavailable {0} && pcilend remove {0}", *second)));
}

}  // namespace
}  // namespace pcilend::scenarios
