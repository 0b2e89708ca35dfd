// SPDX-License-Identifier: GPL-2.0-or-later
// What two hosts do over any adapter.
#include <gmock/gmock.h>

#include "testing/swept.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {

using namespace std::chrono_literals;

namespace {

constexpr uint64_t kMiB = 1 << 20;

}  // namespace

void TwoHosts::do_main_job() {
  ASSERT_OK(job().fill_drive());
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  expect_let_through(false);
  const auto offered = job().function_on(borrower());
  ASSERT_OK(offered);
  EXPECT_EQ(offered->at("lender"), 4);
  EXPECT_EQ(offered->at("class"), "Non-Volatile memory controller");
  EXPECT_NE(offered->at("device").get<std::string>().find("NVM"), std::string::npos);

  ASSERT_OK(job().start_guest());
  const auto borrowed = job().function_on(lender());
  ASSERT_OK(borrowed);
  EXPECT_EQ(borrowed->at("state"), "borrowed");
  EXPECT_EQ(borrowed->at("borrower"), 8);
  ASSERT_OK(job().await_guest_disk());
  expect_let_through(true);

  const auto before = job().lender_effort();
  ASSERT_OK(before);
  ASSERT_OK(lab_->fabric().counters(true));
  ASSERT_OK(job().read_in_guest());
  ASSERT_OK(job().write_in_guest());
  const auto after = job().lender_effort();
  ASSERT_OK(after);
  const auto counters = lab_->fabric().counters();
  ASSERT_OK(counters);
  const auto commands = job().guest_commands();
  ASSERT_OK(commands);

  EXPECT_GT(before->messages, 0u) << "messages are counted";
  EXPECT_GT(before->interrupts, 0u) << "interrupts are counted";
  EXPECT_EQ(after->messages - before->messages, 0u) << "control messages during the guest's I/O";
  EXPECT_EQ(after->interrupts - before->interrupts, 0u) << "interrupts of the lender";
  EXPECT_GT(*commands, 10u);
  const auto from_device = counters->path(1, 2);
  const auto from_guest = counters->path(2, 1);
  EXPECT_GE(from_device.memory.write_bytes, MainJob::kFiles * (1u << 20)) << "data the guest read";
  EXPECT_GE(from_device.memory.read_bytes, MainJob::kGuestFiles * MainJob::kGuestBlocks * 16384u)
      << "data the guest wrote";
  EXPECT_GT(from_device.interrupt.writes, 0u);
  EXPECT_GT(from_guest.bar.writes, 0u) << "the guest's doorbells";
  EXPECT_EQ(from_device.bar.writes, 0u);
  EXPECT_EQ(from_guest.interrupt.writes, 0u);

  ASSERT_OK(job().shut_down_guest());
  ASSERT_OK(job().await_state(lender(), "available"));
  expect_let_through(false);
  ASSERT_OK(job().take_back());
}

void TwoHosts::do_sweeps(const SweepPlan& plan) {
  for (const char* fault : kSweepFaults) expect_in_log(fault);
  expect_stopped_accesses();
  const auto sweep = [&](const char* stage, uint64_t exports, uint64_t slots) {
    expect_reach(*lab_, stage, exports, slots, plan);
  };

  ASSERT_OK(lender().run(fmt::format("pcilend connect {}", borrower().node())));
  sweep("connected", 0, 0);
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  sweep("available", 0, 0);

  const auto function = job().function_on(borrower());
  ASSERT_OK(function);
  const uint64_t bars = bar_bytes(*function);
  ASSERT_GT(bars, 0U);
  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + job().id()));
  sweep("borrowed", bars, 0);
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  ASSERT_OK(job().await_state(borrower(), "available"));
  sweep("returned", 0, 0);

  ASSERT_OK(job().start_guest());
  ASSERT_OK(job().await_guest_disk());
  const auto used = job().function_on(borrower());
  ASSERT_OK(used);
  const auto guest = used->at("guest_bytes").get<uint64_t>();
  EXPECT_GE(guest, 200 * kMiB) << "the guest has 256 MiB";
  EXPECT_LE(guest, 264 * kMiB) << "and its firmware some ROM";
  sweep("in use", bars, guest);
  EXPECT_OK(job().guest().run("dd if=/dev/nvme0n1 of=/dev/null bs=16k count=4 iflag=direct"));

  ASSERT_OK(lender().run("pcilend unavailable --force " + *lender().address(0)));
  ASSERT_OK(job().await_state(borrower(), "added"));
  // VFIO has the guest's memory mapped until QEMU, which is asked, lets go.
  ASSERT_OK(lab::eventually("QEMU lets go", lab::kPatience, [&] {
    const auto links = borrower().json("pcilend link --json");
    return links && links->at("links").at(0).at("slot_bytes") == 0;
  }));
  sweep("revoked", 0, 0);
  EXPECT_OK(job().guest().run("true"));
  ASSERT_OK(job().guest().destroy());
}

void TwoHosts::do_hwtest() {
  using json = nlohmann::json;
  constexpr const char* kSaid = "/tmp/hwtest";
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  ASSERT_OK(job().borrow());
  auto answerer =
      lender().start(fmt::format("exec pcilend hwtest --json {}", borrower().node()), {{}, 5min});
  ASSERT_OK(answerer);
  std::string command;
  ASSERT_OK(lab::eventually("hwtest says what to run", lab::kPatience, [&] {
    const auto said = json::parse(answerer->output_so_far(), nullptr, false);
    if (said.is_object()) command = said.at("hwtest").value("command", "");
    return !command.empty();
  }));
  auto measurer = borrower().start(
      fmt::format("exec {} --json --count 20 --link-loss --timeout 120 2>{}", command, kSaid),
      {{}, 5min});
  ASSERT_OK(measurer);
  const auto await = [&](const std::string& text) {
    return borrower().until(fmt::format("cat {}", kSaid), [&](const lab::Output& o) {
      return measurer->ended() || o.out.find(text) != std::string::npos;
    });
  };
  ASSERT_OK(await("cut the link now"));
  ASSERT_OK(lab_->fabric().link_down(1, 2));
  ASSERT_OK(await("put it back now"));
  ASSERT_OK(lab_->fabric().link_up(1, 2));

  const auto report = measurer->wait();
  ASSERT_OK(report);
  EXPECT_EQ(report->code, 0) << report->out
                             << borrower().run(fmt::format("cat {}", kSaid)).value_or("");
  const auto said = json::parse(report->out, nullptr, false);
  ASSERT_TRUE(said.is_object()) << report->out;
  const json& test = said.at("hwtest");
  EXPECT_EQ(test.at("errors"), 0) << test;
  EXPECT_EQ(test.at("link").at("node"), lender().node());
  std::vector<std::string> well;
  for (const json& finding : test.at("findings"))
    if (finding.at("level") == "ok") well.push_back(finding.at("subject"));
  for (const std::string& subject :
       {std::string("memory window to the other host"), std::string("reads back from it"),
        std::string("memory window from the other host"), std::string("interrupts"),
        std::string("requester IDs of this host"), "DMA of " + job().id(), std::string("link"),
        std::string("link loss")})
    EXPECT_THAT(well, testing::Contains(subject)) << test;
  EXPECT_GE(test.at("measures").size(), 7u) << test;
  const auto answered = answerer->wait();
  ASSERT_OK(answered);
  EXPECT_EQ(answered->code, 0) << answered->err;
}

}  // namespace pcilend::scenarios
