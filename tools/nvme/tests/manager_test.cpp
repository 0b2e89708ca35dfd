// SPDX-License-Identifier: GPL-2.0-or-later
// The manager and its clients, with a drive and a lender that are made up.
#include "manager/manager.h"

#include <gtest/gtest.h>

#include "fake_share.h"
#include "pcilend/nvme/queue_pair.h"

namespace pcilend::nvme {
namespace {

using namespace std::chrono_literals;
using test::FakeClientLease;
using test::FakeController;
using test::FakeShare;
using test::kLenderNode;

constexpr auto kShort = 20ms;
constexpr uint32_t kOther = 8;  // another node

// A client, with a pair of queues and a page of data.
struct Client {
  std::unique_ptr<Drive> drive;
  NamespaceInfo name_space;
  std::unique_ptr<Memory> data;
  std::unique_ptr<QueuePair> pair;
};

class Shares : public testing::Test {
 protected:
  void SetUp() override {
    drive_.pairs = 4;
    share_.pump = [this] { serve(); };
  }
  void TearDown() override {
    manager_.reset();
    EXPECT_FALSE(drive_.enabled);
    EXPECT_FALSE(drive_.fatal) << "it was given an address that it must not have";
  }

  void manage(ManagerOptions options = {}) {
    options.patience = kShort;
    auto manager = Manager::open(drive_, share_, options,
                                 [this](const std::string& text) { said_.push_back(text); });
    ASSERT_TRUE(manager) << manager.error().message;
    manager_ = std::move(*manager);
  }
  void serve() {
    if (!manager_ || silent_) return;
    const auto served = manager_->serve();
    if (!served) ended_ = served.error();
  }
  [[nodiscard]] Result<std::unique_ptr<Drive>> join(uint32_t node = kLenderNode) {
    return join_by(std::make_unique<FakeClientLease>(share_, node), kShort);
  }
  void open(Client& client, uint32_t node = kLenderNode, const QueuePairOptions& options = {}) {
    auto drive = join(node);
    ASSERT_TRUE(drive) << drive.error().message;
    client.drive = std::move(*drive);
    const auto name_space = client.drive->name_space(1);
    ASSERT_TRUE(name_space) << name_space.error().message;
    client.name_space = *name_space;
    client.data = client.drive->device().allocate(64 * kPage, {}).value();
    auto pair = QueuePair::create(client.drive->device(), client.drive->queues(), options);
    ASSERT_TRUE(pair) << pair.error().message;
    client.pair = std::move(*pair);
  }
  static void close(Client& client) {
    client.pair.reset();
    client.data.reset();
    client.drive.reset();
  }
  // Writes a block's worth of its own, and reads it again.
  static void use(Client& client, uint64_t block, std::byte mark) {
    const auto data = client.data->bytes().first(512);
    std::ranges::fill(data, mark);
    ASSERT_TRUE(client.pair->write(client.name_space, block, 1, client.data->address()).value());
    ASSERT_EQ(client.pair->wait(kShort).value().status, 0);
    std::ranges::fill(data, std::byte{});
    ASSERT_TRUE(client.pair->read(client.name_space, block, 1, client.data->address()).value());
    ASSERT_EQ(client.pair->wait(kShort).value().status, 0);
    EXPECT_TRUE(std::ranges::all_of(data, [&](std::byte b) { return b == mark; }));
  }

