// SPDX-License-Identifier: GPL-2.0-or-later
// Functions in the hands of processes (docs/device-api.md).
#include <gmock/gmock.h>

#include "main_job/admin_steps.h"
#include "scenarios/lending/left.h"
#include "scenarios/peer_to_peer/peer_to_peer.h"
#include "testing/asserts.h"
#include "testing/suite_lab.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using json = nlohmann::json;
using testing::HasSubstr;

constexpr const char* kUser = "/usr/lib/pcilend-lab/lease-user";
constexpr const char* kIntruder = "/usr/lib/pcilend-lab/nvme-intruder";
// What a host's interrupt remapping says of a message that it does not let through.
constexpr const char* kForged = R"(DMAR: \[INTR-REMAP\] Request device)";

// What is written on a line each.
std::vector<json> lines(const std::string& text) {
  std::vector<json> found;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (auto said = json::parse(line, nullptr, false); said.is_object())
      found.push_back(std::move(said));
  return found;
}

// Where the process is that leases the function of host1.
enum class Where { Lender, Borrower };

/*
 *   host1 (lender, node 4)                                        host2 (borrower, node 8)
 *   process ── lease fd ── edu ── root port ── IOMMU ── NTB ═════ NTB ── lease fd ── process
 *                                                │                          │
 *                                     the process's memory       the process's memory
 */
class DeviceApi : public testing::TestWithParam<Where> {
 protected:
  static void SetUpTestSuite() {
    // That of P2p.
    const auto options = peer_to_peer_lab("p2p", 1);
    ASSERT_OK(options);
    ASSERT_OK(start_lab(*options, lab_));
    ASSERT_OK(lender().run(fmt::format("pcilend connect {}", lab_->host(2).node())));
    const auto address = lender().address("edu");
    ASSERT_OK(address);
    address_ = *address;
  }
  static void TearDownTestSuite() { EXPECT_OK(end_lab(lab_)); }

  void SetUp() override {
    ASSERT_TRUE(lab_) << "the lab did not start";
    for (int host : {1, 2}) ASSERT_OK(lab_->host(host).mark_log());
    const auto offered = offer(lender(), address_);
    ASSERT_OK(offered);
    id_ = offered->at("id");
    ASSERT_OK(await_state(host(), id_, "available"));
    before_ = left_by_processes(*lab_);
  }

  void TearDown() override {
    if (!lab_) return;
    user_.reset();
    EXPECT_OK(await_state(lender(), id_, taken_ ? "added" : "available"));
    EXPECT_OK(lab::eventually("nothing is left", lab::kPatience,
                              [&] { return left_by_processes(*lab_) == before_; }));
    if (!taken_) EXPECT_OK(lender().run("pcilend unavailable " + id_));
    EXPECT_OK(lender().run("pcilend remove " + id_));
    for (int host : {1, 2}) {
      expect_nothing_mapped(lab_->host(host));
      EXPECT_OK(lab_->host(host).check_log(expected_));
    }
  }

  static const lab::Host& lender() { return lab_->host(1); }
  // That of the process.
  static const lab::Host& host() { return lab_->host(GetParam() == Where::Lender ? 1 : 2); }

  // What edu does to addresses where nothing is mapped for it: the IOMMU says so that is the last
  // one on the way.
  void expect_stopped_dma() {
    expected_.emplace_back("DMAR: DRHD: handling fault status reg");
    expected_.emplace_back(fmt::format(
        R"(DMAR: \[DMA (Read|Write) NO_PASID\] Request device \[(0000:)?{}\] fault addr 0x)",
        GetParam() == Where::Lender ? address_.substr(5) : "00:04.0"));
  }

  // The same of what is beside the function.
  void expect_stopped_beside() {
    expected_.emplace_back(
        fmt::format(R"(DMAR: \[DMA Write NO_PASID\] Request device \[(0000:)?{}\] fault addr 0x)",
                    address_.substr(5)));
  }

