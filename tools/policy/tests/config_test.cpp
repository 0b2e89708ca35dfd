// SPDX-License-Identifier: GPL-2.0-or-later
// What configuration files may say, and what is said about what they may not.
#include "pcilend/policy/config.h"

#include <gmock/gmock.h>

#include "pcilend/policy/files.h"
#include "root.h"

namespace pcilend::policy::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string refused(const std::string& text) {
  const auto config = parse_config("x.json", text);
  EXPECT_FALSE(config) << text;
  if (config) return {};
  EXPECT_EQ(config.error().kind, ErrorClass::Usage);
  return config.error().message;
}

std::string function(const std::string& more) {
  return R"({"functions": [{"bdf": "0000:00:10.0", "device": "1b36:0010", )" + more + "}]}";
}

TEST(Config, EveryKeyIsRead) {
  const auto config = parse_config("x.json", R"({
    "$schema": "pcilend.schema.json",
    "connections": [12, 8, 12],
    "pins": [{"adapter": "3b:00.0", "node": 8}],
    "functions": [
      {"uuid": "70636C64-1111-8222-8333-000000040001", "bdf": "00:10.0", "device": "1B36:0010",
       "id": "40001", "state": "available", "label": "lab", "allow": [12, 8], "force": true,
       "direct": true, "sanitize": true, "near": 8192},
      {"bdf": "0000:00:11.0", "device": "8086:10d3", "state": "added", "allow": "all"}
    ],
    "filters": {
      "add": [{"device": "8086:"}],
      "available": [{"slot": "00:10.*", "label": "x", "allow": [8], "force": true}],
      "unavailable": [{"slot": "1f", "device": "::0106"}]
    },
    "kinds": [{"name": "fast", "device": "144D::0108", "label": "rack 7"},
              {"name": "nic-3", "function": "4000a"}]})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(config->connections, ElementsAre(8, 12));
  ASSERT_EQ(config->pins.size(), 1u);
  EXPECT_EQ(to_string(config->pins[0].adapter), "0000:3b:00.0");
  EXPECT_EQ(config->pins[0].node, 8u);
  EXPECT_EQ(config->pins[0].place, "x.json: pins[0]");
  ASSERT_EQ(config->functions.size(), 2u);
  const FunctionEntry& f = config->functions[0];
  EXPECT_EQ(to_string(*f.uuid), "70636c64-1111-8222-8333-000000040001");
  EXPECT_EQ(to_string(*f.address), "0000:00:10.0");
  EXPECT_EQ(f.device, (DeviceIds{0x1b36, 0x0010}));
  EXPECT_EQ(f.id, FunctionId{0x40001});
  EXPECT_TRUE(f.available);
  EXPECT_EQ(f.label, "lab");
  EXPECT_EQ(f.allow, (Audience{false, {8, 12}}));
  EXPECT_TRUE(f.force);
  EXPECT_TRUE(f.direct);
  EXPECT_TRUE(f.sanitize);
  EXPECT_EQ(f.near, 8192U);
  EXPECT_FALSE(config->functions[1].direct);
  EXPECT_EQ(f.place, "x.json: functions[0]");
  EXPECT_EQ(config->functions[1].allow, Audience{});
  EXPECT_FALSE(config->functions[1].available);
  EXPECT_EQ(config->functions[1].label, std::nullopt);
  ASSERT_EQ(config->filters.size(), 3u);
  EXPECT_EQ(config->filters[1].pattern, (Pattern{"00:10.*", ""}));
  EXPECT_EQ(config->filters[2].kind, FilterKind::Unavailable);
  EXPECT_EQ(config->filters[2].place, "x.json: filters.unavailable[0]");
  ASSERT_EQ(config->kinds.size(), 2u);
  EXPECT_EQ(config->kinds[0].name, "fast");
  EXPECT_EQ(config->kinds[0].text, "fast device=144d::0108 label=rack 7");
  EXPECT_EQ(config->kinds[0].place, "x.json: kinds[0]");
  EXPECT_EQ(config->kinds[1].text, "nic-3 function=4000a");
}

