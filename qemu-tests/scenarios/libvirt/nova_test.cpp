// SPDX-License-Identifier: GPL-2.0-or-later
// Nova's own driver for libvirt, as Debian has it, against the libvirtd of an installed Debian:
// inventory, instances with mediated devices and with PCI devices. nova/nova_host.py says what is
// Nova's and what is not.
#include <unistd.h>

#include "lab/cpio.h"
#include "lab/kernels.h"
#include "scenarios/libvirt/installed_host.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr const char* kProgram = "/usr/lib/pcilend-lab/nova_host.py";
constexpr const char* kSocket = "/run/pcilend-lab/nova.sock";
constexpr const char* kService = "pcilend-lab-nova.service";
constexpr const char* kRamdisk = "/var/lib/nova/ramdisk";
constexpr const char* kRunning = "1";  // nova.compute.power_state

// In place of the agent, for which Nova's instances have no port: what the instance reads from its
// drive, and what it writes behind that, is on its console.
constexpr const char* kInInstance = R"(#!/bin/busybox sh
until [ -b /dev/nvme0n1 ]; do usleep 200000; done
sum() { sha256sum | cut -c1-64; }
read=$(dd if=/dev/nvme0n1 bs=16k count=4 iflag=direct 2>/dev/null | sum)
dd if=/dev/urandom of=/tmp/x bs=16k count=4 2>/dev/null
dd if=/tmp/x of=/dev/nvme0n1 bs=16k seek=4 oflag=direct 2>/dev/null
again=$(dd if=/dev/nvme0n1 bs=16k skip=4 count=4 iflag=direct 2>/dev/null | sum)
wrote=$(sum </tmp/x)
[ $again = $wrote ] && echo "pcilend: read $read wrote $wrote." >/dev/console
while :; do sleep 1000; done
)";

/*
 *   host1 (lender)      host2 (installed Debian)
 *   nvme a, b ═════════ libvirtd ── nova.virt.libvirt.driver.LibvirtDriver
 *             ═════════ host3: borrows one now and then
 */
class Nova : public OnInstalledHost {
 protected:
  static void SetUpTestSuite() {
    OnInstalledHost::SetUpTestSuite();
    if (HasFatalFailure()) return;
    // Where a function is on every borrower is known once it was offered.
    for (const char* id : {"a", "b"}) {
      const auto address = lender().address(id);
      ASSERT_OK(address);
      const auto offered = offer(lender(), *address);
      ASSERT_OK(offered);
      ids_.push_back(offered->at("id"));
      places_.push_back(offered->at("address"));
    }
    withdraw_all();
    discover();
    if (!HasFatalFailure()) install();
    if (!HasFatalFailure()) start_nova();
  }
  static void TearDownTestSuite() {
    if (lab_) EXPECT_OK(host().exec(fmt::format("systemctl stop {}", kService)));
    ids_.clear();
    places_.clear();
    OnInstalledHost::TearDownTestSuite();
  }

  void TearDown() override {
    if (lab_) {
      EXPECT_OK(
          host().run("for d in $(virsh list --all --name); do virsh destroy $d >/dev/null 2>&1; "
                     "virsh undefine $d; done"));
      remove_devices();
      for (const std::string& id : ids_)
        for (const lab::Host* borrower : {&host(), &other()})
          EXPECT_OK(borrower->exec("pcilend return " + id));
      withdraw_all();
    }
    OnInstalledHost::TearDown();
  }

  // The parent of mediated devices of drives, and their type there.
  static void discover() {
    const auto types = host().run("ls -d /sys/class/mdev_bus/*/mdev_supported_types/*-storage");
    ASSERT_OK(types);
    const std::string path = types->substr(0, types->find('\n'));
    type_ = path.substr(path.rfind('/') + 1);
    const auto below = path.find("/mdev_bus/") + 10;
    parent_ = path.substr(below, path.find('/', below) - below);
  }

