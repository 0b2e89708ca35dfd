// SPDX-License-Identifier: GPL-2.0-or-later
// Fixture: one drive in the hands of processes of three hosts (docs/nvme.md).
#pragma once

#include <gmock/gmock.h>

#include <optional>
#include <string>

#include "main_job/admin_steps.h"
#include "scenarios/lending/nvme_bench.h"
#include "scenarios/lending/process.h"
#include "testing/asserts.h"
#include "testing/suite_lab.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {

inline constexpr const char* kLost = "was reset by others, taken back, or its link was lost";

// What crosses the NTB for each command, beside what any run takes; data goes 8 bytes at a time.
struct Cost {
  double reads = 0;   // of the client's memory, by the drive
  double writes = 0;  // to it
  double interrupts = 0;
  double stores = 0;  // of the client, to memory beside the drive
  double doorbells = 0;
};

/*
 *   host1 (lender, node 4)                              host2 (node 8), host3 (node 12)
 *   pcilend-nvme-manager ── admin queue ──┐
 *   client ── queues, data ── nvme ── IOMMU ── NTB ═══ NTB ── client: completions, data
 *   commands of clients of other hosts ───┘
 */
class SharedNvme : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "shared-nvme";
    options.hosts = 3;
    // Of its own QEMU has one page for all DMA over the NTB, and hangs when a command that waits
    // for it is ended.
    ASSERT_OK(
        options.add_device("host1:nvme,serial=shared,drive-size=64M,max_ioqpairs=31,msix_qsize=32,"
                           "x-max-bounce-buffer-size=16M"));
    ASSERT_OK(options.add_device(
        "host1:nvme,id=own-memory,serial=own-memory,drive-size=64M,cmb_size_mb=2,legacy-cmb=off,"
        "x-max-bounce-buffer-size=16M,max_ioqpairs=4,msix_qsize=5"));
    // Two controllers of one drive: what an administrator does by one of them the other one tells.
    options.qemu_arguments[1] = {
        "-device",
        "nvme-subsys,id=spaces,nqn=spaces",
        "-device",
        "nvme,id=managed,serial=spaces,subsys=spaces,addr=1b.0,max_ioqpairs=7,"
        "msix_qsize=8,x-max-bounce-buffer-size=16M",
        "-device",
        "nvme,id=admin,serial=spaces,subsys=spaces,addr=1c.0",
        "-blockdev",
        "null-co,node-name=space1,size=16777216,read-zeroes=on",
        "-blockdev",
        "null-co,node-name=space2,size=16777216,read-zeroes=on",
        "-device",
        "nvme-ns,drive=space1,bus=managed,nsid=1,shared=on",
        "-device",
        "nvme-ns,drive=space2,bus=managed,nsid=2,shared=on,detached=on"};
    ASSERT_OK(start_lab(options, lab_));
    for (int host : {2, 3})
      ASSERT_OK(lender().run(fmt::format("pcilend connect {}", lab_->host(host).node())));
    const auto address = lender().address(0);
    ASSERT_OK(address);
    address_ = *address;
  }
  static void TearDownTestSuite() { EXPECT_OK(end_lab(lab_)); }

  void SetUp() override {
    ASSERT_TRUE(lab_) << "the lab did not start";
    for (int host : {1, 2, 3}) ASSERT_OK(lab_->host(host).mark_log());
    ASSERT_NO_FATAL_FAILURE(lend(address_));
    before_ = left();
  }

  void TearDown() override {
    if (!lab_) return;
    manager_.reset();
    EXPECT_OK(await_state(lender(), id_, taken_ ? "added" : "available"));
    EXPECT_EQ(left(), before_);
    take_back();
    for (int host : {1, 2, 3}) {
      expect_nothing_mapped(lab_->host(host));
      EXPECT_OK(lab_->host(host).check_log(expected_));
    }
  }

  static const lab::Host& lender() { return lab_->host(1); }
  void lend(const std::string& address) {
    const auto offered = offer(lender(), address);
    ASSERT_OK(offered);
    id_ = offered->at("id");
  }
  void take_back() const {
    if (!taken_) EXPECT_OK(lender().run("pcilend unavailable " + id_));
    EXPECT_OK(lender().run("pcilend remove " + id_));
  }

  // What processes that are gone could have left behind.
  static std::string left() {
    std::string all;
    for (int number : {1, 2, 3}) {
      const auto said = lab_->host(number).run(
          "awk '$1 == \"pcilend\" { print $3 }' /proc/modules; "
          "grep -c pcilend-lease /proc/interrupts; pcilend segment list --json");
      EXPECT_OK(said);
      all += said.value_or("");
    }
    return all;
  }

  // Until they know that the drive is gone clients of other hosts ring its doorbells, and store to
  // memory beside it. The lender's IOMMU stops what comes through the NTB then.
  void expect_stopped_doorbells() {
    expected_.emplace_back("DMAR: DRHD: handling fault status reg");
    expected_.emplace_back(
        R"(DMAR: \[DMA (Read|Write) NO_PASID\] Request device \[(0000:)?00:0[0-9a-f]\.0\] fault addr 0x(100|2)[0-9a-f]{8} )");
  }

  void manage(const std::string& options = {}) {
    auto manager =
        Process::start(lender(), fmt::format("pcilend-nvme-manager {} {}", options, id_));
    ASSERT_OK(manager);
    manager_.emplace(std::move(*manager));
    ASSERT_OK(manager_->await("is shared: up to"));
    for (int host : {1, 2, 3}) ASSERT_OK(await_state(lab_->host(host), id_, "borrowed"));
  }
  // Clients end, and the drive is returned.
  void end_manager() {
    const auto code = manager_->end("TERM");
    ASSERT_OK(code);
    EXPECT_EQ(*code, 0) << manager_->said();
    manager_.reset();
  }

  [[nodiscard]] std::string command(const std::string& id, const std::string& options) const {
    return fmt::format("{} {} {} --slice 1M {}", kBench, id, shared_ ? "--shared" : "", options);
  }
  // A run that must succeed.
  [[nodiscard]] nlohmann::json bench(int host, const std::string& options) const {
    const auto report = lab_->host(host).json(command(id_, "--json " + options));
    EXPECT_OK(report);
    return report.value_or(nlohmann::json::object());
  }
  // A client that writes and compares until something ends it; it has come to its second round.
  [[nodiscard]] Result<Process> user(int host, const std::string& options) const {
    auto process = Process::start(
        lab_->host(host),
        command(id_, fmt::format("--write --commands 16 --rounds {} {}", kMany, options)));
    if (!process) return process;
    if (const auto going = process->await("round 1:"); !going) return tl::unexpected(going.error());
    return process;
  }
  // It ends when it is told to, and all was right.
  static void expect_well(Process& process) {
    const auto code = process.end("TERM");
    ASSERT_OK(code);
    EXPECT_EQ(*code, 0) << process.said();
    EXPECT_THAT(process.said(), testing::HasSubstr("\ncksum "));
  }
  static void expect_lost(Process& process) {
    const auto code = process.wait();
    ASSERT_OK(code);
    EXPECT_EQ(*code, static_cast<int>(ErrorClass::State)) << process.said();
    EXPECT_THAT(process.said(), testing::HasSubstr(kLost));
  }

  // The control channel writes some in each second, both ways, whether there are commands or not.
  static constexpr double kControlWrites = 10;
  [[nodiscard]] Cost cost_of(const std::string& options, uint64_t commands) const {
    EXPECT_OK(lab_->fabric().counters(true));
    const nlohmann::json report = bench(2, fmt::format("{} --commands {}", options, commands));
    EXPECT_EQ(report.value("reads", uint64_t{0}), commands);
    const auto counters = lab_->fabric().counters();
    EXPECT_OK(counters);
    if (!counters) return Cost{};
    const auto out = counters->path(1, 2);
    const auto in = counters->path(2, 1);
    EXPECT_EQ(out.all_ones_reads, 0U);
    const auto number = [](uint64_t value) { return static_cast<double>(value); };
    return Cost{number(out.memory.reads), number(out.memory.writes), number(out.interrupt.writes),
                number(in.memory.writes), number(in.bar.writes)};
  }
  // Of a command of host2's, with the rest of what the bench is called with.
  void expect_cost(const std::string& options, uint64_t commands, const Cost& wanted) const {
    const Cost few = cost_of(options, commands);
    const Cost many = cost_of(options, 3 * commands);
    const auto each = [&](double Cost::*what) {
      return (many.*what - few.*what) / static_cast<double>(2 * commands);
    };
    fmt::print(
        "{}: {:.2f} reads, {:.2f} writes, {:.2f} interrupts, {:.2f} stores, {:.2f} doorbells\n",
        options.empty() ? "read" : options, each(&Cost::reads), each(&Cost::writes),
        each(&Cost::interrupts), each(&Cost::stores), each(&Cost::doorbells));
    EXPECT_EQ(each(&Cost::reads), wanted.reads) << options;
    EXPECT_NEAR(each(&Cost::writes), wanted.writes, kControlWrites) << options;
    EXPECT_EQ(each(&Cost::interrupts), wanted.interrupts) << options;
    EXPECT_NEAR(each(&Cost::stores), wanted.stores, kControlWrites) << options;
    EXPECT_EQ(each(&Cost::doorbells), wanted.doorbells) << options;
  }

  static inline std::optional<lab::Lab> lab_;
  static inline std::string address_;
  std::string id_;
  std::optional<Process> manager_;
  bool shared_ = true;  // clients are, of a manager's
  bool taken_ = false;  // by its own driver, in the course of the scenario
  lab::Expected expected_;

 private:
  std::string before_;
};

}  // namespace pcilend::scenarios
