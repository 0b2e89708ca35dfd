// SPDX-License-Identifier: GPL-2.0-or-later
// What check finds in a host's sysfs and in its pcilend.ko.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "answer.h"
#include "host.h"

namespace pcilend::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class CheckTest : public HostTest {
 protected:
  // A host on which nothing is wrong.
  void SetUp() override {
    HostTest::SetUp();
    fs::create_directories(root_ / "sys/module/pcilend");
    fs::create_directories(root_ / "sys/module/pcilend_mdev");
    fs::create_directories(root_ / "sys/module/pcilend_shadow");
    fs::create_directories(root_ / "sys/class/iommu/dmar0");
    write("sys/module/pcilend/parameters/unsafe_interrupts", "N\n");
    write("proc/sys/kernel/osrelease", "6.12.1\n");
    write("lib/modules/6.12.1/modules.alias",
          "# Aliases\nalias pci:v00001022d0000148Bsv*sd*bc*sc*i* ntb_hw_amd\n"
          "alias pci:v000011F8d00004000sv*sd*bc05sc80i00* switchtec\n"
          "alias pci:v000011F8d00004000sv*sd*bc06sc80i00* switchtec\n"
          "alias pci:v00008086d000010D3sv*sd*bc*sc*i* e1000e\n");
    write("etc/libvirt/qemu.conf", "");
    write("etc/libvirt/hooks/qemu.d/pcilend", "");
    install("0000:00:04.0");
    symlink(kDevice + "0000:00:04.0/driver", "/sys/bus/pci/drivers/ntb_hw_amd");
    symlink(kDevice + "0000:00:04.0/iommu_group", "/sys/kernel/iommu_groups/3");
    write("sys/kernel/iommu_groups/3/type", "DMA-FQ\n");
    symlink("sys/bus/ntb/devices/0000:00:04.0/driver", "/sys/bus/ntb/drivers/pcilend");
    install("0000:00:05.0");
    kernel_.functions = {nvme(0x80001, PCILEND_FUNCTION_AVAILABLE)};
    Link up;
    up.adapter = "0000:00:04.0";
    up.state = PCILEND_LINK_UP;
    up.peer = 4;
    up.regions = {{PCILEND_REGION_SLOTS, 8ull << 30, 56ull << 30, 0, 256u << 20},
                  {PCILEND_REGION_EXPORTS, 1ull << 40, 1ull << 30, 1, 16u << 20}};
    kernel_.links = {up};
  }
  void symlink(const fs::path& path, const std::string& target) {
    fs::create_directories((root_ / path).parent_path());
    fs::remove(root_ / path);
    fs::create_symlink(target, root_ / path);
  }

  // What check says, when it is not content.
  std::string wrong(std::vector<std::string> arguments = {"check"}) {
    const Outcome result = run(std::move(arguments));
    EXPECT_EQ(result.status, kNeedsAttention) << result.err;
    std::string lines;
    std::istringstream all(result.out);
    for (std::string line; std::getline(all, line);)
      if (line.starts_with("WRONG")) lines += line + "\n";
    return lines;
  }

  const std::string kDevice = "sys/bus/pci/devices/";
};

TEST_F(CheckTest, AHealthyHostPasses) {
  const Outcome result = run({"check"});
  EXPECT_EQ(result.status, 0) << result.out;
  EXPECT_THAT(result.out, Not(HasSubstr("WRONG")));
  EXPECT_THAT(result.out, HasSubstr("IOMMU group 3 translates (type DMA-FQ)"));
  EXPECT_THAT(result.out, HasSubstr("room for functions with BARs, either 64512 with 16 KiB or 63 "
                                    "with 16 MiB"));
  EXPECT_THAT(result.out, HasSubstr("guest memory: 56 GiB, 256 MiB used"));
  EXPECT_THAT(result.out, HasSubstr("0000:00:05.0"));
}

