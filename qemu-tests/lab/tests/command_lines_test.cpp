// SPDX-License-Identifier: GPL-2.0-or-later
// What the lab hands to QEMU and to libvirt, word by word.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "golden.h"
#include "lab/domain_xml.h"
#include "lab/host.h"
#include "lab/qemu_command.h"

namespace pcilend::lab {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kTsc = 2596100;

std::vector<std::string> command(const Options& options, int host,
                                 const std::vector<PlacedDevice>& devices = {}) {
  return qemu_command(options, host, {"/image/qemu", "/image/vmlinuz", "/lab/initrd"}, kTsc,
                      Layout("/run/lab"), devices);
}

std::string lines(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += word + "\n";
  return out;
}

std::vector<PlacedDevice> nvme() {
  return {{"device0", "nvme,serial=a", "nvme,serial=a,id=device0,addr=10.0,drive=device0-drive",
           "10.0", Drive{"device0-drive", "/run/lab/host1.device0.img", 256U << 20}}};
}

TEST(QemuCommand, OfTheFirstOfTwoHosts) {
  Options options;
  options.memory[1] = 2048;
  expect_golden("qemu-host1.txt", lines(command(options, 1, nvme())));
}

TEST(QemuCommand, OfTheMiddleOfThreeHostsWithAmdsIommu) {
  Options options;
  options.name = "three";
  options.hosts = 3;
  options.iommu = Iommu::Amd;
  options.kernel_arguments[2] = {"hung_task_panic=1"};
  options.qemu_arguments[2] = {"-netdev", "user,id=n"};
  expect_golden("qemu-host2-of-3-amd.txt", lines(command(options, 2)));
}

TEST(QemuCommand, ASwitchtecStandsBehindAPortOfItsOwn) {
  Options options;
  options.paths = 2;
  options.adapters = {Adapter::Amd, Adapter::Switchtec};
  const std::string text = lines(command(options, 1));
  EXPECT_THAT(text, HasSubstr(R"({"driver":"vfio-user-pci","addr":"4.0")"));
  EXPECT_THAT(text, HasSubstr("pcie-root-port,id=adapter-port5,addr=5.0,chassis=5\n"));
  EXPECT_THAT(text, HasSubstr(R"({"driver":"vfio-user-pci","addr":"0.0")"));
  EXPECT_THAT(text, HasSubstr(R"("id":"adapter5","bus":"adapter-port5")"));
}

TEST(QemuCommand, ADeviceMayStandBesideAnAdapterInItsSlot) {
  auto devices = nvme();
  devices[0].slot = "04.1";
  EXPECT_THAT(lines(command(Options(), 1, devices)), HasSubstr(R"("multifunction":true)"));
  EXPECT_THAT(lines(command(Options(), 1, nvme())), Not(HasSubstr("multifunction")));
}

TEST(QemuCommand, WithoutIommuThereIsNone) {
  Options options;
  options.iommu = Iommu::Off;
  options.hosts = 1;
  const std::string text = lines(command(options, 1));
  EXPECT_THAT(text, Not(HasSubstr("-iommu,")));
  EXPECT_THAT(text, Not(HasSubstr("iommu=on")));
  EXPECT_THAT(text, Not(HasSubstr("vfio-user-pci")));
}

TEST(QemuCommand, AHostMayHaveAnotherIommu) {
  Options options;
  options.other_iommu[2] = Iommu::Amd;
  EXPECT_THAT(lines(command(options, 1)), HasSubstr("intel-iommu,"));
  EXPECT_THAT(lines(command(options, 2)), HasSubstr("amd-iommu,"));
  EXPECT_THAT(lines(command(options, 2)), Not(HasSubstr("intel")));
}

TEST(QemuCommand, TheIommuStandsBeforeEveryOtherDevice) {
  for (const Iommu iommu : {Iommu::Intel, Iommu::Amd}) {
    Options options;
    options.iommu = iommu;
    const auto words = command(options, 1, nvme());
    const auto device = std::find(words.begin(), words.end(), "-device");
    EXPECT_THAT(*(device + 1), HasSubstr("-iommu,"));
  }
}

TEST(QemuCommand, EveryPathToAHostIsAnAdapterAndTheRogueHasOne) {
  Options options;
  options.paths = 2;
  options.rogue = true;
  const auto words = qemu_command(options, 1, {"q", "k", "i"}, kTsc, Layout("/run/l"), {});
  const auto adapter = [&](const char* addr, const char* socket) {
    return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      return word.find(addr) != std::string::npos && word.find(socket) != std::string::npos;
    });
  };
  EXPECT_TRUE(adapter(R"("addr":"4.0")", "/host1-host2.sock"));
  EXPECT_TRUE(adapter(R"("addr":"5.0")", "/host1-host2.2.sock"));
  EXPECT_TRUE(adapter(R"("addr":"6.0")", "/host1-host3.sock"));
  EXPECT_FALSE(adapter(R"("addr":"7.0")", ""));
}

