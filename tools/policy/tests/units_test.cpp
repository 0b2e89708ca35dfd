// SPDX-License-Identifier: GPL-2.0-or-later
// The systemd units and the udev rule, by the programs that read them.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdio>
#include <regex>

#include "root.h"

namespace pcilend::policy::test {
namespace {

struct Output {
  int status = 0;
  std::string text;
};

Output shell(const std::string& command) {
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  Output output;
  char chunk[4096];
  while (pipe && ::fgets(chunk, sizeof chunk, pipe)) output.text += chunk;
  const int status = ::pclose(pipe);
  output.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

std::string source(const std::string& path) {
  std::ifstream file(PCILEND_SOURCE_DIR "/tools/" + path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

class Units : public RootTest {
 protected:
  // A copy whose program exists on this machine too.
  std::string runnable(const std::string& unit) {
    write(unit, std::regex_replace(source("systemd/" + unit), std::regex("ExecStart=[^ \n]+"),
                                   "ExecStart=/bin/true"));
    return (root_ / unit).native();
  }
};

TEST_F(Units, AreAcceptedBySystemd) {
  if (shell("systemd-analyze --version").status != 0) GTEST_SKIP() << "no systemd-analyze here";
  for (const std::string unit :
       {"pcilend.service", "pcilend-device@.service", "pcilend-sanitize@.service",
        "pcilend-borrow.service", "pcilend-mdevs.service", "pcilend-nvme-disk@.service",
        "pcilend-nvme-manager@.service"}) {
    Output verified = shell("systemd-analyze verify --man=no " + runnable(unit));
    EXPECT_EQ(verified.status, 0) << verified.text;
    // What systemd before 254 does not know.
    verified.text = std::regex_replace(verified.text, std::regex(".*'RestartMode'.*\n"), "");
    EXPECT_EQ(verified.text, "");
  }
}

TEST_F(Units, AreHardened) {
  const Output help = shell("systemd-analyze --help");
  if (help.text.find("--offline") == std::string::npos)
    GTEST_SKIP() << "no systemd-analyze that looks at files here";
  // Not pcilend-mdevs.service: mdevctl runs what an admin has put into /etc/mdevctl.d/scripts.d.
  for (const std::string unit :
       {"pcilend.service", "pcilend-device@.service", "pcilend-sanitize@.service",
        "pcilend-borrow.service", "pcilend-nvme-disk@.service", "pcilend-nvme-manager@.service"}) {
    // Exposure times ten.
    const Output security = shell(
        "systemd-analyze security --no-pager --offline=true --threshold=30 " + runnable(unit));
    EXPECT_EQ(security.status, 0) << security.text;
  }
}

TEST_F(Units, BothAreTheSameJob) {
  const auto hardening = [](const std::string& unit) {
    const std::string text = source("systemd/" + unit);
    return text.substr(text.find("CapabilityBoundingSet"),
                       text.find("\n[Install]") - text.find("CapabilityBoundingSet"));
  };
  EXPECT_EQ(hardening("pcilend.service"), hardening("pcilend-device@.service"));
}

}  // namespace
}  // namespace pcilend::policy::test
