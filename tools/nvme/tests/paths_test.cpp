// SPDX-License-Identifier: GPL-2.0-or-later
// A drive over two paths, with a drive, a lender and cables that are made up.
#include "pcilend/nvme/paths.h"

#include <gtest/gtest.h>

#include "fake_share.h"
#include "pcilend/nvme/path_queue.h"

namespace pcilend::nvme {
namespace {

using namespace std::chrono_literals;
using test::FakeClientLease;
using test::FakeController;
using test::FakeShare;

constexpr auto kShort = 20ms;
constexpr uint32_t kNode = 8;

// Between the client's host and the drive's.
struct Cable {
  bool up = true;
  uint64_t cuts = 0;      // that the client's host has seen
  bool holds = false;     // doorbells are on their way, for now
  bool swallows = false;  // doorbells are lost, and nobody is told
  std::vector<std::pair<size_t, uint32_t>> held;

  void cut() {
    up = false;
    ++cuts;
  }
};

// Memory of a client stays where it is as long as nobody has confirmed its end.
using Pins = std::vector<std::shared_ptr<Memory>>;

class PinnedMemory final : public Memory {
 public:
  explicit PinnedMemory(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}
  std::span<std::byte> bytes() override { return memory_->bytes(); }
  [[nodiscard]] uint64_t address() const override { return memory_->address(); }

 private:
  std::shared_ptr<Memory> memory_;
};

class CableClientLease final : public FakeClientLease {
 public:
  CableClientLease(FakeShare& share, Cable& cable, Pins& pins)
      : FakeClientLease(share, kNode), cable_(cable), pins_(pins), cuts_(cable.cuts) {}
  CableClientLease(const CableClientLease&) = delete;
  CableClientLease& operator=(const CableClientLease&) = delete;
  ~CableClientLease() override { CableClientLease::leave(); }

  void ring(size_t offset, uint32_t value) override {
    if (cable_.holds)
      cable_.held.emplace_back(offset, value);
    else if (cable_.up && !cable_.swallows)
      FakeClientLease::ring(offset, value);
  }
  Result<std::unique_ptr<Memory>> allocate(size_t bytes, const Access& access) override {
    auto memory = FakeClientLease::allocate(bytes, access);
    if (!memory) return memory;
    pins_.emplace_back(std::move(*memory));
    return std::make_unique<PinnedMemory>(pins_.back());
  }
  Result<std::vector<std::byte>> ask(std::span<const std::byte> question,
                                     std::chrono::milliseconds patience) override {
    if (!cable_.up) return fail(ErrorClass::Unreachable, "nobody hears it");
    return FakeClientLease::ask(question, patience);
  }
  void leave() override {
    left_ = true;
    silent_ |= !cable_.up;
    FakeClientLease::leave();
  }
  [[nodiscard]] uint64_t epoch() const override {
    return left_ ? ~uint64_t{0} : FakeClientLease::epoch() + cable_.cuts - cuts_;
  }
  [[nodiscard]] bool over() const override { return left_ || FakeClientLease::over(); }

 private:
  Cable& cable_;
  Pins& pins_;
  uint64_t cuts_;
  bool left_ = false;
};

// A client that takes its queues for deleted when it has only lost them.
class Careless final : public Drive {
 public:
  explicit Careless(std::unique_ptr<Drive> drive) : drive_(std::move(drive)) {}
  [[nodiscard]] Device& device() override { return drive_->device(); }
  [[nodiscard]] Queues& queues() override { return drive_->queues(); }
  [[nodiscard]] const ControllerInfo& info() const override { return drive_->info(); }
  [[nodiscard]] Result<std::vector<uint32_t>> namespaces() override { return drive_->namespaces(); }
  [[nodiscard]] Result<NamespaceInfo> name_space(uint32_t id) override {
    return drive_->name_space(id);
  }
  [[nodiscard]] Result<Health> health() override { return drive_->health(); }
  [[nodiscard]] Result<NamespaceChanges> changes() override { return drive_->changes(); }
  [[nodiscard]] std::optional<uint16_t> vector() const override { return drive_->vector(); }
  [[nodiscard]] bool lost() const override { return drive_->lost(); }
  [[nodiscard]] ClientName client() const override { return drive_->client(); }
  Result<> clear(const ClientName&) override { return {}; }
  void leave() override { drive_->leave(); }

