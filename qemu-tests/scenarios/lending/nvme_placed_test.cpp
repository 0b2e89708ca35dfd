// SPDX-License-Identifier: GPL-2.0-or-later
// Queues and data of a drive in memory of other functions (docs/nvme.md).
#include <gmock/gmock.h>

#include <cstdio>

#include "main_job/admin_steps.h"
#include "scenarios/lending/left.h"
#include "scenarios/lending/nvme_bench.h"
#include "scenarios/lending/process.h"
#include "testing/asserts.h"
#include "testing/suite_lab.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using json = nlohmann::json;
using testing::HasSubstr;

constexpr const char* kDriver = "/dev/pcilend-bar";  // pcilend_bar.ko
constexpr const char* kBarUser = "/usr/lib/pcilend-lab/bar-user";

// What crosses the NTB for each command, beside what any run takes; data goes 8 bytes at a time.
// The memory of pci-testdev is memory to the fabric, though it is in a BAR.
struct Cost {
  double reads = 0;       // of the process's memory, by the drive
  double writes = 0;      // to it
  double stores = 0;      // of the process, to memory of the drive's host
  double bar_stores = 0;  // to BARs there: two doorbells, and what else is in BARs
  double interrupts = 0;
};

/*
 *   host1 (lender, node 4)                                      host2 (borrower, node 8)
 *   nvme ── IOMMU ──> BAR of memory: "a GPU beside it" <── NTB ── process: its commands
 *            └──────> NTB ══════════════════════════════════════> its memory: completions
 *   own-memory: nvme with CMB                             └─────> BAR of memory: "its GPU"
 */
