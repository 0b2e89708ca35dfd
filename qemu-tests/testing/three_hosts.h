// SPDX-License-Identifier: GPL-2.0-or-later
// Fixture: three hosts that stay up for the scenarios of all suites on them. Each scenario starts
// and ends with the functions in the lender's own hands, and fails if a kernel complained or
// anything is left behind.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "lab/lab.h"
#include "main_job/admin_steps.h"
#include "main_job/main_job.h"
#include "testing/asserts.h"
#include "testing/suite_lab.h"

namespace pcilend::scenarios {

/*
 *   host1 (lender, node 4)                         host2 (node 8)
 *   nvme                                             │ lan, libvirtd listens
 *   nic, igb (behind a port) ── wire ── server     host3 (node 12)
 *   a, b: nvme, both of one device
 */
class OnThreeHosts : public testing::Test {
 protected:
  static constexpr int kHosts = 3;

  // The lender is connected to both, and serves echoes.
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  void SetUp() override;
  void TearDown() override;

  static lab::Host& host(int number) { return lab_->host(number); }
  static lab::Host& lender() { return host(1); }
  // Host 2 or 3, which was off, is as before.
  static Result<> power_on(int number);
  // The command fails, with these words on stderr.
  static void expect_refused(const lab::Host& host, const std::string& command,
                             const std::string& words);
  // Lines of the lender's kernel log that this scenario provokes.
  void expect_in_log(const std::string& pattern) { expected_.emplace_back(pattern); }

  static std::optional<lab::Lab> lab_;

 private:
  static std::optional<lab::Running> server_;

  lab::Expected expected_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace pcilend::scenarios
