// SPDX-License-Identifier: GPL-2.0-or-later
// One drive in the hands of processes of three hosts (docs/nvme.md).
#include "scenarios/lending/shared_nvme.h"

#include "scenarios/lending/stand_still.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::json;
using testing::HasSubstr;

/*
 *   client of each host: writes a range of its own, all three at once ── each then reads what the
 *   others have written ── in one range they follow one another ── the lender's driver reads all
 */
TEST_F(SharedNvme, ThreeHostsUseOneDriveAtOnce) {
  ASSERT_NO_FATAL_FAILURE(manage());
  std::vector<Process> users;
  for (int host : {1, 2, 3}) {
    auto process = user(host, fmt::format("--block {} --seed {} --depth 4", host * 2048, host));
    ASSERT_OK(process);
    users.push_back(std::move(*process));
  }
  EXPECT_OK(await_clients(lender(), id_, 3));
  for (Process& process : users) ASSERT_OK(process.await("round 3:"));
  for (Process& process : users) ASSERT_NO_FATAL_FAILURE(expect_well(process));
  EXPECT_OK(await_clients(lender(), id_, 0));

  for (int host : {1, 2, 3}) {
    const int other = host % 3 + 1;
    const json read = bench(
        host, fmt::format("--verify --block {} --seed {} --commands 16", other * 2048, other));
    EXPECT_EQ(read.value("compared", 0), 16) << host;
    EXPECT_EQ(read.value("serial", ""), "shared");
    // It is nobody's alone.
    const json common =
        bench(host, fmt::format("--write --block 8192 --size 32K --commands 4 --seed {}", host));
    EXPECT_EQ(common.value("compared", 0), 4) << host;
    EXPECT_EQ(common.value("remark", "none"), "") << host;
    const json seen =
        bench(other, fmt::format("--verify --block 8192 --size 4K --commands 32 --seed {}", host));
    EXPECT_EQ(seen.value("compared", 0), 32) << host;
    EXPECT_EQ(seen.value("cksum", 0U), common.value("cksum", 1U));
  }
  const json last = bench(2, "--verify --block 8192 --commands 32 --seed 3");
  ASSERT_NO_FATAL_FAILURE(end_manager());

  ASSERT_OK(await_state(lender(), id_, "available"));
  ASSERT_OK(lender().run("pcilend unavailable " + id_));
  taken_ = true;
  const auto disk = await_disk(lender(), address_);
  ASSERT_OK(disk);
  const auto sum = lender().run(
      fmt::format("dd if={} bs=4k skip=1024 count=32 iflag=direct 2>/dev/null | cksum", *disk));
  ASSERT_OK(sum);
  EXPECT_EQ(sum->substr(0, sum->find(' ')), std::to_string(last.value("cksum", 0U)));
}

/*
 *   10 clients on each host: each writes, reads and compares ── the 31st is refused
 */
TEST_F(SharedNvme, ThirtyClientsUseItAndNoMore) {
  ASSERT_NO_FATAL_FAILURE(manage("--clients 30 --near 64K"));
  EXPECT_THAT(manager_->said(), HasSubstr("up to 30 clients with 1 pairs of queues each"));
  // Each its own blocks, in a round 2 commands of each kind.
  const auto ten = [&](int host) {
    return fmt::format(
        "sh -c 'for i in 0 1 2 3 4 5 6 7 8 9; do {0} --json --write --commands 2 --rounds {1} "
        "--seed $(({2} + i)) --block $((({2} + i) * 16)) >/run/client-$i & pids=\"$pids $!\"; "
        "done; trap \"kill $pids\" TERM; failed=0; "
        "for pid in $pids; do wait $pid; status=$?; "
        "while [ $status -gt 128 ] && kill -0 $pid 2>/dev/null; do wait $pid; status=$?; done; "
        "[ $status = 0 ] || failed=$((failed + 1)); done; echo $failed failed'",
        command(id_, ""), kMany, host * 10);
  };
  std::vector<Process> hosts;
  for (int host : {1, 2, 3}) {
    auto process = Process::start(lab_->host(host), ten(host));
    ASSERT_OK(process);
    hosts.push_back(std::move(*process));
  }
  ASSERT_OK(await_clients(lender(), id_, 30));
  for (int host : {1, 2, 3}) {
    const auto more = lab_->host(host).exec(command(id_, "--commands 1"));
    ASSERT_OK(more);
    EXPECT_EQ(more->code, static_cast<int>(ErrorClass::State)) << more->err;
    EXPECT_THAT(more->err, HasSubstr("as many clients as it may have"));
  }
  for (Process& process : hosts) ASSERT_OK(process.signal("TERM"));
  uint64_t least = ~uint64_t{0};
  uint64_t most = 0;
  for (int host : {1, 2, 3}) {
    Process& process = hosts[static_cast<size_t>(host) - 1];
    ASSERT_OK(process.wait());
    EXPECT_THAT(process.said(), HasSubstr("\n0 failed"));
    for (int i = 0; i < 10; ++i) {
      const auto report = lab_->host(host).json(fmt::format("cat /run/client-{}", i));
      ASSERT_OK(report);
      const uint64_t compared = report->value("compared", uint64_t{0});
      EXPECT_EQ(compared, report->value("writes", uint64_t{0}));
      EXPECT_GT(compared, 0U);
      least = std::min(least, compared);
      most = std::max(most, compared);
    }
  }
  fmt::print("of 30 clients the slowest has compared {} blocks, the fastest {}\n", least, most);
  EXPECT_OK(await_clients(lender(), id_, 0));
  ASSERT_NO_FATAL_FAILURE(end_manager());
}

