// SPDX-License-Identifier: GPL-2.0-or-later
// Holds lending-core/netlink/pcilend.yaml (the documentation of the netlink family, and what
// generic clients use) and include/uapi/linux/pcilend.h (what pcilend.ko and our tools are built
// with) together: names, values, types and who may do what.
#include <gtest/gtest.h>
#include <linux/pcilend.h>

#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "pcilend/wire.h"

namespace {

struct Item {
  std::string name;
  std::string type;               // of an attribute
  bool admin = false;             // an operation with the flag admin-perm
  std::optional<int> value = {};  // if it is not the next one
};

// An enumeration of the spec: a definition, an attribute set, or the operations.
struct List {
  std::string kind;
  std::string prefix;
  std::string enum_name;
  int first = 0;
  std::vector<Item> items;
};

struct Spec {
  std::map<std::string, std::string> top;
  std::vector<List> lists;
};

// The spec is YAML of a fixed shape, told apart by indentation.
Spec ReadSpec() {
  Spec spec;
  std::ifstream file(PCILEND_SOURCE_DIR "/lending-core/netlink/pcilend.yaml");
  EXPECT_TRUE(file) << "no spec";
  const std::regex pair(R"(^( *)([a-z-]+):(?: +(.*))?$)");
  std::string section;
  std::string line;
  std::smatch m;
  while (std::getline(file, line)) {
    const bool dash = line == "  -";
    if ((section == "definitions" || section == "attribute-sets") && dash) {
      spec.lists.push_back({section, "", "", section == "attribute-sets" ? 1 : 0, {}});
    }
    if (!std::regex_match(line, m, pair)) continue;
    const size_t indent = m[1].length();
    const std::string key = m[2];
    const std::string value = m[3];
    if (indent == 0) {
      section = key;
      spec.top[key] = value;
      if (key == "operations") spec.lists.push_back({key, "", "", 1, {}});
      continue;
    }
    if (spec.lists.empty()) continue;
    List& list = spec.lists.back();
    const bool operations = section == "operations";
    if (!operations && section != "definitions" && section != "attribute-sets") continue;
    if (indent == (operations ? 2u : 4u)) {
      if (key == "name-prefix") list.prefix = value;
      if (key == "enum-name") list.enum_name = value;
      if (key == "value-start") list.first = std::stoi(value);
      if (key == "type" && value == "flags") list.kind = "flags";
    }
    if (indent == (operations ? 6u : 8u)) {
      if (key == "name") list.items.push_back({value, "", false});
      if (key == "type") list.items.back().type = value;
      if (key == "flags") list.items.back().admin = value.find("admin-perm") != std::string::npos;
      if (key == "value") list.items.back().value = std::stoi(value);
    }
  }
  return spec;
}

struct Enumerator {
  int value = 0;
  std::string comment;
};

// enum name -> enumerator -> value, of the header; without the _MAX ones.
std::map<std::string, std::map<std::string, Enumerator>> ReadHeader() {
  std::map<std::string, std::map<std::string, Enumerator>> enums;
  std::ifstream file(PCILEND_SOURCE_DIR "/lending-core/include/uapi/linux/pcilend.h");
  EXPECT_TRUE(file) << "no header";
  const std::regex open(R"(^enum (\w+) \{$)");
  const std::regex entry(R"(^\t(\w+)(?: = (\d+))?,\s*(?:/\* (.*?)(?: \*/)?)?$)");
  const std::regex gap(R"(^\t/\* \d+ is not used \*/$)");
  const std::regex more(R"(^\t{2,}/\* .* \*/$)");  // about the entry above
  std::string line;
  std::string name;
  std::smatch m;
  int next = 0;
  while (std::getline(file, line)) {
    if (std::regex_match(line, m, open)) {
      name = m[1];
      next = 0;
    } else if (line == "};") {
      name.clear();
    } else if (!name.empty() && (std::regex_match(line, gap) || std::regex_match(line, more))) {
      continue;
    } else if (!name.empty() && std::regex_match(line, m, entry)) {
      const int value = m[2].matched ? std::stoi(m[2]) : next;
      next = value + 1;
      if (m[1].str().rfind("__", 0) != 0) enums[name][m[1]] = {value, m[3]};
    } else if (!name.empty()) {
      ADD_FAILURE() << "not understood: " << line;
    }
  }
  return enums;
}

std::string CName(const std::string& dashed) {
  std::string name = dashed;
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

std::string Underscored(std::string name) {
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
}

// What the header's comment says an attribute is.
std::string CommentType(const std::string& comment) {
  for (const char* type : {"u16", "u32", "u64", "s32", "string", "flag", "binary", "nest"}) {
    if (comment.rfind(type, 0) == 0) return type;
  }
  return comment.rfind("multi: nest", 0) == 0 ? "nest" : comment.empty() ? "pad" : comment;
}

TEST(NetlinkSpec, SameNamesAndValuesAsTheHeader) {
  const Spec spec = ReadSpec();
  auto header = ReadHeader();
  int lists = 0;
  for (const List& list : spec.lists) {
    if (list.kind == "flags") continue;
    auto found = header.find(Underscored(list.enum_name));
    ASSERT_NE(found, header.end()) << "enum " << list.enum_name << " is not in the header";
    std::map<std::string, Enumerator>& enumerators = found->second;
    int value = list.first;
    for (const Item& item : list.items) {
      const std::string name = CName(list.prefix + item.name);
      value = item.value.value_or(value);
      ASSERT_EQ(enumerators.count(name), 1u) << name << " is not in the header";
      EXPECT_EQ(enumerators[name].value, value) << name;
      if (list.kind == "attribute-sets") {
        EXPECT_EQ(CommentType(enumerators[name].comment), item.type) << name;
      }
      if (list.kind == "operations") {
        EXPECT_EQ(enumerators[name].comment.rfind("admin", 0) == 0, item.admin) << name;
      }
      enumerators.erase(name);
      ++value;
    }
    enumerators.erase(CName(list.prefix + "unspec"));
    for (const auto& [name, enumerator] : enumerators) {
      ADD_FAILURE() << name << " is not in the spec";
    }
    header.erase(found);
    ++lists;
  }
  EXPECT_GE(lists, 8);
  for (const auto& [name, enumerators] : header) ADD_FAILURE() << name << " is not in the spec";
}

TEST(NetlinkSpec, BarFlagsAreThoseOfTheWire) {
  const std::map<std::string, int> wire = {{"PCILEND_BAR_MEM64", PCILEND_BAR_MEM64},
                                           {"PCILEND_BAR_PREFETCH", PCILEND_BAR_PREFETCH},
                                           {"PCILEND_BAR_IO", PCILEND_BAR_IO}};
  int seen = 0;
  for (const List& list : ReadSpec().lists) {
    if (list.kind != "flags") continue;
    ASSERT_EQ(list.items.size(), wire.size());
    for (size_t i = 0; i < list.items.size(); ++i) {
      const std::string name = CName(list.prefix + list.items[i].name);
      ASSERT_EQ(wire.count(name), 1u) << name;
      EXPECT_EQ(wire.at(name), 1 << i) << name;
    }
    ++seen;
  }
  EXPECT_EQ(seen, 1);
}

TEST(NetlinkSpec, Family) {
  Spec spec = ReadSpec();
  EXPECT_EQ(spec.top["name"], PCILEND_FAMILY_NAME);
  EXPECT_EQ(CName(spec.top["c-family-name"]), "PCILEND_FAMILY_NAME");
  EXPECT_EQ(CName(spec.top["c-version-name"]), "PCILEND_FAMILY_VERSION");
  EXPECT_EQ(spec.top["uapi-header"], "linux/pcilend.h");
}

}  // namespace
