// SPDX-License-Identifier: GPL-2.0-or-later
#include "run_program.h"

#include <gmock/gmock.h>

namespace pcilend::test {
namespace {

using ::testing::HasSubstr;

TEST(RunProgram, WhatItPrintsIsReadApartFromWhatIsWrong) {
  EXPECT_EQ(read_program({"sh", "-c", "echo a; echo b >&2; echo c"}), "a\nc\n");
  const auto message = [](const char* script) {
    const auto result = read_program({"sh", "-c", script});
    return result ? "" : result.error().message;
  };
  EXPECT_EQ(message("echo first >&2; echo last >&2; echo out; exit 3"), "sh failed: last");
  EXPECT_EQ(message("printf '{\n  \"error\":\"no\"\n}\n'; exit 1"),
            R"(sh failed: { "error":"no" })");
  EXPECT_EQ(message("exit 1"), "sh failed: it said nothing");
  EXPECT_EQ(message("kill $$"), "sh failed: it said nothing");
  EXPECT_EQ(message("head -c 2000000 /dev/zero"), "sh prints more than 1 MiB");
  EXPECT_EQ(message("head -c 2000000 /dev/zero >&2"), "");
  EXPECT_THAT(read_program({"/no/program"}).error().message, HasSubstr("/no/program can't be run"));
  EXPECT_TRUE(run_program({"true"}));
  EXPECT_EQ(run_program({"sh", "-c", "echo why >&2; exit 1"}).error().message, "sh failed: why");
}

}  // namespace
}  // namespace pcilend::test