/*
 *   host3: client goes on ── a client of the lender's, and one of host2's, each while the drive
 *   works for it ── kill -9, again and again (PCILEND_ROUNDS): the next has its queue, and
 *   finds what was confirmed
 */
TEST_F(SharedNvme, ClientsThatAreKilledDisturbNobody) {
  const char* const wanted = std::getenv("PCILEND_ROUNDS");
  const int rounds = wanted ? std::atoi(wanted) : 10;
  expect_stopped_doorbells();
  ASSERT_NO_FATAL_FAILURE(manage("--clients 2"));
  auto b = user(3, "--block 4096 --seed 3");
  ASSERT_OK(b);
  size_t ends = 0;
  for (int round = 0; round < rounds; ++round) {
    for (int host : {1, 2}) {
      auto a = user(host, "--block 2048 --seed 9 --depth 4");
      ASSERT_OK(a);
      ASSERT_OK(a->end("KILL"));
      ASSERT_OK(manager_->await("has ended: 1 pairs of queues deleted", ++ends));
      EXPECT_OK(await_clients(lender(), id_, 1));
      EXPECT_FALSE(b->ended()) << b->said();
    }
    const json read = bench(2, "--verify --block 2048 --commands 16 --seed 9");
    EXPECT_EQ(read.value("compared", 0), 16) << round;
    EXPECT_OK(await_clients(lender(), id_, 1));
  }
  ASSERT_NO_FATAL_FAILURE(expect_well(*b));
  ASSERT_NO_FATAL_FAILURE(end_manager());
}

/*
 *   manager ── kill -9, while a client of each host has a command under way: all have lost the
 *   drive, and it can be shared anew
 */
TEST_F(SharedNvme, WhenItsManagerIsKilledAllLoseIt) {
  expect_stopped_doorbells();
  for (int round = 0; round < 2; ++round) {
    ASSERT_NO_FATAL_FAILURE(manage());
    std::vector<Process> users;
    for (int host : {1, 2, 3}) {
      auto process = user(host, fmt::format("--block {} --seed {}", host * 2048, host));
      ASSERT_OK(process);
      users.push_back(std::move(*process));
    }
    ASSERT_OK(manager_->end("KILL"));
    manager_.reset();
    for (Process& process : users) ASSERT_NO_FATAL_FAILURE(expect_lost(process));
    ASSERT_OK(await_state(lender(), id_, "available"));
  }
  ASSERT_NO_FATAL_FAILURE(manage());
  EXPECT_EQ(bench(2, "--write --commands 4").value("compared", 0), 4);
  ASSERT_NO_FATAL_FAILURE(end_manager());
}

/*
 *   manager ── stopped ── a client is killed, which nobody confirms: after 5 s all have lost the
 *   drive. Until then the others go on
 */
TEST_F(SharedNvme, AManagerThatStandsStillCostsTheDrive) {
  expect_stopped_doorbells();
  expected_.emplace_back("has not confirmed in time");
  ASSERT_NO_FATAL_FAILURE(manage());
  auto b = user(3, "--block 4096 --seed 3");
  ASSERT_OK(b);
  auto a = user(2, "--block 2048 --seed 2");
  ASSERT_OK(a);
  ASSERT_OK(manager_->signal("STOP"));
  // Without the manager's help.
  const auto rounds = static_cast<size_t>(std::ranges::count(b->said(), '\n'));
  ASSERT_OK(b->await("\nround ", rounds + 2));
  ASSERT_OK(a->end("KILL"));
  ASSERT_NO_FATAL_FAILURE(expect_lost(*b));
  ASSERT_OK(manager_->signal("CONT"));
  const auto code = manager_->wait();
  ASSERT_OK(code);
  EXPECT_EQ(*code, static_cast<int>(ErrorClass::State)) << manager_->said();
  manager_.reset();
  ASSERT_OK(await_state(lender(), id_, "available"));
}