  // Steps of a program, to their end: what each has said.
  [[nodiscard]] std::vector<json> use(const std::string& steps,
                                      const std::string& slice = {}) const {
    const auto said = host().run(fmt::format("{} {}{} {}", kUser, id_, slice, steps));
    EXPECT_OK(said);
    return lines(said.value_or(""));
  }

  // One that goes on; until it says that it has come to `step`.
  void start_user(const std::string& steps, const std::string& step) {
    auto started = host().start(fmt::format("exec {} {} {}", kUser, id_, steps));
    ASSERT_OK(started);
    user_.emplace(std::move(*started));
    ASSERT_OK(host().until("true", [&](const lab::Output&) {
      return user_->ended() || user_->output_so_far().find("\"" + step + "\"") != std::string::npos;
    }));
    ASSERT_FALSE(user_->ended()) << user_->output_so_far();
  }

  // It has come to its end: what its steps have said.
  std::vector<json> end_of_user() {
    const auto ended = user_->wait();
    user_.reset();
    EXPECT_OK(ended);
    if (!ended) return {};
    EXPECT_EQ(ended->code, 0) << ended->err << ended->out;
    return lines(ended->out);
  }

  static std::optional<lab::Lab> lab_;
  static std::string address_;
  std::string id_;
  std::optional<lab::Running> user_;
  bool taken_ = false;  // by its own driver, in the course of the scenario
  lab::Expected expected_;

 private:
  std::string before_;
};

std::optional<lab::Lab> DeviceApi::lab_;
std::string DeviceApi::address_;

/*
 *   process: segment a ── edu ──> segment b, an interrupt for each half of the way
 *
 * To map memory and to unmap it takes no message: the lender knows of the slice only.
 */
TEST_P(DeviceApi, AProcessHasAFunctionCopyBetweenItsSegments) {
  const auto steps = use("look factorial map 16384 copy remap 100 unmap state");
  ASSERT_EQ(steps.size(), 7U);
  EXPECT_EQ(steps[0].at("identification"), 0x010000ed);
  EXPECT_EQ(steps[0].at("inverted"), 0xfffffffe);
  EXPECT_EQ(steps[1].at("product"), 120);
  EXPECT_NE(steps[2].at("addresses").at(0), steps[2].at("addresses").at(1));
  EXPECT_EQ(steps[3].at("pages"), 4);
  EXPECT_EQ(steps[3].at("same"), true);
  EXPECT_EQ(steps[3].at("interrupts"), 8);
  EXPECT_EQ(steps[6].at("epoch"), 0);
  EXPECT_EQ(steps[6].at("over"), false);
  for (const char* step : {"look", "factorial", "copy", "remap"})
    for (const auto& said : steps)
      if (said.at("step") == step) EXPECT_EQ(said.at("messages"), 0) << said;
}

/*
 *   process: a is mapped read-only, as is a buffer of commands, b was unmapped; edu writes to all
 *
 * A buffer that the function only reads is beside it, where its own IOMMU keeps it from writing.
 */
TEST_P(DeviceApi, AFunctionReachesWhatIsMappedForItAndNoMore) {
  expect_stopped_dma();
  expect_stopped_beside();
  const auto steps = use("map 8192 overwrite copy hints unmap stale");
  ASSERT_EQ(steps.size(), 6U);
  EXPECT_EQ(steps[1].at("changed"), false) << "a segment that is mapped read-only";
  EXPECT_EQ(steps[2].at("same"), true);
  EXPECT_EQ(steps[3].at("changed"), false) << "a buffer that it only reads";
  EXPECT_EQ(steps[3].at("beside"), true);
  EXPECT_EQ(steps[3].at("remark"), "");
  EXPECT_EQ(steps[3].at("insisted"), "not refused");
  EXPECT_EQ(steps[5].at("changed"), false) << "a segment that is not mapped any more";
}

