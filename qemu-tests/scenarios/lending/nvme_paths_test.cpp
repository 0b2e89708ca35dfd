// SPDX-License-Identifier: GPL-2.0-or-later
// A shared drive over two adapters (docs/nvme.md): what a lost path leaves open goes over the other
// one, and no byte of it is wrong.
#include <gmock/gmock.h>

#include <cstdlib>
#include <random>
#include <thread>

#include "main_job/admin_steps.h"
#include "scenarios/lending/left.h"
#include "scenarios/lending/process.h"
#include "testing/asserts.h"
#include "testing/suite_lab.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::json;
using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr const char* kBench = "/usr/lib/pcilend-lab/nvme-bench";
constexpr const char* kUser = "/usr/lib/pcilend-lab/path-user";
constexpr uint64_t kMany = 1000000;  // rounds that nobody waits for

// A number from the environment.
unsigned long number_of(const char* name, unsigned long otherwise) {
  const char* const value = std::getenv(name);
  return value ? std::strtoul(value, nullptr, 0) : otherwise;
}

/*
 *   host1 (lender, node 4)                                host2 (node 8)
 *   manager ── admin queue ──┐            ┌══ path 1 ══┐  path-user: a client over each path,
 *   client ── its queue ── nvme ── IOMMU ═╪            ╪═ with a queue over each
 *   commands of host2 ───────┘            └══ path 2 ══┘
 */
