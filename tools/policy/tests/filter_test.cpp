// SPDX-License-Identifier: GPL-2.0-or-later
// Filters match as lspci does.
#include "pcilend/policy/filter.h"

#include <gtest/gtest.h>

namespace pcilend::policy {
namespace {

const LocalFunction kDrive{{0, 0x3b, 0x10, 1}, 0x1b36, 0x0010, 0x010802, false, std::nullopt};

TEST(Filter, MatchesSlotsAndIds) {
  const std::vector<std::pair<Pattern, bool>> cases{
      {{"3b:10.1", ""}, true},
      {{"0000:3b:10.1", ""}, true},
      {{"0001:3b:10.1", ""}, false},
      {{"3b:", ""}, true},
      {{"10", ""}, true},
      {{".1", ""}, true},
      {{".0", ""}, false},
      {{"3c:", ""}, false},
      {{"*:3b:10.*", ""}, true},
      {{"", "1b36:0010"}, true},
      {{"", "1b36:"}, true},
      {{"", ":0011"}, false},
      {{"", "::0108"}, true},
      {{"", "::0108:02"}, true},
      {{"", "::0108:01"}, false},
      {{"", "::0200"}, false},
      {{"", "*:*:0108"}, true},
      {{"3b:10.1", "::0108"}, true},
      {{"3b:10.1", "::0200"}, false},
      {{"3b:10.0", "1b36:"}, false},
  };
  for (const auto& [pattern, expected] : cases) {
    EXPECT_TRUE(pattern.slot.empty() || check_slot(pattern.slot)) << to_string(pattern);
    EXPECT_TRUE(pattern.device.empty() || check_device(pattern.device)) << to_string(pattern);
    EXPECT_EQ(matches(pattern, kDrive), expected) << to_string(pattern);
  }
}

TEST(Filter, HighDomainsAreNotCutOff) {
  LocalFunction f = kDrive;
  f.address.domain = 0x10000;
  EXPECT_FALSE(matches({"0000:3b:10.1", ""}, f));
  EXPECT_TRUE(matches({"10000:3b:10.1", ""}, f));
}

TEST(Filter, ReadsAsOptions) {
  EXPECT_EQ(to_string(Pattern{"00:10.0", "1b36:"}), "-s 00:10.0 -d 1b36:");
  EXPECT_EQ(to_string(Pattern{"", "1b36:"}), "-d 1b36:");
}

}  // namespace
}  // namespace pcilend::policy
