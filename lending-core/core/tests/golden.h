// SPDX-License-Identifier: GPL-2.0-or-later
// Golden texts: testdata/NAME must equal what the code prints now.
// PCILEND_UPDATE_GOLDEN=1 in the environment rewrites them.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

inline void ExpectGolden(const std::string& name, const std::string& text) {
  const std::string path = std::string(PCILEND_TESTDATA_DIR) + "/" + name;
  if (std::getenv("PCILEND_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << path << " is missing";
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(expected.str(), text) << path;
}