/*
 *   host2 ══╳══ NTB, while its client has a command under way: it ends with one line; host3's, and
 *   the lender's, go on
 */
TEST_F(SharedNvme, ALostLinkCostsItsClientsOnly) {
  expect_stopped_doorbells();
  ASSERT_NO_FATAL_FAILURE(manage());
  auto a = user(2, "--block 2048 --seed 2");
  ASSERT_OK(a);
  auto b = user(3, "--block 4096 --seed 3");
  ASSERT_OK(b);
  auto c = user(1, "--block 6144 --seed 1");
  ASSERT_OK(c);
  ASSERT_OK(lab_->fabric().link_down(1, 2));
  ASSERT_OK(manager_->await("has lost its link: 1 pairs of queues deleted"));
  ASSERT_OK(lab_->fabric().link_up(1, 2));
  ASSERT_NO_FATAL_FAILURE(expect_lost(*a));
  EXPECT_OK(await_clients(lender(), id_, 2));
  const json again = bench(2, "--write --block 2048 --commands 16 --seed 2");
  EXPECT_EQ(again.value("compared", 0), 16);
  ASSERT_NO_FATAL_FAILURE(expect_well(*b));
  ASSERT_NO_FATAL_FAILURE(expect_well(*c));
  ASSERT_NO_FATAL_FAILURE(end_manager());
}

/*
 *   host1: all CPUs stand still for 10 s, the manager with them; clients of host2 and host3 go on
 */
TEST_F(SharedNvme, ItGoesOnWhileTheLendersCpusStandStill) {
  ASSERT_NO_FATAL_FAILURE(manage());
  std::vector<Process> users;
  for (int host : {2, 3}) {
    // Of few commands, so that many rounds begin and end meanwhile on a slow machine, too.
    auto process = Process::start(
        lab_->host(host), command(id_, fmt::format("--write --commands 2 --rounds {} --block {} "
                                                   "--seed {}",
                                                   kMany, host * 2048, host)));
    ASSERT_OK(process);
    ASSERT_OK(process->await("round 1:"));
    users.push_back(std::move(*process));
  }
  const auto rounds = [&](size_t i) { return std::ranges::count(users[i].said(), '\n'); };
  auto still = StandStill::start(lender(), 10s);
  ASSERT_OK(still);
  const std::array at_stop{rounds(0), rounds(1)};
  std::array last = at_stop;
  ASSERT_OK(lab::eventually("the lender goes on", lab::kPatience, [&] {
    const std::array now{rounds(0), rounds(1)};
    // What is counted after it has gone on does not count.
    if (still->is_over()) return true;
    last = now;
    return false;
  }));
  ASSERT_OK(still->end());
  for (size_t i : {0U, 1U}) {
    fmt::print("client of host {}: {} rounds while the lender stood still\n", i + 2,
               last[i] - at_stop[i]);
    EXPECT_GT(last[i] - at_stop[i], 2);
  }
  for (Process& process : users) ASSERT_NO_FATAL_FAILURE(expect_well(process));
  ASSERT_NO_FATAL_FAILURE(end_manager());
}

/*
 *   client of host2: as many commands, and three times as many; what is counted more is that of a
 *   command. Commands and lists are beside the drive, and with --staged what is written is, too
 *
 *   read of 4 KiB:  data 512 writes, completion 2; command 9 stores, two doorbells
 *   write of 4 KiB: data 512 reads, or 512 stores; completion 2 writes; command 9 stores
 *   flush:          completion 2 writes; command 9 stores (one in a run: it cancels out)
 *   read of 128 KiB: data 16384 writes, completion 2; command 9 and list 31 stores
 */
TEST_F(SharedNvme, ACommandCostsItsTransactions) {
  ASSERT_NO_FATAL_FAILURE(manage());
  expect_cost("", 64, {0, 514, 0, 9, 2});
  expect_cost("--write", 64, {512, 514 + 2, 0, 9 + 9, 4});
  expect_cost("--write --staged", 64, {0, 514 + 2, 0, 9 + 9 + 512, 4});
  expect_cost("--size 128K", 8, {0, 16384 + 2, 0, 9 + 31, 2});
  ASSERT_NO_FATAL_FAILURE(end_manager());
}

/*
 *   nvme with memory of its own (CMB) ── client of host2: commands, lists and staged data there
 *   first of a manager, beside a client of the lender's; then the drive is host2's alone
 */