  FakeController drive_;
  FakeShare share_{drive_};
  std::unique_ptr<Manager> manager_;
  std::vector<std::string> said_;
  std::optional<Error> ended_;
  bool silent_ = false;
};

TEST_F(Shares, ClientsOfSeveralHostsUseOneDrive) {
  ASSERT_NO_FATAL_FAILURE(manage());
  EXPECT_EQ(share_.policy->clients, 4U) << "as many as there are pairs of queues";
  ASSERT_EQ(share_.policy->ranges.size(), 1U);
  EXPECT_EQ(share_.policy->ranges[0].page, 1U) << "doorbells, and no registers";
  Client a, b, c;
  ASSERT_NO_FATAL_FAILURE(open(a));
  ASSERT_NO_FATAL_FAILURE(open(b, kOther));
  ASSERT_NO_FATAL_FAILURE(open(c, kOther));
  EXPECT_EQ(drive_.io_queues(), 3U);
  EXPECT_EQ(share_.segments.size(), 2U) << "memory beside the drive for those of other hosts";
  EXPECT_EQ(b.drive->info().model, "A drive of memory");
  EXPECT_EQ(b.drive->info().transfer, 64 * kPage);
  EXPECT_EQ(b.drive->namespaces().value(), std::vector<uint32_t>{1});
  EXPECT_EQ(b.drive->name_space(2).error().kind, ErrorClass::NotFound);
  EXPECT_EQ(b.drive->health().value().kelvin, 0x0201);
  for (int round = 0; round < 3; ++round) {
    ASSERT_NO_FATAL_FAILURE(use(a, 1, std::byte{0xa}));
    ASSERT_NO_FATAL_FAILURE(use(b, 2, std::byte{0xb}));
    ASSERT_NO_FATAL_FAILURE(use(c, 3, std::byte{0xc}));
  }
  close(b);
  EXPECT_EQ(drive_.io_queues(), 2U);
  EXPECT_EQ(share_.segments.size(), 1U);
  ASSERT_NO_FATAL_FAILURE(use(a, 1, std::byte{0xa}));
  ASSERT_NO_FATAL_FAILURE(use(c, 3, std::byte{0xc}));
  close(a);
  close(c);
  EXPECT_EQ(manager_->clients(), 0U);
  EXPECT_EQ(drive_.io_queues(), 0U);
  EXPECT_TRUE(share_.segments.empty());
  EXPECT_FALSE(ended_);
}

// What the drive only reads is beside it, while there is room; what the process reads is not.
TEST_F(Shares, WhatTheDriveOnlyReadsIsBesideIt) {
  ASSERT_NO_FATAL_FAILURE(manage({.near_bytes = 8 * kPage}));
  Client client;
  ASSERT_NO_FATAL_FAILURE(open(client, kOther, {.depth = 3, .transfer = 64 * kPage}));
  Device& device = client.drive->device();
  const uint64_t near = share_.segments.begin()->first * (uint64_t{1} << 44);
  const auto is_near = [&](const Memory& memory) { return memory.address() >= near; };
  const Access staged{.device_writes = false, .host_reads = false};
  EXPECT_FALSE(is_near(*client.data));
  // Of 8 pages the queue has one and its lists have three.
  const auto four = device.allocate(4 * kPage, staged).value();
  EXPECT_TRUE(is_near(*four));
  EXPECT_FALSE(is_near(*device.allocate(kPage, staged).value())) << "none is left";
  EXPECT_FALSE(is_near(*device.allocate(kPage, {.device_writes = false}).value()));
  // Data is written from there, and lists, too, are.
  std::ranges::fill(four->bytes(), std::byte{0x77});
  ASSERT_TRUE(client.pair->write(client.name_space, 0, 32, four->address()).value());
  ASSERT_EQ(client.pair->wait(kShort).value().status, 0);
  EXPECT_EQ(drive_.medium[32 * 512 - 1], std::byte{0x77});
  const uint64_t had = four->address();
  client.pair.reset();
  const auto again = device.allocate(4 * kPage, staged).value();
  EXPECT_TRUE(is_near(*again)) << "that of the queues is free again";
  EXPECT_NE(again->address(), had);
  EXPECT_TRUE(std::ranges::all_of(again->bytes(), [](std::byte b) { return b == std::byte{}; }));
}

TEST_F(Shares, OfQueuesThereAreAsManyAsThereAre) {
  ASSERT_NO_FATAL_FAILURE(manage({.each = {.pairs = 2}}));
  EXPECT_EQ(share_.policy->clients, 2U);
  Client a, b;
  ASSERT_NO_FATAL_FAILURE(open(a));
  const auto second = QueuePair::create(a.drive->device(), a.drive->queues(), {});
  ASSERT_TRUE(second) << second.error().message;
  const auto third = QueuePair::create(a.drive->device(), a.drive->queues(), {});
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().kind, ErrorClass::State);
  EXPECT_EQ(third.error().message,
            "the manager of 40001: client 1 has 2 pairs of queues, as many as it may have");
  ASSERT_NO_FATAL_FAILURE(open(b));
  EXPECT_EQ(drive_.io_queues(), 3U);
  ManagerOptions options{.clients = 3, .each = {.pairs = 2}, .patience = kShort};
  FakeController other;
  FakeShare lender(other);
  const auto refused = Manager::open(other, lender, options, [](const std::string&) {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorClass::Usage);
}

// With commands under way; the others notice nothing, and ids are given again.
TEST_F(Shares, AClientThatIsKilledLeavesNothing) {
  ASSERT_NO_FATAL_FAILURE(manage());
  Client a;
  ASSERT_NO_FATAL_FAILURE(open(a));
  for (int round = 0; round < 10; ++round) {
    for (const uint32_t node : {kLenderNode, kOther}) {
      Client b;
      ASSERT_NO_FATAL_FAILURE(open(b, node, {.depth = 3}));
      drive_.held = true;
      ASSERT_TRUE(b.pair->read(b.name_space, 0, 1, b.data->address()).value());
      b.pair->ring();
      share_.tell(b.drive->client().lease, PCILEND_NEWS_GONE);
      EXPECT_EQ(drive_.io_queues(), 2U) << "not before its manager hears of it";
      serve();
      EXPECT_EQ(drive_.io_queues(), 1U);
      EXPECT_TRUE(b.drive->lost());
      EXPECT_EQ(b.pair->take().error().kind, ErrorClass::State);
      close(b);
      drive_.release();
    }
    ASSERT_NO_FATAL_FAILURE(use(a, 1, std::byte{0xa}));
  }
  EXPECT_TRUE(share_.segments.empty());
  EXPECT_EQ(manager_->clients(), 1U);
}

// A doorbell that it rings once the link is back must be nobody else's, and nothing of before is
// believed.
TEST_F(Shares, AClientWhoseLinkWasLostHasToJoinAgain) {
  ASSERT_NO_FATAL_FAILURE(manage());
  Client a, b, c;
  ASSERT_NO_FATAL_FAILURE(open(a, kOther));
  ASSERT_NO_FATAL_FAILURE(open(b));
  share_.tell(a.drive->client().lease, PCILEND_NEWS_QUARANTINED);
  serve();
  EXPECT_EQ(drive_.io_queues(), 1U);
  EXPECT_TRUE(a.drive->lost());
  ASSERT_NO_FATAL_FAILURE(open(c));
  EXPECT_EQ(drive_.io_queues(), 2U);
  const auto again = QueuePair::create(a.drive->device(), a.drive->queues(), {});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, ErrorClass::Unreachable);
  const uint64_t before = drive_.rings;
  (void)a.pair->flush(a.name_space);
  a.pair->ring();
  EXPECT_EQ(drive_.rings, before);
  ASSERT_NO_FATAL_FAILURE(use(b, 1, std::byte{0xb}));
  // Its queues are confirmed to be deleted.
  const uint32_t former = a.drive->client().lease;
  a.pair.reset();
  EXPECT_FALSE(share_.guests.at(former).over);
  close(a);
  EXPECT_TRUE(join(kOther));
}

TEST_F(Shares, AManagerThatIsSilentIsNotWaitedForForever) {
  ASSERT_NO_FATAL_FAILURE(manage());
  Client a;
  ASSERT_NO_FATAL_FAILURE(open(a));
  silent_ = true;
  EXPECT_EQ(a.drive->name_space(1).error().kind, ErrorClass::Unreachable);
  // What can't be confirmed ends the lease: its lender asks the manager then, or stops the drive.
  a.pair.reset();
  EXPECT_TRUE(a.drive->lost());
  EXPECT_EQ(drive_.io_queues(), 1U);
  silent_ = false;
  serve();
  EXPECT_EQ(drive_.io_queues(), 0U);
}

// Nothing is confirmed of a deletion that does not come.
TEST_F(Shares, ADriveThatDoesNotDeleteAQueueIsTheEnd) {
  ASSERT_NO_FATAL_FAILURE(manage());
  Client a;
  ASSERT_NO_FATAL_FAILURE(open(a));
  const uint32_t lease = a.drive->client().lease;
  drive_.deaf = true;
  share_.tell(lease, PCILEND_NEWS_GONE);
  serve();
  EXPECT_TRUE(ended_);
  EXPECT_TRUE(share_.guests.contains(lease)) << "not confirmed";
  EXPECT_FALSE(drive_.enabled) << "it was stopped";
  share_.pump = [] {};
}

TEST_F(Shares, AResetByOthersIsTheEnd) {
  ASSERT_NO_FATAL_FAILURE(manage());
  drive_.reset_by_others();
  serve();
  ASSERT_TRUE(ended_);
  EXPECT_EQ(ended_->kind, ErrorClass::State);
}

TEST_F(Shares, ClientsEndInOrderWhenTheManagerDoes) {
  ASSERT_NO_FATAL_FAILURE(manage());
  Client a, b;
  ASSERT_NO_FATAL_FAILURE(open(a));
  ASSERT_NO_FATAL_FAILURE(open(b, kOther));
  ASSERT_TRUE(manager_->close());
  EXPECT_EQ(manager_->clients(), 2U);
  serve();
  EXPECT_EQ(manager_->clients(), 0U);
  EXPECT_EQ(drive_.io_queues(), 0U);
  EXPECT_TRUE(a.drive->lost());
}

// Whoever rings the manager's doorbell finds no command there, and what comes of that is not taken
// for an answer.
TEST_F(Shares, TheManagersQueueHasNothingToBeRepeated) {
  ASSERT_NO_FATAL_FAILURE(manage());
  Client a;
  ASSERT_NO_FATAL_FAILURE(open(a));
  drive_.opcodes.clear();
  drive_.store(0x1000, 0);
  drive_.store(0x1000, 1);
  EXPECT_FALSE(drive_.opcodes.empty());
  for (const uint32_t opcode : drive_.opcodes) EXPECT_EQ(opcode, 0x7fU);
  EXPECT_EQ(drive_.io_queues(), 1U);
}

// As when the manager's process is killed: its memory beside the drive ends, and the doorbells do a
// moment later. The drive must not be told to repeat what was there before.
TEST_F(Shares, ACommandThatIsLostOnItsWayIsNotTakenForAFormerOne) {
  ASSERT_NO_FATAL_FAILURE(manage());
  Client a;
  ASSERT_NO_FATAL_FAILURE(open(a, kOther));
  for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(use(a, 1, std::byte{0xa}));
  const auto near = share_.segments.begin()->second;
  const std::vector<std::byte> before(near.begin(), near.end());
  const auto medium = drive_.medium;
  ASSERT_TRUE(a.pair->write(a.name_space, 5, 1, a.data->address()).value());
  std::ranges::copy(before, near.begin());
  const auto done = a.pair->wait(kShort);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().kind, ErrorClass::State);
  EXPECT_EQ(drive_.medium, medium);
}