class NvmePlaced : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "nvme-placed";
    ASSERT_OK(
        options.add_device("host1:nvme,serial=placed,drive-size=64M,x-max-bounce-buffer-size=16M"));
    ASSERT_OK(options.add_device(
        "host1:nvme,id=own-memory,serial=own-memory,drive-size=64M,cmb_size_mb=2,legacy-cmb=off,"
        "x-max-bounce-buffer-size=16M"));
    // Behind a port it can be reset, and so leased.
    for (int host : {1, 2})
      ASSERT_OK(options.add_device(fmt::format(
          "host{}:pci-testdev,id=memory,membar=1M,membar-backed=on,root-port=on", host)));
    ASSERT_OK(start_lab(options, lab_));
    ASSERT_OK(lender().run(fmt::format("pcilend connect {}", lab_->host(2).node())));
    const auto memory = lender().address("memory");
    ASSERT_OK(memory);
    memory_address_ = *memory;
    const auto drive = lender().address(0);
    ASSERT_OK(drive);
    address_ = *drive;
  }
  static void TearDownTestSuite() { EXPECT_OK(end_lab(lab_)); }

  void SetUp() override {
    ASSERT_TRUE(lab_) << "the lab did not start";
    for (int host : {1, 2}) ASSERT_OK(lab_->host(host).mark_log());
    id_ = lend(address_);
    memory_ = lend(memory_address_);
    before_ = left_by_processes(*lab_);
  }
  void TearDown() override {
    if (!lab_) return;
    user_.reset();
    for (const std::string& id : {id_, memory_})
      EXPECT_OK(await_state(lender(), id, taken_.contains(id) ? "added" : "available"));
    EXPECT_EQ(left_by_processes(*lab_), before_);
    for (const std::string& id : {id_, memory_}) take_back(id);
    for (int host : {1, 2}) {
      expect_nothing_mapped(lab_->host(host));
      EXPECT_OK(lab_->host(host).check_log(expected_));
    }
  }

  static const lab::Host& lender() { return lab_->host(1); }
  static const lab::Host& borrower() { return lab_->host(2); }

  // The id of a function of the lender that may be leased now.
  static std::string lend(const std::string& address) {
    const auto offered = offer(lender(), address);
    EXPECT_OK(offered);
    if (!offered) return {};
    EXPECT_OK(await_state(borrower(), offered->at("id"), "available"));
    return offered->at("id");
  }
  void take_back(const std::string& id) const {
    if (!taken_.contains(id)) EXPECT_OK(lender().run("pcilend unavailable " + id));
    EXPECT_OK(lender().run("pcilend remove " + id));
  }

  [[nodiscard]] static std::string command(const std::string& id, const std::string& options) {
    return fmt::format("{} {} --slice 4M {}", kBench, id, options);
  }
  // A run that must succeed.
  [[nodiscard]] json bench(const lab::Host& host, const std::string& options) const {
    const auto report = host.json(command(id_, "--json " + options));
    EXPECT_OK(report);
    return report.value_or(json::object());
  }
  // Where commands and data are, in the memory of the other function of the lender.
  [[nodiscard]] std::string beside() const {
    return fmt::format("--queues-in {0}:2 --data-in {0}:2+512K", memory_);
  }
  void start_user(const std::string& options) {
    auto user = Process::start(
        borrower(),
        command(id_, fmt::format("--write --commands 8 --depth 4 --rounds {} {}", kMany, options)));
    ASSERT_OK(user);
    user_.emplace(std::move(*user));
    ASSERT_OK(user_->await("round 1:"));
  }
  // As the lender's own driver has it, which has the drive then.
  void expect_on_drive(uint64_t block, uint64_t bytes, uint32_t sum) {
    ASSERT_OK(lender().run("pcilend unavailable " + id_));
    taken_.insert(id_);
    const auto disk = await_disk(lender(), address_);
    ASSERT_OK(disk);
    const auto said =
        lender().run(fmt::format("dd if={} bs=4k skip={} count={} iflag=direct 2>/dev/null | cksum",
                                 *disk, block / 8, bytes / 4096));
    ASSERT_OK(said);
    EXPECT_EQ(said->substr(0, said->find(' ')), std::to_string(sum));
  }
  // What reaches for memory that is gone, until the process knows that.
  void expect_stopped_dma() {
    expected_.emplace_back("DMAR: DRHD: handling fault status reg");
    expected_.emplace_back(
        R"(DMAR: \[DMA (Read|Write) NO_PASID\] Request device \[(0000:)?[0-9a-f]{2}:[0-9a-f]{2}\.0\] fault addr 0x)");
  }
  // The borrower's memory device is exported, as a GPU's driver does it.
  static void load_exporter() {
    const auto address = borrower().address("memory");
    ASSERT_OK(address);
    ASSERT_OK(borrower().run(fmt::format("modprobe pcilend_bar device={} bar=2", *address)));
  }
  // A run of the bench with a dma-buf of that: what both have said.
  static Result<lab::Output> with_exporter(const std::string& bytes, const std::string& bench,
                                           const std::string& exporter = kDriver) {
    return borrower().exec(fmt::format("{} {} {} /run/take {}", kBarUser, exporter, bytes, bench));
  }
  // From a drive that reads into it, on and on.
  void expect_taken_bar_is_not_reached(const std::string& exporter) {
    expect_stopped_dma();
    EXPECT_EQ(bench(borrower(), "--write --commands 8 --seed 3").value("compared", 0), 8);
    ASSERT_OK(borrower().run("rm -f /run/take"));
    auto started = Process::start(
        borrower(),
        fmt::format(
            "{} {} 16384 /run/take {}", kBarUser, exporter,
            command(id_, fmt::format("--commands 8 --depth 4 --rounds {} --data-in fd:9", kMany))));
    ASSERT_OK(started);
    user_.emplace(std::move(*started));
    ASSERT_OK(user_->await("round 1:"));
    ASSERT_OK(borrower().run("touch /run/take"));
    ASSERT_OK(user_->await("\ntaken\n"));
    ASSERT_OK(user_->await("\nround ", user_->times("\nround ") + 3));
    ASSERT_OK(borrower().run("kill $(pidof nvme-bench)"));
    const auto code = user_->wait();
    ASSERT_OK(code);
    EXPECT_EQ(*code, 0) << user_->said();
    const auto zeroes = borrower().run("head -c 16384 /dev/zero | cksum");
    ASSERT_OK(zeroes);
    EXPECT_EQ(std::to_string(number_behind(user_->said(), "seen")),
              zeroes->substr(0, zeroes->find(' ')))
        << "it was written to after it was taken away";
    user_.reset();
    EXPECT_OK(borrower().run("rm -f /run/take"));
  }
  static uint32_t number_behind(const std::string& text, const std::string& word) {
    const size_t at = text.find(word + " ");
    EXPECT_NE(at, std::string::npos) << text;
    return at == std::string::npos
               ? 0
               : static_cast<uint32_t>(std::stoul(text.substr(at + word.size() + 1)));
  }

  [[nodiscard]] static Cost cost_of(const std::string& line) {
    EXPECT_OK(lab_->fabric().counters(true));
    EXPECT_OK(borrower().run(line));
    const auto counters = lab_->fabric().counters();
    EXPECT_OK(counters);
    if (!counters) return {};
    const auto out = counters->path(1, 2);
    const auto in = counters->path(2, 1);
    EXPECT_EQ(out.all_ones_reads, 0U);
    const auto count = [](uint64_t value) { return static_cast<double>(value); };
    return {count(out.memory.reads), count(out.memory.writes), count(in.memory.writes),
            count(in.bar.writes), count(out.interrupt.writes)};
  }
  // The control channel writes some in each second, both ways, whether there are commands or not.
  static constexpr double kControlWrites = 10;
  void expect_cost(const std::string& id, const std::string& what, const std::string& options,
                   const Cost& wanted, const std::string& prefix = {}) const {
    constexpr uint64_t kCommands = 32;
    const auto run = [&](uint64_t commands) {
      return cost_of(prefix + command(id, fmt::format("{} --commands {}", options, commands)));
    };
    const Cost few = run(kCommands);
    const Cost many = run(3 * kCommands);
    const auto each = [&](double Cost::*of) { return (many.*of - few.*of) / (2 * kCommands); };
    fmt::print(
        "{}: {:.2f} reads, {:.2f} writes, {:.2f} stores, {:.2f} to BARs, {:.2f} "
        "interrupts\n",
        what, each(&Cost::reads), each(&Cost::writes), each(&Cost::stores), each(&Cost::bar_stores),
        each(&Cost::interrupts));
    EXPECT_EQ(each(&Cost::reads), wanted.reads) << what;
    EXPECT_NEAR(each(&Cost::writes), wanted.writes, kControlWrites) << what;
    EXPECT_NEAR(each(&Cost::stores), wanted.stores, kControlWrites) << what;
    EXPECT_EQ(each(&Cost::bar_stores), wanted.bar_stores) << what;
    EXPECT_EQ(each(&Cost::interrupts), 0) << what;
  }

  static std::optional<lab::Lab> lab_;
  static std::string address_;
  static std::string memory_address_;
  std::string id_;
  std::string memory_;  // id of the function with the memory
  std::optional<Process> user_;
  std::set<std::string> taken_;  // by their own drivers, in the course of the scenario
  lab::Expected expected_;

 private:
  std::string before_;
};