  static void install() {
    lab::CpioWriter instead;
    instead.add_file("agent", kInInstance, 0755);
    ASSERT_OK(host().run("mkdir -p /var/lib/nova /etc/nova"));
    ASSERT_OK(host().write("/tmp/instead.cpio", std::move(instead).finish()));
    ASSERT_OK(host().run(
        fmt::format("cat /usr/share/pcilend-lab/guest/initrd /tmp/instead.cpio >{}", kRamdisk)));
    ASSERT_OK(host().put(PCILEND_NOVA_HOST, kProgram));
    ASSERT_OK(host().write("/etc/nova/nova.conf",
                           fmt::format(R"([DEFAULT]
state_path = /var/lib/nova
instances_path = /var/lib/nova/instances
my_ip = 127.0.0.1
resume_guests_state_on_host_boot = true
[libvirt]
virt_type = kvm
cpu_mode = host-passthrough
images_type = raw
mem_stats_period_seconds = 0
[vnc]
enabled = false
[oslo_concurrency]
lock_path = /run/lock/nova
[devices]
enabled_mdev_types = {0}
[mdev_{0}]
device_addresses = {1}
mdev_class = CUSTOM_PCILEND_STORAGE
[pci]
device_spec = {{"address": "{2}:*:*.*", "managed": "no"}}
alias = {{"vendor_id": "1b36", "product_id": "0010", "device_type": "type-PCI", "name": "borrowed"}}
)",
                                       type_, parent_, places_.at(0).substr(0, 4))));
    ASSERT_OK(host().write(
        fmt::format("/etc/systemd/system/{}", kService),
        fmt::format("[Unit]\nAfter=libvirtd.service pcilend.service\n"
                    "[Service]\nExecStart={} serve {} /usr/share/pcilend-lab/guest/vmlinux {} "
                    "\"console=ttyS0 loglevel=5 mitigations=off mce=off nokaslr panic=-1 {}\"\n"
                    "[Install]\nWantedBy=multi-user.target\n",
                    kProgram, kSocket, kRamdisk, lab::kQuickBoot)));
    ASSERT_OK(host().run("systemctl daemon-reload"));
  }

  // A command that returns when that is so, or when the service has ended.
  static std::string await_service(const std::string& condition) {
    return fmt::format(
        "timeout 600 sh -c 'until {} || ! systemctl is-active --quiet {}; do sleep 2; done'",
        condition, kService);
  }
  // Until its init_host() has ended.
  static void start_nova() {
    ASSERT_OK(host().run(fmt::format("rm -f {}; systemctl restart {}", kSocket, kService)));
    // One command that waits: to ask again and again would take a third of the host's CPU.
    ASSERT_OK(host().run(await_service("[ -S " + std::string(kSocket) + " ]"), {{}, 11min}));
    const auto active = host().exec(fmt::format("systemctl is-active --quiet {}", kService));
    ASSERT_OK(active);
    ASSERT_EQ(active->code, 0)
        << host().run(fmt::format("journalctl -b -n 40 -o cat -u {}", kService)).value_or("");
  }

  // What nova_host.py answers: {"answer": …} or {"error": …, "message": …}.
  static void ask_for(const std::string& command, json* answer) {
    const auto said =
        host().json(fmt::format("{} ask {} {}", kProgram, kSocket, command), {{}, 5min});
    ASSERT_OK(said);
    *answer = *said;
  }
  static void ask(const std::string& command, json* answer) {
    json said;
    ASSERT_NO_FATAL_FAILURE(ask_for(command, &said));
    ASSERT_TRUE(said.contains("answer"))
        << command << ": " << said.dump() << "\n"
        << host().run(fmt::format("journalctl -b -n 60 -o cat -u {}", kService)).value_or("");
    *answer = said.at("answer");
  }
  static void expect_refused(const std::string& command) {
    json said;
    ASSERT_NO_FATAL_FAILURE(ask_for(command, &said));
    EXPECT_EQ(said.value("error", ""), "ComputeResourcesUnavailable") << said.dump();
  }
  // So many devices, of which so many are there.
  static void expect_inventory(int total, size_t devices) {
    json inventory;
    ASSERT_TRUE(lab::eventually(
        fmt::format("Nova counts {} and {}", total, devices), lab::kPatience,
        [&] {
          ask("inventory", &inventory);
          return HasFatalFailure() ||
                 (inventory.at("total") == total && inventory.at("devices").size() == devices);
        }))
        << inventory.dump();
  }

  static void lend(size_t drive) {
    const auto address = lender().address(drive);
    ASSERT_OK(address);
    ASSERT_OK(offer(lender(), *address));
    ASSERT_OK(await_state(host(), ids_.at(drive), "available"));
    ASSERT_OK(await_state(other(), ids_.at(drive), "available"));
  }
  static void withdraw_all() {
    for (size_t drive = 0; drive < ids_.size(); ++drive) {
      const auto function = function_on(lender(), ids_.at(drive));
      if (!function) continue;
      const auto state = function->at("state");
      if (state == "borrowed") EXPECT_OK(await_state(lender(), ids_.at(drive), "available"));
      if (state != "added" && state != "local")
        EXPECT_OK(lender().run("pcilend unavailable " + ids_.at(drive)));
      EXPECT_OK(lender().run("pcilend remove " + ids_.at(drive)));
    }
  }
  // What an admin does with what Nova keeps: docs/stacks.md.
  static void remove_devices() {
    EXPECT_OK(
        host().run("for u in $(ls /sys/bus/mdev/devices); do mdevctl stop -u $u || exit 1; done; "
                   "for u in $(mdevctl list -d | cut -d' ' -f1); do mdevctl undefine -u $u || "
                   "exit 1; done"));
  }
  // The function that a mediated device has; "": none.
  static std::string function_of(const std::string& uuid) {
    const auto list = host().json("pcilend list --json");
    EXPECT_OK(list);
    if (!list) return "";
    for (const auto& function : list->at("functions"))
      if (function.at("owner") == "mdev:" + uuid) return function.at("id");
    return "";
  }

  // The first 64 KiB of the lender's drive, which it has still.
  static void fill(size_t drive, std::string* sum) {
    const auto address = lender().address(drive);
    ASSERT_OK(address);
    const auto disk = await_disk(lender(), *address);
    ASSERT_OK(disk);
    const auto text =
        lender().run(fmt::format("dd if=/dev/urandom of=/tmp/data bs=16k count=4 2>/dev/null && "
                                 "dd if=/tmp/data of={} bs=16k conv=fsync 2>/dev/null && "
                                 "sha256sum </tmp/data | cut -c1-64 | tr -d '\\n'",
                                 *disk));
    ASSERT_OK(text);
    *sum = *text;
  }
  // What the instance has read; what it has written is left in *wrote.
  static void expect_read(int number, const std::string& sum, std::string* wrote) {
    const std::string read = fmt::format("pcilend: read {} wrote ", sum);
    json console;
    ASSERT_TRUE(lab::eventually("the instance has used its drive", 5min, [&] {
      ask(fmt::format("console {}", number), &console);
      return HasFatalFailure() || console.get<std::string>().find(" wrote ") != std::string::npos;
    })) << console;
    const std::string text = console;
    const size_t at = text.rfind(read);
    ASSERT_NE(at, std::string::npos) << "the instance read something else: " << text;
    *wrote = text.substr(at + read.size(), 64);
  }
  // Back at the lender, after withdraw_all().
  static void expect_written(size_t drive, const std::string& wrote) {
    const auto address = lender().address(drive);
    ASSERT_OK(address);
    const auto disk = await_disk(lender(), *address);
    ASSERT_OK(disk);
    const auto sum = lender().run(fmt::format(
        "dd if={} bs=16k skip=4 count=4 iflag=direct 2>/dev/null | sha256sum | cut -c1-64 | "
        "tr -d '\\n'",
        *disk));
    ASSERT_OK(sum);
    EXPECT_EQ(*sum, wrote);
  }

  static std::vector<std::string> ids_;
  static std::vector<std::string> places_;
  static std::string type_;
  static std::string parent_;
};