TEST_F(CheckTest, JsonCountsWhatIsWrong) {
  fs::remove_all(root_ / "sys/class/iommu/dmar0");
  const Outcome result = run({"check", "--json"});
  EXPECT_EQ(result.status, kNeedsAttention);
  const auto json = nlohmann::json::parse(result.out).at("check");
  EXPECT_EQ(json.at("errors"), 1);
  EXPECT_EQ(json.at("findings").at(1).at("subject"), "IOMMU");
  EXPECT_EQ(json.at("findings").at(1).at("level"), "error");
  EXPECT_THAT(json.at("findings").at(1).at("hint").get<std::string>(), HasSubstr("firmware"));
}

TEST_F(CheckTest, WithoutTheModuleThePlatformIsCheckedStill) {
  loaded_ = false;
  fs::remove_all(root_ / "sys/module/pcilend");
  write("sys/kernel/iommu_groups/3/type", "identity\n");
  const std::string found = wrong();
  EXPECT_THAT(found, HasSubstr("pcilend is not loaded: modprobe pcilend node=N"));
  EXPECT_THAT(found, HasSubstr("iommu=pt"));
}

TEST_F(CheckTest, WhatIsDirectByChoiceIsNotWrong) {
  fs::remove_all(root_ / "sys/class/iommu/dmar0");
  write("sys/kernel/iommu_groups/3/type", "identity\n");
  EXPECT_THAT(wrong(), HasSubstr("or load pcilend with direct=1"));
  fs::remove(root_ / (kDevice + "0000:00:04.0/iommu_group"));
  EXPECT_THAT(wrong(), HasSubstr("or load pcilend with direct=1"));
  write("sys/module/pcilend/parameters/direct", "Y\n");
  const Outcome result = run({"check"});
  EXPECT_EQ(result.status, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("its peer reaches all memory and all interrupts"));
}

TEST_F(CheckTest, AdaptersNeedADriverAClientAndAnIommu) {
  install("0000:00:06.0");
  write(kDevice + "0000:00:06.0/modalias", "pci:v00001022d0000148Bsv00001022sd0000bc06sc80i00\n");
  symlink("sys/bus/ntb/devices/0000:00:04.0/driver", "/sys/bus/ntb/drivers/ntb_transport");
  fs::remove(root_ / (kDevice + "0000:00:04.0/iommu_group"));
  const std::string found = wrong();
  EXPECT_THAT(found, ContainsRegex("adapter 0000:00:06.0 +no driver has it: modprobe ntb_hw_amd"));
  EXPECT_THAT(found, HasSubstr("used by ntb_transport: echo 0000:00:04.0 > "));
  EXPECT_THAT(found, HasSubstr("no IOMMU is in front of it"));
}

TEST_F(CheckTest, ASwitchtecIsAnAdapterWhereItIsABridge) {
  install("0000:00:06.0");
  write(kDevice + "0000:00:06.0/modalias",
        "pci:v000011F8d00004000sv00000000sd00000000bc06sc80i00\n");
  install("0000:00:07.0");
  write(kDevice + "0000:00:07.0/modalias",
        "pci:v000011F8d00004000sv00000000sd00000000bc05sc80i00\n");
  const std::string found = wrong();
  EXPECT_THAT(found,
              ContainsRegex("adapter 0000:00:06.0 +no driver has it: modprobe ntb_hw_switchtec"));
  EXPECT_THAT(found, Not(HasSubstr("0000:00:07.0")));
}

TEST_F(CheckTest, SmallWindowsOfASwitchtecAreSaidWithTheirCure) {
  write("sys/module/ntb_hw_switchtec/parameters/max_mw_size", "2097152\n");
  const Outcome cut = run({"check"});
  EXPECT_EQ(cut.status, 0) << "links work, but for VMs";
  EXPECT_THAT(cut.out, HasSubstr("max_mw_size="));
  write("sys/module/ntb_hw_switchtec/parameters/max_mw_size", "68719476736\n");
  EXPECT_THAT(run({"check"}).out, Not(HasSubstr("max_mw_size")));
}