TEST(Config, ErrorsPointAtThePlaceAndSayWhatIsExpected) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"[]",
       "x.json: [] is not an object with keys $schema, connections, pins, functions, filters, "
       "kinds, borrow"},
      {R"({"function": []})", "x.json: no key 'function': did you mean 'functions'?"},
      {R"({"peers": []})",
       "x.json: no key 'peers': there are $schema, connections, pins, functions, filters, "
       "kinds, borrow"},
      {R"({"$schema": 1})", "x.json: $schema: 1 is not text in quotes"},
      {R"({"connections": 8})", "x.json: connections: 8 is not a list of node ids"},
      {R"({"connections": ["8"]})", "x.json: connections[0]: '8' is not a node id"},
      {R"({"connections": [8, 65536]})",
       "x.json: connections[1]: 65536 is not a node id: a number from 1 to 65535"},
      {R"({"connections": [-1]})", "x.json: connections[0]: -1 is not a node id"},
      {R"({"pins": [{"node": 8}]})",
       "x.json: pins[0]: no 'adapter': say which, as 'pcilend link' prints it"},
      {R"({"pins": [{"adapter": "00:04.0"}]})",
       "x.json: pins[0]: no 'node': say which one is behind the adapter"},
      {R"({"pins": [{"adapter": "00:04.0", "node": 0}]})",
       "x.json: pins[0].node: 0 is not a node id: a number from 1 to 65535"},
      {R"({"pins": [{"adapter": "04", "node": 8}]})",
       "x.json: pins[0].adapter: '04' is not a PCI address: write it as lspci does (00:05.0 or "
       "0000:00:05.0)"},
      {R"({"pins": [{"adapter": "00:04.0", "node": 8}, {"adapter": "0000:00:04.0", "node": 12}]})",
       "x.json: pins[1]: the same adapter as x.json: pins[0]: remove one"},
      {R"({"functions": {}})", "x.json: functions: {} is not a list of functions"},
      {R"({"functions": [1]})",
       "x.json: functions[0]: 1 is not an object with keys uuid, bdf, device, id, state, label, "
       "allow, force, direct, sanitize, near"},
      {R"({"functions": [{}]})",
       "x.json: functions[0]: no 'state': say whether it is to be added or available"},
      {R"({"functions": [{"state": "availible"}]})",
       "x.json: functions[0].state: 'availible' is not one of added, available"},
      {R"({"functions": [{"state": "added"}]})",
       "x.json: functions[0]: neither 'uuid' nor 'bdf' says which function: see 'pcilend list'"},
      {R"({"functions": [{"state": "added", "bdf": "00:10.0"}]})",
       "x.json: functions[0]: a 'bdf' alone may be another device tomorrow: add its 'device' "
       "(lspci "
       "-n) or its 'uuid'"},
      {function(R"("adress": 1)"),
       "x.json: functions[0]: no key 'adress': there are uuid, bdf, device, id, state, label, "
       "allow, force, direct, sanitize, near"},
      {function(R"("lable": "x")"), "x.json: functions[0]: no key 'lable': did you mean 'label'?"},
      {function(R"("uuid": "70636c64")"),
       "x.json: functions[0].uuid: '70636c64' is not a UUID (8-4-4-4-12 hex digits)"},
      {R"({"functions": [{"bdf": "16"}]})",
       "x.json: functions[0].bdf: '16' is not a PCI address: write it as lspci does (00:05.0 or "
       "0000:00:05.0)"},
      {R"({"functions": [{"device": "1b36"}]})",
       "x.json: functions[0].device: '1b36' is not VENDOR:DEVICE in hex, as 'lspci -n' prints "
       "them"},
      {R"({"functions": [{"device": "1b36:001g"}]})",
       "x.json: functions[0].device: '1b36:001g' is not VENDOR:DEVICE in hex, as 'lspci -n' prints "
       "them"},
      {R"({"functions": [{"device": "1b3\ne6:0010"}]})",
       "x.json: functions[0].device: '1b3?e6:0010' is not VENDOR:DEVICE in hex, as 'lspci -n' "
       "prints them"},
      {function(R"("id": "4")"),
       "x.json: functions[0].id: '4' is not a function id: ids are hex as 'pcilend list' prints "
       "them (40001)"},
      {function(R"("label": 4)"), "x.json: functions[0].label: 4 is not text in quotes"},
      {function(R"("label": "a\nb")"),
       "x.json: functions[0].label: 'a?b' is not a label: at most 63 characters of ASCII"},
      {function("\"label\": \"" + std::string(64, 'x') + "\""),
       "x.json: functions[0].label: '" + std::string(36, 'x') +
           "... is not a label: at most 63 characters of ASCII"},
      {function(R"("allow": "some")"),
       "x.json: functions[0].allow: 'some' is not 'all' or a list of node ids"},
      {function(R"("allow": [0])"),
       "x.json: functions[0].allow[0]: 0 is not a node id: a number from 1 to 65535"},
      {function(R"("force": "yes")"), "x.json: functions[0].force: 'yes' is not true or false"},
      {R"({"functions": [{"bdf": "00:10.0", "device": "1b36:0010", "state": "added",
        "direct": true}]})",
       "x.json: functions[0]: 'direct' says how it is lent, and it is only added: make it "
       "available"},
      {R"({"filters": []})",
       "x.json: filters: [] is not an object with keys add, available, unavailable"},
      {R"({"filters": {"availible": []}})",
       "x.json: filters: no key 'availible': did you mean 'available'?"},
      {R"({"filters": {"add": {}}})", "x.json: filters.add: {} is not a list of filters"},
      {R"({"filters": {"add": [{}]}})",
       "x.json: filters.add[0]: neither 'device' nor 'slot' says what matches"},
      {R"({"filters": {"add": [{"slot": ""}]}})",
       "x.json: filters.add[0].slot: nothing to match: write "
       "[[[[DOMAIN]:]BUS]:][DEVICE][.[FUNCTION]], as lspci does"},
      {R"({"filters": {"unavailable": [{"slot": "1f", "label": "x"}]}})",
       "x.json: filters.unavailable[0]: an unavailable filter has 'device' and 'slot' only"},
      {R"({"functions": [{"a": {"b": 1, "b": 2}}]})",
       "x.json: key 'b' is there twice in one object: remove one"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(refused(text), message) << text;
}