class NvmePaths : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "nvme-paths";
    options.paths = 2;
    for (int host : {1, 2}) options.kernel_arguments[host].push_back("pcilend.lease_ms=10000");
    // Of its own QEMU has one page for all DMA over the NTB, and hangs when a command that waits
    // for it is ended.
    ASSERT_OK(options.add_device(
        fmt::format("host1:nvme,serial=paths,drive-size=64M,max_ioqpairs=31,msix_qsize=32,"
                    "x-max-bounce-buffer-size=16M{}",
                    kNoShadowDoorbells)));
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
    const auto offered = offer(lender(), address_);
    ASSERT_OK(offered);
    id_ = offered->at("id");
    before_ = left_by_processes(*lab_);
    // What clients that are gone ring still, and what is stored for them, the lender's IOMMU stops.
    expected_.emplace_back("DMAR: DRHD: handling fault status reg");
    expected_.emplace_back(
        R"(DMAR: \[DMA (Read|Write) NO_PASID\] Request device \[(0000:)?00:0[0-9a-f]\.0\] fault addr 0x)");
    ASSERT_OK(lender().until("true", [&](const lab::Output&) { return paths().size() == 2; }));
    paths_ = paths();
    manage();
  }

  void TearDown() override {
    if (!lab_) return;
    for (int path : {1, 2}) {
      EXPECT_OK(lab_->fabric().release(2, 1, path));
      EXPECT_OK(lab_->fabric().tell_events(1, 2, true, path));
    }
    EXPECT_OK(lab_->fabric().link_up(1, 2));
    user_.reset();
    other_.reset();
    if (manager_) {
      const auto code = manager_->end("TERM");
      EXPECT_OK(code);
      EXPECT_EQ(code.value_or(1), 0) << manager_->said();
    }
    manager_.reset();
    EXPECT_OK(await_state(lender(), id_, "available"));
    // A segment is there until the host that had it connected has let go of it.
    EXPECT_OK(lab::eventually("nothing is left", lab::kPatience,
                              [&] { return left_by_processes(*lab_) == before_; }));
    // What a lease had over a link that was down goes when that is up, and both hosts have said so.
    for (int host : {1, 2})
      EXPECT_OK(lab::eventually("nothing is mapped over links of " + lab_->host(host).name(),
                                lab::kPatience, [&] { return is_unmapped(lab_->host(host)); }));
    EXPECT_OK(lender().run("pcilend unavailable " + id_));
    EXPECT_OK(lender().run("pcilend remove " + id_));
    for (int host : {1, 2}) {
      expect_nothing_mapped(lab_->host(host));
      EXPECT_OK(lab_->host(host).check_log(expected_));
    }
  }

  static bool is_unmapped(const lab::Host& host) {
    const auto links = host.json("pcilend link --json");
    return links && std::ranges::all_of(links->at("links"), [](const json& link) {
             return link.at("export_bytes") == 0 && link.at("slot_bytes") == 0;
           });
  }
  static const lab::Host& lender() { return lab_->host(1); }
  static const lab::Host& borrower() { return lab_->host(2); }
  static const lab::Fabric& fabric() { return lab_->fabric(); }

  // Over which the borrower is offered it.
  [[nodiscard]] std::vector<std::string> paths() const {
    const auto function = function_on(borrower(), id_);
    return function ? function->value("paths", std::vector<std::string>())
                    : std::vector<std::string>();
  }

  void manage() {
    auto manager =
        Process::start(lender(), fmt::format("pcilend-nvme-manager --clients 12 {}", address_));
    ASSERT_OK(manager);
    manager_.emplace(std::move(*manager));
    ASSERT_OK(manager_->await("is shared: up to"));
    for (const auto* host : {&lender(), &borrower()})
      ASSERT_OK(await_state(*host, id_, "borrowed"));
  }

  [[nodiscard]] std::string user_command(const std::string& options) const {
    return fmt::format("{} {} --path {},{} {}", kUser, id_, paths_[0], paths_[1], options);
  }
  // It writes and compares, over both paths.
  void start_user(const std::string& options = {}) {
    auto user = Process::start(borrower(), user_command(options));
    ASSERT_OK(user);
    user_.emplace(std::move(*user));
    ASSERT_OK(user_->await("\npass "));
    EXPECT_EQ(last("up"), 2);
  }
  // Of the line that begins so, the last one: the number behind that word.
  [[nodiscard]] long last(const std::string& word, const std::string& line = "pass") const {
    const std::string said = user_->said();
    const size_t begin = said.rfind("\n" + line + " ");
    if (begin == std::string::npos) return -1;
    const size_t end = said.find('\n', begin + 1);
    if (end == std::string::npos) return last_whole(said, word, line, begin);
    return word_of(said.substr(begin + 1, end - begin), word);
  }
  // So many more passes are through, and right.
  void await_passes(size_t more = 2) {
    ASSERT_OK(user_->await("\npass ", user_->times("\npass ") + more));
  }
  void await_both() {
    ASSERT_OK(lab::eventually("both paths are there", lab::kPatience,
                              [&] { return user_->ended() || last("up") == 2; }));
    ASSERT_FALSE(user_->ended()) << user_->said();
  }
  void expect_well() {
    const auto code = user_->end("TERM");
    ASSERT_OK(code);
    EXPECT_EQ(*code, 0) << tail(user_->said());
    user_.reset();
  }
  static std::string tail(const std::string& text) {
    return text.size() > 2000 ? text.substr(text.size() - 2000) : text;
  }

  // A client of the lender's own, which none of all that must disturb.
  void start_other() {
    auto other = Process::start(
        lender(), fmt::format("{} {} --shared --slice 1M --write --commands 4 --size 512 "
                              "--block 65536 --rounds {}",
                              kBench, id_, kMany));
    ASSERT_OK(other);
    other_.emplace(std::move(*other));
    ASSERT_OK(other_->await("round 1:"));
  }
  void expect_other_well() {
    const auto code = other_->end("TERM");
    ASSERT_OK(code);
    EXPECT_EQ(*code, 0) << tail(other_->said());
    other_.reset();
  }

  static std::optional<lab::Lab> lab_;
  static std::string address_;
  std::string id_;
  std::vector<std::string> paths_;
  std::optional<Process> manager_;
  std::optional<Process> user_;
  std::optional<Process> other_;
  lab::Expected expected_;

 private:
  static long word_of(const std::string& line, const std::string& word) {
    const size_t at = line.find(word + " ");
    return at == std::string::npos ? -1 : std::strtol(line.c_str() + at + word.size(), nullptr, 10);
  }
  static long last_whole(const std::string& said, const std::string& word, const std::string& line,
                         size_t before) {
    const size_t begin =
        before == 0 ? std::string::npos : said.rfind("\n" + line + " ", before - 1);
    return begin == std::string::npos
               ? -1
               : word_of(said.substr(begin + 1, said.find('\n', begin + 1) - begin), word);
  }

  std::string before_;
};

std::optional<lab::Lab> NvmePaths::lab_;
std::string NvmePaths::address_;

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

// What happens in a round, at a random moment.
enum class Blow { CutInData, FlapBehindData, HeldWrites, HeldWritesQuiet, Killed, BothLinks };
constexpr const char* kBlows[] = {"cut in the middle of data",
                                  "flap between data and completion",
                                  "writes held on the way of a path that is cut",
                                  "the same, and the lender hears nothing of the cut",
                                  "kill -9",
                                  "both links are cut"};