std::vector<std::string> Nova::ids_;
std::vector<std::string> Nova::places_;
std::string Nova::type_;
std::string Nova::parent_;

/*
 *   host1 (lender)      host2: Nova            host3
 *   -                   0
 *   a                   1 = 0 + 1 available
 *   a                   1 = 1 device + 0       (allocated: the device has a function)
 *   a, b                2 = 1 device + 1
 *   a, b                1 = 1 device + 0       has the other one
 *   a, b                2 = 0 + 2              (the device was removed)
 */
TEST_F(Nova, CountsWhatTheHostCanHave) {
  expect_inventory(0, 0);
  ASSERT_NO_FATAL_FAILURE(lend(0));
  ASSERT_NO_FATAL_FAILURE(expect_inventory(1, 0));

  json devices;
  ASSERT_NO_FATAL_FAILURE(ask("allocate", &devices));
  ASSERT_EQ(devices.size(), 1U);
  const std::string uuid = devices.at(0);
  EXPECT_EQ(function_of(uuid), ids_.at(0));
  EXPECT_OK(await_state(lender(), ids_.at(0), "borrowed"));
  ASSERT_NO_FATAL_FAILURE(expect_inventory(1, 1));

  ASSERT_NO_FATAL_FAILURE(lend(1));
  ASSERT_NO_FATAL_FAILURE(expect_inventory(2, 1));
  ASSERT_OK(other().run("pcilend borrow --frontend vfio " + ids_.at(1)));
  ASSERT_NO_FATAL_FAILURE(expect_inventory(1, 1));
  ASSERT_OK(other().run("pcilend return " + ids_.at(1)));
  ASSERT_NO_FATAL_FAILURE(expect_inventory(2, 1));

  // Nova keeps a device that no instance has, and gives it to the next one.
  ASSERT_NO_FATAL_FAILURE(ask("allocate", &devices));
  EXPECT_EQ(devices, json({uuid}));
  remove_devices();
  EXPECT_OK(await_state(lender(), ids_.at(0), "available"));
  ASSERT_NO_FATAL_FAILURE(expect_inventory(2, 0));
}

