// SPDX-License-Identifier: GPL-2.0-or-later
// A shared drive over two adapters (docs/nvme.md): what is under way when a path is lost goes on
// over the other one.
#include "scenarios/lending/nvme_paths.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::json;
using testing::HasSubstr;

/*
 *   bench ══ path 1 ══╳ then ══ path 2 ══ drive: its writes go on, and what it reads is right; path
 *   1 is back, path 2 ══╳: the same
 */
TEST_F(NvmePaths, IoGoesOnOverTheOtherPath) {
  ASSERT_NO_FATAL_FAILURE(start_other());
  auto bench = Process::start(
      borrower(),
      fmt::format("{} {} --shared --slice 1M --write --commands 16 --depth 4 --rounds {}", kBench,
                  id_, kMany));
  ASSERT_OK(bench);
  ASSERT_OK(bench->await("round 2:"));
  for (int path : {1, 2}) {
    ASSERT_OK(fabric().link_down(1, 2, path));
    ASSERT_OK(bench->await("round ", bench->times("round ") + 3));
    ASSERT_OK(fabric().link_up(1, 2, path));
    ASSERT_OK(bench->await("is there again", static_cast<size_t>(path)));
    ASSERT_OK(bench->await("round ", bench->times("round ") + 2));
  }
  const auto code = bench->end("TERM");
  ASSERT_OK(code);
  EXPECT_EQ(*code, 0) << tail(bench->said());
  EXPECT_THAT(bench->said(), HasSubstr("\ncksum "));
  ASSERT_NO_FATAL_FAILURE(expect_other_well());
}

/*
 *   bench, which sleeps until interrupts ══ path 1: they arrive over that ══╳ ══ path 2: over that,
 *   from then on ── path 1 is back, path 2 ══╳: over path 1 again
 */
TEST_F(NvmePaths, InterruptsComeOverThePathInUse) {
  auto bench = Process::start(
      borrower(), fmt::format("{} {} --shared --slice 1M --wait interrupt --write --commands 16 "
                              "--path {},{} --rounds {}",
                              kBench, id_, paths_[0], paths_[1], kMany));
  ASSERT_OK(bench);
  // In a round each command has one: 16 of each kind, and a flush.
  constexpr uint64_t kRound = 33;
  const auto expect_over = [&](int path) {
    ASSERT_OK(bench->await("\nround ", bench->times("\nround ") + 1));
    ASSERT_OK(fabric().counters(true));
    ASSERT_OK(bench->await("\nround ", bench->times("\nround ") + 3));
    const auto counters = fabric().counters();
    ASSERT_OK(counters);
    EXPECT_GE(counters->path(1, 2, path).interrupt.writes, 2 * kRound) << path;
    EXPECT_EQ(counters->path(1, 2, 3 - path).interrupt.writes, 0U) << path;
  };
  ASSERT_NO_FATAL_FAILURE(expect_over(1));
  for (int path : {1, 2}) {
    ASSERT_OK(fabric().link_down(1, 2, path));
    ASSERT_OK(bench->await("its link was lost", static_cast<size_t>(path)));
    ASSERT_NO_FATAL_FAILURE(expect_over(3 - path));
    ASSERT_OK(fabric().link_up(1, 2, path));
    ASSERT_OK(bench->await("is there again", static_cast<size_t>(path)));
  }
  ASSERT_NO_FATAL_FAILURE(expect_over(1));
  const auto code = bench->end("TERM");
  ASSERT_OK(code);
  EXPECT_EQ(*code, 0) << tail(bench->said());
}

/*
 *   fio, which verifies ── disk ── program ══ path 1 ══╳ ══ path 2 ══ drive: it goes on, within the
 *   same program; then path 2 ══╳; then the program is killed, and the next one goes on. How long
 *   fio has waited at most is said
 */
TEST_F(NvmePaths, ADiskGoesOnOverTheOtherPath) {
  ASSERT_NO_FATAL_FAILURE(start_other());
  const auto listed = [&](const char* key) {
    const auto list = borrower().json("pcilend nvme list --json");
    EXPECT_OK(list);
    return list && list->at("disks").size() == 1 ? list->at("disks")[0].at(key) : json();
  };
  const auto made = borrower().json("pcilend nvme attach --json --shared-fs " + id_);
  ASSERT_OK(made);
  const std::string disk = made->at("disks")[0].at("disk");
  auto fio = borrower().start(
      fmt::format("exec fio --name=user --filename={} --size=1M --bs=4k --rw=randwrite --direct=1 "
                  "--ioengine=libaio --iodepth=8 --verify=crc32c --verify_fatal=1 --loops=100000 "
                  "--randrepeat=0 --output-format=json --output=/tmp/fio.json",
                  disk),
      {{}, 20min});
  ASSERT_OK(fio);
  const auto await_io = [&] {
    const auto done = [&]() -> uint64_t {
      const auto stat =
          borrower().run("awk '{ print $1 + $5 }' /sys/block/" + disk.substr(5) + "/stat");
      EXPECT_OK(stat);
      return stat ? std::stoull(*stat) : 0;
    };
    const uint64_t before = done();
    ASSERT_OK(lab::eventually("I/O goes on", lab::kPatience,
                              [&] { return fio->ended() || done() > before + 200; }));
    ASSERT_FALSE(fio->ended()) << borrower().read("/tmp/fio.json").value_or("");
  };
  ASSERT_NO_FATAL_FAILURE(await_io());
  const json pid = listed("pid");
  for (int path : {1, 2}) {
    const size_t joined = manager_->times(" of node 8 has joined");
    ASSERT_OK(fabric().link_down(1, 2, path));
    ASSERT_NO_FATAL_FAILURE(await_io());
    ASSERT_OK(fabric().link_up(1, 2, path));
    ASSERT_OK(lab::eventually("the path is joined again", lab::kPatience,
                              [&] { return manager_->times(" of node 8 has joined") > joined; }));
    ASSERT_NO_FATAL_FAILURE(await_io());
  }
  EXPECT_EQ(listed("pid"), pid) << "it was the same program all the time";
  EXPECT_EQ(listed("recoveries"), 0);
  ASSERT_OK(borrower().run(fmt::format("kill -KILL {}", pid.get<int>())));
  ASSERT_OK(borrower().run("pcilend nvme attach --shared-fs " + id_));
  ASSERT_NO_FATAL_FAILURE(await_io());
  EXPECT_EQ(listed("recoveries"), 1);
  ASSERT_OK(borrower().run("kill -INT $(pidof fio | tr ' ' '\\n' | sort -n | head -1)"));
  ASSERT_OK(fio->wait());
  // Behind a line about the signal.
  const auto said = borrower().json("sed -n '/^{/,$p' /tmp/fio.json");
  ASSERT_OK(said);
  const json& job = said->at("jobs").at(0);
  EXPECT_EQ(job.at("error"), 0);
  for (const char* kind : {"read", "write"})
    fmt::print("{}s: {}, the longest took {:.0f} ms\n", kind, job.at(kind).at("total_ios").dump(),
               job.at(kind).at("clat_ns").at("max").get<double>() / 1e6);
  ASSERT_OK(borrower().run("pcilend nvme detach " + disk));
  ASSERT_NO_FATAL_FAILURE(expect_other_well());
}

}  // namespace
}  // namespace pcilend::scenarios