 private:
  std::unique_ptr<Drive> drive_;
};

class TwoPaths : public testing::Test {
 protected:
  void SetUp() override {
    drive_.pairs = 16;
    drive_.medium.assign(FakeController::kMediumBytes, std::byte{});
    ASSERT_NO_FATAL_FAILURE(start_manager());
    share_.pump = [this] { (void)manager_->serve(); };
  }
  void start_manager() {
    auto manager = Manager::open(drive_, share_, {.each = {.pairs = 2}, .patience = kShort},
                                 [this](const std::string& text) { said_.push_back(text); });
    ASSERT_TRUE(manager) << manager.error().message;
    manager_ = std::move(*manager);
  }
  void TearDown() override {
    queue_.reset();
    paths_.reset();
    manager_.reset();
    EXPECT_FALSE(drive_.fatal) << "it was given an address that it must not have";
  }

  void open(const PathQueueOptions& options = {.depth = 4}, PathsOptions wanted = {},
            bool careless = false) {
    wanted.step = 0ms;
    wanted.tell = [this](const std::string& text) { told_.push_back(text); };
    auto paths = Paths::open({opener(a_, "a", careless), opener(b_, "b", careless)}, wanted);
    ASSERT_TRUE(paths) << paths.error().message;
    paths_ = std::move(*paths);
    const auto space = paths_->drive().name_space(1);
    ASSERT_TRUE(space) << space.error().message;
    auto all = options;
    all.name_space = *space;
    auto queue = PathQueue::create(*paths_, all, [this](uint32_t tag, std::span<std::byte> to) {
      std::ranges::fill(to, mark_[tag]);
      return true;
    });
    ASSERT_TRUE(queue) << queue.error().message;
    queue_ = std::move(*queue);
  }
  PathOpener opener(Cable& cable, const char* name, bool careless) {
    return {name, [this, &cable, careless](uint64_t key) -> Result<std::unique_ptr<Drive>> {
              if (!cable.up) return fail(ErrorClass::Unreachable, "no link");
              auto joined =
                  join_by(std::make_unique<CableClientLease>(share_, cable, pins_), kShort, key);
              if (!joined || !careless) return joined;
              return std::make_unique<Careless>(std::move(*joined));
            }};
  }

  // One block of that content; not waited for.
  void write(uint32_t tag, uint64_t block, std::byte mark) {
    mark_[tag] = mark;
    const auto given = queue_->submit(tag, {Work::Write, block, 1, 512, false});
    ASSERT_TRUE(given) << given.error().message;
    queue_->ring();
  }
  void read(uint32_t tag, uint64_t block) {
    const auto given = queue_->submit(tag, {Work::Read, block, 1, 512, false});
    ASSERT_TRUE(given) << given.error().message;
    queue_->ring();
  }
  // One that settle() has met, or that is waited for.
  [[nodiscard]] Result<PathDone> next_done() {
    if (done_.empty()) return queue_->wait(kShort);
    const PathDone done = done_.front();
    done_.pop_front();
    return done;
  }
  void expect_done(uint32_t tag) {
    const auto done = next_done();
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(done->tag, tag);
    EXPECT_EQ(done->status, 0);
  }
  void expect_nothing() {
    const auto none = queue_->take();
    ASSERT_TRUE(none) << none.error().message;
    EXPECT_FALSE(*none);
  }
  // What paths do, until nothing comes of it any more.
  void settle() {
    for (int i = 0; i < 10 && paths_->step(); ++i) {
      auto done = queue_->take();
      ASSERT_TRUE(done) << done.error().message;
      if (*done) done_.push_back(**done);
    }
  }
  [[nodiscard]] std::byte at(uint64_t block) const { return drive_.medium[block * 512]; }
  void release(Cable& cable) {
    cable.holds = false;
    for (const auto& [offset, value] : cable.held) drive_.store(offset, value);
    cable.held.clear();
  }

  // The client's program ends, and nobody hears of that yet.
  void kill() {
    a_.cut();
    b_.cut();
    queue_.reset();
    paths_.reset();
  }
  // The drive's host boots: it has a new manager, and numbers leases from 1 on again.
  void reboot() {
    manager_.reset();
    share_.reboot();
    start_manager();
  }

  // The first write is on its way over a path that is lost, and its second issue, and a write
  // behind it, are done over the other one. Then it arrives: what does the medium have?
  std::byte overtaken() {
    a_.holds = true;
    write(0, 5, std::byte{0x01});
    a_.cut();
    expect_nothing();
    settle();
    expect_done(0);
    EXPECT_EQ(at(5), std::byte{0x01});
    write(0, 5, std::byte{0x02});
    expect_done(0);
    release(a_);
    return at(5);
  }