/*
 *   host1 (lender)      host2: Nova
 *   nvme ══════════════ spawn(), reboot(HARD), init_host() of a new process, destroy(), spawn()
 *
 * All with the same device and the same data. While an instance has it, another one is refused.
 */
TEST_F(Nova, AnInstanceKeepsItsFunction) {
  std::string sum;
  ASSERT_NO_FATAL_FAILURE(fill(0, &sum));
  ASSERT_NO_FATAL_FAILURE(lend(0));
  ASSERT_NO_FATAL_FAILURE(expect_inventory(1, 0));
  json instance;
  ASSERT_NO_FATAL_FAILURE(ask("spawn 1", &instance));
  EXPECT_EQ(instance.at("state").dump(), kRunning);
  ASSERT_EQ(instance.at("devices").size(), 1U);
  const std::string uuid = instance.at("devices").at(0);
  EXPECT_EQ(function_of(uuid), ids_.at(0));
  expect_debians_defaults(instance.at("name"), 256);
  std::string wrote;
  ASSERT_NO_FATAL_FAILURE(expect_read(1, sum, &wrote));

  ASSERT_NO_FATAL_FAILURE(expect_inventory(1, 1));
  expect_refused("allocate");
  ASSERT_NO_FATAL_FAILURE(expect_inventory(1, 1));

  json rebooted;
  ASSERT_NO_FATAL_FAILURE(ask("hard_reboot 1", &rebooted));
  EXPECT_EQ(rebooted, instance);
  EXPECT_EQ(function_of(uuid), ids_.at(0));
  ASSERT_NO_FATAL_FAILURE(expect_read(1, sum, &wrote));

  ASSERT_NO_FATAL_FAILURE(start_nova());
  ASSERT_NO_FATAL_FAILURE(expect_inventory(1, 1));
  expect_refused("allocate");
  ASSERT_NO_FATAL_FAILURE(ask("hard_reboot 1", &rebooted));
  EXPECT_EQ(rebooted, instance);
  ASSERT_NO_FATAL_FAILURE(expect_read(1, sum, &wrote));

  json left;
  ASSERT_NO_FATAL_FAILURE(ask("destroy 1", &left));
  EXPECT_EQ(left, json::array());
  ASSERT_NO_FATAL_FAILURE(expect_inventory(1, 1));
  ASSERT_NO_FATAL_FAILURE(ask("spawn 2", &instance));
  EXPECT_EQ(instance.at("devices"), json({uuid}));
  ASSERT_NO_FATAL_FAILURE(expect_read(2, sum, &wrote));
  ASSERT_NO_FATAL_FAILURE(ask("destroy 2", &left));
  remove_devices();
  withdraw_all();
  expect_written(0, wrote);
}

