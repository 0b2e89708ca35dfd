// SPDX-License-Identifier: GPL-2.0-or-later
// Fixture: two hosts that stay up for all scenarios of a suite. Each scenario starts and ends with
// the drive in the lender's own hands, and fails if a kernel complained or anything is left behind.
#pragma once

#include <gtest/gtest.h>

#include <optional>

#include "lab/lab.h"
#include "main_job/admin_steps.h"
#include "main_job/main_job.h"
#include "testing/asserts.h"
#include "testing/option_rom.h"
#include "testing/suite_lab.h"
#include "testing/swept.h"

namespace pcilend::scenarios {

// Loads the modules anew, with these parameters of pcilend.ko.
Result<> reload_pcilend(const lab::Host& host, const std::string& parameters);

// Nothing is lent or borrowed over the links of this host, and no message on them was bad.
void expect_nothing_mapped(const lab::Host& host);

/*
 *   host1 (lender, node 4)                         host2 (borrower, node 8)
 *   nvme, with an expansion ROM
 *   msix, msi: USB controllers behind ports, the first with a ROM that has no image in it
 *   socket: a port with nothing behind it
 */
class TwoHosts : public testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  void SetUp() override;
  void TearDown() override;

  [[nodiscard]] lab::Host& lender() const { return lab_->host(1); }
  [[nodiscard]] lab::Host& borrower() const { return lab_->host(2); }
  [[nodiscard]] MainJob& job() { return *job_; }
  [[nodiscard]] const MainJob& job() const { return *job_; }
  // Lines of the kernel log that this scenario provokes.
  void expect_in_log(const std::string& pattern) { expected_.emplace_back(pattern); }
  // A guest does not know at once that its function was taken. What it still does to the BAR is
  // stopped by the lender's IOMMU: faults of the adapter (00:04.0, or a Switchtec behind its port)
  // in the export region, which is lower where windows are smaller.
  void expect_stopped_accesses() {
    expect_in_log("DMAR: DRHD: handling fault status reg");
    expect_in_log(
        R"(DMAR: \[DMA (Read|Write) NO_PASID\] Request device \[(0000:)?(00:04|01:00)\.0\] fault addr 0x(100[0-9a-f]{8}|2[0-9a-f]{8}) )");
  }

  // What passes over any adapter (two_hosts_jobs.cpp): a guest has the lender's drive; and each
  // host reaches, at each stage of a lease, what is lent or leased and no page more.
  void do_main_job();
  void do_sweeps(const SweepPlan& plan = {});
  // Both run pcilend hwtest, while the link is cut and put back.
  void do_hwtest();
  // Whether the adapter, if it has a table of those, lets the drive's DMA through.
  virtual void expect_let_through(bool /*lent*/) const {}

  static constexpr const char* kSerial = "scenario";  // of the drive
  // What the lent drive has as its expansion ROM, from make_rom() until the program ends.
  static Result<> make_rom();
  [[nodiscard]] static const RomFile& rom() { return *rom_; }
  // What the host or guest reads of that function's.
  static void expect_rom(const Result<std::string>& sum) {
    ASSERT_OK(sum);
    EXPECT_EQ(*sum, rom().sum().value_or("the file can't be read"));
  }

  static std::optional<lab::Lab> lab_;

 private:
  void expect_nothing_left() const;

  static std::optional<RomFile> rom_;
  std::optional<MainJob> job_;
  lab::Expected expected_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace pcilend::scenarios
