// SPDX-License-Identifier: GPL-2.0-or-later
// What tests of commands start from: two drives, and a link that is up.
#pragma once

#include <gmock/gmock.h>

#include "host.h"

namespace pcilend::test {

class CliTest : public HostTest {
 protected:
  void SetUp() override {
    HostTest::SetUp();
    install("0000:00:05.0");
    install("0000:00:06.0");
    kernel_.functions = {nvme(0x40001, PCILEND_FUNCTION_AVAILABLE),
                         nvme(0x80001, PCILEND_FUNCTION_ADDED)};
    Link up;
    up.state = PCILEND_LINK_UP;
    up.peer = 4;
    kernel_.links = {up};
  }

  // A failed command: one line, of that class, and nothing asked of the kernel.
  void expect_refused(std::vector<std::string> arguments, ErrorClass kind,
                      const std::string& text) {
    const Outcome result = run(std::move(arguments));
    EXPECT_EQ(result.status, static_cast<int>(kind)) << result.err;
    EXPECT_THAT(result.err, ::testing::HasSubstr(text));
    EXPECT_TRUE(result.err.starts_with("pcilend: ")) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(kernel_.log, ::testing::IsEmpty());
  }
};

}  // namespace pcilend::test