class NvmePathsRounds : public NvmePaths {
 protected:
  // Which path commands go over, as fabric counts.
  [[nodiscard]] int active() const { return last("path") == 1 ? 2 : 1; }
  uint64_t below(uint64_t limit) { return random_() % limit; }
  void rest() { std::this_thread::sleep_for(milliseconds(below(400))); }

  void strike(Blow blow) {
    const int path = active();
    switch (blow) {
      case Blow::CutInData:
        return cut_in_data(path);
      case Blow::FlapBehindData:
        return flap_behind_data(path);
      case Blow::HeldWrites:
        return hold_writes(path, true);
      case Blow::HeldWritesQuiet:
        return hold_writes(path, false);
      case Blow::Killed:
        return kill();
      case Blow::BothLinks:
        ASSERT_OK(fabric().link_down(1, 2));
        rest();
        return;
    }
  }

  // Of a write's data: 64 reads a block.
  void cut_in_data(int path) {
    ASSERT_OK(fabric().trip(1, 2, path, {.reads = 1 + below(64 * 16)}));
    ASSERT_NO_FATAL_FAILURE(await_trip(path));
    ASSERT_NO_FATAL_FAILURE(await_passes(1));
  }
  // Data of reads, 64 writes a block, and 2 of each completion.
  void flap_behind_data(int path) {
    ASSERT_OK(fabric().trip(1, 2, path,
                            {.writes = 1 + below(66 * 16), .flap = milliseconds(20 + below(500))}));
    ASSERT_NO_FATAL_FAILURE(await_trip(path));
  }
  // Commands and doorbells of the path arrive when the client has gone on over the other one.
  void hold_writes(int path, bool told) {
    ASSERT_OK(fabric().hold(2, 1, path));
    ASSERT_OK(lab::eventually("writes are held", lab::kPatience, [&] {
      return user_->ended() || fabric().held(2, 1, path).value_or(0) > 2 + below(60);
    }));
    if (!told) ASSERT_OK(fabric().tell_events(1, 2, false, path));
    ASSERT_OK(fabric().link_down(1, 2, path));
    ASSERT_NO_FATAL_FAILURE(await_passes(1));
    // What it would change must not be written over before it is looked at.
    ASSERT_OK(user_->signal("USR1"));
    ASSERT_OK(user_->await("\nchecked ", user_->times("\nchecked ") + 1));
    const auto released = fabric().release(2, 1, path);
    ASSERT_OK(released);
    EXPECT_GT(*released, 0U);
    late_ += *released;
    ASSERT_OK(user_->await("\nchecked ", user_->times("\nchecked ") + 2));
    ASSERT_OK(user_->signal("USR2"));
    if (!told) ASSERT_OK(fabric().tell_events(1, 2, true, path));
  }
  // What is held over that path is a write: 64 stores of data, 8 of the command, the doorbell.
  void hold_a_write(int path) {
    ASSERT_OK(fabric().hold(2, 1, path));
    ASSERT_OK(lab::eventually("a write is held", lab::kPatience, [&] {
      std::this_thread::sleep_for(300ms);
      if (user_->ended() || fabric().held(2, 1, path).value_or(0) > 64) return true;
      EXPECT_OK(fabric().release(2, 1, path));
      EXPECT_OK(fabric().hold(2, 1, path));
      return false;
    }));
    ASSERT_FALSE(user_->ended()) << tail(user_->said());
  }
  // The next one finds what was confirmed, or what was on its way.
  void kill() {
    ASSERT_OK(user_->end("KILL"));
    const std::string said = user_->said();
    const long confirmed = last("wrote", "wrote");
    const size_t at = said.rfind("\nclients ");
    ASSERT_NE(at, std::string::npos);
    char key[32] = {};
    char leases[128] = {};
    ASSERT_EQ(std::sscanf(said.c_str() + at, "\nclients %31s %127[0-9 ]", key, leases), 2);
    std::string formers = leases;
    std::ranges::replace(formers, ' ', ',');
    const std::string former = fmt::format("--key {} --formers {}", key, formers);
    const auto found =
        borrower().run(user_command(fmt::format("{} {} --check {}", options_, former, confirmed)));
    ASSERT_OK(found);
    EXPECT_THAT(*found, HasSubstr(fmt::format("of version {}", confirmed)));
    EXPECT_THAT(*found, HasSubstr(", 0 with all-ones"));
    user_.reset();
    // Some have that behind it.
    start_user(fmt::format("{} {} --from {}", options_, former, confirmed + 1));
  }