/*
 *   process ── edu: a message in place of data ──> interrupts of the function's host
 *                                             ──> those of the process's own, over the NTB
 */
TEST_P(DeviceApi, AnInterruptThatAFunctionForgesIsStopped) {
  expected_.emplace_back("DMAR: DRHD: handling fault status reg");
  expected_.emplace_back(kForged);
  // As an IOMMU's table would have it: of number 2000, which is not there.
  constexpr uint64_t kMessage = 2000 << 5 | 1 << 4;
  ASSERT_EQ(use(fmt::format("map 4096 forge {}", 0xfee00000 + kMessage)).size(), 2U);
  EXPECT_THAT(lender().log(), testing::ContainsRegex(kForged));
  if (GetParam() == Where::Lender) return;
  ASSERT_OK(lab_->host(1).mark_log());
  ASSERT_EQ(use(fmt::format("map 4096 forge {}", 0xfe000000 + kMessage)).size(), 2U);
  EXPECT_THAT(host().log(), testing::ContainsRegex(kForged));
}

/*
 *   process ── a drive's page with the table of MSI-X; the function's configuration space
 */
TEST_P(DeviceApi, NeitherTheTableOfInterruptsNorConfigurationCanBeHad) {
  const auto address = lender().address("target");
  ASSERT_OK(address);
  const auto offered = offer(lender(), *address);
  ASSERT_OK(offered);
  const std::string drive = offered->at("id");
  ASSERT_OK(await_state(host(), drive, "available"));
  const auto said = host().run(fmt::format("{} lease {} 3", kIntruder, drive));
  ASSERT_OK(said);
  const json pages = lines(*said).back().at("pages");
  for (const char* page : {"0", "1"}) EXPECT_EQ(pages.at(page), "not refused") << page;
  EXPECT_THAT(pages.at("2").get<std::string>(), HasSubstr("its interrupt table is at 0x2000"));
  ASSERT_OK(await_state(lender(), drive, "available"));
  ASSERT_OK(lender().run(fmt::format("pcilend unavailable {0} && pcilend remove {0}", drive)));

  ASSERT_NO_FATAL_FAILURE(start_user("map 4096 recalled copy", "waiting"));
  // Who was handed the descriptor, and has no other rights.
  EXPECT_OK(host().run(
      "at=$(dirname $(grep -lx 0x11e8 /sys/bus/pci/devices/*/device)) && [ -e $at/config ] && "
      "! setpriv --reuid 65534 --clear-groups sh -c \"echo >$at/config\""));
  ASSERT_OK(lender().run("pcilend unavailable --grace 600 " + id_));
  const auto steps = end_of_user();
  taken_ = true;
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_EQ(steps[3].at("same"), true);
}

/*
 *   process, while edu copies ── kill -9; four times
 *
 * The function is stopped, reset and available, and nothing of the process is left.
 */
TEST_P(DeviceApi, AProcessThatIsKilledLeavesNothing) {
  for (int round = 0; round < 4; ++round) {
    ASSERT_NO_FATAL_FAILURE(start_user("map 1048576 run", "running"));
    const auto listed = function_on(lender(), id_);
    ASSERT_OK(listed);
    EXPECT_EQ(listed->at("state"), "borrowed");
    EXPECT_EQ(listed->at("borrower"), host().node());
    ASSERT_OK(host().run("kill -9 $(pidof lease-user)"));
    ASSERT_OK(user_->wait());
    user_.reset();
    ASSERT_OK(await_state(lender(), id_, "available"));
    ASSERT_OK(await_state(host(), id_, "available"));
  }
  const auto steps = use("map 4096 copy");
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[1].at("same"), true);
}

/*
 *   process waits ── pcilend unavailable --force: all-ones, and no signal
 */