// One that is slow, while the others go round the whole queue, ends when another has its entry.
TEST_F(Shares, ACommandThatIsSlowDoesNotSpoilAnotherOne) {
  ASSERT_NO_FATAL_FAILURE(manage());
  Client a;
  ASSERT_NO_FATAL_FAILURE(open(a, kOther, {.depth = 3}));
  const auto read = [&] {
    return a.pair->read(a.name_space, 0, 1, a.data->address()).value().value();
  };
  drive_.held = true;
  const uint32_t slow = read();
  a.pair->ring();
  // Four entries: the fourth command after it has its entry, and is not rung for yet.
  for (int i = 0; i < 3; ++i) {
    read();
    a.pair->ring();
    drive_.release_last();
    ASSERT_NE(a.pair->wait(kShort).value().slot, slow);
  }
  read();
  drive_.release();
  EXPECT_EQ(a.pair->take().value()->slot, slow);
  EXPECT_EQ(a.pair->wait(kShort).value().status, 0);
}

TEST_F(Shares, NonsenseIsRefusedAndDisturbsNobody) {
  ASSERT_NO_FATAL_FAILURE(manage());
  Client a;
  ASSERT_NO_FATAL_FAILURE(open(a));
  FakeClientLease odd(share_, kOther);
  const auto answer_to = [&](const std::vector<std::byte>& bytes) {
    const auto said = odd.ask(bytes, kShort);
    EXPECT_TRUE(said);
    return mail::decode_answer(said.value()).value();
  };
  const auto refused = [&](const mail::Question& question) {
    const auto answer = answer_to(mail::encode(5, question));
    EXPECT_EQ(answer.number, 5U);
    const auto* refusal = std::get_if<mail::Refusal>(&answer.what);
    return refusal ? refusal->error.kind : ErrorClass{};
  };
  EXPECT_TRUE(std::holds_alternative<mail::Refusal>(answer_to({std::byte{9}}).what));
  const uint64_t slice = share_.guests.at(odd.lease()).notice.slice;
  EXPECT_EQ(refused(mail::CreatePair{{64, slice, slice + kPage, {}}}), ErrorClass::State)
      << "it has not said hello";
  EXPECT_EQ(refused(mail::Hello{}), ErrorClass{});
  EXPECT_EQ(refused(mail::CreatePair{{64, slice, slice + kPage, {}}}), ErrorClass::Usage);
  EXPECT_EQ(refused(mail::DeletePair{1}), ErrorClass::NotFound) << "that of another";
  EXPECT_EQ(refused(mail::AskController{4096}), ErrorClass::Usage);
  EXPECT_EQ(refused(mail::AskController{4095}), ErrorClass{});
  EXPECT_EQ(refused(mail::AskIdentify{1, 0, slice}), ErrorClass::Permission);
  ASSERT_NO_FATAL_FAILURE(use(a, 1, std::byte{0xa}));
}