  void await_trip(int path) {
    ASSERT_OK(lab::eventually("the link is cut", lab::kPatience, [&] {
      return user_->ended() || !fabric().trips(1, 2, path).value_or(true);
    }));
    ASSERT_FALSE(user_->ended()) << tail(user_->said());
  }
  // All is as before.
  void heal() {
    ASSERT_OK(fabric().link_up(1, 2));
    ASSERT_NO_FATAL_FAILURE(await_passes(1));
    ASSERT_NO_FATAL_FAILURE(await_both());
    ASSERT_NO_FATAL_FAILURE(await_passes(1));
    ASSERT_FALSE(other_->ended()) << tail(other_->said());
  }

  std::minstd_rand random_;
  std::string options_;
  uint64_t late_ = 0;  // writes that arrived over a path that was lost
};

/*
 *   path-user writes versions of its blocks ── a blow at a random moment, to the path that is used
 * ── it goes on, and what it reads is what was confirmed ── all is healed ── PCILEND_ROUNDS times,
 *   by PCILEND_SEED. The lender's own client goes on
 */
TEST_F(NvmePathsRounds, NoByteIsWrong) {
  const unsigned long rounds = number_of("PCILEND_ROUNDS", 12);
  const unsigned long seed = number_of("PCILEND_SEED", 33);
  fmt::print("{} rounds of seed {}\n", rounds, seed);
  random_.seed(static_cast<unsigned>(seed));
  uint64_t counts[std::size(kBlows)] = {};
  ASSERT_NO_FATAL_FAILURE(start_other());
  ASSERT_NO_FATAL_FAILURE(start_user(options_));
  long repeated = 0;
  for (unsigned long round = 1; round <= rounds && !HasFailure(); ++round) {
    // Each kind in its turn at first: a few rounds have all of them.
    const auto kind = round <= std::size(kBlows) ? round - 1 : below(std::size(kBlows));
    SCOPED_TRACE(fmt::format("round {} of seed {}: {}", round, seed, kBlows[kind]));
    rest();
    if (kind == static_cast<size_t>(Blow::Killed)) repeated += last("repeated");
    strike(static_cast<Blow>(kind));
    if (HasFatalFailure()) break;
    ASSERT_NO_FATAL_FAILURE(heal());
    ++counts[kind];
    if (round % 50 == 0) fmt::print("{} rounds\n", round), std::fflush(stdout);
  }
  if (!HasFailure()) {
    repeated += last("repeated");
    ASSERT_NO_FATAL_FAILURE(expect_well());
    ASSERT_NO_FATAL_FAILURE(expect_other_well());
  }
  for (size_t kind = 0; kind < std::size(kBlows); ++kind)
    fmt::print("{}: {}\n", kBlows[kind], counts[kind]);
  fmt::print("{} commands were issued again, {} writes arrived late\n", repeated, late_);
}

/*
 *   The same with a client that does not wait until its queue is deleted: the late doorbell has the
 *   drive do what was written over since, and path-user finds it. So the rounds can fail
 */
TEST_F(NvmePathsRounds, WithoutTheRuleAStaleWriteIsFound) {
  options_ = "--careless --staged --depth 1 --commands 8";
  ASSERT_NO_FATAL_FAILURE(start_user(options_));
  const int path = active();
  ASSERT_NO_FATAL_FAILURE(hold_a_write(path));
  // The lender hears of the loss within half a second, and has the manager delete the queue. One
  // that is slow, as its drive may be, is not waited for by this client.
  ASSERT_OK(manager_->signal("STOP"));
  ASSERT_OK(fabric().link_down(1, 2, path));
  ASSERT_NO_FATAL_FAILURE(await_passes(2));
  ASSERT_OK(user_->signal("USR1"));
  ASSERT_OK(user_->await("\nchecked "));
  ASSERT_OK(fabric().release(2, 1, path));
  ASSERT_OK(lab::eventually("it finds the stale write", lab::kPatience,
                            [&] { return user_->ended() || user_->times("\nchecked ") > 50; }));
  ASSERT_OK(manager_->signal("CONT"));
  ASSERT_TRUE(user_->ended()) << tail(user_->said());
  const auto code = user_->wait();
  ASSERT_OK(code);
  EXPECT_EQ(*code, static_cast<int>(ErrorClass::Failure)) << tail(user_->said());
  EXPECT_THAT(user_->said(), HasSubstr("\nwrong command "));
  user_.reset();
  // If all that took more than 5 s the lender has fenced the drive.
  expected_.emplace_back("has not confirmed in time");
  (void)manager_->signal("TERM");
  ASSERT_OK(manager_->wait());
  manager_.reset();
}

