// SPDX-License-Identifier: GPL-2.0-or-later
// What commands do to the kernel, and what bad command lines get.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "cli_fixture.h"
#include "disks.h"
#include "parser.h"

namespace pcilend::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(CliTest, BadCommandLinesAreUsageErrors) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{}, "subcommand"},
      {{"lst"}, "no command 'lst': did you mean 'list'?"},
      {{"avialable"}, "did you mean 'available'?"},
      {{"frobnicate"}, "no command 'frobnicate': 'pcilend --help' lists them"},
      {{"list", "extra"}, "extra"},
      {{"list", "--color"}, "--color"},
      {{"list", "-o", "id,nonsense"}, "no column 'nonsense': there are id,uuid"},
      {{"list", "-o", ""}, "no column ''"},
      {{"list", "-o", "id,"}, "no column ''"},
      {{"link", "-o", "uuid"}, "no column 'uuid'"},
      {{"connect"}, "NODE"},
      {{"connect", "4", "12"}, "not expected: 12"},
      {{"connect", "0"}, "'0' is not a node id"},
      {{"connect", "host2"}, "'host2' is not a node id"},
      {{"connect", "70000"}, "'70000' is not a node id"},
      {{"disconnect", "-1"}, ""},
      {{"add", "00:05"}, "'00:05' is not a PCI address"},
      {{"add", "nvme0"}, "'nvme0' names no function"},
      {{"show", "zz"}, "'zz' names no function"},
      {{"show"}, "ID"},
      {{"borrow", "40001", "--frontend", "magic"}, "magic"},
      {{"borrow", "40001", "--owner", std::string(64, 'x')}, "63 bytes"},
      {{"borrow", "40001", "--timeout", "5"}, "give both"},
      {{"borrow", "40001", "--wait", "--timeout", "0"}, "1 to 3600 seconds"},
      {{"borrow", "40001", "--wait", "--frontend", "vfio"}, "drivers of this host"},
      {{"p2p", "40001"}, "TO"},
      {{"p2p", "40001", "40002", "40003"}, "not expected: 40003"},
      {{"vm-xml", "70636c64-1111-8222-8333-00000004000g"}, "UUID"},
      {{"allow", "80001"}, "NODE"},
      {{"allow", "80001", "4", "all"}, "'all' is not a node id"},
      {{"allow", "80001", "host2"}, "or 'all' or 'none' alone"},
      {{"label", "80001"}, "TEXT"},
      {{"label", "80001", std::string(64, 'x')}, "63 bytes"},
      {{"add", "00:05.0", "--label", std::string(64, 'x')}, "63 bytes"},
      {{"reserve", "80001"}, "--for NODE|UUID --ttl SECONDS"},
      {{"reserve", "80001", "--for", "4"}, "--ttl"},
      {{"reserve", "80001", "--for", "4", "--ttl", "0"}, "1 to 86400 seconds"},
      {{"reserve", "80001", "--for", "me", "--ttl", "5"}, "neither a node id nor the UUID"},
      {{"reserve", "80001", "--cancel", "--ttl", "5"}, "give it alone"},
      {{"unavailable", "80001", "--grace", "5", "--force"}, "give one of them"},
      {{"unavailable", "80001", "--grace", "3601"}, "at most 3600"},
      {{"unavailable", "80001", "--grace", "soon"}, "soon"},
      {{"monitor", "--count", "-1"}, ""},
  };
  for (const auto& [arguments, text] : cases) expect_refused(arguments, ErrorClass::Usage, text);
}

TEST_F(CliTest, HelpAndVersionNeedNoKernel) {
  loaded_ = false;
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"--help"}, {"-h"}, {"--version"}, {"list", "--help"}, {"borrow", "-h"}}) {
    const Outcome result = run(arguments);
    EXPECT_EQ(result.status, 0);
    EXPECT_NE(result.out, "");
    EXPECT_EQ(result.err, "");
  }
}

TEST_F(CliTest, WithoutTheModuleCommandsFail) {
  loaded_ = false;
  expect_refused({"list"}, ErrorClass::Unreachable, "not loaded");
}

TEST_F(CliTest, UnknownThingsAreNotFound) {
  expect_refused({"add", "0000:00:1f.7"}, ErrorClass::NotFound,
                 "no PCI function 0000:00:1f.7 on this host: 'lspci -D' lists them");
  expect_refused({"available", "0000:00:1f.7"}, ErrorClass::NotFound, "lspci");
  expect_refused({"available", "0000:00:06.0"}, ErrorClass::NotFound,
                 "0000:00:06.0 is not added: run 'pcilend add 0000:00:06.0' to offer it");
  expect_refused({"show", "40009"}, ErrorClass::NotFound, "no function 40009 is known here");
  expect_refused({"borrow", "c0001"}, ErrorClass::NotFound, "no function c0001");
  expect_refused({"vm-xml", "70636c64-1111-8222-8333-00000000dead"}, ErrorClass::NotFound,
                 "70636c64-1111-8222-8333-00000000dead");
}