TEST_F(Shares, WithoutMemoryBesideTheDriveNobodyOfAnotherHostIsLetIn) {
  ASSERT_NO_FATAL_FAILURE(manage());
  share_.near_fails = true;
  const auto refused = join(kOther);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "the manager of 40001: memory beside the drive: no room");
  EXPECT_TRUE(join(kLenderNode));
  // Unless its administrator says so.
  manager_.reset();
  share_.guests.clear();
  ASSERT_NO_FATAL_FAILURE(manage({.near_bytes = 0}));
  Client far;
  ASSERT_NO_FATAL_FAILURE(open(far, kOther));
  ASSERT_NO_FATAL_FAILURE(use(far, 1, std::byte{0xf}));
}

TEST_F(Shares, WhatTheDriveTellsIsSaid) {
  drive_.event_requests = 1;
  ASSERT_NO_FATAL_FAILURE(manage());
  Client a;
  ASSERT_NO_FATAL_FAILURE(open(a));
  ASSERT_TRUE(drive_.tell(0x00010100));
  // Before anybody looks, and among answers of others.
  ASSERT_TRUE(a.drive->health());
  serve();
  EXPECT_EQ(said_.back(), "the drive says: a doorbell was rung with a value that it can't have");
  // Its log page was read, so it goes on telling.
  ASSERT_TRUE(drive_.tell(0x00040002));
  serve();
  EXPECT_EQ(said_.back(), "the drive says: some of its namespaces have come, gone, or changed");
  ASSERT_NO_FATAL_FAILURE(use(a, 1, std::byte{1}));
  close(a);
}