std::optional<lab::Lab> NvmePlaced::lab_;
std::string NvmePlaced::address_;
std::string NvmePlaced::memory_address_;

/*
 *   process of host2: commands, lists and data in the other function's memory ── reads them so, and
 *   from its own memory ── one of host1 does, too ── the lender's own driver reads the same
 */
TEST_F(NvmePlaced, WhatIsWrittenFromAnotherFunctionsMemoryIsOnTheDrive) {
  const std::string range = "--block 2048 --size 16K --commands 12 --seed 5";
  const json written = bench(borrower(), fmt::format("--write --depth 4 {} {}", range, beside()));
  EXPECT_EQ(written.value("compared", 0), 12);
  EXPECT_EQ(written.value("remark", "none"), "") << "commands are not where they should be";
  const json read = bench(borrower(), "--verify " + range);
  EXPECT_EQ(read.value("compared", 0), 12);
  // Staged data there, too, and data from the process's memory.
  const json staged = bench(
      borrower(), fmt::format("--write --staged --block 4096 --size 16K --commands 4 --depth 2 "
                              "--seed 6 --queues-in {}:2+64K",
                              memory_));
  EXPECT_EQ(staged.value("compared", 0), 4);

  ASSERT_OK(await_state(lender(), id_, "available"));
  ASSERT_OK(await_state(lender(), memory_, "available"));
  const json here = bench(lender(), fmt::format("--verify {} {}", range, beside()));
  EXPECT_EQ(here.value("compared", 0), 12);
  ASSERT_OK(await_state(lender(), id_, "available"));
  EXPECT_EQ(here.value("cksum", 0U), written.value("cksum", 1U));
  ASSERT_NO_FATAL_FAILURE(expect_on_drive(2048, 12 * 16384, written.value("cksum", 0U)));
}