TEST(Config, KindsAreWhatTheKernelTakes) {
  const std::string name =
      "a name of up to 31 small letters, digits and, in between, '-' comes first";
  const std::string device =
      "device= wants [VENDOR]:[DEVICE][:CLASS[:INTERFACE]], as lspci -d does";
  const std::string id = "function= wants an id as 'pcilend list' shows it, such as 40001";
  const std::string label = "label= wants 1 to 63 printable ASCII characters, and comes last";
  const std::string any = "say device=, function= or label=: it would be any function of any host";
  const std::vector<std::pair<std::string, std::string>> cases{
      {R"({"name": "Fast"})", ".name: 'Fast': " + name},
      {R"({"name": "fast label=x"})", ".name: 'fast label=x': " + name},
      {R"({"name": "fast\u0000"})", ".name: 'fast?': " + name},
      {R"({"name": ""})", ".name: '': " + name},
      {R"({"name": 7})", ".name: 7 is not text in quotes"},
      {R"({"name": "storage", "label": "x"})",
       ".name: 'storage' is always there: choose another name"},
      {R"({"name": "function", "label": "x"})",
       ".name: 'function' is always there: choose another name"},
      {R"({"label": "x"})", ": no 'name': say what its type is to be called"},
      {R"({"name": "fast"})", ": " + any},
      {R"({"name": "fast", "device": "xxxx:"})", ": " + any},
      {R"({"name": "fast", "device": "144d::01"})", ".device: '144d::01': " + device},
      {R"({"name": "fast", "device": "144d: label=x"})", ".device: '144d: label=x': " + device},
      {R"({"name": "fast", "device": "144d:\u0000"})", ".device: '144d:?': " + device},
      {R"({"name": "fast", "function": "4"})", ".function: '4': " + id},
      {R"({"name": "fast", "function": "40001 device=144d:"})",
       ".function: '40001 device=144d:': " + id},
      {R"({"name": "fast", "label": ""})", ".label: '': " + label},
      {R"({"name": "fast", "label": "x\u0000"})", ".label: 'x?': " + label},
      {R"({"name": "fast", "slot": "1f"})",
       ": no key 'slot': there are name, device, function, label"},
  };
  for (const auto& [kind, message] : cases)
    EXPECT_EQ(refused(R"({"kinds": [)" + kind + "]}"), "x.json: kinds[0]" + message) << kind;
  EXPECT_EQ(refused(R"({"kinds": {}})"), "x.json: kinds: {} is not a list of kinds");
  EXPECT_EQ(refused(R"({"kinds": [{"name": "a", "label": "x"}, {"name": "a", "label": "y"}]})"),
            "x.json: kinds[1]: the same name as x.json: kinds[0]: remove one");
}