TEST_F(Shares, EachClientLearnsOfNamespacesThatHaveChanged) {
  drive_.event_requests = 1;
  ASSERT_NO_FATAL_FAILURE(manage());
  serve();
  EXPECT_EQ(drive_.told_events, 0x11fU) << "of its health, and of what it knows to tell";
  Client a;
  Client b;
  ASSERT_NO_FATAL_FAILURE(open(a));
  ASSERT_NO_FATAL_FAILURE(open(b, kOther));
  const auto changes = [](const Client& client) {
    const auto said = client.drive->changes();
    EXPECT_TRUE(said) << said.error().message;
    return said.value_or(NamespaceChanges{true, {}});
  };
  EXPECT_TRUE(changes(a).empty());
  drive_.changed = {2, 5};
  ASSERT_TRUE(drive_.tell(0x00040002));
  serve();
  EXPECT_EQ(said_.back(), "the drive says: namespaces 2, 5: come, gone, or changed");
  EXPECT_EQ(changes(a).ids, (std::vector<uint32_t>{2, 5}));
  EXPECT_TRUE(changes(a).empty()) << "once";
  drive_.changed = {5};
  ASSERT_TRUE(drive_.tell(0x00040002));
  serve();
  EXPECT_EQ(changes(a).ids, std::vector<uint32_t>{5});
  EXPECT_EQ(changes(b).ids, (std::vector<uint32_t>{2, 5})) << "who asks late misses nothing";
  // Whoever joins now knows them as they are.
  Client c;
  ASSERT_NO_FATAL_FAILURE(open(c));
  EXPECT_TRUE(changes(c).empty());
  // The drive does not say which.
  ASSERT_TRUE(drive_.tell(0x00040002));
  serve();
  EXPECT_TRUE(changes(c).all);
  for (Client* client : {&a, &b, &c}) close(*client);
}

