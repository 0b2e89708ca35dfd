// SPDX-License-Identifier: GPL-2.0-or-later
#include <gtest/gtest.h>

#include <optional>

#include "scenarios/faults/fault_bench.h"
#include "testing/asserts.h"
#include "testing/suite_lab.h"

namespace pcilend::scenarios {

void PrintTo(const FaultCase& one, std::ostream* out) {
  *out << name_of(one);
}

namespace {

/*
 *   host1 (lender, node 4)         host2 (borrower, node 8)
 *   nvme ── IOMMU ── NTB ═════════ NTB ── libvirt ── guest: writes and reads the drive
 *     ╰── power off, panic, reset, rmmod ──╯ (either), or the link in between: down 1 s, or
 *         until the lease is over
 *     idle, under I/O, in the middle of virsh start, in the middle of virsh destroy
 *
 * The other host and its guest live on; a guest that loses its drive gets errors and answers. What
 * was written is there, no read that succeeds is wrong, nothing is left mapped, the kernels have
 * nothing to say, and the drive goes to a guest again. `make soak` runs all cases.
 */
class Faults : public testing::TestWithParam<FaultCase> {
 protected:
  static void SetUpTestSuite() {
    const auto options = FaultBench::options("faults");
    ASSERT_OK(options);
    ASSERT_OK(start_lab(*options, lab_));
    bench_.emplace(*lab_);
  }

  static void TearDownTestSuite() {
    if (bench_) EXPECT_OK(bench_->close());
    bench_.reset();
    EXPECT_OK(end_lab(lab_));
  }

  static std::optional<lab::Lab> lab_;
  static std::optional<FaultBench> bench_;
};

std::optional<lab::Lab> Faults::lab_;
std::optional<FaultBench> Faults::bench_;

TEST_P(Faults, AreSurvived) {
  ASSERT_TRUE(bench_) << "the lab did not start";
  ASSERT_OK(bench_->run(GetParam()));
}

// What six minutes allow; every victim, fault and moment is among them.
constexpr FaultCase kSelection[] = {
    {Victim::Lender, Fault::PowerOff, Moment::UnderIo},
    {Victim::Lender, Fault::Reset, Moment::Borrowing},
    {Victim::Lender, Fault::Unload, Moment::UnderIo},
    {Victim::Borrower, Fault::Panic, Moment::UnderIo},
    {Victim::Borrower, Fault::PowerOff, Moment::Idle},
    {Victim::Borrower, Fault::Unload, Moment::Borrowing},
    {Victim::Link, Fault::Flap, Moment::UnderIo},
    {Victim::Link, Fault::Flap, Moment::Borrowing},
    {Victim::Link, Fault::Loss, Moment::UnderIo},
    {Victim::Link, Fault::Loss, Moment::Returning},
};

INSTANTIATE_TEST_SUITE_P(Matrix, Faults, testing::ValuesIn(kSelection),
                         [](const auto& of) { return name_of(of.param); });

}  // namespace
}  // namespace pcilend::scenarios