  FakeController drive_;
  FakeShare share_{drive_};
  Pins pins_;
  std::unique_ptr<Manager> manager_;
  Cable a_, b_;
  std::array<std::byte, 4> mark_{};
  std::deque<PathDone> done_;
  std::vector<std::string> said_;
  std::vector<std::string> told_;
  std::unique_ptr<Paths> paths_;
  std::unique_ptr<PathQueue> queue_;
};

TEST_F(TwoPaths, ArePreparedInAdvanceAndOneIsUsed) {
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_EQ(paths_->up(), 2U);
  EXPECT_EQ(drive_.io_queues(), 2U);
  EXPECT_EQ(share_.guests.size(), 2U);
  write(0, 1, std::byte{0x11});
  expect_done(0);
  read(1, 1);
  expect_done(1);
  EXPECT_EQ(queue_->data(1)[511], std::byte{0x11});
  const auto clients = paths_->clients();
  ASSERT_EQ(clients.size(), 2U);
  EXPECT_EQ(clients[0].lease, 1U);
  EXPECT_EQ(clients[1].lease, 2U);
  for (const ClientName& client : clients) EXPECT_NE(client.key, 0U);
  EXPECT_NE(clients[0].key, clients[1].key);
  queue_.reset();
  paths_.reset();
  EXPECT_EQ(drive_.io_queues(), 0U);
  EXPECT_TRUE(share_.guests.empty());
}

TEST_F(TwoPaths, AReadGoesOnAtOnceIntoOtherMemory) {
  ASSERT_NO_FATAL_FAILURE(open());
  write(0, 1, std::byte{0x11});
  expect_done(0);
  drive_.held = true;
  read(1, 1);
  a_.cut();
  drive_.held = false;
  expect_done(1);
  EXPECT_EQ(queue_->data(1)[0], std::byte{0x11});
  EXPECT_EQ(queue_->repeated(), 1U);
  // What the former path brings late is nobody's.
  drive_.medium.assign(FakeController::kMediumBytes, std::byte{0x22});
  const auto data = queue_->data(1);
  drive_.release();
  EXPECT_EQ(data[0], std::byte{0x11});
}

TEST_F(TwoPaths, AWriteIsIssuedAgainOnlyWhenItsQueueIsDeleted) {
  ASSERT_NO_FATAL_FAILURE(open());
  for (const Work work : {Work::Write, Work::Flush}) {
    drive_.held = true;
    mark_[0] = std::byte{0x33};
    ASSERT_TRUE(queue_->submit(0, {work, 7, 1, work == Work::Write ? 512U : 0U, false}));
    queue_->ring();
    (work == Work::Write ? a_ : b_).cut();
    drive_.held = false;
    if (work == Work::Write) {
      expect_nothing();
      EXPECT_EQ(queue_->held(), 1U);
      EXPECT_EQ(drive_.data_writes, 0U);
      EXPECT_EQ(drive_.io_queues(), 2U) << "nobody has told the manager that the path is lost";
      EXPECT_TRUE(paths_->step());
      EXPECT_EQ(drive_.io_queues(), 1U);
    }
    expect_done(0);
    EXPECT_EQ(queue_->held(), 0U);
    a_.up = true;
    settle();
  }
  EXPECT_EQ(drive_.data_writes, 1U);
  EXPECT_EQ(at(7), std::byte{0x33});
}

TEST_F(TwoPaths, AStaleWriteDoesNotReachTheMedium) {
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_EQ(overtaken(), std::byte{0x02});
  EXPECT_EQ(drive_.data_writes, 2U);
}

// This shows that the test above can fail.
TEST_F(TwoPaths, WithoutTheRuleItDoes) {
  ASSERT_NO_FATAL_FAILURE(open({.depth = 4}, {}, true));
  EXPECT_EQ(overtaken(), std::byte{0x01});
  EXPECT_EQ(drive_.data_writes, 3U);
}

TEST_F(TwoPaths, WithoutAPathItIsHeldAndNotFailed) {
  ASSERT_NO_FATAL_FAILURE(open());
  drive_.held = true;
  write(0, 1, std::byte{0x44});
  read(1, 1);
  a_.cut();
  b_.cut();
  settle();
  EXPECT_EQ(paths_->up(), 0U);
  expect_nothing();
  ASSERT_NO_FATAL_FAILURE(write(2, 2, std::byte{0x55}));
  EXPECT_EQ(queue_->under_way(), 3U);
  EXPECT_EQ(queue_->held(), 3U);
  const auto none = queue_->wait(1ms);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorClass::Unreachable);
  drive_.held = false;
  EXPECT_EQ(drive_.data_writes, 0U);
  b_.up = true;
  settle();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(next_done());
  EXPECT_EQ(at(1), std::byte{0x44});
  EXPECT_EQ(at(2), std::byte{0x55});
  EXPECT_EQ(paths_->up(), 1U);
}

TEST_F(TwoPaths, ALostPathIsJoinedAgainAndIsTheSpare) {
  ASSERT_NO_FATAL_FAILURE(open());
  std::array cables{&a_, &b_};
  for (int round = 0; round < 4; ++round) {
    Cable& lost = *cables[static_cast<size_t>(round % 2)];
    const auto mark = static_cast<std::byte>(round + 1);
    lost.cut();
    write(0, 9, mark);
    settle();
    expect_done(0);
    EXPECT_EQ(paths_->up(), 1U);
    lost.up = true;
    settle();
    EXPECT_EQ(paths_->up(), 2U);
    EXPECT_EQ(drive_.io_queues(), 2U);
    // It is not used while the other one works.
    lost.swallows = true;
    read(1, 9);
    expect_done(1);
    EXPECT_EQ(queue_->data(1)[0], mark);
    lost.swallows = false;
  }
}

// Data may be missing though the completion has come.
TEST_F(TwoPaths, WhatCompletesBehindALossIsRepeated) {
  ASSERT_NO_FATAL_FAILURE(open());
  write(0, 3, std::byte{0x66});
  expect_done(0);
  read(1, 3);
  ++a_.cuts;  // and it is up again
  expect_done(1);
  EXPECT_EQ(queue_->repeated(), 1U);
  EXPECT_EQ(queue_->data(1)[0], std::byte{0x66});
  settle();
  EXPECT_EQ(paths_->up(), 2U);
}

TEST_F(TwoPaths, ADoorbellThatIsLostIsALostPath) {
  ASSERT_NO_FATAL_FAILURE(open({.depth = 4, .patience = 1ms}));
  a_.swallows = true;
  write(0, 3, std::byte{0x77});
  for (int i = 0; i < 100 && queue_->held() == 0; ++i) {
    std::this_thread::sleep_for(5ms);
    expect_nothing();
  }
  a_.swallows = false;
  settle();
  expect_done(0);
  EXPECT_EQ(at(3), std::byte{0x77});
}

// Its epoch is that of before: the lender of a drive whose manager ends tells other hosts last.
TEST_F(TwoPaths, ACommandWhoseQueueIsDeletedIsNotAnswered) {
  ASSERT_NO_FATAL_FAILURE(open());
  drive_.held = drive_.aborts = true;
  write(0, 3, std::byte{0x77});
  ASSERT_TRUE(paths_->drive().clear(paths_->clients().front()));
  drive_.held = false;
  expect_nothing();
  EXPECT_EQ(queue_->held(), 1U);
  settle();
  expect_done(0);
  EXPECT_EQ(at(3), std::byte{0x77});
  EXPECT_EQ(drive_.data_writes, 1U);
}

// A program that is started again knows what the former one was.
TEST_F(TwoPaths, WhatAFormerRunHadIsClearedFirst) {
  ASSERT_NO_FATAL_FAILURE(open());
  const auto former = paths_->clients();
  drive_.held = true;
  write(0, 5, std::byte{0x01});
  kill();
  EXPECT_EQ(drive_.io_queues(), 2U);
  drive_.held = false;
  a_.up = b_.up = true;
  std::vector<std::vector<ClientName>> kept;
  PathsOptions options{.former = former};
  options.remember = [&](const std::vector<ClientName>& clients) -> Result<> {
    kept.push_back(clients);
    return {};
  };
  ASSERT_NO_FATAL_FAILURE(open({.depth = 4}, options));
  EXPECT_EQ(drive_.io_queues(), 2U) << "those of before are deleted";
  ASSERT_EQ(kept.size(), 3U);
  EXPECT_EQ(kept[0].size(), 3U) << "those of before, and one of this run";
  EXPECT_EQ(kept[1].size(), 4U);
  EXPECT_EQ(kept[2], paths_->clients()) << "no run clears again what this one has cleared";
  write(0, 5, std::byte{0x02});
  expect_done(0);
  drive_.release();
  EXPECT_EQ(at(5), std::byte{0x02});
}

// The new client must not take itself for the former one, whose number it has.
TEST_F(TwoPaths, AFormerRunsNumbersAreGivenAnewWhenTheDrivesHostHasBooted) {
  ASSERT_NO_FATAL_FAILURE(open());
  const auto former = paths_->clients();
  kill();
  ASSERT_NO_FATAL_FAILURE(reboot());
  a_.up = b_.up = true;
  ASSERT_NO_FATAL_FAILURE(open({.depth = 4}, {.former = former}));
  EXPECT_EQ(paths_->clients().front().lease, former.front().lease);
  write(0, 5, std::byte{0x88});
  expect_done(0);
  settle();
  EXPECT_EQ(paths_->up(), 2U);
  EXPECT_EQ(drive_.io_queues(), 2U);
}

TEST_F(TwoPaths, WhatIsHeldGoesOnWhenTheDrivesHostHasBooted) {
  ASSERT_NO_FATAL_FAILURE(open());
  const auto former = paths_->clients();
  drive_.held = true;
  write(0, 5, std::byte{0x99});
  a_.cut();
  b_.cut();
  expect_nothing();
  settle();
  ASSERT_NO_FATAL_FAILURE(reboot());
  drive_.held = false;
  a_.up = b_.up = true;
  settle();
  EXPECT_EQ(paths_->clients().front().lease, former.front().lease);
  expect_done(0);
  EXPECT_EQ(at(5), std::byte{0x99});
  EXPECT_EQ(paths_->up(), 2U);
}

// As when the lender has seen a flap that this host has not.
TEST_F(TwoPaths, WhoIsClearedJoinsAnew) {
  ASSERT_NO_FATAL_FAILURE(open());
  const auto before = paths_->clients();
  ASSERT_TRUE(paths_->drive().clear(before.front()));
  const auto space = paths_->drive().name_space(1);
  ASSERT_TRUE(space) << space.error().message;
  auto second = PathQueue::create(*paths_, {.name_space = *space, .depth = 4},
                                  [](uint32_t, std::span<std::byte>) { return true; });
  ASSERT_TRUE(second) << "over the other path: " << second.error().message;
  settle();
  EXPECT_EQ(paths_->up(), 2U);
  EXPECT_NE(paths_->clients().front(), before.front());
  write(0, 5, std::byte{0xaa});
  expect_done(0);
}

TEST_F(TwoPaths, OthersAreNotCleared) {
  ASSERT_NO_FATAL_FAILURE(open());
  const auto other = join_by(std::make_unique<FakeClientLease>(share_, kNode), kShort, 99);
  ASSERT_TRUE(other);
  const auto pair = QueuePair::create((*other)->device(), (*other)->queues(), {});
  ASSERT_TRUE(pair);
  EXPECT_EQ(drive_.io_queues(), 3U);
  const uint32_t lease = (*other)->client().lease;
  for (const uint64_t key : {uint64_t{0}, paths_->clients().front().key})
    EXPECT_TRUE(paths_->drive().clear({lease, key})) << "as if it were not there";
  EXPECT_EQ(drive_.io_queues(), 3U);
  EXPECT_TRUE((*other)->clear({lease, 99}));
  EXPECT_EQ(drive_.io_queues(), 2U);
  EXPECT_EQ(QueuePair::create((*other)->device(), (*other)->queues(), {}).error().kind,
            ErrorClass::Unreachable);
  EXPECT_TRUE((*other)->lost());
}

TEST_F(TwoPaths, APathToAnotherDriveIsNotTaken) {
  int joined = 0;
  PathsOptions options;
  options.accept = [&](Drive&) -> Result<> {
    if (++joined <= 2) return {};
    return fail(ErrorClass::State, "another drive");
  };
  ASSERT_NO_FATAL_FAILURE(open({.depth = 4}, options));
  a_.cut();
  write(0, 1, std::byte{0x11});
  settle();
  expect_done(0);
  a_.up = true;
  settle();
  EXPECT_EQ(paths_->up(), 1U);
  EXPECT_EQ(told_.back(), "path a: another drive");
  EXPECT_EQ(std::ranges::count(told_, "path a: another drive"), 1);
}

}  // namespace
}  // namespace pcilend::nvme