TEST_F(Shares, ADriveThatTellsNothingIsAskedOnce) {
  ASSERT_NO_FATAL_FAILURE(manage());
  serve();
  serve();
  EXPECT_EQ(std::ranges::count(drive_.opcodes, 0x0cU), 1);
}

// As the program that asks has it: a client without queues.
class Fencer {
 public:
  Fencer(FakeShare& share, uint32_t node) : lease_(share, node) {}
  Result<bool> ask(mail::Fencing what, uint32_t node) {
    const auto answer = lease_.ask(mail::encode(1, mail::Fence{what, node}), kShort);
    if (!answer) return tl::unexpected(answer.error());
    const auto letter = mail::decode_answer(*answer);
    if (!letter) return tl::unexpected(letter.error());
    if (const auto* refusal = std::get_if<mail::Refusal>(&letter->what))
      return tl::unexpected(refusal->error);
    return std::get<mail::Fenced>(letter->what).fenced;
  }

 private:
  FakeClientLease lease_;
};

TEST_F(Shares, ANodeThatIsFencedReachesTheDriveNoMore) {
  ASSERT_NO_FATAL_FAILURE(manage());
  constexpr uint32_t kThird = 12;
  Client bad, good;
  ASSERT_NO_FATAL_FAILURE(open(bad, kOther));
  ASSERT_NO_FATAL_FAILURE(open(good, kThird));
  // What it has under way is not done any more.
  drive_.held = true;
  std::ranges::fill(bad.data->bytes().first(512), std::byte{0xbd});
  ASSERT_TRUE(bad.pair->write(bad.name_space, 5, 1, bad.data->address()).value());
  EXPECT_FALSE(bad.pair->wait(kShort));
  Fencer fencer(share_, kThird);
  EXPECT_FALSE(fencer.ask(mail::Fencing::Ask, kOther).value());
  EXPECT_TRUE(fencer.ask(mail::Fencing::Off, kOther).value());
  EXPECT_TRUE(fencer.ask(mail::Fencing::Ask, kOther).value());
  EXPECT_TRUE(fencer.ask(mail::Fencing::Off, kOther).value()) << "said twice";
  drive_.release();
  EXPECT_EQ(drive_.medium[5 * 512], std::byte{0});
  EXPECT_EQ(drive_.io_queues(), 1U);
  const auto again = join(kOther);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, ErrorClass::Permission);
  // The others go on.
  ASSERT_NO_FATAL_FAILURE(use(good, 5, std::byte{1}));
  // It can't fence who has fenced it; but it says itself that it has begun anew.
  Fencer fenced(share_, kOther);
  EXPECT_FALSE(fenced.ask(mail::Fencing::Off, kThird));
  EXPECT_FALSE(fenced.ask(mail::Fencing::On, kOther).value());
  close(bad);
  Client anew;
  ASSERT_NO_FATAL_FAILURE(open(anew, kOther));
  ASSERT_NO_FATAL_FAILURE(use(anew, 6, std::byte{2}));
  close(anew);
  close(good);
}

TEST_F(Shares, FencesOutliveTheManager) {
  ASSERT_NO_FATAL_FAILURE(manage());
  {
    Fencer fencer(share_, kLenderNode);
    ASSERT_TRUE(fencer.ask(mail::Fencing::Off, kOther).value());
    EXPECT_FALSE(fencer.ask(mail::Fencing::Off, kLenderNode)) << "its own node";
  }
  manager_.reset();
  ASSERT_NO_FATAL_FAILURE(manage());
  EXPECT_FALSE(join(kOther));
  Client a;
  ASSERT_NO_FATAL_FAILURE(open(a));
  close(a);
}

TEST_F(Shares, AFenceThatCannotBeKeptIsNone) {
  ASSERT_NO_FATAL_FAILURE(manage());
  share_.keeping_fails = true;
  Fencer fencer(share_, kLenderNode);
  EXPECT_FALSE(fencer.ask(mail::Fencing::Off, kOther));
  EXPECT_FALSE(fencer.ask(mail::Fencing::Ask, kOther).value());
}

// A drive with such a fault does not carry a fence out: that is not confirmed, and it is stopped.
class BrokenFences : public Shares {
 protected:
  void try_with(bool& fault) {
    ASSERT_NO_FATAL_FAILURE(manage());
    Client a;
    ASSERT_NO_FATAL_FAILURE(open(a, kOther));
    Fencer fencer(share_, kLenderNode);
    fault = true;
    EXPECT_FALSE(fencer.ask(mail::Fencing::Off, kOther));
    serve();
    EXPECT_TRUE(ended_);
    EXPECT_FALSE(drive_.enabled);
    share_.pump = [] {};
  }
};