/*
 *   host1: nvme ── NTB ──> BAR of a device of host2, whose driver exports it; a program of host2
 *   gives the dma-buf to the bench, and looks at the BAR by itself
 */
TEST_F(NvmePlaced, TheDriveReadsIntoABarOfTheBorrower) {
  ASSERT_NO_FATAL_FAILURE(load_exporter());
  const json written = bench(borrower(), "--write --block 2048 --size 4K --commands 16 --seed 9");
  // The bench does not look at it: who exports it does.
  const auto read =
      with_exporter("65536", command(id_, "--block 2048 --size 64K --commands 1 --data-in fd:9"));
  ASSERT_OK(read);
  EXPECT_EQ(read->code, 0) << read->err;
  EXPECT_EQ(number_behind(read->out, "seen"), written.value("cksum", 0U)) << read->out;
  // And the drive reads from there, with commands there, too.
  const auto both = with_exporter(
      "65536", command(id_,
                       "--write --block 4096 --size 32K --commands 6 --depth 2 --seed 10 "
                       "--queues-in fd:9+128K --data-in fd:9"));
  ASSERT_OK(both);
  EXPECT_EQ(both->code, 0) << both->err;
  EXPECT_THAT(both->out, HasSubstr("6 reads, 6 writes, 1 flushes, 6 compared"));
  const json again = bench(borrower(), "--verify --block 4096 --size 4K --commands 48 --seed 10");
  EXPECT_EQ(again.value("compared", 0), 48);
  EXPECT_EQ(again.value("cksum", 0U), number_behind(both->out, "\ncksum"));
  EXPECT_OK(borrower().run("rmmod pcilend_bar"));
}

/*
 *   each placement: as many commands, and three times as many; what is counted more is that of a
 *   command
 */
TEST_F(NvmePlaced, ACommandCostsItsTransactions) {
  ASSERT_NO_FATAL_FAILURE(load_exporter());
  const std::string queues = fmt::format("--queues-in {}:2 ", memory_);
  const std::string data = fmt::format("--data-in {}:2+512K", memory_);
  const std::string exporter = fmt::format("{} {} 4096 /run/take ", kBarUser, kDriver);
  const std::string write = " --write";
  const std::string home = "--near no ";  // else the lender's memory beside the drive has them
  expect_cost(id_, "read, commands in the process's host", home,
              {.reads = 8, .writes = 514, .bar_stores = 2});
  expect_cost(id_, "read, commands where they are by themselves", "",
              {.writes = 514, .stores = 9, .bar_stores = 2});
  expect_cost(id_, "read, commands in the other function", queues,
              {.writes = 514, .stores = 9, .bar_stores = 2});
  expect_cost(id_, "write and read, commands in the other function", queues + write,
              {.reads = 512, .writes = 514 + 2, .stores = 2 * 9, .bar_stores = 4});
  expect_cost(id_, "write and read, staged there, too", queues + write + " --staged",
              {.writes = 514 + 2, .stores = 2 * 9 + 512, .bar_stores = 4});
  expect_cost(id_, "read, data in the other function", home + data,
              {.reads = 8, .writes = 2, .bar_stores = 2});
  expect_cost(id_, "read, the same, commands beside the drive", data,
              {.writes = 2, .stores = 9, .bar_stores = 2});
  expect_cost(id_, "read, both in the other function", queues + data,
              {.writes = 2, .stores = 9, .bar_stores = 2});
  expect_cost(id_, "read, data in a BAR of the process's host", home + "--data-in fd:9",
              {.reads = 8, .writes = 2 + 512, .bar_stores = 2}, exporter);
  expect_cost(id_, "read, the same, commands beside the drive", "--data-in fd:9",
              {.writes = 2 + 512, .stores = 9, .bar_stores = 2}, exporter);
  expect_cost(id_, "read, the same, commands in the other function", queues + "--data-in fd:9",
              {.writes = 2 + 512, .stores = 9, .bar_stores = 2}, exporter);
  EXPECT_OK(borrower().run("rmmod pcilend_bar"));

  const auto own_memory = lender().address("own-memory");
  ASSERT_OK(own_memory);
  const std::string own = lend(*own_memory);
  expect_cost(own, "read, commands in the drive's own memory", "--cmb",
              {.writes = 514, .bar_stores = 2 + 9});
  ASSERT_OK(await_state(lender(), own, "available"));

  // Beside the drive: of a manager.
  auto manager = Process::start(lender(), "pcilend-nvme-manager " + id_);
  ASSERT_OK(manager);
  ASSERT_OK(manager->await("is shared: up to"));
  ASSERT_OK(await_state(borrower(), id_, "borrowed"));
  expect_cost(id_, "read, commands beside the drive", "--shared",
              {.writes = 514, .stores = 9, .bar_stores = 2});
  expect_cost(id_, "write and read, staged beside the drive", "--shared --staged" + write,
              {.writes = 514 + 2, .stores = 2 * 9 + 512, .bar_stores = 4});
  const auto ended = manager->end("TERM");
  ASSERT_OK(ended);
  EXPECT_EQ(*ended, 0) << manager->said();
  take_back(own);
}

