// SPDX-License-Identifier: GPL-2.0-or-later
// Functions named by JSON on stdin.
#include "json_ids.h"

#include <gmock/gmock.h>

#include <sstream>

#include "host.h"

namespace pcilend::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(JsonIds, AreReadInTheirOrder) {
  const auto ids = ids_of_json(
      "stdin", R"({"functions": [{"id": "80001", "state": 3}, {"id": "40001"}], "more": null})");
  ASSERT_TRUE(ids) << ids.error().message;
  EXPECT_THAT(*ids, ElementsAre("80001", "40001"));
}

TEST(JsonIds, ErrorsPointAtThePlace) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "stdin: line 1, column 1"},
      {"{\"functions\": [", "stdin: line 1, column 16"},
      {"[]", "stdin: there are no 'functions': give what 'pcilend list --json' prints"},
      {"{}", "there are no 'functions'"},
      {R"({"functions": {}})", "stdin: functions: {} is not a list of functions"},
      {R"({"functions": []})", "stdin: functions: no function is named"},
      {R"({"functions": [4]})", "stdin: functions[0]: there is no 'id'"},
      {R"({"functions": [{"id": "40001"}, {"id": 40001}]})",
       "stdin: functions[1].id: 40001 is not text in quotes"},
      {R"({"functions": [{"id": "-f"}]})",
       "stdin: functions[0].id: '-f' is not the id of a function"},
      {R"({"functions": [{"id": "1", "id": "40001"}]})", "key 'id' is there twice"},
  };
  for (const auto& [text, error] : cases) {
    const auto ids = ids_of_json("stdin", text);
    ASSERT_FALSE(ids) << text;
    EXPECT_EQ(ids.error().kind, ErrorClass::Usage) << text;
    EXPECT_THAT(ids.error().message, HasSubstr(error)) << text;
  }
}

TEST(JsonIds, TooMuchIsRefused) {
  std::istringstream in(std::string((64 << 20) + 1, ' '));
  const auto ids = read_ids(in);
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().message, "stdin: more than 64 MiB: name fewer functions");
}

class JsonIdsOnStdin : public HostTest {
 protected:
  void SetUp() override {
    HostTest::SetUp();
    kernel_.functions = {nvme(0x40001, PCILEND_FUNCTION_AVAILABLE),
                         nvme(0x40002, PCILEND_FUNCTION_AVAILABLE)};
  }
};

TEST_F(JsonIdsOnStdin, WhatOneCommandPrintsTheNextTakes) {
  const Outcome listed = run({"list", "--json"});
  ASSERT_EQ(listed.status, 0) << listed.err;
  input_ = listed.out;
  const Outcome reserved = run({"reserve", "--json", "--for", "8", "--ttl", "60", "-"});
  ASSERT_EQ(reserved.status, 0) << reserved.err;
  EXPECT_THAT(kernel_.log, ElementsAre("reserve 40001 node 8 60000", "reserve 40002 node 8 60000"));
  input_ = reserved.out;
  kernel_.log.clear();
  EXPECT_EQ(run({"reserve", "--cancel", "-"}).status, 0);
  EXPECT_THAT(kernel_.log, ElementsAre("reserve 40001 0", "reserve 40002 0"));
}

TEST_F(JsonIdsOnStdin, WhatCannotBeReadChangesNothing) {
  input_ = "{\"functions\": [{\"id\": \"40001\"}, {}]}";
  const Outcome refused = run({"reserve", "--for", "8", "--ttl", "60", "-"});
  EXPECT_EQ(refused.status, static_cast<int>(ErrorClass::Usage));
  EXPECT_THAT(refused.err, HasSubstr("pcilend: stdin: functions[1]: there is no 'id'"));
  EXPECT_THAT(kernel_.log, IsEmpty());
}

TEST_F(JsonIdsOnStdin, ADashStandsAlone) {
  const Outcome refused = run({"show", "40001", "-"});
  EXPECT_EQ(refused.status, static_cast<int>(ErrorClass::Usage));
  EXPECT_THAT(refused.err, HasSubstr("'-' reads functions from stdin: name no others beside it"));
  EXPECT_THAT(run({"available", "-"}).err, HasSubstr("'-' names no function"));
}

}  // namespace
}  // namespace pcilend::test