TEST_F(CliTest, FunctionsOfAnotherHostAreManagedThere) {
  expect_refused({"available", "40001"}, ErrorClass::State,
                 "40001 is installed in node 4, not in this host (node 8): run this command there");
  expect_refused({"borrow", "80001"}, ErrorClass::State, "installed in this host at 0000:00:05.0");
  expect_refused({"vm-xml", "80001"}, ErrorClass::State, "installed in this host");
}

TEST_F(CliTest, ConnectTellsTheKernel) {
  const Outcome result = run({"connect", "4"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out + result.err, "");
  EXPECT_THAT(kernel_.log, ElementsAre("connect 4"));
  EXPECT_EQ(run({"disconnect", "4"}).status, 0);
  EXPECT_THAT(kernel_.log, ElementsAre("connect 4", "disconnect 4"));
}

TEST_F(CliTest, ConnectPinsANodeToAnAdapterWhoeverIsBehindItNow) {
  expect_refused({"connect", "--adapter", "first", "12"}, ErrorClass::Usage, "--adapter");
  EXPECT_EQ(run({"connect", "--adapter", "00:05.0", "12"}).status, 0);
  EXPECT_THAT(kernel_.log, ElementsAre("connect 12 at 0000:00:05.0"));
}

TEST_F(CliTest, APinThatEndsLeasesIsRefusedUnlessForced) {
  Link link;
  link.adapter = "0000:00:06.0";
  link.peer = 12;
  link.leases = 1;
  kernel_.links.push_back(link);
  expect_refused({"connect", "--adapter", "00:05.0", "12"}, ErrorClass::State,
                 "go over adapter 0000:00:06.0");
  expect_refused({"connect", "--adapter", "00:06.0", "16"}, ErrorClass::State, "to node 12");
  EXPECT_EQ(run({"connect", "--adapter", "00:05.0", "16"}).status, 0) << "another node's";
  EXPECT_EQ(run({"connect", "--adapter", "00:06.0", "12"}).status, 0) << "where it is";
  kernel_.links.back().pinned = 12;
  EXPECT_EQ(run({"connect", "--adapter", "00:05.0", "12"}).status, 0) << "its second pin";
  kernel_.links.back().pinned.reset();
  EXPECT_EQ(run({"connect", "--force", "--adapter", "00:05.0", "12"}).status, 0);
}

TEST_F(CliTest, BorrowGoesOverTheAdapterNamed) {
  expect_refused({"borrow", "--adapter", "fast", "40001"}, ErrorClass::Usage, "--adapter");
  EXPECT_EQ(run({"borrow", "--owner", "me", "--adapter", "00:05.0", "40001"}).status, 0);
  EXPECT_THAT(kernel_.log, ElementsAre("borrow 40001 shadow me over 0000:00:05.0"));
}

TEST_F(CliTest, ANodeThatNoLinkLeadsToIsRefusedUnlessForced) {
  expect_refused({"connect", "12"}, ErrorClass::NotFound, "no link leads to node 12");
  EXPECT_EQ(slept_.count(), 0) << "all links are up: nothing to wait for";
  EXPECT_EQ(run({"connect", "--force", "12"}).status, 0);
  EXPECT_THAT(kernel_.log, ElementsAre("connect 12"));
}

TEST_F(CliTest, ALinkThatComesUpIsWaitedFor) {
  kernel_.links.push_back(Link{});
  kernel_.on_look = [this] {
    if (slept_ >= std::chrono::seconds(1)) kernel_.links[1].peer = 12;
  };
  EXPECT_EQ(run({"connect", "12"}).status, 0);
  EXPECT_EQ(slept_, std::chrono::seconds(1));
}

TEST_F(CliTest, ALinkThatStaysDownIsNotWaitedForForever) {
  kernel_.links.push_back(Link{});
  expect_refused({"connect", "12"}, ErrorClass::NotFound,
                 "node 12: link 0 () is down: the peer is off");
  EXPECT_EQ(slept_, std::chrono::seconds(15));
}

TEST_F(CliTest, ALinkThatIsRefusedSaysWhyNobodyIsBehindIt) {
  Link link;
  link.index = 1;
  link.adapter = "0000:00:06.0";
  link.state = PCILEND_LINK_REFUSED;
  link.reason = "its interrupts can't be isolated: see unsafe_interrupts";
  kernel_.links.push_back(link);
  expect_refused({"connect", "12"}, ErrorClass::NotFound,
                 "no link leads to node 12: link 1 (0000:00:06.0) is refused: its interrupts can't "
                 "be isolated: see unsafe_interrupts; 'pcilend link' lists the peers");
  EXPECT_EQ(slept_.count(), 0) << "it does not come up by itself";
}

TEST_F(CliTest, RefusalsOfTheKernelNameTheThing) {
  kernel_.refuse = [](const std::string&) -> Result<> {
    return fail(ErrorClass::State, "it is a bridge: name a device behind it");
  };
  expect_refused({"add", "00:05.0"}, ErrorClass::State,
                 "pcilend: 0000:00:05.0: it is a bridge: name a device behind it");
  expect_refused({"connect", "4"}, ErrorClass::State, "pcilend: node 4: it is");
  expect_refused({"borrow", "40001"}, ErrorClass::State, "pcilend: 40001: it is");
  expect_refused({"unavailable", "80001"}, ErrorClass::State, "pcilend: 0000:00:05.0: it is");
}

TEST_F(CliTest, LendingByAddressOrId) {
  const Outcome added = run({"add", "00:06.0"});
  EXPECT_EQ(added.status, 0) << added.err;
  EXPECT_THAT(added.out, HasSubstr("[added] (0000:00:06.0 of this host)"));
  const Outcome available = run({"available", "80001"});
  EXPECT_EQ(available.status, 0) << available.err;
  EXPECT_THAT(available.out, HasSubstr("80001: Non-Volatile memory controller: Red Hat, Inc. QEMU "
                                       "NVM Express Controller [available]"));
  EXPECT_EQ(run({"available", "00:05.0"}).status, 0);
  EXPECT_EQ(run({"unavailable", "0000:00:05.0"}).status, 0);
  EXPECT_EQ(run({"remove", "0:5.0"}).status, 0);
  EXPECT_THAT(kernel_.log,
              ElementsAre("add 0000:00:06.0", "available 0000:00:05.0", "available 0000:00:05.0",
                          "unavailable 0000:00:05.0", "remove 0000:00:05.0"));
}

TEST_F(CliTest, WhatIsLentWithoutAnIommuIsSaid) {
  const Outcome result = run({"available", "--direct", "0000:00:05.0"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err,
            "pcilend: warning: 0000:00:05.0: lent without an IOMMU: whoever borrows it reaches, by "
            "its DMA, all memory and all interrupts of this host\n");
  EXPECT_THAT(result.out, HasSubstr(", direct"));
  EXPECT_THAT(kernel_.log, ElementsAre("available direct 0000:00:05.0"));
}

TEST_F(CliTest, MemoryBesideAFunctionIsSaid) {
  EXPECT_EQ(run({"available", "--near", "16M", "0000:00:05.0"}).status, 0);
  EXPECT_THAT(kernel_.log, ElementsAre("available near 16777216 0000:00:05.0"));
  kernel_.log.clear();
  for (const char* size : {"5000", "2G", "16X", "-1", "16MM"})
    expect_refused({"available", "--near", size, "0000:00:05.0"}, ErrorClass::Usage,
                   fmt::format("--near {}: give whole pages of 4 KiB, up to 1G", size));
}

TEST_F(CliTest, ADiskInUseIsNotTaken) {
  link("sys/class/block/nvme0n1", "sys/devices/pci0000:00/0000:00:05.0/nvme/nvme0/nvme0n1");
  write("sys/devices/pci0000:00/0000:00:05.0/nvme/nvme0/nvme0n1/dev", "259:0\n");
  write("proc/self/mountinfo", "40 22 259:0 / /data rw - ext4 /dev/nvme0n1 rw\n");
  expect_refused({"available", "0000:00:05.0"}, ErrorClass::State,
                 "/dev/nvme0n1 is mounted on /data: run 'umount /data', or use --force");
  const Outcome forced = run({"available", "--force", "0000:00:05.0"});
  EXPECT_EQ(forced.status, 0);
  EXPECT_THAT(forced.err, HasSubstr("pcilend: warning: taken by force: /dev/nvme0n1 is mounted"));
  EXPECT_THAT(kernel_.log, ElementsAre("available 0000:00:05.0"));
}

TEST_F(CliTest, AnInterfaceThatIsUpIsAWarningOnceItIsGone) {
  link("sys/class/net/eth0", "sys/devices/pci0000:00/0000:00:05.0/net/eth0");
  write("sys/devices/pci0000:00/0000:00:05.0/net/eth0/flags", "0x1003\n");
  kernel_.refuse = [](const std::string&) -> Result<> { return fail(ErrorClass::State, "no"); };
  expect_refused({"available", "0000:00:05.0"}, ErrorClass::State, "0000:00:05.0: no");
  kernel_.refuse = [](const std::string&) { return Result<>(); };
  const Outcome result = run({"available", "0000:00:05.0"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "pcilend: warning: network interface eth0 was up and is gone\n");
}

TEST_F(CliTest, AnInterfaceWithAnAddressIsNotTaken) {
  link("sys/class/net/eth0", "sys/devices/pci0000:00/0000:00:05.0/net/eth0");
  write("sys/devices/pci0000:00/0000:00:05.0/net/eth0/flags", "0x1003\n");
  write("proc/net/route", "Iface\tDestination\tGateway\neth0\t00000000\t0102A8C0\n");
  expect_refused({"available", "0000:00:05.0"}, ErrorClass::State,
                 "network interface eth0 is up and has an address: run 'ip link set eth0 down', or "
                 "use --force\n");
  const Outcome forced = run({"available", "--force", "0000:00:05.0"});
  EXPECT_EQ(forced.status, 0);
  EXPECT_EQ(std::count(forced.err.begin(), forced.err.end(), '\n'), 1) << forced.err;
  EXPECT_THAT(forced.err, HasSubstr("taken by force: network interface eth0"));
}

TEST_F(CliTest, WhatAVmHasIsNotTakenEvenByForce) {
  // A kernel without groups: of those, files in a test can't be busy.
  write("sys/devices/pci0000:00/0000:00:05.0/vfio-dev/vfio7/dev", "");
  write("dev/vfio/devices/vfio7", "");
  write("proc/812/comm", "qemu-system-x86\n");
  fs::create_directories(root_ / "proc/812/fd");
  fs::create_symlink(root_ / "dev/vfio/devices/vfio7", root_ / "proc/812/fd/23");
  for (const char* const how : {"--direct", "--force"})
    expect_refused({"available", how, "0000:00:05.0"}, ErrorClass::State,
                   "a VM or another user of VFIO has it (qemu-system-x86 (pid 812)): end that "
                   "first");
}

TEST_F(CliTest, SeveralFunctionsAtOnce) {
  kernel_.functions.push_back(nvme(0x80002, PCILEND_FUNCTION_ADDED));
  kernel_.functions.push_back(nvme(0x40002, PCILEND_FUNCTION_AVAILABLE));
  const Outcome lent = run({"available", "80001", "80002"});
  EXPECT_EQ(lent.status, 0) << lent.err;
  EXPECT_EQ(std::count(lent.out.begin(), lent.out.end(), '\n'), 2) << lent.out;
  EXPECT_EQ(run({"unavailable", "80001", "80002"}).status, 0);
  EXPECT_EQ(run({"borrow", "--owner", "me", "40001", "40002"}).status, 0);
  install("1e000:00:00.0");
  input_ = R"({"functions": [{"id": "40001"}, {"id": "40002"}]})";
  EXPECT_EQ(run({"return", "--owner", "me", "-"}).status, 0);
  EXPECT_THAT(kernel_.log, ElementsAre("available 0000:00:05.0", "available 0000:00:06.0",
                                       "unavailable 0000:00:05.0", "unavailable 0000:00:06.0",
                                       "borrow 40001 shadow me", "borrow 40002 shadow me",
                                       "return 40001 me", "return 40002 me"));
  kernel_.log.clear();
  expect_refused({"borrow", "--wait", "40001", "40002"}, ErrorClass::Usage, "one function");
  // All are looked at before one is taken.
  link("sys/class/net/eth0", "sys/devices/pci0000:00/0000:00:06.0/net/eth0");
  write("sys/devices/pci0000:00/0000:00:06.0/net/eth0/flags", "0x1003\n");
  write("proc/net/route", "Iface\tDestination\neth0\t00000000\n");
  expect_refused({"available", "80001", "80002"}, ErrorClass::State,
                 "0000:00:06.0: network interface eth0");
}

TEST_F(CliTest, WhatAnotherNodeHasIsReturnedThere) {
  kernel_.functions[0].state = PCILEND_FUNCTION_BORROWED;
  kernel_.functions[0].borrower = 12;
  expect_refused({"return", "40001"}, ErrorClass::State,
                 "40001 is borrowed by node 12, not by this host: return it there");
}

TEST_F(CliTest, WhoHasLoggedInBorrowsAlsoBehindSudo) {
  write("proc/self/loginuid", "54321");
  EXPECT_EQ(run({"borrow", "40001"}).status, 0);
  write("proc/self/loginuid", "4294967295");
  const Outcome refused = run({"return", "40001"});
  EXPECT_EQ(refused.status, static_cast<int>(ErrorClass::State));
  EXPECT_THAT(refused.err, HasSubstr("borrowed by 'uid 54321'"));
  EXPECT_THAT(kernel_.log, ElementsAre("borrow 40001 shadow uid 54321"));
}

TEST_F(CliTest, HelpIsACommandToo) {
  EXPECT_EQ(run({"help"}).out, run({"--help"}).out);
  EXPECT_EQ(run({"help", "borrow"}).out, run({"borrow", "--help"}).out);
  EXPECT_EQ(run({"help", "borrow"}).status, 0);
}

TEST_F(CliTest, EveryCommandHasJsonWithItsSchema) {
  kernel_.functions[0].state = PCILEND_FUNCTION_AVAILABLE;
  for (const auto& command : commands()) {
    Options options;
    const auto parser = make_parser(&options);
    EXPECT_NE(parser->get_subcommand(std::string(command.name))->get_option_no_throw("--json"),
              nullptr)
        << command.name;
  }
  for (const auto& arguments : std::vector<std::vector<std::string>>{{"connect", "4"},
                                                                     {"disconnect", "4"},
                                                                     {"vm-xml", "40001"},
                                                                     {"metrics"},
                                                                     {"status"},
                                                                     {"list"},
                                                                     {"return", "40001"},
                                                                     {"save", "--file", "-"},
                                                                     {"remove", "80001"}}) {
    auto with_json = arguments;
    with_json.push_back("--json");
    const auto json = nlohmann::json::parse(run(with_json).out, nullptr, false);
    ASSERT_TRUE(json.is_object()) << arguments.front();
    EXPECT_EQ(json.at("schema"), 1) << arguments.front();
    EXPECT_FALSE(json.contains("error")) << json.dump();
  }
}

TEST_F(CliTest, ErrorsAreObjectsTooWithJson) {
  const Outcome result = run({"show", "--json", "40009"});
  EXPECT_EQ(result.status, static_cast<int>(ErrorClass::NotFound));
  EXPECT_TRUE(result.err.starts_with("pcilend: no function 40009")) << result.err;
  const auto error = nlohmann::json::parse(result.out).at("error");
  EXPECT_EQ(error.at("class"), "not-found");
  EXPECT_EQ(error.at("status"), 3);
  EXPECT_EQ("pcilend: " + error.at("message").get<std::string>() + "\n", result.err);
  EXPECT_EQ(nlohmann::json::parse(run({"lst", "--json"}).out).at("error").at("class"), "usage");
}

TEST_F(CliTest, WhatIsInUseIsAStatus) {
  const Outcome free = run({"status", "--in-use"});
  EXPECT_EQ(free.status, 0);
  EXPECT_EQ(free.out, "");
  for (const auto& [index, state] : {std::pair{0, PCILEND_FUNCTION_BORROWED},
                                     {1, PCILEND_FUNCTION_BORROWED},
                                     {1, PCILEND_FUNCTION_RESETTING}}) {
    Function& f = kernel_.functions[static_cast<size_t>(index)];
    const Function before = f;
    f.state = static_cast<uint32_t>(state);
    f.borrower = 8;
    const Outcome used = run({"status", "--in-use"});
    EXPECT_EQ(used.status, kNeedsAttention);
    EXPECT_THAT(used.out, HasSubstr(to_string(f.id) + ": "));
    f = before;
  }
}

// Of a client of a shared drive the kernel has no borrower.
TEST_F(CliTest, ADiskOfADriveIsInUse) {
  nvme::DiskRecord disk;
  disk.function.value = 0x40001;
  disk.state = "starting";
  ASSERT_TRUE(nvme::write_record(Environment(root_), disk));
  EXPECT_EQ(run({"status", "--in-use"}).status, 0) << "there is none yet";
  disk.number = 3;
  ASSERT_TRUE(nvme::write_record(Environment(root_), disk));
  const Outcome used = run({"status", "--in-use"});
  EXPECT_EQ(used.status, kNeedsAttention);
  EXPECT_EQ(used.out, "/dev/ublkb3: namespace 1 of 40001 [waiting]\n");
  const Outcome object = run({"status", "--in-use", "--json"});
  EXPECT_EQ(object.status, kNeedsAttention);
  const auto json = nlohmann::json::parse(object.out);
  EXPECT_TRUE(json.at("functions").empty());
  EXPECT_EQ(json.at("disks").at(0).at("disk"), "/dev/ublkb3");
  EXPECT_EQ(json.at("disks").at(0).at("function"), "40001");
}

TEST_F(CliTest, ALinkThatMayBeDownIsWell) {
  Link spare;
  spare.adapter = "0000:00:07.0";
  kernel_.links.push_back(spare);
  EXPECT_EQ(run({"status"}).status, kNeedsAttention);
  EXPECT_EQ(run({"status", "--ignore", "00:07.0", "--ignore", "00:08.0"}).status, 0);
  EXPECT_EQ(run({"status", "--ignore", "00:08.0"}).status, kNeedsAttention);
  expect_refused({"status", "--ignore", "spare"}, ErrorClass::Usage, "--ignore");
}

TEST_F(CliTest, WhatIsBorrowedForBootIsKept) {
  EXPECT_EQ(run({"borrow", "--boot", "--owner", "me", "40001"}).status, 0);
  const std::string kept = "etc/pcilend/borrow.json";
  std::ifstream file(root_ / kept);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, HasSubstr("\"uuid\": \"70636c64-1111-8222-8333-000000040001\""));

  // The host boots, and its lender is later.
  const Function lent = nvme(0x40001, PCILEND_FUNCTION_AVAILABLE);
  kernel_.functions.clear();
  kernel_.log.clear();
  int looks = 0;
  kernel_.on_look = [&] {
    if (++looks == 5) kernel_.functions = {lent};
    if (looks == 8) kernel_.functions[0].driver = "nvme";
    kernel_.clock += std::chrono::seconds(1);
  };
  const Outcome restored = run({"restore", "--borrow"});
  EXPECT_EQ(restored.status, 0) << restored.err;
  EXPECT_EQ(restored.out, "borrow 40001: done\n");
  EXPECT_THAT(kernel_.log, ElementsAre("borrow 40001 shadow me"));
  EXPECT_EQ(run({"restore", "--borrow"}).out, "nothing to do: all is as configured\n");

  install("1e000:00:00.0");
  EXPECT_EQ(run({"return", "--boot", "--owner", "me", "40001"}).status, 0);
  kernel_.functions.clear();
  EXPECT_EQ(run({"restore", "--borrow"}).out, "nothing to do: all is as configured\n");
}

TEST_F(CliTest, WhatCannotBeBorrowedAtBootIsSaid) {
  write("etc/pcilend/borrow.json",
        R"({"borrow": [{"uuid": "70636c64-1111-8222-8333-000000040001", "owner": "me"},
                       {"uuid": "70636c64-1111-8222-8333-00000004dead"}]})");
  kernel_.functions[0].state = PCILEND_FUNCTION_BORROWED;
  kernel_.functions[0].borrower = 12;
  kernel_.on_look = [this] { kernel_.clock += std::chrono::seconds(1); };
  const Outcome result = run({"restore", "--borrow", "--timeout", "5"});
  EXPECT_EQ(result.status, kNeedsAttention);
  EXPECT_THAT(result.err, HasSubstr("failed to borrow 40001: it is borrowed by node 12"));
  EXPECT_THAT(result.err, HasSubstr("00000004dead: no host offers it"));
  EXPECT_THAT(result.err, HasSubstr("(/etc/pcilend/borrow.json: borrow[1])"));
  // By UUID, as no lender is there.
  EXPECT_EQ(run({"return", "--boot", "70636c64-1111-8222-8333-00000004dead"}).status, 0);
}