/*
 *   host1 (lender)      host2: Nova
 *   nvme ══════════════ spawn(); the host is reset; systemd starts Nova with it: init_host(),
 *   fenced, reset       resume_state_on_host_boot()
 *
 * The instance is there again, with the same device and the same data; nobody has done anything.
 */
TEST_F(Nova, AnInstanceIsThereAgainAfterAReset) {
  std::string sum;
  ASSERT_NO_FATAL_FAILURE(fill(0, &sum));
  ASSERT_NO_FATAL_FAILURE(lend(0));
  ASSERT_NO_FATAL_FAILURE(expect_inventory(1, 0));
  json instance;
  ASSERT_NO_FATAL_FAILURE(ask("spawn 1", &instance));
  ASSERT_EQ(instance.at("devices").size(), 1U);
  std::string wrote;
  ASSERT_NO_FATAL_FAILURE(expect_read(1, sum, &wrote));

  // Its devices can't be started before the lender has noticed.
  const std::string again = fmt::format("/etc/systemd/system/{}.d", kService);
  ASSERT_OK(host().run(fmt::format(
      "mkdir -p {0} && printf '[Unit]\\nStartLimitIntervalSec=0\\n[Service]\\nRestart=on-failure\\n"
      "RestartSec=5\\n' >{0}/again.conf && systemctl daemon-reload && "
      "systemctl --quiet enable {1} && sync",
      again, kService)));
  ASSERT_OK(host().reset());
  ASSERT_OK(host().run(
      fmt::format("timeout 1000 sh -c 'until [ -S {} ]; do sleep 2; done'", kSocket), {{}, 18min}));
  json resumed;
  ASSERT_NO_FATAL_FAILURE(ask("show 1", &resumed));
  EXPECT_EQ(resumed, instance);
  EXPECT_EQ(function_of(instance.at("devices").at(0)), ids_.at(0));
  ASSERT_NO_FATAL_FAILURE(expect_read(1, sum, &wrote));
  ASSERT_NO_FATAL_FAILURE(expect_inventory(1, 1));

  json left;
  ASSERT_NO_FATAL_FAILURE(ask("destroy 1", &left));
  EXPECT_EQ(left, json::array());
  EXPECT_OK(
      host().run(fmt::format("systemctl --quiet disable {} && rm -r {} && "
                             "systemctl daemon-reload",
                             kService, again)));
  remove_devices();
  withdraw_all();
  expect_written(0, wrote);
}

/*
 *   host1 (lender)      host2: Nova            host3
 *   nvme ══════════════ a device is defined, and not there
 *        ═════════════════════════════════════ has it
 *
 * Nova starts all devices that are defined when it starts, and can't start this one. It starts when
 * the device is not defined any more.
 */