TEST_F(SharedNvme, CommandsInTheDrivesOwnMemoryAreReadFromThere) {
  take_back();
  const auto address = lender().address("own-memory");
  ASSERT_OK(address);
  ASSERT_NO_FATAL_FAILURE(lend(*address));
  const auto refused = lender().exec("pcilend-nvme-manager --clients 2 --cmb 2M " + id_);
  ASSERT_OK(refused);
  EXPECT_EQ(refused->code, static_cast<int>(ErrorClass::Usage));
  EXPECT_THAT(refused->err, HasSubstr("the drive's own memory each: it has 2097152"));
  ASSERT_OK(await_state(lender(), id_, "available"));
  ASSERT_NO_FATAL_FAILURE(manage("--clients 4 --cmb 512K"));
  auto other = user(1, "--block 4096 --seed 1");
  ASSERT_OK(other);
  ASSERT_NO_FATAL_FAILURE(expect_cost("", 64, {0, 514, 0, 0, 2 + 9}));
  ASSERT_NO_FATAL_FAILURE(expect_cost("--write --staged", 64, {0, 514 + 2, 0, 0, 4 + 9 + 9 + 512}));
  ASSERT_NO_FATAL_FAILURE(expect_well(*other));
  ASSERT_NO_FATAL_FAILURE(end_manager());
  ASSERT_OK(await_state(lender(), id_, "available"));
  ASSERT_OK(await_state(lab_->host(2), id_, "available"));
  shared_ = false;
  ASSERT_NO_FATAL_FAILURE(expect_cost("--cmb", 64, {0, 514, 0, 0, 2 + 9}));
  ASSERT_NO_FATAL_FAILURE(expect_cost("--near no", 64, {8, 514, 0, 0, 2}));
  // The other one has none.
  take_back();
  ASSERT_NO_FATAL_FAILURE(lend(address_));
  ASSERT_OK(await_state(lab_->host(2), id_, "available"));
  const auto none = lab_->host(2).exec(command(id_, "--cmb"));
  ASSERT_OK(none);
  EXPECT_EQ(none->code, static_cast<int>(ErrorClass::Unsupported));
  EXPECT_THAT(none->err, HasSubstr("has no memory of its own (CMB)"));
}

TEST_F(SharedNvme, BadInputIsRefused) {
  const auto manager_says = [&](const std::string& options, const std::string& words,
                                ErrorClass kind) {
    const auto refused = lender().exec("pcilend-nvme-manager " + options);
    ASSERT_OK(refused);
    EXPECT_EQ(refused->code, static_cast<int>(kind)) << options << refused->err;
    EXPECT_THAT(refused->err, HasSubstr(words)) << options;
    EXPECT_EQ(std::ranges::count(refused->err, '\n'), 1) << refused->err;
  };
  manager_says("--clients 32 " + address_, "the drive has 31 pairs", ErrorClass::Usage);
  manager_says("--clients 8 --pairs 4 " + address_, "the drive has 31 pairs", ErrorClass::Usage);
  manager_says("--slice 12K " + address_, "a power of two", ErrorClass::Usage);
  manager_says("40fff", "function with that id", ErrorClass::NotFound);
  ASSERT_OK(await_state(lender(), id_, "available"));
  const auto alone = lab_->host(2).exec(command(id_, ""));
  ASSERT_OK(alone);
  EXPECT_NE(alone->code, 0);
  EXPECT_THAT(alone->err, HasSubstr("not shared"));

  ASSERT_NO_FATAL_FAILURE(manage("--entries 16 --nodes 8"));
  const auto client_says = [&](int host, const std::string& options, const std::string& words,
                               ErrorClass kind) {
    const auto refused = lab_->host(host).exec(command(id_, options));
    ASSERT_OK(refused);
    EXPECT_EQ(refused->code, static_cast<int>(kind)) << options << refused->err;
    EXPECT_THAT(refused->err, HasSubstr(words)) << options;
    EXPECT_EQ(std::ranges::count(refused->err, '\n'), 1) << refused->err;
  };
  client_says(3, "", "not shared with this node", ErrorClass::NotFound);
  client_says(2, "--depth 16", "commands under way in a queue: not 16", ErrorClass::Usage);
  client_says(2, "--namespace 2", "the drive has no namespace 2", ErrorClass::NotFound);
  EXPECT_EQ(bench(2, "--depth 15").value("reads", 0), 64);
  const auto large = lab_->host(2).exec(fmt::format("{} {} --shared --slice 128M", kBench, id_));
  ASSERT_OK(large);
  EXPECT_NE(large->code, 0);
  EXPECT_THAT(large->err, HasSubstr("smaller slices"));
  ASSERT_NO_FATAL_FAILURE(end_manager());
}

}  // namespace
}  // namespace pcilend::scenarios
