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
  // pcilend has the adapters again, whoever had them before.
  void TearDown() override {
    if (!lab_) return;
    for (auto* host : {&lender(), &borrower()})
      EXPECT_OK(host->run(fmt::format(
          "grep -q '^pcilend ' /proc/modules || {{ "
          "rmmod ntb_perf ntb_pingpong ntb_transport 2>/dev/null; modprobe pcilend node={} && "
          "modprobe -a pcilend_shadow pcilend_mdev; }}",
          host->node())));
    for (const auto* host : {&lender(), &borrower()}) EXPECT_OK(await_link(*host, "up"));
    BareDrive::TearDown();
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

/*
 *   host1                                    host2
 *   ntb_perf, then ntb_pingpong, then ntb_transport, on both, in pcilend's place
 *
 * ntb_perf of 6.12 and 7.3 drops what the other's has sent it before it has seen the link come up,
 * and waits for it ever after. Over a slow link it has seen that: what was sent comes two ways
 * later.
 */
TEST_F(Switchtec, UpstreamsOwnClientsRunOnIt) {
  constexpr const char* kPerf = "/sys/kernel/debug/ntb_perf/0000:01:00.0";
  constexpr const char* kPings = "cat /sys/kernel/debug/ntb_pingpong/0000:01:00.0/count";
  const auto on_both = [&](const std::string& command) -> Result<> {
    for (const auto* host : {&lender(), &borrower()}) PCILEND_TRY(host->run(command));
    return {};
  };
  ASSERT_OK(on_both("rmmod pcilend_shadow pcilend_mdev pcilend"));
  ASSERT_OK(lab_->fabric().set_delay(1, 2, std::chrono::milliseconds(400)));
  ASSERT_OK(on_both("modprobe ntb_perf chunk_order=12 total_order=16 max_mw_size=1048576"));
  for (const auto* host : {&lender(), &borrower()})
    ASSERT_OK(host->until(fmt::format("grep 'Out buffer xlat *0x0*[1-9a-f]' {}/info", kPerf)));
  ASSERT_OK(lab_->fabric().set_delay(1, 2, std::chrono::milliseconds(0)));
  ASSERT_OK(lab_->fabric().counters(true));
  const auto copied = lender().run(fmt::format("echo 0 >{0}/run && cat {0}/run", kPerf));
  ASSERT_OK(copied);
  EXPECT_THAT(*copied, HasSubstr("0: copied 65536 bytes in "));
  // They are posted: ntb_perf does not wait for their end.
  EXPECT_OK(lab::eventually("all is written", lab::kPatience, [&] {
    const auto counters = lab_->fabric().counters();
    return counters && counters->path(1, 2).memory.write_bytes >= 65536;
  }));

  ASSERT_OK(on_both("rmmod ntb_perf"));
  ASSERT_OK(on_both("modprobe ntb_pingpong delay_ms=10"));
  for (const auto* host : {&lender(), &borrower()})
    EXPECT_OK(host->until(
        kPings, [](const lab::Output& o) { return o.code == 0 && std::atoi(o.out.c_str()) > 3; }));
  ASSERT_OK(on_both("rmmod ntb_pingpong"));
  ASSERT_OK(on_both("modprobe ntb_transport max_mw_size=1048576"));
  ASSERT_OK(on_both("test -d /sys/kernel/debug/ntb_transport/0000:01:00.0"));
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

/*
 *   host1: halted, its IOMMU off ═ host2: does not reach the drive, nor does the drive host2
 *   host1: back, nvme available ══ used again
 *
 * ntb_hw_amd takes its adapter from pcilend when its host goes down. Others' drivers don't.
 */
TEST_F(Switchtec, ADriveOfAHaltedLenderDoesNothing) {
  expect_stopped_accesses();
  // host2's ntb_hw_switchtec reads where host1's had its scratchpads before it was started anew.
  expect_in_log(
      R"(DMAR: \[DMA Read NO_PASID\] Request device \[01:00\.0\] fault addr 0xffff0000 )");
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  ASSERT_OK(borrow());
  auto reader = borrower().start(
      fmt::format("while dd if={} of=/dev/null bs=4k count=8 iflag=direct; do :; done", disk_),
      {{}, 5min});
  ASSERT_OK(reader);
  const uint64_t before = lender().machine().console_size();
  // reboot(2) with LINUX_REBOOT_CMD_HALT: no program is ended before. After the answer.
  ASSERT_OK(lender().run(
      "setsid perl -e 'select(undef, undef, undef, 0.5); "
      "syscall(169, 0xfee1dead, 672274793, 0xcdef0123, 0)' >/dev/null 2>&1 </dev/null &"));
  ASSERT_OK(lab::eventually("it is halted", lab::kPatience, [&] {
    return lender().machine().console(before).find("System halted") != std::string::npos;
  }));
  ASSERT_OK(lab_->fabric().counters(true));
  ASSERT_OK(reader->wait());
  const auto counters = lab_->fabric().counters();
  ASSERT_OK(counters);
  EXPECT_EQ(counters->path(2, 1).bar.writes, 0U) << counters->json.dump();
  EXPECT_EQ(counters->path(1, 2).memory.writes, 0U) << counters->json.dump();
  ASSERT_OK(lender().power_off());
  ASSERT_OK(lender().power_on());
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  ASSERT_OK(job().borrow_and_use());
}

/*
 *   host1 ── "my host has started: force the link down" ──► host2, and no "link up" behind it
 *
 * ntb_hw_switchtec loses the second message when it comes before its work for the first has run:
 * one host has a link then, and the other none for ever, unless that one enables it again.
 */
TEST_F(Switchtec, ALinkComesUpThoughItsDriverHasLostAMessage) {
  constexpr uint32_t kForceDown = 4;  // ntb_hw_switchtec.c: MSG_LINK_FORCE_DOWN
  expect_in_log("ntb link forced down");
  ASSERT_OK(lab_->fabric().send_message(1, 2, kForceDown));
  ASSERT_OK(borrower().until("dmesg | grep 'ntb link forced down'"));
  for (const auto* host : {&lender(), &borrower()}) ASSERT_OK(await_link(*host, "up"));
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  ASSERT_OK(job().borrow_and_use());
}

}  // namespace
}  // namespace pcilend::scenarios
