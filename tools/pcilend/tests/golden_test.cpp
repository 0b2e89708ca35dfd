// SPDX-License-Identifier: GPL-2.0-or-later
// What every listing prints, as text and as JSON, against testdata/. With PCILEND_GOLDEN=write in
// the environment the files are written instead.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "answer.h"
#include "disk/record.h"
#include "host.h"

namespace pcilend::test {
namespace {

class GoldenTest : public HostTest {
 protected:
  void SetUp() override {
    HostTest::SetUp();
    Function lent = nvme(0x80001, PCILEND_FUNCTION_BORROWED);
    lent.vendor = 0x8086;
    lent.device = 0x10d3;
    lent.class_revision = 0x02000000;
    lent.driver = "pcilend";
    lent.borrower = 4;
    lent.lease = 7;
    lent.resets = 3;
    lent.faults = 0;
    lent.label = "team a";
    lent.allowed = {4, 12};
    lent.lease_ms = 10000;
    lent.lease_left_ms = 9200;
    lent.recall_ms = 11500;
    lent.group = 14;
    lent.members = {{"0000:00:05.1", FunctionId{0x80003}, PCILEND_FUNCTION_AVAILABLE},
                    {"0000:00:05.2", std::nullopt, PCILEND_FUNCTION_LOCAL}};
    lent.bars = {{0, 0x20000, 0}, {2, 0x20, kBarIo}, {3, 0x4000, 0}, {6, 0x40000, 0}};

    Function in_guest = nvme(0x40002, PCILEND_FUNCTION_BORROWED);
    in_guest.borrower = 8;
    in_guest.lease = 2;
    in_guest.frontend = "vfio";
    in_guest.owner = "2f1e6b1a-4d0c-4f6c-9a51-0d5a5f1f7a01";
    in_guest.virtual_address = "1e000:00:00.0";
    in_guest.adapter = "0000:00:04.0";
    in_guest.paths = {"0000:00:04.0", "0000:00:06.0"};
    in_guest.guest_bytes = 256u << 20;
    in_guest.bars = {{0, 0x4000, kBarMem64}, {4, 0x123456789000, kBarMem64 | kBarPrefetch}};

    Function here = nvme(0x40004, PCILEND_FUNCTION_BORROWED);
    here.borrower = 8;
    here.lease = 3;
    here.frontend = "shadow";
    here.owner = "user root";
    here.virtual_address = "1e001:00:00.0";
    here.driver = "nvme";
    here.reaches = {0x40002, 0x40005};
    here.relayed = true;

    Function elsewhere = nvme(0x40003, PCILEND_FUNCTION_BORROWED);
    elsewhere.direct = true;
    elsewhere.borrower = 12;
    Function broken = nvme(0xc0001, PCILEND_FUNCTION_QUARANTINED);
    broken.reason = "it does not answer after its reset";
    Function reserved = nvme(0x80002, PCILEND_FUNCTION_AVAILABLE);
    reserved.reserved_node = 4;
    reserved.reserved_ms = 55000;
    reserved.allowed.emplace();
    Function nameless = nvme(0xc0002, PCILEND_FUNCTION_ADDED);
    nameless.vendor = 0x4242;
    nameless.device = 0x0001;
    nameless.class_revision = 0xff000001;
    kernel_.functions = {nvme(0x40001, PCILEND_FUNCTION_AVAILABLE),
                         in_guest,
                         here,
                         elsewhere,
                         lent,
                         reserved,
                         broken,
                         nameless};

    Link up;
    up.adapter = "0000:00:04.0";
    up.driver = "ntb_hw_amd";
    up.state = PCILEND_LINK_UP;
    up.peer = 4;
    up.peer_boot_id = 0xfedcba9876543210;
    up.connected = true;
    up.peer_connected = true;
    up.tx_messages = 120;
    up.rx_messages = 118;
    up.timeouts = 2;
    up.export_bytes = 0x28000;
    up.slot_bytes = 256u << 20;
    up.lease_ms = 10000;
    up.windows = {{0, 64ull << 30, 64ull << 30, 4096, 1}, {1, 16ull << 30, 0, 0, 0}};
    up.regions = {{PCILEND_REGION_DMA, 0, 2ull << 30, 0, {}},
                  {PCILEND_REGION_INTERRUPTS, 0xfee00000, 1u << 20, 0, {}},
                  {PCILEND_REGION_SLOTS, 8ull << 30, 56ull << 30, 0, 256u << 20},
                  {PCILEND_REGION_EXPORTS, 1ull << 40, 16ull << 30, 1, 0x28000}};
    up.hole = 0xc0000000;
    up.peer_hole = 0x80000000;
    up.downs = 1;
    up.pinned = 4;
    up.leases = 2;
    up.requesters = 64;
    up.requesters_used = 3;
    up.requesters_lent = 1;
    Link refused;
    refused.degraded = {"no VM above 1 GiB: enlarge the adapter's BAR 2"};
    refused.index = 1;
    refused.adapter = "0000:00:06.0";
    refused.driver = "ntb_hw_amd";
    refused.state = PCILEND_LINK_REFUSED;
    refused.reason = "memory window 1 has 1 MiB, 16 MiB are needed: enlarge the adapter's BAR 4";
    Link down;
    down.index = 2;
    down.adapter = "0000:00:07.0";
    down.direct = true;
    kernel_.links = {up, refused, down};
    kernel_.segments = segments();
    kernel_.offered = {offered_segment()};
  }

