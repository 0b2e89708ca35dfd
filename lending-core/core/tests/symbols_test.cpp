// SPDX-License-Identifier: GPL-2.0-or-later
// The core's objects, compiled under the kernel's rules, need no symbol that the kernel doesn't
// have: no libc, and none of libgcc's 64-bit division.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>

namespace {

std::string OutputOf(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string out;
  std::array<char, 4096> buffer;
  while (pipe && std::fgets(buffer.data(), buffer.size(), pipe.get()) != nullptr) {
    out += buffer.data();
  }
  return out;
}

TEST(Core, NeedsOnlyWhatTheKernelHas) {
  std::set<std::string> known = {"memcmp",   "memcpy", "memmove", "memset",
                                 "snprintf", "strcmp", "strlen",  "strncmp"};
  std::set<std::string> needed;
  std::ifstream objects(PCILEND_OBJECTS);
  std::string object;
  int count = 0;
  while (std::getline(objects, object)) {
    std::istringstream lines(OutputOf(std::string(PCILEND_NM) + " -P " + object));
    std::string line;
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::string name;
      std::string kind;
      words >> name >> kind;
      (kind == "U" ? needed : known).insert(name);
    }
    ++count;
  }
  EXPECT_GE(count, 9) << PCILEND_OBJECTS;
  EXPECT_EQ(needed.count("memset"), 1u) << "is the output of nm understood?";
  EXPECT_EQ(known.count("pcilend_wire_check"), 1u) << "is the output of nm understood?";
  for (const std::string& name : needed) {
    EXPECT_EQ(known.count(name), 1u) << "the core needs " << name;
  }
}

}  // namespace