TEST_P(DeviceApi, WhatItsHostTakesBackTurnsToAllOnes) {
  ASSERT_NO_FATAL_FAILURE(start_user("map 4096 copy over ones state unmap", "waiting"));
  // Who has it is told to administrators only, as of all leases.
  const std::string owner = "pcilend list --json | grep '\"owner\": \"'";
  EXPECT_OK(host().run(owner));
  EXPECT_OK(host().run("! setpriv --reuid 65534 --clear-groups " + owner));
  ASSERT_OK(lender().run("pcilend unavailable --force " + id_));
  const auto steps = end_of_user();
  taken_ = true;
  ASSERT_EQ(steps.size(), 7U);
  EXPECT_EQ(steps[3].at("over"), true);
  EXPECT_EQ(steps[4].at("ones"), true);
  for (const char* request : {"map", "bar", "interrupt"})
    EXPECT_THAT(steps[4].at(request).get<std::string>(), HasSubstr("the lease is over"));
  EXPECT_EQ(steps[5].at("over"), true);
  EXPECT_GT(steps[5].at("epoch"), 0);
}

/*
 *   process waits ── pcilend unavailable --grace: it is asked, and lets go
 */
TEST_P(DeviceApi, AProcessThatIsAskedLetsGo) {
  ASSERT_NO_FATAL_FAILURE(start_user("map 4096 recalled copy", "waiting"));
  ASSERT_OK(lender().run("pcilend unavailable --grace 600 " + id_));
  const auto steps = end_of_user();
  taken_ = true;
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_EQ(steps[2].at("recalled"), true);
  EXPECT_EQ(steps[2].at("over"), false);
  EXPECT_EQ(steps[3].at("same"), true) << "it may go on until it lets go";
}

/*
 *   process waits ── somebody resets the function: the epoch tells, and it goes on
 */
TEST_P(DeviceApi, AResetByOthersChangesTheEpoch) {
  ASSERT_NO_FATAL_FAILURE(start_user("map 4096 copy disturbed remap 1 copy", "waiting"));
  ASSERT_OK(lender().run(fmt::format("echo 1 >/sys/bus/pci/devices/{}/reset", address_)));
  const auto steps = end_of_user();
  ASSERT_EQ(steps.size(), 6U);
  EXPECT_GE(steps[3].at("epoch"), 1);
  EXPECT_EQ(steps[3].at("over"), false);
  EXPECT_EQ(steps[5].at("same"), true);
}

TEST_P(DeviceApi, BadInputIsRefused) {
  const auto steps = use("refused", ",4096");
  ASSERT_EQ(steps.size(), 1U);
  const std::pair<const char*, const char*> texts[] = {
      {"leased twice", "has borrowed it already"},
      {"an unknown function", "function with that id"},
      {"a function of another host", "no lender offers a function with that id"},
      {"an odd slice", "a power of two"},
      {"memory for a lease", "is no lease"},
      {"no lease", "is no lease"},
      {"BAR 4", "no memory BAR 4"},
      {"half a page", "whole pages"},
      {"behind the BAR", "BAR 0 has 1048576 bytes"},
      {"around the end", "BAR 0 has 1048576 bytes"},
      {"a memfd", "is no dma-buf"},
      {"a BAR for the function", "does not reach its own BARs"},
      {"vector 7", "interrupts 0 to"},
      {"a memfd to raise", "is no eventfd"},
      {"what is not mapped", "no segment is mapped at that address"},
      {"more than the slice", "slice of 4 KiB has no room for 8 KiB"},
  };
  for (const auto& [what, text] : texts)
    EXPECT_THAT(steps[0].at(what).get<std::string>(), HasSubstr(text)) << what;
}

INSTANTIATE_TEST_SUITE_P(By, DeviceApi, testing::Values(Where::Lender, Where::Borrower),
                         [](const auto& where) {
                           return where.param == Where::Lender ? "Loopback" : "Borrower";
                         });

}  // namespace
}  // namespace pcilend::scenarios
