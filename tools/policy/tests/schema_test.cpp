// SPDX-License-Identifier: GPL-2.0-or-later
// Holds pcilend.schema.json and docs/configuration.md against what the program reads.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "pcilend/policy/config.h"

namespace pcilend::policy {
namespace {

using nlohmann::json;
using ::testing::UnorderedElementsAreArray;

std::string file_text(const std::string& path) {
  std::ifstream file(PCILEND_SOURCE_DIR "/" + path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string_view> keys(const json& schema) {
  std::vector<std::string_view> names;
  for (const auto& [name, value] : schema.at("properties").items()) names.push_back(name);
  EXPECT_EQ(schema.at("additionalProperties"), false);
  return names;
}

TEST(Schema, HasTheKeysThatAreRead) {
  const json schema = json::parse(file_text("tools/policy/pcilend.schema.json"));
  const SchemaKeys expected = schema_keys();
  EXPECT_THAT(keys(schema), UnorderedElementsAreArray(expected.file));
  EXPECT_THAT(keys(schema["properties"]["filters"]), UnorderedElementsAreArray(expected.filters));
  const json& definitions = schema["$defs"];
  EXPECT_THAT(keys(definitions["pin"]), UnorderedElementsAreArray(expected.pin));
  EXPECT_THAT(keys(definitions["function"]), UnorderedElementsAreArray(expected.function));
  EXPECT_THAT(keys(definitions["filter"]), UnorderedElementsAreArray(expected.filter));
  EXPECT_THAT(keys(definitions["kind"]), UnorderedElementsAreArray(expected.kind));
  EXPECT_THAT(keys(definitions["borrow"]), UnorderedElementsAreArray(expected.borrow));
  EXPECT_EQ(definitions["borrow"]["properties"]["frontend"]["enum"], json(expected.frontends));
  EXPECT_EQ(definitions["function"]["properties"]["state"]["enum"], json(expected.states));
}

TEST(Schema, PatternsFit) {
  const json definitions = json::parse(file_text("tools/policy/pcilend.schema.json"))["$defs"];
  const auto fits = [](const json& type, const char* text) {
    return std::regex_match(text, std::regex(type.at("pattern").get<std::string>()));
  };
  const json& of = definitions["function"]["properties"];
  EXPECT_TRUE(fits(of["uuid"], "70636c64-1111-8222-8333-000000040001"));
  EXPECT_TRUE(fits(definitions["address"], "0000:00:1f.7"));
  EXPECT_TRUE(fits(definitions["address"], "00:10.0"));
  EXPECT_FALSE(fits(definitions["address"], "00:20.0"));
  EXPECT_TRUE(fits(of["device"], "1b36:0010"));
  EXPECT_TRUE(fits(definitions["id"], "40001"));
  const json& name = definitions["kind"]["properties"]["name"];
  EXPECT_TRUE(fits(name, "fast-2"));
  EXPECT_TRUE(fits(name, "x"));
  EXPECT_FALSE(fits(name, "-x"));
  EXPECT_FALSE(fits(name, "x-"));
  EXPECT_TRUE(fits(definitions["label"], "rack 7"));
}

TEST(Documentation, NamesEveryKeyAndItsExampleIsRead) {
  const std::string page = file_text("docs/configuration.md");
  const SchemaKeys expected = schema_keys();
  for (const auto* list :
       {&expected.file, &expected.pin, &expected.function, &expected.filters, &expected.filter,
        &expected.states, &expected.kind, &expected.borrow, &expected.frontends})
    for (const auto key : *list)
      EXPECT_NE(page.find(fmt::format("`{}`", key)), std::string::npos) << key;
  const size_t start = page.find("```json\n") + 8;
  const auto example = parse_config("example", page.substr(start, page.find("```", start) - start));
  EXPECT_TRUE(example) << (example ? "" : example.error().message);
}

}  // namespace
}  // namespace pcilend::policy