TEST_F(CheckTest, ATableOfRequestersIsCounted) {
  EXPECT_THAT(run({"check"}).out, Not(HasSubstr("requester IDs")));
  kernel_.links[0].requesters = 64;
  kernel_.links[0].requesters_used = 3;
  kernel_.links[0].requesters_lent = 1;
  const Outcome free = run({"check"});
  EXPECT_EQ(free.status, 0);
  EXPECT_THAT(free.out, HasSubstr("requester IDs: 3 of 64 entries used, 1 of lent functions"));
  kernel_.links[0].requesters_used = 64;
  EXPECT_THAT(wrong(), HasSubstr("no further function can be lent over it: take functions back"));
}

TEST_F(CheckTest, AHostWithoutAdaptersIsTold) {
  fs::remove_all(root_ / "sys/bus/ntb");
  kernel_.links.clear();
  EXPECT_THAT(wrong(), HasSubstr("no NTB adapter is known to the kernel"));
}

TEST_F(CheckTest, LinksAndTheirPlans) {
  kernel_.links[0].degraded = {"no VM above 1 GiB: enlarge BAR 2"};
  Link refused;
  refused.index = 1;
  refused.state = PCILEND_LINK_REFUSED;
  refused.reason = "interrupt remapping is off: boot with intremap=on";
  kernel_.links.push_back(refused);
  kernel_.links.push_back({});
  kernel_.node_value.id = 0;
  const std::string found = wrong();
  EXPECT_THAT(found, HasSubstr("no VM above 1 GiB"));
  EXPECT_THAT(found, HasSubstr("refused: interrupt remapping is off"));
  EXPECT_THAT(found, HasSubstr("the adapters see no link"));
  EXPECT_THAT(found, HasSubstr("this host has no node id"));
}

TEST_F(CheckTest, FunctionsNamedOnTheCommandLine) {
  install("0000:00:07.0");
  kernel_.refuse = [](const std::string& entry) -> Result<> {
    if (entry != "check 0000:00:07.0") return {};
    return fail(ErrorClass::State, "0000:00:07.1 is in its IOMMU group: add that too");
  };
  const std::string found = wrong({"check", "00:07.0"});
  EXPECT_THAT(found, HasSubstr("0000:00:07.1 is in its IOMMU group"));
  EXPECT_THAT(found, Not(HasSubstr("0000:00:05.0")));
  EXPECT_EQ(run({"check", "00:1f.7"}).status, static_cast<int>(ErrorClass::NotFound));
}

TEST_F(CheckTest, QuarantineNamesItsCure) {
  kernel_.functions[0].state = PCILEND_FUNCTION_QUARANTINED;
  kernel_.functions[0].reason = "it does not answer";
  EXPECT_THAT(wrong(), HasSubstr("it does not answer: pcilend release-quarantine 0000:00:05.0"));
  kernel_.functions[0].reason = "not erased";
  kernel_.functions[0].dirty = true;
  EXPECT_THAT(wrong(), HasSubstr("not erased: pcilend sanitize 0000:00:05.0"));
}

TEST_F(CheckTest, ASetIsLentAsAWhole) {
  kernel_.functions[0].members = {{"0000:00:05.1", FunctionId{0x80003}, PCILEND_FUNCTION_ADDED},
                                  {"0000:00:05.2", FunctionId{0x80004}, PCILEND_FUNCTION_BORROWED}};
  kernel_.functions[0].state = PCILEND_FUNCTION_AVAILABLE;
  const std::string found = wrong();
  EXPECT_THAT(found,
              HasSubstr("can't be borrowed before 0000:00:05.1 of its IOMMU group is available: "
                        "pcilend available 0000:00:05.1"));
  EXPECT_THAT(found, Not(HasSubstr("0000:00:05.2")));
  kernel_.functions[0].members[0].state = PCILEND_FUNCTION_AVAILABLE;
  EXPECT_EQ(run({"check"}).status, 0);
}

