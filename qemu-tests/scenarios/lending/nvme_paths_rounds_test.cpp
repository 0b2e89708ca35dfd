// SPDX-License-Identifier: GPL-2.0-or-later
// A shared drive over two adapters (docs/nvme.md): whatever becomes of the paths, of the client,
// and of what is on its way, no byte is wrong.
#include <cstdlib>
#include <random>
#include <thread>

#include "scenarios/lending/nvme_paths.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using testing::HasSubstr;

// A number from the environment.
unsigned long number_of(const char* name, unsigned long otherwise) {
  const char* const value = std::getenv(name);
  return value ? std::strtoul(value, nullptr, 0) : otherwise;
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
    char clients[256] = {};
    ASSERT_EQ(std::sscanf(said.c_str() + at, "\nclients %255[0-9: ]", clients), 1);
    std::string former = clients;
    std::ranges::replace(former, ' ', ',');
    former.insert(0, "--formers ");
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