TEST(QemuCommand, ObjectsAndRootPortsStandBeforeTheDevicesThatNeedThem) {
  Options options;
  ASSERT_TRUE(options.add_object("host1:memory-backend-ram,id=m,size=1M"));
  ASSERT_TRUE(options.add_object("host2:rng-random,id=r"));
  const PlacedDevice device{"device0",
                            "ivshmem-plain,memdev=m",
                            "ivshmem-plain,memdev=m,id=device0,bus=device0-port",
                            std::nullopt,
                            std::nullopt,
                            "pcie-root-port,id=device0-port"};
  EXPECT_THAT(lines(command(options, 1, {device})),
              HasSubstr("-object\nmemory-backend-ram,id=m,size=1M\n"
                        "-device\npcie-root-port,id=device0-port\n"
                        "-device\nivshmem-plain,memdev=m,id=device0,bus=device0-port\n-kernel\n"));
  EXPECT_THAT(lines(command(options, 1)), Not(HasSubstr("rng-random")));
  EXPECT_THAT(lines(command(options, 2)), HasSubstr("-object\nrng-random,id=r\n"));
}

TEST(QemuCommand, CommasInPathsAreDoubled) {
  Options options;
  options.hosts = 1;
  const auto words = qemu_command(options, 1, {"q", "k", "i"}, kTsc, Layout("/run/a,b"), {});
  EXPECT_THAT(words, Contains("file=/run/a,,b/host1.root.qcow2,if=none,id=root,format=qcow2,"
                              "cache=unsafe,discard=unmap"));
}

TEST(AdapterSlots, FollowThePeers) {
  EXPECT_EQ(adapter_slot(1, 2), 4);
  EXPECT_EQ(adapter_slot(2, 1), 4);
  EXPECT_EQ(adapter_slot(2, 3), 5);
  EXPECT_EQ(adapter_slot(3, 1), 4);
  EXPECT_EQ(adapter_slot(3, 2), 5);
  EXPECT_EQ(adapter_slot(1, 2, 2, 2), 5);
  EXPECT_EQ(adapter_slot(2, 3, 1, 2), 6);
  EXPECT_EQ(adapter_slot(1, kMaxHosts), 15);
  EXPECT_EQ(adapter_slot(kMaxHosts, kMaxHosts - 1), 15);
}

TEST(DomainXml, OfAQ35GuestWithTwoFunctions) {
  GuestSpec spec;
  spec.name = "demo";
  spec.places = {"8004:01:00.0"};
  spec.uuids = {"6f1b2f1e-0d1c-5c55-9a52-4f0c2e1a7b02"};
  ASSERT_TRUE(spec.check());
  expect_golden("guest-q35.xml", domain_xml(spec));
}

TEST(DomainXml, OfAPcGuestWithoutFunctions) {
  GuestSpec spec;
  spec.name = "old.machine-1";
  spec.machine = "pc";
  spec.memory = 3584;
  ASSERT_TRUE(spec.check());
  expect_golden("guest-pc.xml", domain_xml(spec));
}

TEST(DomainXml, OfAGuestWithMemoryOfEveryKind) {
  GuestSpec spec;
  spec.name = "memory";
  spec.memory = 512;
  spec.uefi = true;
  spec.huge_pages = true;
  spec.hole = 256;
  spec.pluggable = 128;
  spec.virtio_mem = 256;
  spec.balloon = true;
  spec.iommu = GuestIommu::Virtio;
  ASSERT_TRUE(spec.check());
  expect_golden("guest-memory.xml", domain_xml(spec) + memory_module_xml(spec.pluggable));
}

