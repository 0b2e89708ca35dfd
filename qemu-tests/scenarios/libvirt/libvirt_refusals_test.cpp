// SPDX-License-Identifier: GPL-2.0-or-later
// What an admin reads when a domain does not start, to the letter.
#include <functional>

#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

constexpr const char* kDrive = "40001 (Red Hat, Inc. QEMU NVM Express Controller)";
constexpr const char* kAny = "9c2c1b0a-8899-4abb-8cdd-eeff00112233";

// Of virsh, for a hook that ends so.
std::string refusal(ErrorClass code, const std::string& message) {
  return fmt::format(
      "error: Failed to start domain 'refused'\n"
      "error: Hook script execution failed: internal error: Child process (LC_ALL=C "
      "PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root /etc/libvirt/hooks/qemu.d/pcilend refused "
      "prepare begin -) unexpected exit status {}: pcilend: domain 'refused': {}\n\n",
      static_cast<int>(code), message);
}

std::string options(const std::string& xml) {
  return fmt::format(
      "virsh metadata refused urn:pcilend:libvirt:1 --key pcilend --config --set \"{}\"", xml);
}

class LibvirtRefusals : public TwoHosts {
 protected:
  void SetUp() override {
    TwoHosts::SetUp();
    if (HasFatalFailure()) return;
    ASSERT_OK(job().lend());
    ASSERT_OK(job().see_available());
    address_ = *lender().address(0);
    auto refused = job().another_guest("refused");
    ASSERT_OK(refused);
    refused_.emplace(std::move(*refused));
    ASSERT_OK(refused_->define());
  }
  void TearDown() override {
    if (refused_) EXPECT_OK(refused_->undefine());
    refused_.reset();
    TwoHosts::TearDown();
  }

  // Nothing has changed for it either.
  void expect_refusal(ErrorClass code, const std::string& message) {
    const auto start = borrower().exec("virsh start refused");
    ASSERT_OK(start);
    EXPECT_NE(start->code, 0);
    EXPECT_EQ(start->err, refusal(code, message));
    EXPECT_OK(borrower().run("! ls /run/pcilend/domains/* /sys/bus/mdev/devices/*"));
  }
  void expect_state(const std::string& state) { EXPECT_OK(job().await_state(borrower(), state)); }

  std::string address_;
  std::optional<lab::Guest> refused_;
};

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme: anything but free ══════ virsh start: the reason, and what to do
 */
TEST_F(LibvirtRefusals, AFunctionThatCannotBeHad) {
  ASSERT_OK(lender().run("pcilend unavailable " + address_));
  expect_state("added");
  expect_refusal(ErrorClass::State, fmt::format("{} is not available: on node 4 run 'pcilend "
                                                "available {}'",
                                                kDrive, address_));
  ASSERT_OK(lender().run("pcilend allow " + address_ + " none"));
  ASSERT_OK(borrower().until(
      "pcilend list", [](const auto& o) { return o.out.find("40001:") == std::string::npos; }));
  expect_refusal(ErrorClass::NotFound,
                 "no host offers function 40001 to this one: on its lender run 'pcilend connect 8' "
                 "and 'pcilend "
                 "add' with its address; 'pcilend link' shows the hosts in reach");
  ASSERT_OK(lender().run("pcilend allow " + address_ + " all"));
  ASSERT_OK(lender().run("pcilend available " + address_));
  expect_state("available");

  ASSERT_OK(lender().run("pcilend reserve 40001 --for 12 --ttl 600"));
  expect_refusal(ErrorClass::Permission,
                 fmt::format("{}: it is reserved for another node or domain: see its lender's "
                             "'pcilend show'",
                             kDrive));
  ASSERT_OK(lender().run("pcilend reserve 40001 --cancel"));

  ASSERT_OK(borrower().run("pcilend borrow --wait 40001"));
  expect_refusal(ErrorClass::State,
                 fmt::format("{} is in use on this host by 'user root': end that first", kDrive));
  ASSERT_OK(borrower().run("pcilend return 40001"));
  expect_state("available");

  ASSERT_OK(borrower().run(fmt::format(
      "echo {} >/sys/bus/pcilend/devices/40001/mdev_supported_types/pcilend-function/create",
      kAny)));
  const auto held = borrower().exec("virsh start refused");
  ASSERT_OK(held);
  EXPECT_EQ(held->err,
            refusal(ErrorClass::State,
                    fmt::format("{0} is in use on this host by mediated device {1}: stop it "
                                "('mdevctl stop -u {1}')",
                                kDrive, kAny)));
  const std::string methods = "/sys/bus/pci/devices/" + address_ + "/reset_method";
  ASSERT_OK(lender().run("echo >" + methods));
  ASSERT_OK(borrower().run(fmt::format("echo 1 >/sys/bus/mdev/devices/{}/remove", kAny)));
  expect_state("quarantined");
  expect_refusal(
      ErrorClass::State,
      fmt::format("{0} is quarantined: on node 4 run 'pcilend show 40001'; if it waits to "
                  "be erased, 'pcilend sanitize {1}', else 'pcilend release-quarantine "
                  "{1}'",
                  kDrive, address_));
  ASSERT_OK(lender().run("echo default >" + methods));
  ASSERT_OK(lender().run("pcilend release-quarantine " + address_));
  expect_state("available");
}