TEST(Config, FiltersHaveLspcisSyntax) {
  EXPECT_THAT(refused(R"({"filters": {"add": [{"device": "1b36"}]}})"),
              AllOf(StartsWith("x.json: filters.add[0].device: '1b36': "),
                    EndsWith(": write [VENDOR]:[DEVICE][:CLASS[:INTERFACE]], as lspci does")));
  EXPECT_THAT(refused(R"({"filters": {"add": [{"slot": "00:99.0"}]}})"),
              AllOf(StartsWith("x.json: filters.add[0].slot: '00:99.0': "),
                    EndsWith(": write [[[[DOMAIN]:]BUS]:][DEVICE][.[FUNCTION]], as lspci does")));
}

TEST(Config, SyntaxErrorsHaveLineAndColumn) {
  EXPECT_THAT(refused("{\n  \"connections\": [8,\n}"), HasSubstr("x.json: line 3, column 1: "));
  EXPECT_THAT(refused(""), HasSubstr("x.json: line 1, column 1: "));
  EXPECT_THAT(refused("{\"a\": \"\xff\"}"), HasSubstr("x.json: line 1, column 8: "));
  EXPECT_THAT(refused(std::string(2 << 20, ' ')), HasSubstr("more than 1048576 bytes"));
}

TEST(Config, AFunctionOrIdIsThereOnce) {
  EXPECT_EQ(refused(R"({"functions": [
      {"bdf": "00:10.0", "device": "1b36:0010", "state": "added"},
      {"bdf": "0000:00:10.0", "device": "1b36:0010", "state": "available"}]})"),
            "x.json: functions[1]: the same function as x.json: functions[0]: remove one");
  EXPECT_EQ(refused(R"({"functions": [
      {"bdf": "00:10.0", "device": "1b36:0010", "state": "added", "id": "40001"},
      {"bdf": "00:11.0", "device": "1b36:0010", "state": "added", "id": "40001"}]})"),
            "x.json: functions[1].id: 40001 is taken by x.json: functions[0]: choose another");
}

class Files : public RootTest {
 protected:
  static std::string entry(const std::string& bdf, const std::string& more) {
    return R"({"bdf": ")" + bdf + R"(", "device": "1b36:0010", "state": "added")" + more + "}";
  }
};

TEST_F(Files, NoDirectoryIsAnEmptyConfiguration) {
  const auto config = load_config(environment());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->functions.empty());
}

TEST_F(Files, AreMergedByName) {
  write("etc/pcilend/20-b.json", R"({"connections": [8],
      "functions": [)" + entry("00:10.0", R"(, "label": "b")") +
                                     R"(],
      "filters": {"add": [{"device": "8086:"}]},
      "kinds": [{"name": "fast", "label": "b"}]})");
  write("etc/pcilend/10-a.json", R"({"connections": [12, 8],
      "functions": [)" + entry("00:10.0", R"(, "label": "a")") +
                                     "," + entry("00:11.0", "") + R"(],
      "filters": {"add": [{"device": "10de:"}]},
      "kinds": [{"name": "fast", "label": "a"}, {"name": "slow", "label": "a"}]})");
  write("etc/pcilend/.hidden.json", "{");
  write("etc/pcilend/saved.json.XyZ", "{");
  const auto config = load_config(environment());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(config->connections, ElementsAre(8, 12));
  ASSERT_EQ(config->functions.size(), 2u);
  EXPECT_EQ(to_string(*config->functions[0].address), "0000:00:11.0");
  EXPECT_EQ(config->functions[1].label, "b") << "the later file counts";
  EXPECT_EQ(config->functions[1].place, "/etc/pcilend/20-b.json: functions[0]");
  ASSERT_EQ(config->filters.size(), 2u);
  EXPECT_EQ(config->filters[0].place, "/etc/pcilend/10-a.json: filters.add[0]");
  ASSERT_EQ(config->kinds.size(), 2u);
  EXPECT_EQ(config->kinds[0].text, "slow label=a");
  EXPECT_EQ(config->kinds[1].text, "fast label=b");
  EXPECT_EQ(config->kinds[1].place, "/etc/pcilend/20-b.json: kinds[0]");
}

