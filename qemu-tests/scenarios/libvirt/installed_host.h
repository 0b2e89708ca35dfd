// SPDX-License-Identifier: GPL-2.0-or-later
// Fixture: an installed Debian borrows. Its hosts stay up for the suites on them.
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
 *   host1 (lender, node 4)      host2 (node 8): an installed Debian: systemd, libvirtd and AppArmor
 *   a, b: nvme ════════════════                 as their packages have left them
 *                               c: nvme ══════ host3 (node 12): borrows one now and then
 */
class OnInstalledHost : public testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  void SetUp() override;
  void TearDown() override;

  static lab::Host& lender() { return lab_->host(1); }
  static lab::Host& host() { return lab_->host(2); }
  static lab::Host& other() { return lab_->host(3); }

  // QEMU of that domain runs as Debian has it: as user libvirt-qemu, confined by AppArmor, with
  // libvirt's limit of locked memory for a guest of so many MiB.
  static void expect_debians_defaults(const std::string& domain, int memory);

  static std::optional<lab::Lab> lab_;

 private:
  std::chrono::steady_clock::time_point start_;
};

}  // namespace pcilend::scenarios