TEST(DomainXml, MemoryInAFileIsShared) {
  GuestSpec spec;
  spec.name = "file";
  spec.in_file = true;
  ASSERT_TRUE(spec.check());
  EXPECT_THAT(domain_xml(spec), HasSubstr("  <memoryBacking>\n"
                                          "    <source type='file'/>\n"
                                          "    <access mode='shared'/>\n"
                                          "  </memoryBacking>\n"));
  spec.huge_pages = true;
  EXPECT_FALSE(spec.check());
}

TEST(DomainXml, WhatCannotBeIsRefused) {
  const auto error = [](auto change) {
    GuestSpec spec;
    spec.name = "g";
    change(spec);
    const auto checked = spec.check();
    EXPECT_FALSE(checked);
    return checked ? std::string() : checked.error().message;
  };
  EXPECT_THAT(error([](GuestSpec& s) { s.name = "a'/><x"; }), HasSubstr("guest name"));
  EXPECT_EQ(error([](GuestSpec& s) { s.memory = 64; }),
            "--memory 64: the guest needs 128 MiB or more");
  EXPECT_EQ(error([](GuestSpec& s) { s.machine = "virt"; }), "--machine 'virt': it is q35 or pc");
  EXPECT_EQ(error([](GuestSpec& s) { s.uuids = {"'/>"}; }), "''/>' is not a UUID");
  EXPECT_EQ(error([](GuestSpec& s) { s.places = {"8004:01:00.0'"}; }),
            "'8004:01:00.0'' is not a PCI address");
  EXPECT_EQ(error([](GuestSpec& s) {
              s.machine = "pc";
              s.iommu = GuestIommu::Intel;
            }),
            "a guest with an IOMMU is a q35, not a pc");
}

TEST(Columns, AreThoseThatTheToolLists) {
  const auto list = nlohmann::json::parse(
      R"({"functions": [{"id": "40001", "uuid": "aa", "address": null}, {"id": "40002", "uuid": "bb"}, {"x": 1}, 7]})");
  EXPECT_THAT(*column_of(list, "uuid", {"40002", "40001"}), ElementsAre("bb", "aa"));
  EXPECT_EQ(column_of(list, "uuid", {"80001"}).error().message,
            "no function 80001: 'pcilend list' shows 40001, 40002");
  EXPECT_FALSE(column_of(list, "address", {"40001"}));
  EXPECT_EQ(column_of(nlohmann::json::object(), "uuid", {"80001"}).error().message,
            "no function 80001: 'pcilend list' shows none");
  EXPECT_FALSE(column_of(nlohmann::json::array(), "uuid", {"80001"}));
}

TEST(Commands, AreLinesForTheShellOrWords) {
  EXPECT_THAT(Command("a | b").argv(), ElementsAre("/bin/sh", "-c", "a | b"));
  const Command words{"virsh", "start", "a b"};
  EXPECT_THAT(words.argv(), ElementsAre("virsh", "start", "a b"));
  EXPECT_EQ(words.text(), "virsh start a b");
  const Command inside = Command("id").behind({"agent", "call", "--"});
  EXPECT_THAT(inside.argv(), ElementsAre("agent", "call", "--", "/bin/sh", "-c", "id"));
  EXPECT_EQ(inside.text(), "id");
}

TEST(GuestCalls, GoToTheGuestsSocket) {
  EXPECT_THAT(guest_call("g", true, false),
              ElementsAre(kAgentInHost, "call", "/run/pcilend-lab/guests/g.sock", "--"));
  patience = 4;
  EXPECT_THAT(guest_call("g", true, false),
              ElementsAre(kAgentInHost, "call", "-w", "4", "/run/pcilend-lab/guests/g.sock", "--"));
  patience = 1;
  EXPECT_THAT(guest_call("g", false, true), ElementsAre(kAgentInHost, "call", "-n", "-t",
                                                        "/run/pcilend-lab/guests/g.sock", "--"));
}

}  // namespace
}  // namespace pcilend::lab
