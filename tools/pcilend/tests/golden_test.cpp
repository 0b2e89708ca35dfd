// SPDX-License-Identifier: GPL-2.0-or-later
// What every listing prints, as text and as JSON, against testdata/. With PCILEND_GOLDEN=write in
// the environment the files are written instead.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

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
    lent.bars = {{0, 0x20000, 0}, {2, 0x20, kBarIo}, {3, 0x4000, 0}, {6, 0x40000, 0}};

    Function in_guest = nvme(0x40002, PCILEND_FUNCTION_BORROWED);
    in_guest.borrower = 8;
    in_guest.lease = 2;
    in_guest.frontend = "mdev";
    in_guest.owner = "2f1e6b1a-4d0c-4f6c-9a51-0d5a5f1f7a01";
    in_guest.virtual_address = "1e000:00:00.0";
    in_guest.guest_bytes = 256u << 20;
    in_guest.guest_map_us = 512345;
    in_guest.bars = {{0, 0x4000, kBarMem64}, {4, 0x123456789000, kBarMem64 | kBarPrefetch}};

    Function elsewhere = nvme(0x40003, PCILEND_FUNCTION_BORROWED);
    elsewhere.borrower = 12;
    Function broken = nvme(0xc0001, PCILEND_FUNCTION_QUARANTINED);
    broken.reason = "it does not answer after its reset";
    Function nameless = nvme(0xc0002, PCILEND_FUNCTION_ADDED);
    nameless.vendor = 0x4242;
    nameless.device = 0x0001;
    nameless.class_revision = 0xff000001;
    kernel_.functions = {
        nvme(0x40001, PCILEND_FUNCTION_AVAILABLE), in_guest, elsewhere, lent, broken, nameless};

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
    Link refused;
    refused.index = 1;
    refused.adapter = "0000:00:06.0";
    refused.driver = "ntb_hw_amd";
    refused.state = PCILEND_LINK_REFUSED;
    refused.reason = "memory window 1 has 1 MiB, 16 MiB are needed: enlarge the adapter's BAR 4";
    Link down;
    down.index = 2;
    down.adapter = "0000:00:07.0";
    kernel_.links = {up, refused, down};
  }

  void expect_golden(const std::string& name, std::vector<std::string> arguments) {
    const Outcome result = run(std::move(arguments));
    EXPECT_EQ(result.status, 0) << result.err;
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
  expect_golden("show.txt", {"show", "40002", "80001", "c0001"});
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
TEST_F(GoldenTest, Node) {
  expect_golden("node.txt", {"node"});
}
TEST_F(GoldenTest, NodeJson) {
  expect_golden("node.json", {"node", "--json"});
}
TEST_F(GoldenTest, VmXml) {
  expect_golden("vm-xml.txt", {"vm-xml", "40001", "40002"});
}
TEST_F(GoldenTest, AnEmptyListIsStillAnObject) {
  kernel_.functions.clear();
  EXPECT_EQ(run({"list"}).out, "");
  EXPECT_EQ(nlohmann::json::parse(run({"list", "--json"}).out),
            nlohmann::json::parse(R"({"functions": []})"));
}

}  // namespace
}  // namespace pcilend::test