/*
 *   The same with the rule, and a manager that stands still: the write is held, and reads go on ──
 *   the manager goes on: so does the write
 */
TEST_F(NvmePathsRounds, WithTheRuleItWaitsForTheManager) {
  options_ = "--staged --depth 1 --commands 8";
  ASSERT_NO_FATAL_FAILURE(start_user(options_));
  const int path = active();
  ASSERT_NO_FATAL_FAILURE(hold_a_write(path));
  ASSERT_OK(manager_->signal("STOP"));
  ASSERT_OK(fabric().link_down(1, 2, path));
  const size_t passes = user_->times("\npass ");
  std::this_thread::sleep_for(1s);
  EXPECT_EQ(user_->times("\npass "), passes) << "no write is confirmed";
  ASSERT_OK(manager_->signal("CONT"));
  ASSERT_NO_FATAL_FAILURE(await_passes(2));
  ASSERT_OK(user_->signal("USR1"));
  ASSERT_OK(user_->await("\nchecked "));
  ASSERT_OK(fabric().release(2, 1, path));
  ASSERT_OK(user_->await("\nchecked ", user_->times("\nchecked ") + 5));
  ASSERT_OK(user_->signal("USR2"));
  ASSERT_NO_FATAL_FAILURE(await_passes(1));
  ASSERT_NO_FATAL_FAILURE(expect_well());
}

/*
 *   path-user, staged: the link in use is cut among its commands, and it is killed before it can
 *   write anything again: no block of the medium is all-ones. Not staged some may be, as the drive
 *   reads the data over the link
 */
TEST_F(NvmePathsRounds, StagedWritesNeverPutAllOnesOnTheMedium) {
  const unsigned long rounds = number_of("PCILEND_ROUNDS", 6);
  random_.seed(static_cast<unsigned>(number_of("PCILEND_SEED", 33)));
  for (const bool staged : {true, false}) {
    uint64_t ones = 0;
    for (unsigned long round = 1; round <= rounds && !HasFailure(); ++round) {
      SCOPED_TRACE(fmt::format("round {}, {}", round, staged ? "staged" : "not staged"));
      options_ = staged ? "--staged --size 4096 --commands 32" : "--size 4096 --commands 32";
      ASSERT_NO_FATAL_FAILURE(start_user(options_));
      const int path = active();
      // Nothing is written again, over another path.
      ASSERT_OK(fabric().link_down(1, 2, 3 - path));
      ASSERT_OK(
          lab::eventually("one path is left", lab::kPatience, [&] { return last("up") == 1; }));
      // Of a staged write no data is read over the link, but its completion is written.
      ASSERT_OK(fabric().trip(1, 2, path,
                              staged ? lab::Fabric::Trip{.writes = 1 + below(40)}
                                     : lab::Fabric::Trip{.reads = 1 + below(512 * 8)}));
      ASSERT_NO_FATAL_FAILURE(await_trip(path));
      const size_t ends = manager_->times("has ended");
      ASSERT_OK(user_->end("KILL"));
      const long confirmed = last("wrote", "wrote");
      ASSERT_OK(fabric().link_up(1, 2));
      ASSERT_OK(manager_->await("has ended", ends + 2));
      const auto found = lender().run(
          fmt::format("{} {} {} --check {}", kUser, id_, "--size 4096 --commands 32", confirmed));
      ASSERT_OK(found);
      unsigned long sectors = 0;
      const size_t at = found->find("of the next, ");
      ASSERT_NE(at, std::string::npos) << *found;
      ASSERT_EQ(std::sscanf(found->c_str() + at, "of the next, %lu with all-ones", &sectors), 1);
      ones += sectors;
      user_.reset();
    }
    fmt::print("{}: {} sectors with all-ones\n", staged ? "staged" : "not staged", ones);
    if (staged) EXPECT_EQ(ones, 0U);
  }
}

}  // namespace
}  // namespace pcilend::scenarios