/*
 *   host2: a domain has the function; another one wants it, and the first one shall be saved
 */
TEST_F(LibvirtRefusals, WhatADomainHasStaysThere) {
  ASSERT_OK(job().start_guest());
  const auto second = borrower().exec("virsh start refused");
  ASSERT_OK(second);
  EXPECT_EQ(
      second->err,
      refusal(ErrorClass::State,
              fmt::format("{} is in use on this host by domain 'guest': end that first", kDrive)));
  // libvirt's own: it can't save what is in a device.
  for (const auto& [command, failed] :
       {std::pair{"virsh managedsave guest", "save domain 'guest' state"},
        {"virsh save guest /tmp/saved", "save domain 'guest' to /tmp/saved"}}) {
    const auto saved = borrower().exec(command);
    ASSERT_OK(saved);
    EXPECT_NE(saved->code, 0);
    EXPECT_EQ(saved->err,
              fmt::format("error: Failed to {}\nerror: Requested operation is not valid: cannot "
                          "migrate domain: 8004:01:00.0: VFIO migration is not supported in "
                          "kernel\n",
                          failed));
  }
  ASSERT_OK(job().guest().destroy());
}

/*
 *   host2: options that can't be followed, what is left of another time, a missing module
 */
TEST_F(LibvirtRefusals, AHostOrADomainThatIsNotReady) {
  ASSERT_OK(borrower().run(options("<functions wait='soon'/>")));
  expect_refusal(
      ErrorClass::Usage,
      "the domain's metadata ('virsh edit', urn:pcilend:libvirt:1): wait='soon': seconds "
      "are expected, 60 at most");
  ASSERT_OK(borrower().run(
      options(fmt::format("<functions><choose uuid='{}' class='02'/></functions>", kAny))));
  expect_refusal(ErrorClass::Usage,
                 fmt::format("the domain's metadata ('virsh edit', urn:pcilend:libvirt:1): <choose "
                             "uuid='{}'>: the domain has no <hostdev type='mdev'> of that UUID",
                             kAny));
  ASSERT_OK(borrower().run("virsh metadata refused urn:pcilend:libvirt:1 --config --remove"));

  const std::string record = "/run/pcilend/domains/$(virsh domuuid refused | head -n 1).json";
  ASSERT_OK(borrower().run("mkdir -p /run/pcilend/domains && echo x >" + record));
  const auto damaged = borrower().exec("virsh start refused");
  ASSERT_OK(damaged);
  EXPECT_NE(
      damaged->err.find(
          ".json is damaged: return what the domain borrowed ('pcilend list'), then remove it"),
      std::string::npos)
      << damaged->err;
  ASSERT_OK(borrower().run("rm " + record));

  ASSERT_OK(borrower().run("rmmod pcilend_mdev"));
  expect_refusal(ErrorClass::Unsupported,
                 fmt::format("{}: no such frontend is loaded: run 'modprobe pcilend_shadow' for "
                             "shadow, 'modprobe pcilend_mdev' for vfio",
                             kDrive));
  ASSERT_OK(borrower().run("modprobe pcilend_mdev"));
}

}  // namespace
}  // namespace pcilend::scenarios