TEST_F(Files, OneBadFileIsAnErrorOfTheWhole) {
  write("etc/pcilend/10-a.json", R"({"connections": [8]})");
  write("etc/pcilend/20-b.json", R"({"conections": [8]})");
  const auto config = load_config(environment());
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().message,
            "/etc/pcilend/20-b.json: no key 'conections': did you mean 'connections'?");
}

TEST_F(Files, IdsAreUniqueOverAllFiles) {
  write("etc/pcilend/a.json", R"({"functions": [)" + entry("00:10.0", R"(, "id": "40001")") + "]}");
  write("etc/pcilend/b.json", R"({"functions": [)" + entry("00:11.0", R"(, "id": "40001")") + "]}");
  const auto config = load_config(environment());
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().message,
            "/etc/pcilend/b.json: functions[0].id: 40001 is taken by /etc/pcilend/a.json: "
            "functions[0]: choose another");
}

KindEntry kind(const std::string& name, const std::string& device, const std::string& function,
               const std::string& label) {
  return {name, device, function, label, "", ""};
}

TEST_F(Files, WhatIsWrittenReadsBack) {
  Config config;
  config.connections = {8};
  config.pins = {{PciAddress{0, 0, 4, 0}, 8, ""}};
  config.functions.push_back({parse_uuid("70636c64-1111-8222-8333-000000040001").value(),
                              PciAddress{0, 0, 16, 0}, DeviceIds{0x1b36, 0x10}, FunctionId{0x40001},
                              true, "lab", Audience{false, {8}}, true, true, true, 8192, ""});
  config.functions.push_back({std::nullopt, PciAddress{0, 1, 0, 0}, DeviceIds{0x8086, 0x10d3},
                              std::nullopt, false, std::nullopt, Audience{}, false, false, false,
                              std::nullopt, ""});
  config.filters.push_back(
      {FilterKind::Available, {"00:10.0", "::0108"}, "x", std::nullopt, true, "", ""});
  config.kinds = {kind("fast", "144d::0108", "40001", "rack 7"), kind("nic", "", "", "x")};
  ASSERT_TRUE(write_config(environment(), kSavedFile, config));
  EXPECT_EQ(*environment().read(kSavedFile), format_config(config));
  const auto again = load_config(environment());
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(format_config(*again), format_config(config));
  EXPECT_EQ(format_config(config), golden("saved.json", format_config(config)));
  EXPECT_EQ(format_config({}), "{}\n");
}

Filter filter(FilterKind kind, const Pattern& pattern, std::optional<std::string> label = {}) {
  return {kind, pattern, std::move(label), std::nullopt, false, "", ""};
}

TEST_F(Files, FiltersArePutInPlaceOfTheirLike) {
  write("etc/pcilend/filters.json", R"({"connections": [8]})");
  const Pattern drives{"", "1b36:0010"};
  ASSERT_TRUE(put_filter(environment(), filter(FilterKind::Available, drives, "a")));
  ASSERT_TRUE(put_filter(environment(), filter(FilterKind::Available, drives, "b")));
  ASSERT_TRUE(put_filter(environment(), filter(FilterKind::Add, drives)));
  const auto config = load_config(environment());
  ASSERT_TRUE(config);
  ASSERT_EQ(config->filters.size(), 2u);
  EXPECT_EQ(config->filters[1].label, "b");
  EXPECT_THAT(config->connections, ElementsAre(8)) << "the rest of the file stays";
}

TEST_F(Files, OnlyFiltersOfTheCommandsAreRemoved) {
  ASSERT_TRUE(put_filter(environment(), filter(FilterKind::Add, {"00:10.0", ""})));
  write("etc/pcilend/10-lab.json", R"({"filters": {"add": [{"device": "8086:"}]}})");
  const auto other = remove_filter(environment(), FilterKind::Available, {"00:10.0", ""});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message,
            "no available filter -s 00:10.0: 'pcilend available-filter --list' shows them");
  const auto by_hand = remove_filter(environment(), FilterKind::Add, {"", "8086:"});
  ASSERT_FALSE(by_hand);
  EXPECT_EQ(by_hand.error().message,
            "-d 8086: is written by hand in /etc/pcilend/10-lab.json: filters.add[0]: remove it "
            "there");
  ASSERT_TRUE(remove_filter(environment(), FilterKind::Add, {"00:10.0", ""}));
  EXPECT_EQ(*environment().read(kFiltersFile), "{}\n");
}