  // One that is used, one whose program has died, one that has lost its drive.
  void write_disks() {
    nvme::DiskRecord disk;
    disk.function.value = 0x40001;
    disk.state = "ready";
    disk.number = 0;
    disk.blocks = 131072;
    disk.block_bytes = 512;
    disk.model = "QEMU NVMe Ctrl";
    disk.serial = "disk";
    disk.alone = true;
    disk.queues = 1;
    disk.depth = 64;
    disk.pid = 77;
    write("proc/77/comm", "pcilend-nvme-di\n");
    ASSERT_TRUE(nvme::write_record(Environment(root_), disk));
    disk.function.value = 0x40002;
    disk.number = 1;
    disk.pid = 78;
    disk.recoveries = 1;
    disk.read_only = disk.shared_fs = true;
    ASSERT_TRUE(nvme::write_record(Environment(root_), disk));
    disk.function.value = 0x80003;
    disk.number.reset();
    disk.pid = 0;
    disk.state = "failed";
    disk.error = "function 80003 is not available: its lender is gone";
    ASSERT_TRUE(nvme::write_record(Environment(root_), disk));
  }

  static std::vector<Segment> segments() {
    Segment own;
    own.id.value = 0x80001;
    own.name = "results";
    own.size = uint64_t{64} << 20;
    own.state = PCILEND_SEGMENT_CONNECTED;
    own.offers = {{4, "0000:00:04.0", true, false, 2}, {12, "0000:00:05.0", false, true, 1}};
    Segment connected;
    connected.id.value = 0x40003;
    connected.size = 4096;
    connected.state = PCILEND_SEGMENT_LOST;
    connected.adapter = "0000:00:04.0";
    connected.read_only = true;
    return {own, connected};
  }

  static Segment offered_segment() {
    Segment offered;
    offered.id.value = 0x40004;
    offered.name = "input";
    offered.size = uint64_t{1} << 20;
    offered.state = PCILEND_SEGMENT_OFFERED;
    offered.adapter = "0000:00:04.0";
    offered.read_only = true;
    return offered;
  }

  // A network card: PM, MSI, PCIe and MSI-X; a serial number behind it.
  static std::vector<uint8_t> nic_config() {
    std::vector<uint8_t> config(4096, 0);
    const auto put = [&](size_t at, std::initializer_list<int> bytes) {
      for (const int byte : bytes) config.at(at++) = static_cast<uint8_t>(byte);
    };
    put(0x00, {0x86, 0x80, 0xd3, 0x10, 0x06, 0x04, 0x10, 0x00, 0x00, 0x00, 0x00, 0x02});
    put(0x10, {0x0c, 0x00, 0x00, 0xfe, 0x01, 0x00, 0x00, 0x00, 0x01, 0xc0});
    put(0x2c, {0x86, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0xfd, 0xc8});
    put(0x3d, {0x01});
    put(0xc8, {0x01, 0xd0, 0x23, 0xc8, 0x03});
    put(0xd0, {0x05, 0xe0, 0x81, 0x00});
    put(0xe0, {0x10, 0xa0, 0x02, 0x00, 0x00, 0x00, 0x00, 0x10});
    put(0xf2, {0x12, 0x00});
    put(0xa0, {0x11, 0xc8, 0x04, 0x80, 0x03, 0x00, 0x00, 0x00, 0x03, 0x20});  // next: a loop
    put(0x100, {0x03, 0x00, 0x01, 0x14, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88});
    put(0x140, {0x42, 0x00, 0x01, 0x00});
    return config;
  }

  // What nvme makes of a function that is borrowed as 1e000:00:00.0.
  void make_drive() {
    kernel_.on_look = [this] {
      if (Function* const f = kernel_.find(FunctionId{0x40001}); f->borrower) f->driver = "nvme";
    };
    Event event;
    event.kind = PCILEND_EVENT_FUNCTION;
    event.function = nvme(0x40001, PCILEND_FUNCTION_BORROWED);
    kernel_.events = {event};
    const std::string device = "sys/devices/pci0000:00/0000:00:04.0/pci1e000:00/1e000:00:00.0";
    link("sys/bus/pci/devices/1e000:00:00.0", device);
    link("sys/class/nvme/nvme1", device + "/nvme/nvme1");
    link("sys/class/block/nvme1n1", device + "/nvme/nvme1/nvme1n1");
    write(device + "/nvme/nvme1/nvme1n1/size", "2097152\n");
    link("sys/class/block/nvme1n1p1", device + "/nvme/nvme1/nvme1n1/nvme1n1p1");
    write(device + "/nvme/nvme1/nvme1n1/nvme1n1p1/partition", "1\n");
    link("sys/class/net/enp122880s0", device + "/net/enp122880s0");
  }