/*
 *   process, with all in the other function's memory, under I/O ── pcilend unavailable --force of
 *   that function ── the process ends with one line; the drive is stopped, and works
 */
TEST_F(NvmePlaced, MemoryThatIsTakenBackEndsIt) {
  expect_stopped_dma();
  ASSERT_NO_FATAL_FAILURE(start_user(beside()));
  ASSERT_OK(lender().run("pcilend unavailable --force " + memory_));
  taken_.insert(memory_);
  const auto code = user_->wait();
  ASSERT_OK(code);
  EXPECT_EQ(*code, static_cast<int>(ErrorClass::State)) << user_->said();
  EXPECT_THAT(user_->said(), HasSubstr("was reset by others, taken back, or its link was lost"));
  user_.reset();
  ASSERT_OK(await_state(borrower(), id_, "available"));
  EXPECT_EQ(bench(borrower(), "--write --commands 16 --depth 4").value("compared", 0), 16);
}

/*
 *   drive: reads into a BAR of the borrower, on and on ── its exporter takes it away, and zeroes it
 *   ── the drive goes on, and what it reads goes nowhere
 */
TEST_F(NvmePlaced, ABarThatItsExporterTakesIsNotReached) {
  ASSERT_NO_FATAL_FAILURE(load_exporter());
  ASSERT_NO_FATAL_FAILURE(expect_taken_bar_is_not_reached(kDriver));
  EXPECT_OK(borrower().run("rmmod pcilend_bar"));
}

/*
 *   the same with VFIO's own exporter: a program of host2 has the function by vfio-pci
 */
TEST_F(NvmePlaced, ABarThatVfioExportsIsReachedUntilItIsTaken) {
  // vfio-pci resets the function by its port; the kernel warns of itself there.
  expected_.emplace_back("pcieport .*: unlocked secondary bus reset via: ");
  const auto address = borrower().address("memory");
  ASSERT_OK(address);
  ASSERT_OK(
      borrower().run(fmt::format("modprobe vfio-pci && cd /sys/bus/pci/devices/{0} && "
                                 "echo vfio-pci >driver_override && "
                                 "echo {0} >/sys/bus/pci/drivers_probe && [ -e driver ]",
                                 *address)));
  const json written = bench(borrower(), "--write --block 2048 --size 4K --commands 16 --seed 9");
  const std::string read = command(id_, "--block 2048 --size 64K --commands 1 --data-in fd:9");
  const auto said = with_exporter("65536", read, *address);
  ASSERT_OK(said);
  if (said->err.find("VFIO_DEVICE_FEATURE_DMA_BUF") != std::string::npos) {
    EXPECT_OK(borrower().run("rmmod vfio-pci"));
    GTEST_SKIP() << "this kernel's VFIO exports no BARs: PCILEND_KERNEL=backports";
  }
  EXPECT_EQ(said->code, 0) << said->err;
  EXPECT_EQ(number_behind(said->out, "seen"), written.value("cksum", 0U)) << said->out;
  // It lets no CPU look, by the dma-buf.
  const auto looks = with_exporter("4096", command(id_, "--verify --data-in fd:9"), *address);
  ASSERT_OK(looks);
  EXPECT_EQ(looks->code, static_cast<int>(ErrorClass::Unsupported)) << looks->err;
  EXPECT_THAT(looks->err, HasSubstr("lets no CPU look at it"));
  ASSERT_NO_FATAL_FAILURE(expect_taken_bar_is_not_reached(*address));
  EXPECT_OK(borrower().run("rmmod vfio-pci"));
}