TEST_F(Files, KindsArePutInPlaceOfTheirLikeAndRemoved) {
  write("etc/pcilend/kinds.json", R"({"connections": [8]})");
  ASSERT_TRUE(put_kind(environment(), kind("fast", "", "", "a")));
  ASSERT_TRUE(put_kind(environment(), kind("slow", "", "", "a")));
  ASSERT_TRUE(put_kind(environment(), kind("fast", "", "", "b")));
  const auto config = load_config(environment());
  ASSERT_TRUE(config);
  ASSERT_EQ(config->kinds.size(), 2u);
  EXPECT_EQ(config->kinds[0].text, "fast label=b");
  EXPECT_THAT(config->connections, ElementsAre(8)) << "the rest of the file stays";
  EXPECT_EQ(has_kind(environment(), "fast"), true);
  ASSERT_TRUE(remove_kind(environment(), "fast"));
  EXPECT_EQ(has_kind(environment(), "fast"), false);
  EXPECT_EQ(load_config(environment())->kinds.size(), 1u);
}

TEST_F(Files, KindsOfOtherFilesAreChangedThere) {
  write("etc/pcilend/10-lab.json", R"({"kinds": [{"name": "fast", "label": "a"}]})");
  const auto put = put_kind(environment(), kind("fast", "", "", "b"));
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().kind, ErrorClass::State);
  EXPECT_EQ(put.error().message,
            "fast is written by hand in /etc/pcilend/10-lab.json: kinds[0]: change it there");
  const auto removed = has_kind(environment(), "fast");
  ASSERT_FALSE(removed);
  EXPECT_EQ(removed.error().kind, ErrorClass::NotFound);
  EXPECT_EQ(removed.error().message,
            "fast is written by hand in /etc/pcilend/10-lab.json: kinds[0]: remove it there");
  EXPECT_FALSE(environment().exists(kKindsFile));
}

TEST_F(Files, OneAtATimeAndNotForever) {
  std::chrono::milliseconds slept{0};
  const auto sleep = [&](std::chrono::milliseconds time) { slept += time; };
  {
    const auto lock = lock_policy(environment(), sleep);
    ASSERT_TRUE(lock) << lock.error().message;
    EXPECT_EQ(slept.count(), 0);
    const auto second = lock_policy(environment(), sleep);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().kind, ErrorClass::State);
    EXPECT_THAT(second.error().message, HasSubstr("for 60 s"));
    EXPECT_EQ(slept, kLockLimit);
  }
  EXPECT_TRUE(lock_policy(environment(), sleep));
}

TEST(Config, WhatIsBorrowedAtBoot) {
  const auto config = parse_config("x.json", R"({"borrow": [
    {"uuid": "70636c64-1111-8222-8333-000000040001", "frontend": "vfio", "owner": "nova",
     "adapter": "0000:05:00.0"},
    {"uuid": "70636c64-1111-8222-8333-000000040002"}]})");
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->borrow.size(), 2u);
  EXPECT_EQ(config->borrow[0].frontend, "vfio");
  EXPECT_EQ(config->borrow[0].owner, "nova");
  EXPECT_EQ(config->borrow[1].frontend, "shadow");
  EXPECT_EQ(config->borrow[1].place, "x.json: borrow[1]");
  const auto again = parse_config("y.json", format_config(*config));
  ASSERT_TRUE(again);
  EXPECT_EQ(format_config(*again), format_config(*config));
  for (const char* bad :
       {R"({"borrow": [{}]})", R"({"borrow": [{"uuid": "x"}]})",
        R"({"borrow": [{"uuid": "70636c64-1111-8222-8333-000000040001", "frontend": "magic"}]})",
        R"({"borrow": [{"uuid": "70636c64-1111-8222-8333-000000040001"},
                       {"uuid": "70636c64-1111-8222-8333-000000040001"}]})"})
    EXPECT_FALSE(parse_config("x.json", bad)) << bad;
}

}  // namespace
}  // namespace pcilend::policy::test