TEST_F(CheckTest, VirtualMachinesNeedFrontendAndHook) {
  fs::remove_all(root_ / "sys/module/pcilend_mdev");
  EXPECT_EQ(run({"check"}).status, 0) << "nothing is offered to this host";
  kernel_.links[0].peer_connected = true;
  fs::remove(root_ / "etc/libvirt/hooks/qemu.d/pcilend");
  const std::string found = wrong();
  EXPECT_THAT(found, HasSubstr("modprobe pcilend_mdev"));
  EXPECT_THAT(found, HasSubstr("/etc/libvirt/hooks/qemu.d/pcilend"));
}

TEST_F(CheckTest, DriversOfThisHostNeedTheirFrontend) {
  fs::remove_all(root_ / "sys/module/pcilend_shadow");
  EXPECT_EQ(run({"check"}).status, 0) << "nothing is offered to this host";
  kernel_.links[0].peer_connected = true;
  EXPECT_THAT(wrong(), HasSubstr("modprobe pcilend_shadow"));
}

TEST_F(CheckTest, UnsafeInterruptsAreSaid) {
  write("sys/module/pcilend/parameters/unsafe_interrupts", "Y\n");
  EXPECT_THAT(wrong(), HasSubstr("load pcilend without unsafe_interrupts"));
}

TEST_F(CheckTest, UnsafeGroupsAreSaid) {
  write("sys/module/pcilend/parameters/unsafe_groups", "N\n");
  EXPECT_THAT(run({"check"}).out, Not(HasSubstr("unsafe_groups")));
  write("sys/module/pcilend/parameters/unsafe_groups", "Y\n");
  EXPECT_THAT(wrong(), HasSubstr("load pcilend without unsafe_groups"));
}

TEST_F(CheckTest, RouteOfDma) {
  EXPECT_THAT(run({"check"}).out, HasSubstr("is routed by the root complex, which not every CPU"));
  write("proc/cpuinfo", "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 23\n");
  EXPECT_THAT(run({"check"}).out, HasSubstr("this CPU routes its DMA to adapter 0000:00:04.0"));
  write("proc/cpuinfo", "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 21\n");
  EXPECT_THAT(run({"check"}).out, HasSubstr("which not every CPU"));
}

TEST_F(CheckTest, RouteOfDmaBetweenCpus) {
  const std::string here = "sys/devices/pci0000:00/0000:00:05.0";
  const std::string there = "sys/devices/pci0000:80/0000:00:05.0";
  fs::create_directories((root_ / there).parent_path());
  fs::rename(root_ / here, root_ / there);
  symlink(kDevice + "0000:00:05.0", (root_ / there).native());
  EXPECT_THAT(run({"check"}).out,
              HasSubstr("its DMA to adapter 0000:00:04.0 goes from pci0000:80 to pci0000:00"));
}

TEST_F(CheckTest, WhatKeepsModulesAndHooksFromRunningIsSaid) {
  write("sys/fs/selinux/enforce", "1");
  const Outcome found = run({"check"});
  EXPECT_THAT(found.out, HasSubstr("SELinux is enforcing"));
  EXPECT_THAT(found.out, HasSubstr("there is no /dev/kvm"));
  loaded_ = false;
  fs::remove_all(root_ / "sys/module/pcilend");
  fs::create_directories(root_ / "var/lib/dkms/pcilend/0.1.0");
  const std::string hint =
      "apt install linux-headers-6.12.1 linux-source-6.12, then dkms "
      "autoinstall -k 6.12.1";
  EXPECT_THAT(wrong(), HasSubstr(hint));
  write("lib/modules/6.12.1/updates/dkms/pcilend.ko.xz", "");
  EXPECT_THAT(wrong(), Not(HasSubstr(hint)));
}

}  // namespace
}  // namespace pcilend::test