  std::deque<std::variant<Event, Wake>> changes() {
    Event link;
    link.kind = PCILEND_EVENT_LINK;
    link.link = kernel_.links.front();
    Event function;
    function.kind = PCILEND_EVENT_FUNCTION;
    function.function = nvme(0x40001, PCILEND_FUNCTION_AVAILABLE);
    Event gone = function;
    gone.kind = PCILEND_EVENT_FUNCTION_GONE;
    Event lost = function;
    lost.kind = PCILEND_EVENT_LEASE_LOST;
    Event recall = function;
    recall.kind = PCILEND_EVENT_RECALL;
    recall.function->recall_ms = 29001;
    Event was_reset = function;
    was_reset.kind = PCILEND_EVENT_WAS_RESET;
    Event done;
    done.kind = PCILEND_EVENT_AUDIT;
    done.audit = Audit{1795288499123456789, 0, {}, "connect", {}, 12, 0};
    Event refused = done;
    refused.audit = Audit{1795288499500000000, {}, 12, "borrow", FunctionId{0x80001}, {}, -EBUSY};
    Event peer_to_peer = done;
    peer_to_peer.audit =
        Audit{1795288499600000000, 0, {}, "p2p", FunctionId{0x40001}, {}, 0, FunctionId{0x40002}};
    Event offered;
    offered.kind = PCILEND_EVENT_SEGMENT;
    offered.segment = segments().front();
    Event withdrawn = offered;
    withdrawn.segment->offers.erase(withdrawn.segment->offers.begin());
    Event disconnected;
    disconnected.kind = PCILEND_EVENT_SEGMENT;
    disconnected.segment = segments().back();
    Event ended;
    ended.kind = PCILEND_EVENT_SEGMENT_GONE;
    ended.segment = Segment{FunctionId{0x80001}, {}, 0, PCILEND_SEGMENT_WITHDRAWN, {}, {}};
    Event newer;
    newer.kind = 99;
    return {link,         function, gone,      lost,         recall, was_reset, done,      refused,
            peer_to_peer, offered,  withdrawn, disconnected, ended,  newer,     Wake::Lost};
  }

