// SPDX-License-Identifier: GPL-2.0-or-later
// What hwtest refuses, and what its report looks like. The test itself needs two hosts: scenarios.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "host.h"
#include "print.h"

namespace pcilend::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class HwtestTest : public HostTest {
 protected:
  void SetUp() override {
    HostTest::SetUp();
    Link up;
    up.adapter = "0000:01:00.0";
    up.driver = "switchtec";
    up.state = PCILEND_LINK_UP;
    up.peer = 4;
    kernel_.links = {up};
    report_.link = up;
    report_.node = 4;
    report_.measures = {{"stores of one processor", 1234.567, "MB/s"}};
    report_.findings = {{Finding::Level::Ok, "interrupts", "200 have arrived", ""},
                        {Finding::Level::Wrong, "link", "was lost", "see the kernel log"}};
  }

  HwtestAnswer report_;
  PciNames names_{PCILEND_SOURCE_DIR "/tools/client/testdata/pci.ids"};
};

TEST_F(HwtestTest, NeedsALinkThatIsUp) {
  Outcome result = run({"hwtest", "12"});
  EXPECT_EQ(result.status, static_cast<int>(ErrorClass::NotFound));
  EXPECT_THAT(result.err, HasSubstr("no link to node 12 is up: 'pcilend link' lists them"));
  result = run({"hwtest", "4", "--adapter", "00:05.0"});
  EXPECT_THAT(result.err, HasSubstr("no link to node 4 is up over adapter 0000:00:05.0"));
  kernel_.links[0].state = PCILEND_LINK_HANDSHAKE;
  EXPECT_EQ(run({"hwtest", "4"}).status, static_cast<int>(ErrorClass::NotFound));
}

TEST_F(HwtestTest, NeedsTheSegmentOfTheOtherOne) {
  const Outcome result = run({"hwtest", "4", "there"});
  EXPECT_EQ(result.status, static_cast<int>(ErrorClass::Usage));
  EXPECT_THAT(result.err, HasSubstr("run 'pcilend hwtest' on node 4 first"));
  EXPECT_EQ(run({"hwtest", "four"}).status, static_cast<int>(ErrorClass::Usage));
}

TEST_F(HwtestTest, Reports) {
  const auto text = print_text(report_, names_, {});
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr("0000:01:00.0"));
  EXPECT_THAT(*text, ContainsRegex("stores of one processor +1234.57 MB/s"));
  EXPECT_THAT(*text, ContainsRegex("WRONG +link +was lost: see the kernel log"));
  const auto json = print_json(report_, names_, {});
  ASSERT_TRUE(json);
  const auto test = nlohmann::json::parse(*json).at("hwtest");
  EXPECT_EQ(test.at("errors"), 1);
  EXPECT_EQ(test.at("link").at("driver"), "switchtec");
  EXPECT_EQ(test.at("measures").at(0).at("unit"), "MB/s");
  EXPECT_EQ(test.at("command"), nullptr);
  EXPECT_EQ(exit_status(report_), kNeedsAttention);
  report_.findings.pop_back();
  EXPECT_EQ(exit_status(report_), 0);
}

TEST_F(HwtestTest, SaysWhatToRunOnTheOtherHost) {
  HwtestAnswer waiting;
  waiting.node = 4;
  waiting.command = "pcilend hwtest 8 80001";
  EXPECT_EQ(print_text(waiting, names_, {}).value_or(""), "on node 4: pcilend hwtest 8 80001\n");
}

}  // namespace
}  // namespace pcilend::test