/*
 *   process, with all in the other function's memory, under I/O ── kill -9; four times
 */
TEST_F(NvmePlaced, AProcessThatIsKilledLeavesNothing) {
  for (int round = 0; round < 4; ++round) {
    ASSERT_NO_FATAL_FAILURE(start_user(beside()));
    ASSERT_OK(user_->signal("KILL"));
    ASSERT_OK(user_->wait());
    user_.reset();
    for (const std::string& id : {id_, memory_}) {
      ASSERT_OK(await_state(lender(), id, "available"));
      ASSERT_OK(await_state(borrower(), id, "available"));
    }
  }
  EXPECT_EQ(bench(borrower(), "--write --commands 16 --depth 4 " + beside()).value("compared", 0),
            16);
}

TEST_F(NvmePlaced, BadInputIsRefused) {
  const auto says = [&](const std::string& options, const std::string& words,
                        ErrorClass kind = ErrorClass::Usage) {
    const auto refused = borrower().exec(command(id_, options));
    ASSERT_OK(refused);
    EXPECT_EQ(refused->code, static_cast<int>(kind)) << options << refused->err;
    EXPECT_EQ(std::ranges::count(refused->err, '\n'), 1) << options << refused->err;
    EXPECT_THAT(refused->err, HasSubstr(words)) << options;
    for (const std::string& id : {id_, memory_}) ASSERT_OK(await_state(lender(), id, "available"));
  };
  says("--data-in 40002", "FUNCTION:BAR[+OFFSET] or fd:N[+OFFSET]");
  says("--data-in 40fff:2", "function with that id", ErrorClass::NotFound);
  says(fmt::format("--data-in {}:2", id_), "is the drive itself");
  says(fmt::format("--data-in {}:4", memory_), "has no BAR 4");
  says(fmt::format("--data-in {}:0", memory_), "is no memory: it is not prefetchable");
  says(fmt::format("--data-in {}:2+1M", memory_),
       "has 1048576 bytes: 4096 are needed from 1048576");
  says(fmt::format("--queues-in {}:2 --size 16K --depth 255", memory_),
       "has 1048576 bytes: 1060864 are needed");
  says(fmt::format("--data-in {}:2+100", memory_), "100 is no multiple of 4096");
  says("--data-in fd:77", "descriptor 77 is no dma-buf");
  says("--data-in fd:0", "descriptor 0 is no dma-buf");
  const auto both = borrower().exec(command(id_, fmt::format("--cmb --queues-in {}:2", memory_)));
  ASSERT_OK(both);
  EXPECT_EQ(both->code, static_cast<int>(ErrorClass::Usage)) << both->err;

  ASSERT_OK(lender().run("pcilend unavailable " + memory_));
  ASSERT_OK(await_state(borrower(), memory_, "added"));
  const auto refused = borrower().exec(command(id_, fmt::format("--data-in {}:2", memory_)));
  ASSERT_OK(refused);
  EXPECT_EQ(refused->code, static_cast<int>(ErrorClass::State)) << refused->err;
  EXPECT_THAT(refused->err, HasSubstr(memory_)) << refused->err;
  taken_.insert(memory_);
}

}  // namespace
}  // namespace pcilend::scenarios
