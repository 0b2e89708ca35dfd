// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

// Compares with testdata/NAME; PCILEND_GOLDEN=write makes it instead.
inline void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(PCILEND_TESTDATA_DIR) + "/" + name;
  if (const char* mode = std::getenv("PCILEND_GOLDEN"); mode && std::string(mode) == "write") {
    std::ofstream(path, std::ios::binary) << text;
    return;
  }
  std::ifstream file(path, std::ios::binary);
  EXPECT_EQ(text, std::string(std::istreambuf_iterator<char>(file), {})) << path;
}
