// SPDX-License-Identifier: GPL-2.0-or-later
// Fail the scenario with the text of a Result's error.
#pragma once

#include <gtest/gtest.h>

#define EXPECT_OK(expression)                                                                   \
  do {                                                                                          \
    const auto& expect_ok = (expression);                                                       \
    EXPECT_TRUE(expect_ok) << #expression ": " << (expect_ok ? "" : expect_ok.error().message); \
  } while (0)
#define ASSERT_OK(expression)                                                                   \
  do {                                                                                          \
    const auto& assert_ok = (expression);                                                       \
    ASSERT_TRUE(assert_ok) << #expression ": " << (assert_ok ? "" : assert_ok.error().message); \
  } while (0)
