// SPDX-License-Identifier: GPL-2.0-or-later
// Other hardware than AMD's: a Switchtec, by the unmodified switchtec and ntb_hw_switchtec.
#include <gmock/gmock.h>

#include "testing/bare_drive.h"
#include "testing/swept.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

// All is in its second window: exports above 8 GiB, guest slots behind them.
constexpr SweepPlan kPlan{1,       uint64_t{64} << 30, 1, uint64_t{8} << 30, uint64_t{14} << 30,
                          64 << 10};

/*
 *   host1 (lender, node 4)                               host2 (borrower, node 8)
 *   nvme ── IOMMU ── port ── NT endpoint ═ Switchtec ═ NT endpoint ── port ── memory
 *                            partition 0               partition 1
 *
 * Links are told by messages and a work queue, scratchpads are memory, each host programs its
 * windows in the other's partition, and a table says which functions get through.
 */
class Switchtec : public BareDrive {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "switchtec";
    options.adapters = {lab::Adapter::Switchtec};
    options.qemu_arguments[2] = {"-smp", "2"};
    ASSERT_OK(make_rom());
    ASSERT_OK(
        options.add_device(fmt::format("host1:nvme,serial=switchtec,drive-size=128M,romfile={}{}",
                                       rom().path(), kNoShadowDoorbells)));
    ASSERT_OK(start_lab(options, lab_));
  }
  // What is not entered, or too late, reads nothing.
  void SetUp() override {
    BareDrive::SetUp();
    if (!HasFatalFailure()) ASSERT_OK(lab_->fabric().check_requesters(1, 2, true));
  }

  // The drive, as the lender's adapter knows requesters: "00:10.0".
  [[nodiscard]] std::string drive() const {
    return lender().address(0).value_or("0000:no drive").substr(5);
  }
  [[nodiscard]] std::vector<std::string> requesters() const {
    const auto ids = lab_->fabric().requesters(1, 2);
    EXPECT_OK(ids);
    return ids.value_or(std::vector<std::string>());
  }
  [[nodiscard]] nlohmann::json link() const {
    const auto links = lender().json("pcilend link --json");
    EXPECT_OK(links);
    return links ? links->at("links").at(0) : nlohmann::json::object();
  }
  // Its entry is there from before it may do DMA until it can't any more.
  void expect_let_through(bool lent) const override {
    if (lent)
      EXPECT_THAT(requesters(), Contains(drive()));
    else
      EXPECT_THAT(requesters(), Not(Contains(drive())));
    EXPECT_EQ(link().at("requesters_lent"), lent ? 1 : 0);
    EXPECT_EQ(link().at("requesters_used"), requesters().size());
  }
  static Result<> await_link(const lab::Host& host, const std::string& state) {
    return lab::eventually("the link is " + state, lab::kPatience, [&] {
      const auto links = host.json("pcilend link --json");
      return links && links->at("links").at(0).at("state") == state;
    });
  }
};

TEST_F(Switchtec, MainJob) {
  EXPECT_EQ(link().at("driver"), "switchtec");
  do_main_job();
}

TEST_F(Switchtec, AFullTableIsRefusedInWords) {
  expect_in_log("pcilend: can't go over adapter 0000:01:00.0: its table of 64 requesters is full");
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  ASSERT_OK(lab_->fabric().fill_requesters(1, 2, true));
  const auto check = lender().exec("pcilend check");
  ASSERT_OK(check);
  EXPECT_THAT(check->out, HasSubstr("requester IDs: 64 of 64 entries used, 0 of lent functions"));
  const auto refused = borrower().exec("pcilend borrow " + job().id());
  ASSERT_OK(refused);
  EXPECT_NE(refused->code, 0);
  EXPECT_THAT(refused->err, HasSubstr("its lender's adapter does not let it through"));
  ASSERT_OK(lab_->fabric().fill_requesters(1, 2, false));
  ASSERT_OK(job().await_state(borrower(), "available"));
  ASSERT_OK(job().borrow_and_use());
  expect_let_through(false);
}

TEST_F(Switchtec, AHostsOwnDriverUsesADrive) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  expect_let_through(false);
  ASSERT_OK(borrow());
  expect_let_through(true);
  ASSERT_OK(write_data());
  ASSERT_NO_FATAL_FAILURE(use_without_lender([&] {
    EXPECT_OK(verify_on_both_processors(256));
    EXPECT_OK(compare_data());
  }));
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  ASSERT_OK(job().await_state(lender(), "available"));
  expect_let_through(false);
  expect_back();
}

// Its driver's own 64 KiB, which are the other host's scratchpads, are reached besides.
TEST_F(Switchtec, APeerReachesWhatIsLentAndNoPageMore) {
  do_sweeps(kPlan);
}

TEST_F(Switchtec, HwtestReports) {
  do_hwtest();
}

TEST_F(Switchtec, ALostLinkIsNoticedAndComesBack) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().borrow_and_use());
  ASSERT_OK(lab_->fabric().link_down(1, 2));
  for (const auto* host : {&lender(), &borrower()}) ASSERT_OK(await_link(*host, "down"));
  ASSERT_OK(lab_->fabric().link_up(1, 2));
  for (const auto* host : {&lender(), &borrower()}) ASSERT_OK(await_link(*host, "up"));
  ASSERT_OK(job().see_available());
  ASSERT_OK(job().borrow_and_use());
  expect_let_through(false);
}

}  // namespace
}  // namespace pcilend::scenarios