TEST_F(BrokenFences, OfADriveThatIsSilent) {
  try_with(drive_.deaf);
}

TEST_F(BrokenFences, OfADriveThatKeepsItsQueues) {
  try_with(drive_.keeps_queues);
}

TEST_F(Shares, WhoHasJoinedJustNowIsKnown) {
  ASSERT_NO_FATAL_FAILURE(manage());
  uint32_t lease = 0;
  share_.before_mail = [&] {
    if (lease != 0) return;
    auto& guest = share_.add(kOther);
    lease = guest.notice.lease;
    guest.question = mail::encode(1, mail::Hello{});
  };
  serve();
  ASSERT_TRUE(share_.guests.at(lease).answer);
  const auto letter = mail::decode_answer(*share_.guests.at(lease).answer);
  ASSERT_TRUE(letter) << letter.error().message;
  EXPECT_TRUE(std::holds_alternative<mail::Welcome>(letter->what));
  share_.tell(lease, PCILEND_NEWS_GONE);
  serve();
}

TEST_F(Shares, CommandsAreInTheDrivesOwnMemoryIfThatIsWanted) {
  drive_.capabilities |= uint64_t{1} << 57;
  drive_.own_pages = 64;
  manage({.clients = 2, .own_bytes = 32 * kPage});
  ASSERT_EQ(share_.policy->ranges.size(), 2U);
  const BarRange& range = share_.policy->ranges[1];
  EXPECT_EQ(range.bar, 2U);
  EXPECT_EQ(range.page, 1U);
  EXPECT_EQ(range.pages, 32U);
  EXPECT_TRUE(range.pool);
  Client clients[2];
  for (uint32_t node : {kLenderNode, kOther}) {
    Client& client = clients[node == kOther];
    ASSERT_NO_FATAL_FAILURE(open(client, node));
    ASSERT_NO_FATAL_FAILURE(use(client, node, std::byte(node)));
  }
  // Each has its piece, and nothing of it is in a segment.
  EXPECT_TRUE(share_.segments.empty());
  for (const size_t piece : {0, 1}) {
    const auto bytes = drive_.own->bytes().subspan(piece * 32 * kPage, 32 * kPage);
    EXPECT_TRUE(std::ranges::any_of(bytes, [](std::byte b) { return b != std::byte{}; })) << piece;
  }
  // Commands elsewhere are refused.
  const auto elsewhere = clients[0].drive->queues().create(
      {64, clients[0].data->address(), clients[0].data->address() + kPage, {}});
  EXPECT_FALSE(elsewhere);
  for (Client& client : clients) close(client);
}

TEST_F(Shares, OfTheDrivesOwnMemoryThereIsAsMuchAsThereIs) {
  ManagerOptions options{.clients = 2, .own_bytes = 33 * kPage, .patience = kShort};
  const auto tell = [](const std::string&) {};
  const auto none = Manager::open(drive_, share_, options, tell);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorClass::Unsupported);
  drive_.capabilities |= uint64_t{1} << 57;
  drive_.own_pages = 64;
  const auto little = Manager::open(drive_, share_, options, tell);
  ASSERT_FALSE(little);
  EXPECT_EQ(little.error().kind, ErrorClass::Usage);
  EXPECT_EQ(little.error().message,
            "2 clients with 135168 bytes of the drive's own memory each: it has 262144");
}

TEST_F(Shares, InterruptsAreTheirClients) {
  ASSERT_NO_FATAL_FAILURE(manage({.vectors = 2}));
  Client a, b;
  ASSERT_NO_FATAL_FAILURE(open(a, kLenderNode, {.vector = 0}));
  ASSERT_NO_FATAL_FAILURE(open(b, kLenderNode, {.vector = 0}));
  ASSERT_NO_FATAL_FAILURE(use(b, 1, std::byte{0xb}));
  EXPECT_EQ(a.pair->interrupts(), 0U);
  EXPECT_EQ(b.pair->interrupts(), 2U);
  EXPECT_EQ(a.drive->vector(), 0);
}

}  // namespace
}  // namespace pcilend::nvme