TEST_F(CliTest, BorrowAndReturn) {
  const Outcome borrowed = run({"borrow", "--frontend", "vfio", "--owner", "me", "40001"});
  EXPECT_EQ(borrowed.status, 0) << borrowed.err;
  EXPECT_THAT(borrowed.out, HasSubstr("[borrowed] by this host for me"));
  const Outcome refused = run({"return", "40001"});
  EXPECT_EQ(refused.status, static_cast<int>(ErrorClass::State));
  EXPECT_THAT(refused.err, HasSubstr("40001 is borrowed by 'me' (vfio)"));
  EXPECT_EQ(run({"return", "--owner", "me", "40001"}).status, 0);
  EXPECT_EQ(run({"return", "40001"}).status, 0) << "nothing is borrowed";
  EXPECT_THAT(kernel_.log, ElementsAre("borrow 40001 vfio me", "return 40001 me"));
}

TEST_F(CliTest, PeerToPeer) {
  kernel_.functions.push_back(nvme(0x40002, PCILEND_FUNCTION_AVAILABLE));
  const Outcome set_up = run({"p2p", "40001", "40002"});
  EXPECT_EQ(set_up.status, 0) << set_up.err;
  EXPECT_THAT(set_up.out, HasSubstr(", reaches 40002"));
  const Outcome ended = run({"p2p", "--end", "40001", "40002"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, Not(HasSubstr("reaches")));
  EXPECT_THAT(kernel_.log, ElementsAre("p2p 40001 40002", "p2p 40001 40002 end"));
  kernel_.log.clear();
  expect_refused({"p2p", "80001", "40001"}, ErrorClass::State, "installed in this host");
  expect_refused({"p2p", "40001", "c0001"}, ErrorClass::NotFound, "no function c0001");
  kernel_.refuse = [](const std::string&) -> Result<> {
    return fail(ErrorClass::State, "40002 is not borrowed by this host");
  };
  expect_refused({"p2p", "40001", "40002"}, ErrorClass::State, "40001: 40002 is not borrowed");
}

TEST_F(CliTest, ADriverThatDoesNotBindIsNotWaitedForForever) {
  const auto start = kernel_.clock;
  const Outcome result = run({"borrow", "--wait", "--timeout", "5", "40001"});
  EXPECT_EQ(result.status, static_cast<int>(ErrorClass::State));
  EXPECT_THAT(result.err, HasSubstr("no driver has bound to 1e000:00:00.0 in 5 s"));
  EXPECT_EQ(kernel_.clock - start, std::chrono::seconds(5));
  EXPECT_THAT(kernel_.log, ElementsAre(HasSubstr("borrow 40001 shadow")));
}

TEST_F(CliTest, ADriveWithoutADiskIsAWarning) {
  kernel_.events = {Wake::Lost};
  kernel_.on_look = [this] { kernel_.functions[0].driver = "nvme"; };
  const Outcome result = run({"borrow", "--wait", "40001"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("nvme is bound, but nothing has appeared in 30 s"));
}

TEST_F(CliTest, ALeaseThatIsLostIsNotWaitedFor) {
  kernel_.events = {Wake::Lost};
  kernel_.on_look = [this] { kernel_.functions[0].frontend.clear(); };
  const Outcome result = run({"borrow", "--wait", "40001"});
  EXPECT_EQ(result.status, static_cast<int>(ErrorClass::State));
  EXPECT_THAT(result.err, HasSubstr("40001 was lost while its driver was waited for"));
}

TEST_F(CliTest, ADiskInUseIsNotReturned) {
  const std::string disk = "sys/devices/pci1e000:00/1e000:00:00.0/nvme/nvme0/nvme0n1";
  ASSERT_EQ(run({"borrow", "--owner", "me", "40001"}).status, 0);
  kernel_.log.clear();
  link("sys/bus/pci/devices/1e000:00:00.0", "sys/devices/pci1e000:00/1e000:00:00.0");
  link("sys/class/block/nvme0n1", disk);
  write(disk + "/dev", "259:0\n");
  write("proc/self/mountinfo", "40 22 259:0 / /data rw - ext4 /dev/nvme0n1 rw\n");
  expect_refused({"return", "--owner", "me", "40001"}, ErrorClass::State,
                 "/dev/nvme0n1 is mounted on /data: run 'umount /data', or use --force");
  const Outcome forced = run({"return", "--force", "40001"});
  EXPECT_EQ(forced.status, 0);
  EXPECT_THAT(forced.err, HasSubstr("taken by force: /dev/nvme0n1 is mounted"));
  EXPECT_THAT(kernel_.log, ElementsAre("return 40001 me"));
}

TEST_F(CliTest, WhatAMediatedDeviceHasIsReturnedByItsEnd) {
  const std::string uuid = "9c2c1b0a-8899-4abb-8cdd-eeff00112233";
  ASSERT_EQ(run({"borrow", "--frontend", "vfio", "--owner", "mdev:" + uuid, "40001"}).status, 0);
  kernel_.log.clear();
  expect_refused({"return", "40001"}, ErrorClass::State,
                 "40001 is borrowed by mediated device " + uuid + ": stop it ('mdevctl stop -u " +
                     uuid + "')");
  EXPECT_EQ(run({"return", "--force", "40001"}).status, 0);
}

TEST_F(CliTest, ReturnByForceTakesItFromAnotherOwner) {
  ASSERT_EQ(run({"borrow", "--owner", "me", "40001"}).status, 0);
  install("1e000:00:00.0");
  EXPECT_EQ(run({"return", "--force", "40001"}).status, 0);
  EXPECT_THAT(kernel_.log, ElementsAre("borrow 40001 shadow me", "return 40001 me"));
}

TEST_F(CliTest, AFrontendThatIsNotLoadedIsNamed) {
  kernel_.refuse = [](const std::string&) -> Result<> {
    return fail(ErrorClass::Unsupported, "it can't be used so");
  };
  expect_refused({"borrow", "40001"}, ErrorClass::Unsupported,
                 "40001: frontend 'shadow' is not loaded: run 'modprobe pcilend_shadow'");
  expect_refused({"borrow", "--frontend", "vfio", "40001"}, ErrorClass::Unsupported,
                 "40001: frontend 'vfio' is not loaded: run 'modprobe pcilend_mdev'");
  fs::create_directories(root_ / "sys/module/pcilend_shadow");
  expect_refused({"borrow", "40001"}, ErrorClass::Unsupported, "40001: it can't be used so");
}

TEST_F(CliTest, AccessRightsAndLabels) {
  EXPECT_EQ(run({"allow", "80001", "4", "12"}).status, 0);
  EXPECT_EQ(run({"allow", "00:05.0", "none"}).status, 0);
  EXPECT_EQ(run({"allow", "80001", "all"}).status, 0);
  const Outcome labelled = run({"label", "80001", "team a"});
  EXPECT_EQ(labelled.status, 0) << labelled.err;
  EXPECT_THAT(labelled.out, HasSubstr("[added], label \"team a\" (0000:00:05.0 of this host)"));
  EXPECT_EQ(run({"add", "00:06.0", "--label", "team b"}).status, 0);
  EXPECT_THAT(kernel_.log, ElementsAre("allow 0000:00:05.0 4,12", "allow 0000:00:05.0 ",
                                       "allow 0000:00:05.0 all", "label 0000:00:05.0 team a",
                                       "add 0000:00:06.0 label team b"));
  kernel_.log.clear();
  expect_refused({"allow", "40001", "all"}, ErrorClass::State, "run this command there");
}

TEST_F(CliTest, Reservations) {
  const std::string domain = "2f1e6b1a-4d0c-4f6c-9a51-0d5a5f1f7a01";
  const Outcome reserved = run({"reserve", "40001", "--for", "12", "--ttl", "60"});
  EXPECT_EQ(reserved.status, 0) << reserved.err;
  EXPECT_THAT(reserved.out, HasSubstr("[available], reserved for node 12"));
  EXPECT_EQ(run({"reserve", "40001", "--for", domain, "--ttl", "1"}).status, 0);
  EXPECT_EQ(run({"reserve", "40001", "--cancel"}).status, 0);
  EXPECT_THAT(kernel_.log,
              ElementsAre("reserve 40001 node 12 60000", "reserve 40001 domain " + domain + " 1000",
                          "reserve 40001 0"));
}

TEST_F(CliTest, WhatADomainHasIsReservedForItAsAWhole) {
  const std::string domain = "2f1e6b1a-4d0c-4f6c-9a51-0d5a5f1f7a01";
  expect_refused({"reserve", "--for", domain, "--ttl", "60"}, ErrorClass::NotFound,
                 "borrowed nothing for domain " + domain);
  expect_refused({"reserve", "--for", "4", "--ttl", "60"}, ErrorClass::Usage, "name the functions");
  expect_refused({"reserve", "--cancel"}, ErrorClass::Usage, "name the functions");
  kernel_.log.clear();
  for (Function& function : kernel_.functions) function.owner = domain;
  const Outcome reserved = run({"reserve", "--json", "--for", domain, "--ttl", "60"});
  EXPECT_EQ(reserved.status, 0) << reserved.err;
  EXPECT_EQ(nlohmann::json::parse(reserved.out).at("functions").size(), kernel_.functions.size());
  ASSERT_GE(kernel_.log.size(), 2u);
  EXPECT_EQ(kernel_.log.size(), kernel_.functions.size());

  // Where one is refused, none stays reserved.
  for (Function& function : kernel_.functions) function.reserved_ms.reset();
  const std::string last = to_string(kernel_.functions.back().id);
  kernel_.refuse = [&](const std::string& entry) -> Result<> {
    if (entry.starts_with("reserve " + last + " domain")) return fail(ErrorClass::State, "taken");
    return {};
  };
  const Outcome refused = run({"reserve", "--for", domain, "--ttl", "60"});
  EXPECT_EQ(refused.status, static_cast<int>(ErrorClass::State));
  EXPECT_THAT(refused.err, HasSubstr(last + ": taken"));
  for (const Function& function : kernel_.functions) EXPECT_FALSE(function.reserved_ms);
}

TEST_F(CliTest, WhatIsDoneButCantBeShownIsSaid) {
  kernel_.on_look = [this] {
    if (!kernel_.log.empty()) kernel_.functions.clear();
  };
  const Outcome reserved = run({"reserve", "40001", "--for", "12", "--ttl", "60"});
  EXPECT_NE(reserved.status, 0);
  EXPECT_THAT(reserved.err, HasSubstr("40001: it is done, but can't be shown: "));
}

TEST_F(CliTest, QuarantineIsReleasedByName) {
  kernel_.functions[1].state = PCILEND_FUNCTION_QUARANTINED;
  const Outcome released = run({"release-quarantine", "80001"});
  EXPECT_EQ(released.status, 0) << released.err;
  EXPECT_THAT(released.out, HasSubstr("[available]"));
  EXPECT_THAT(kernel_.log, ElementsAre("release-quarantine 0000:00:05.0"));
}

TEST_F(CliTest, SegmentsAreOfferedAndWithdrawn) {
  Segment own;
  own.id.value = 0x80001;
  kernel_.segments = {own};
  EXPECT_EQ(run({"segment", "offer", "80001", "4", "12", "--read-only"}).status, 0);
  EXPECT_EQ(run({"segment", "withdraw", "80001", "4"}).status, 0);
  EXPECT_EQ(run({"segment", "withdraw", "80001"}).status, 0);
  EXPECT_EQ(kernel_.log, (std::vector<std::string>{
                             "segment offer 80001 4 read-only", "segment offer 80001 12 read-only",
                             "segment withdraw 80001 4", "segment withdraw 80001"}));
  // Memory beside a function is gone then, for whomever it is withdrawn from next.
  kernel_.segments_end = true;
  EXPECT_EQ(run({"segment", "withdraw", "80001", "4", "12"}).status, 0);
  const Outcome none = run({"segment", "withdraw", "80001", "4", "12"});
  EXPECT_EQ(none.status, static_cast<int>(ErrorClass::NotFound));
  EXPECT_THAT(none.err, HasSubstr("there is no such segment"));
}

TEST_F(CliTest, SegmentsThatAreNamedWronglyAreRefused) {
  const auto usage = [&](const std::vector<std::string>& arguments, const char* text) {
    const Outcome result = run(arguments);
    EXPECT_EQ(result.status, static_cast<int>(ErrorClass::Usage)) << result.err;
    EXPECT_THAT(result.err, HasSubstr(text));
  };
  usage({"segment", "make"}, "segment make: there are create, offer");
  usage({"segment", "list", "x"}, "what is 'x'?");
  usage({"segment", "offer"}, "name the segment by its id");
  usage({"segment", "offer", "80001"}, "say to which nodes");
  usage({"segment", "offer", "mine", "4"}, "'mine' is no segment");
  usage({"segment", "offer", "80001", "x"}, "'x' is not a node id");
  usage({"segment", "create"}, "--size 64M");
  for (const char* size : {"0", "M", "5T", "64MB", "1025G", "99999999999999999999"})
    usage({"segment", "create", "--size", size}, "give bytes");
  usage({"segment", "create", "--size", "1M", "--name", std::string(64, 'x')}, "at most 63 bytes");
  EXPECT_TRUE(kernel_.log.empty());
}

TEST_F(CliTest, BorrowIsByUuidToo) {
  EXPECT_EQ(run({"borrow", "70636c64-1111-8222-8333-000000040001"}).status, 0);
  EXPECT_EQ(kernel_.log.size(), 1u);
}

}  // namespace
}  // namespace pcilend::test