  void expect_golden(const std::string& name, std::vector<std::string> arguments, int status = 0) {
    const Outcome result = run(std::move(arguments));
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_EQ(result.err, "");
    const std::string path = PCILEND_TESTDATA_DIR "/" + name;
    if (const char* const mode = std::getenv("PCILEND_GOLDEN");
        mode && mode == std::string("write"))
      std::ofstream(path) << result.out;
    std::ifstream file(path);
    ASSERT_TRUE(file) << path;
    EXPECT_EQ(result.out, std::string(std::istreambuf_iterator<char>(file), {})) << path;
  }
};

TEST_F(GoldenTest, List) {
  expect_golden("list.txt", {"list"});
}
TEST_F(GoldenTest, ListJson) {
  expect_golden("list.json", {"list", "--json"});
}
TEST_F(GoldenTest, ListColumns) {
  expect_golden("list-columns.txt", {"list", "-o", "id,state,lender,borrower,device,bars"});
}
TEST_F(GoldenTest, ListColumnsJson) {
  expect_golden("list-columns.json", {"list", "-j", "-o", "id,state"});
}
TEST_F(GoldenTest, ListWithoutHeadings) {
  expect_golden("list-noheadings.txt", {"list", "-n", "-o", "id,bdf"});
}
TEST_F(GoldenTest, Show) {
  expect_golden("show.txt", {"show", "40002", "40004", "80001", "c0001"});
}
TEST_F(GoldenTest, BorrowAndWait) {
  make_drive();
  expect_golden("borrow-wait.txt", {"borrow", "--wait", "40001"});
}
TEST_F(GoldenTest, BorrowAndWaitJson) {
  make_drive();
  expect_golden("borrow-wait.json", {"borrow", "--wait", "--json", "40001"});
}
TEST_F(GoldenTest, ShowJson) {
  expect_golden("show.json", {"show", "--json", "40002"});
}
TEST_F(GoldenTest, Link) {
  expect_golden("link.txt", {"link"});
}
TEST_F(GoldenTest, LinkJson) {
  expect_golden("link.json", {"link", "--json"});
}
TEST_F(GoldenTest, LinkColumns) {
  expect_golden("link-columns.txt", {"link", "-o", "node,timeouts,export_bytes"});
}
TEST_F(GoldenTest, LinkVerbose) {
  expect_golden("link-verbose.txt", {"link", "--verbose"});
}
TEST_F(GoldenTest, LinkRanges) {
  expect_golden("link-ranges.txt", {"link", "-o", "index,windows,regions,degraded"});
}
TEST_F(GoldenTest, Status) {
  expect_golden("status.txt", {"status"}, kNeedsAttention);
}
TEST_F(GoldenTest, StatusJson) {
  expect_golden("status.json", {"status", "--json"}, kNeedsAttention);
}
TEST_F(GoldenTest, StatusOfAHostThatIsWell) {
  kernel_.links.resize(1);
  kernel_.functions.resize(2);
  expect_golden("status-well.txt", {"status"});
}
TEST_F(GoldenTest, Metrics) {
  kernel_.counters = {9, 5, 1, 2, 3, 8, 1, 0, 4, 1, 17};
  expect_golden("metrics.txt", {"metrics"});
}
TEST_F(GoldenTest, MetricsJson) {
  kernel_.functions.resize(1);
  kernel_.links.resize(1);
  expect_golden("metrics.json", {"metrics", "--json"});
}
TEST_F(GoldenTest, VmXmlJson) {
  expect_golden("vm-xml.json", {"vm-xml", "--json", "40001"});
}
TEST_F(GoldenTest, Lspci) {
  kernel_.configs[0x80001] = nic_config();
  expect_golden("lspci.txt", {"lspci", "80001"});
}
TEST_F(GoldenTest, LspciOfAllThatCanBeRead) {
  auto config = nic_config();
  config.resize(256);
  kernel_.emulated_configs = {
      {0x80001, config}, {0x80002, config}, {0x40002, config}, {0x40004, config}};
  expect_golden("lspci-hex.txt", {"lspci", "--emulated", "-x"});
}
TEST_F(GoldenTest, LspciJson) {
  kernel_.configs[0x80001] = nic_config();
  expect_golden("lspci.json", {"lspci", "--json", "80001"});
}
TEST_F(GoldenTest, Monitor) {
  kernel_.events = changes();
  expect_golden("monitor.txt", {"monitor"});
}
TEST_F(GoldenTest, MonitorJson) {
  kernel_.functions.resize(1);
  kernel_.links.resize(1);
  kernel_.events = changes();
  expect_golden("monitor.json", {"monitor", "--json", "--timeout", "5"});
}
TEST_F(GoldenTest, MonitorEndsAfterSoMany) {
  kernel_.events = changes();
  const Outcome result = run({"monitor", "--count", "2"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2) << result.out;
}
TEST_F(GoldenTest, Disks) {
  write_disks();
  expect_golden("disks.txt", {"nvme", "list"});
}
TEST_F(GoldenTest, DisksJson) {
  write_disks();
  expect_golden("disks.json", {"nvme", "list", "--json"});
}
TEST_F(GoldenTest, Segments) {
  expect_golden("segments.txt", {"segment", "list"});
}
TEST_F(GoldenTest, SegmentsJson) {
  expect_golden("segments.json", {"segment", "list", "--json"});
}
TEST_F(GoldenTest, SegmentsThatPeersOfferAreForRoot) {
  kernel_.refuse = [](const std::string& what) -> Result<> {
    if (what != "segment offered") return {};
    return fail(ErrorClass::Permission, "Operation not permitted");
  };
  const Outcome result = run({"segment", "list"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("40003"), std::string::npos);
  EXPECT_EQ(result.out.find("40004"), std::string::npos);
}
TEST_F(GoldenTest, Node) {
  expect_golden("node.txt", {"node"});
}
TEST_F(GoldenTest, NodeJson) {
  expect_golden("node.json", {"node", "--json"});
}
TEST_F(GoldenTest, VmXml) {
  expect_golden("vm-xml.txt", {"vm-xml", "40001", "40002"});
  expect_golden("vm-xml-mdev.txt", {"vm-xml", "--mdev", "40001", "40002"});
}
TEST_F(GoldenTest, VmXmlOfOneDevice) {
  for (auto& function : kernel_.functions)
    if (to_string(function.id) == "40002") function.bdf = "0000:00:05.1";
  expect_golden("vm-xml-slot.txt", {"vm-xml", "40002", "40001"});
}
TEST_F(GoldenTest, AnEmptyListIsStillAnObject) {
  kernel_.functions.clear();
  EXPECT_EQ(run({"list"}).out, "");
  EXPECT_EQ(nlohmann::json::parse(run({"list", "--json"}).out),
            nlohmann::json::parse(R"({"schema": 1, "functions": []})"));
}

}  // namespace
}  // namespace pcilend::test
