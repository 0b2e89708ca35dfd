// SPDX-License-Identifier: GPL-2.0-or-later
// A drive in the hands of a process (docs/nvme.md).
#include <gmock/gmock.h>

#include "main_job/admin_steps.h"
#include "scenarios/lending/left.h"
#include "scenarios/lending/nvme_bench.h"
#include "testing/asserts.h"
#include "testing/suite_lab.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::json;
using testing::HasSubstr;

// Where the process is that leases the drive of host1.
enum class Where { Lender, Borrower };

/*
 *   host1 (lender, node 4)                                         host2 (borrower, node 8)
 *   process ── lease ── nvme ── IOMMU ── NTB ═════════════════════ NTB ── lease ── process
 *              edu                                                  queues, data: its memory
 */
class NvmeLease : public testing::TestWithParam<Where> {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "nvme-lease";
    ASSERT_OK(options.add_device("host1:nvme,serial=leased,drive-size=64M"));
    ASSERT_OK(options.add_device("host1:edu,id=edu,dma_mask=0xffffffffff,root-port=on"));
    ASSERT_OK(start_lab(options, lab_));
    ASSERT_OK(lender().run(fmt::format("pcilend connect {}", lab_->host(2).node())));
    const auto address = lender().address(0);
    ASSERT_OK(address);
    address_ = *address;
  }
  static void TearDownTestSuite() { EXPECT_OK(end_lab(lab_)); }

  void SetUp() override {
    ASSERT_TRUE(lab_) << "the lab did not start";
    for (int host : {1, 2}) ASSERT_OK(lab_->host(host).mark_log());
    id_ = offered(address_);
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

  // Until it knows that the drive is gone the process rings its doorbells. The lender's IOMMU stops
  // what comes through the NTB then.
  void expect_stopped_doorbells() {
    expected_.emplace_back("DMAR: DRHD: handling fault status reg");
    expected_.emplace_back(
        R"(DMAR: \[DMA (Read|Write) NO_PASID\] Request device \[(0000:)?00:04\.0\] fault addr 0x(100|2)[0-9a-f]{8} )");
  }

  // The id of a function of the lender that may be leased now.
  static std::string offered(const std::string& address) {
    const auto offered = offer(lender(), address);
    EXPECT_OK(offered);
    if (!offered) return {};
    EXPECT_OK(await_state(host(), offered->at("id"), "available"));
    return offered->at("id");
  }

  // A run that must succeed.
  [[nodiscard]] json bench(const std::string& options) const {
    const auto report = host().json(fmt::format("{} {} --json {}", kBench, id_, options));
    EXPECT_OK(report);
    return report.value_or(json::object());
  }
  // What one that must fail says of it.
  [[nodiscard]] std::string refusal(const std::string& id, const std::string& options,
                                    ErrorClass kind) const {
    const auto refused = host().exec(fmt::format("{} {} {}", kBench, id, options));
    EXPECT_OK(refused);
    if (!refused) return {};
    EXPECT_EQ(refused->code, static_cast<int>(kind)) << options << refused->err;
    EXPECT_EQ(std::ranges::count(refused->err, '\n'), 1) << refused->err;
    return refused->err;
  }

  // One that writes and compares until something ends it; it has come to its second round.
  void start_user(int depth) {
    auto started = host().start(fmt::format(
        "exec {} {} --write --commands 32 --depth {} --rounds {}", kBench, id_, depth, kMany));
    ASSERT_OK(started);
    user_.emplace(std::move(*started));
    ASSERT_OK(host().until("true", [&](const lab::Output&) {
      return user_->ended() || user_->output_so_far().find("round 1:") != std::string::npos;
    }));
    ASSERT_FALSE(user_->ended()) << user_->output_so_far();
  }
  // What it says when it has ended by itself.
  void expect_user_ends(ErrorClass kind, const std::string& words) {
    const auto ended = user_->wait();
    user_.reset();
    ASSERT_OK(ended);
    EXPECT_EQ(ended->code, static_cast<int>(kind)) << ended->err;
    EXPECT_THAT(ended->err, HasSubstr(words));
  }
  void expect_drive_works() const {
    const json report = bench("--write --commands 16 --depth 4");
    EXPECT_EQ(report.value("compared", 0), 16);
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

std::optional<lab::Lab> NvmeLease::lab_;
std::string NvmeLease::address_;

/*
 *   process: writes a range by one lease ── reads it by another, in other pieces ── the lender's
 * own driver reads the same
 */
TEST_P(NvmeLease, WhatAProcessWritesIsOnTheDrive) {
  const json written = bench("--write --block 2048 --commands 64 --depth 8 --seed 7");
  EXPECT_EQ(written.value("serial", ""), "leased");
  EXPECT_EQ(written.value("blocks", 0), 131072);
  EXPECT_EQ(written.value("writes", 0), 64);
  EXPECT_EQ(written.value("flushes", 0), 1);
  EXPECT_EQ(written.value("compared", 0), 64);
  EXPECT_EQ(written.value("interrupts", -1), 0);
  EXPECT_EQ(written.value("remark", "x"), "") << "commands are beside the drive";

  const json read =
      bench("--verify --block 2048 --size 128K --commands 2 --seed 7 --wait interrupt");
  EXPECT_EQ(read.value("compared", 0), 2);
  EXPECT_EQ(read.value("writes", -1), 0);
  EXPECT_GE(read.value("interrupts", 0), 1);
  EXPECT_EQ(read.value("cksum", 0U), written.value("cksum", 1U));
  EXPECT_THAT(refusal(id_, "--verify --block 2048 --seed 8", ErrorClass::Failure),
              HasSubstr("block 2048 of namespace 1"));

  ASSERT_OK(lender().run("pcilend unavailable " + id_));
  taken_ = true;
  const auto disk = await_disk(lender(), address_);
  ASSERT_OK(disk);
  const auto sum = lender().run(
      fmt::format("dd if={} bs=4k skip=256 count=64 iflag=direct 2>/dev/null | cksum", *disk));
  ASSERT_OK(sum);
  EXPECT_EQ(sum->substr(0, sum->find(' ')), std::to_string(written.value("cksum", 0U)));
}

// What crosses the NTB for `commands` of them, beside what any run takes; data goes 8 bytes at a
// time.
struct Cost {
  uint64_t reads = 0;   // of the process's memory, by the drive
  uint64_t writes = 0;  // to it
  uint64_t interrupts = 0;
  uint64_t doorbells = 0;  // stores of the process
  uint64_t stores = 0;     // to memory beside the drive
};

/*
 *   process: as many commands, and three times as many; what is counted more is that of a command
 *
 *   read of 4 KiB:  data 512 writes, completion 2; command 9 stores, two doorbells
 *   write of 4 KiB: data 512 reads, or 512 stores; completion 2 writes; command 9 stores
 *   read of 128 KiB: data 16384 writes, completion 2; command 9 and list 31 stores
 *   --near no: commands and lists are read from the process's host, 8 and 31 reads of 8 bytes
 *
 * By loopback nothing crosses.
 */
TEST_P(NvmeLease, ACommandCostsItsTransactions) {
  const auto cost_of = [&](const std::string& options, uint64_t commands) {
    EXPECT_OK(lab_->fabric().counters(true));
    const json report = bench(fmt::format("{} --commands {}", options, commands));
    EXPECT_EQ(report.value("reads", uint64_t{0}), commands);
    const auto counters = lab_->fabric().counters();
    EXPECT_OK(counters);
    if (!counters) return Cost{};
    const auto out = counters->path(lender().number(), 2);
    const auto in = counters->path(2, lender().number());
    EXPECT_EQ(out.all_ones_reads, 0U);
    return Cost{out.memory.reads, out.memory.writes, out.interrupt.writes, in.bar.writes,
                in.memory.writes};
  };
  const auto cost_of_one = [&](const std::string& options, uint64_t commands) {
    const Cost few = cost_of(options, commands);
    const Cost many = cost_of(options, 3 * commands);
    const auto each = [&](uint64_t Cost::*what) {
      return (static_cast<double>(many.*what) - static_cast<double>(few.*what)) /
             static_cast<double>(2 * commands);
    };
    fmt::print("{}: {:.2f} reads, {:.2f} writes, {:.2f} interrupts, {:.2f} doorbells\n",
               options.empty() ? "read" : options, each(&Cost::reads), each(&Cost::writes),
               each(&Cost::interrupts), each(&Cost::doorbells));
    return std::tuple(each(&Cost::reads), each(&Cost::writes), each(&Cost::interrupts),
                      each(&Cost::doorbells), each(&Cost::stores));
  };
  // The control channel writes some in each second, whether there are commands or not.
  constexpr double kControlWrites = 10;
  const auto expect = [&](const std::string& options, uint64_t commands, Cost wanted) {
    if (GetParam() == Where::Lender) wanted = {};
    const auto [reads, writes, interrupts, doorbells, stores] = cost_of_one(options, commands);
    EXPECT_EQ(reads, static_cast<double>(wanted.reads)) << options;
    EXPECT_NEAR(writes, static_cast<double>(wanted.writes), kControlWrites) << options;
    EXPECT_EQ(interrupts, static_cast<double>(wanted.interrupts)) << options;
    EXPECT_EQ(doorbells, static_cast<double>(wanted.doorbells)) << options;
    EXPECT_NEAR(stores, static_cast<double>(wanted.stores), kControlWrites) << options;
  };
  expect("", 64, {0, 514, 0, 2, 9});
  expect("--wait interrupt", 32, {0, 514, 1, 2, 9});
  expect("--write", 64, {512, 514 + 2, 0, 4, 9 + 9});
  expect("--write --staged", 64, {0, 514 + 2, 0, 4, 9 + 9 + 512});
  expect("--size 128K", 8, {0, 16384 + 2, 0, 2, 9 + 31});
  expect("--near no", 64, {8, 514, 0, 2, 0});
  expect("--near no --write", 64, {8 + 520, 514 + 2, 0, 4, 0});
  expect("--near no --size 128K", 8, {8 + 31, 16384 + 2, 0, 2, 0});
}

/*
 *   process, while the drive writes and reads for it ── kill -9; four times
 *
 * The drive is stopped, reset and available, and nothing of the process is left.
 */
TEST_P(NvmeLease, AProcessThatIsKilledUnderIoLeavesNothing) {
  for (int round = 0; round < 4; ++round) {
    ASSERT_NO_FATAL_FAILURE(start_user(8));
    ASSERT_OK(host().run("kill -9 $(pidof nvme-bench)"));
    ASSERT_OK(user_->wait());
    user_.reset();
    ASSERT_OK(await_state(lender(), id_, "available"));
    ASSERT_OK(await_state(host(), id_, "available"));
  }
  expect_drive_works();
}

/*
 *   process, while the drive writes and reads for it ── its lender resets it ── the process ends
 *   with one line: what was under way is not taken for done
 *
 * One command at a time: QEMU's drive hung in a reset with eight under way over the NTB.
 */
TEST_P(NvmeLease, AResetByItsLenderIsNoticed) {
  expect_stopped_doorbells();
  ASSERT_NO_FATAL_FAILURE(start_user(1));
  ASSERT_OK(lender().run(fmt::format("echo 1 >/sys/bus/pci/devices/{}/reset", address_)));
  expect_user_ends(ErrorClass::State, "was reset by others, taken back, or its link was lost");
  ASSERT_OK(await_state(host(), id_, "available"));
  expect_drive_works();
}

/*
 *   process, while the drive writes and reads for it ── pcilend unavailable --force
 */
TEST_P(NvmeLease, ADriveThatIsTakenBackEndsIt) {
  expect_stopped_doorbells();
  ASSERT_NO_FATAL_FAILURE(start_user(8));
  ASSERT_OK(lender().run("pcilend unavailable --force " + id_));
  taken_ = true;
  expect_user_ends(ErrorClass::State, "was reset by others, taken back, or its link was lost");
  EXPECT_OK(await_disk(lender(), address_));
}

/*
 *   process, while the drive writes and reads for it ── the link is cut and put back
 *
 * By loopback that is nobody's business.
 */
TEST_P(NvmeLease, ALostLinkIsNoticed) {
  expect_stopped_doorbells();
  ASSERT_NO_FATAL_FAILURE(start_user(8));
  ASSERT_OK(lab_->fabric().flap(1, 2, 500ms));
  if (GetParam() == Where::Borrower) {
    expect_user_ends(ErrorClass::State, "was reset by others, taken back, or its link was lost");
  } else {
    const auto rounds = [&] { return std::ranges::count(user_->output_so_far(), '\n'); };
    const auto before = rounds();
    ASSERT_OK(lab::eventually("it goes on", lab::kPatience,
                              [&] { return rounds() > before + 2 || user_->ended(); }));
    EXPECT_FALSE(user_->ended());
    ASSERT_OK(host().run("kill $(pidof nvme-bench)"));
    ASSERT_OK(user_->wait());
    user_.reset();
  }
  ASSERT_OK(await_state(lender(), id_, "available"));
  ASSERT_OK(await_state(lab_->host(2), id_, "available"));
  expect_drive_works();
}

TEST_P(NvmeLease, BadInputIsRefused) {
  const auto says = [&](const std::string& options, const std::string& words,
                        ErrorClass kind = ErrorClass::Usage) {
    EXPECT_THAT(refusal(id_, options, kind), HasSubstr(words)) << options;
  };
  says("--size 1000", "are no whole blocks of 512");
  says("--commands 16385", "namespace 1 has 131072 blocks");
  says("--block 131072 --commands 1", "namespace 1 has 131072 blocks");
  says("--namespace 2", "the drive has no namespace 2", ErrorClass::NotFound);
  says("--namespace 4294967295", "has namespaces 1 to", ErrorClass::NotFound);
  says("--depth 4096", "commands under way in a queue: not 4096");
  says("--size 1M --commands 1", "a command of " + id_ + " has up to 524288 bytes");
  EXPECT_THAT(refusal("40fff", "", ErrorClass::NotFound), HasSubstr("function with that id"));

  const auto edu = lender().address("edu");
  ASSERT_OK(edu);
  const std::string other = offered(*edu);
  EXPECT_THAT(refusal(other, "--write", ErrorClass::Unsupported),
              HasSubstr(other + " is no NVMe controller: its class is "));
  ASSERT_OK(await_state(lender(), other, "available"));
  EXPECT_OK(lender().run(fmt::format("pcilend unavailable {0} && pcilend remove {0}", other)));
}

INSTANTIATE_TEST_SUITE_P(By, NvmeLease, testing::Values(Where::Lender, Where::Borrower),
                         [](const auto& where) {
                           return where.param == Where::Lender ? "Loopback" : "Borrower";
                         });

}  // namespace
}  // namespace pcilend::scenarios
