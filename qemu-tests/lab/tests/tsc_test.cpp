// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/tsc.h"

#include <gtest/gtest.h>

namespace pcilend::lab {
namespace {

TEST(Tsc, IsMeasuredTwiceTheSame) {
  const auto first = static_cast<double>(tsc_khz());
  EXPECT_GT(first, 100'000) << "100 MHz";
  EXPECT_NEAR(static_cast<double>(tsc_khz()), first, first / 100);
}

}  // namespace
}  // namespace pcilend::lab