TEST_F(Nova, ADefinedDeviceThatSomebodyElseHasKeepsItFromStarting) {
  ASSERT_NO_FATAL_FAILURE(lend(0));
  ASSERT_NO_FATAL_FAILURE(expect_inventory(1, 0));
  json devices;
  ASSERT_NO_FATAL_FAILURE(ask("allocate", &devices));
  const std::string uuid = devices.at(0);
  ASSERT_OK(host().run("mdevctl stop -u " + uuid));
  ASSERT_OK(await_state(other(), ids_.at(0), "available"));
  ASSERT_OK(other().run("pcilend borrow --frontend vfio " + ids_.at(0)));
  ASSERT_OK(host().run(fmt::format("rm -f {}; systemctl restart {}", kSocket, kService)));
  ASSERT_OK(host().run(await_service("false"), {{}, 11min}));
  ASSERT_OK(host().run(fmt::format("systemctl is-failed --quiet {}", kService)));
  const auto said = host().run(fmt::format("journalctl -b -n 60 -o cat -u {}", kService));
  ASSERT_OK(said);
  EXPECT_NE(said->find("No available instances of pcilend_mdev-storage"), std::string::npos)
      << *said;
  ASSERT_OK(host().run("mdevctl undefine -u " + uuid));
  ASSERT_NO_FATAL_FAILURE(start_nova());
  expect_inventory(0, 0);
  ASSERT_OK(other().run("pcilend return " + ids_.at(0)));
  expect_inventory(1, 0);
}

/*
 *   host1 (lender)      host2: Nova
 *   nvme ══════════════ allocated, removed by the admin: twenty times
 */
TEST_F(Nova, TwentyDevicesLeaveNothing) {
  ASSERT_NO_FATAL_FAILURE(lend(0));
  ASSERT_NO_FATAL_FAILURE(expect_inventory(1, 0));
  std::set<std::string> seen;
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    json devices;
    ASSERT_NO_FATAL_FAILURE(ask("allocate", &devices));
    const std::string uuid = devices.at(0);
    ASSERT_TRUE(seen.insert(uuid).second) << "it was removed";
    ASSERT_EQ(function_of(uuid), ids_.at(0));
    ASSERT_OK(host().run(fmt::format("mdevctl stop -u {0} && mdevctl undefine -u {0}", uuid)));
    ASSERT_OK(await_state(lender(), ids_.at(0), "available"));
    ASSERT_OK(await_state(host(), ids_.at(0), "available"));
  }
  expect_inventory(1, 0);
}

/*
 *   host1 (lender)      host2: Nova
 *   nvme ══════════════ pcilend borrow --frontend vfio: a PCI device of the host, which [pci]
 * device_spec takes, for an instance with an alias
 */
TEST_F(Nova, AnInstanceHasAFunctionAsAPciDevice) {
  std::string sum;
  ASSERT_NO_FATAL_FAILURE(fill(0, &sum));
  ASSERT_NO_FATAL_FAILURE(lend(0));
  const std::string& place = places_.at(0);
  ASSERT_OK(host().run("pcilend borrow --frontend vfio " + ids_.at(0)));
  json devices;
  ASSERT_TRUE(lab::eventually("Nova lists it", lab::kPatience, [&] {
    ask("pci", &devices);
    return HasFatalFailure() || devices.at("tracked").contains(place);
  })) << devices.dump();
  EXPECT_EQ(devices.at("tracked"), json({{place, "available"}})) << "and nothing else";
  EXPECT_EQ(devices.at("pools"), 1);

  json instance;
  ASSERT_NO_FATAL_FAILURE(ask("spawn_with_pci 3", &instance));
  EXPECT_EQ(instance.at("state").dump(), kRunning);
  ASSERT_NO_FATAL_FAILURE(ask("pci", &devices));
  EXPECT_EQ(devices.at("tracked"), json({{place, "allocated"}}));
  EXPECT_EQ(devices.at("pools"), 0);
  expect_debians_defaults(instance.at("name"), 256);
  std::string wrote;
  ASSERT_NO_FATAL_FAILURE(expect_read(3, sum, &wrote));
  ASSERT_NO_FATAL_FAILURE(ask("destroy 3", &devices));
  ASSERT_OK(host().run("pcilend return " + ids_.at(0)));
  withdraw_all();
  expect_written(0, wrote);
}

}  // namespace
}  // namespace pcilend::scenarios
