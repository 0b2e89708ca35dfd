// SPDX-License-Identifier: GPL-2.0-or-later
// The controller and its queues against one that is made up.
#include "pcilend/nvme/controller.h"

#include <gtest/gtest.h>

#include "fake_controller.h"
#include "pcilend/nvme/queue_pair.h"

namespace pcilend::nvme {
namespace {

using namespace std::chrono_literals;
using test::FakeController;

constexpr auto kShort = 20ms;

class Drives : public testing::Test {
 protected:
  void TearDown() override {
    pair_.reset();
    controller_.reset();
    EXPECT_FALSE(drive_.fatal) << "it was given an address that it must not have";
    EXPECT_EQ(drive_.io_queues(), 0U);
  }

  void start() {
    auto controller = Controller::start(drive_, kShort);
    ASSERT_TRUE(controller) << controller.error().message;
    controller_ = std::move(*controller);
    name_space_ = controller_->name_space(1).value();
  }
  void open(const QueuePairOptions& options) {
    ASSERT_NO_FATAL_FAILURE(start());
    auto pair = QueuePair::create(drive_, *controller_, options);
    ASSERT_TRUE(pair) << pair.error().message;
    pair_ = std::move(*pair);
  }
  std::unique_ptr<Memory> memory(size_t bytes) { return drive_.allocate(bytes, {}).value(); }
  [[nodiscard]] Error error_of_start() {
    const auto controller = Controller::start(drive_, kShort);
    return controller ? Error{} : controller.error();
  }

  FakeController drive_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<QueuePair> pair_;
  NamespaceInfo name_space_;
};

TEST_F(Drives, AreStartedAndStopped) {
  ASSERT_NO_FATAL_FAILURE(start());
  EXPECT_EQ(controller_->info().model, "A drive of memory");
  EXPECT_EQ(controller_->info().transfer, 64 * kPage);
  EXPECT_EQ(controller_->queues(), 4U);
  EXPECT_EQ(controller_->limits().entries, 64U);
  EXPECT_EQ(controller_->namespaces().value(), std::vector<uint32_t>{1});
  EXPECT_EQ(name_space_.blocks, 2048U);
  EXPECT_EQ(controller_->name_space(2).error().kind, ErrorClass::NotFound);
  EXPECT_TRUE(drive_.enabled);
  controller_.reset();
  EXPECT_FALSE(drive_.enabled);
  EXPECT_EQ(drive_.mapped(), 0U);
}

TEST_F(Drives, ThatCannotBeUsedAreRefused) {
  const uint64_t good = drive_.capabilities;
  drive_.gone = true;
  EXPECT_EQ(error_of_start().kind, ErrorClass::Unreachable);
  drive_.gone = false;
  drive_.capabilities = good | 1ULL << 48;
  EXPECT_EQ(error_of_start().kind, ErrorClass::Unsupported) << "pages of 8 KiB";
  drive_.capabilities = good & ~(1ULL << 37);
  EXPECT_EQ(error_of_start().kind, ErrorClass::Unsupported) << "no NVM command set";
  drive_.capabilities = good | 10ULL << 32;
  EXPECT_EQ(error_of_start().kind, ErrorClass::Unsupported) << "doorbells 4096 bytes apart";
  drive_.capabilities = good;
  drive_.deaf = true;
  EXPECT_EQ(error_of_start().kind, ErrorClass::Unreachable);
  EXPECT_FALSE(drive_.enabled) << "it is stopped before its memory goes";
}

// Only the queues whose doorbells are mapped are used.
TEST_F(Drives, WithDoorbellsFarApartHaveFewQueues) {
  drive_.capabilities |= 8ULL << 32;
  drive_.pairs = 64;
  const auto controller = Controller::start(drive_, kShort);
  ASSERT_TRUE(controller) << controller.error().message;
  EXPECT_EQ((*controller)->queues(), 1U);
}

TEST_F(Drives, QueuesAreGivenOutAndComeBack) {
  ASSERT_NO_FATAL_FAILURE(start());
  std::vector<std::unique_ptr<QueuePair>> pairs;
  for (int i = 0; i < 4; ++i) {
    auto pair = QueuePair::create(drive_, *controller_, {});
    ASSERT_TRUE(pair) << pair.error().message;
    pairs.push_back(std::move(*pair));
  }
  EXPECT_EQ(drive_.io_queues(), 4U);
  const auto none = QueuePair::create(drive_, *controller_, {});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorClass::State);
  pairs.erase(pairs.begin() + 1);
  EXPECT_EQ(drive_.io_queues(), 3U);
  EXPECT_TRUE(QueuePair::create(drive_, *controller_, {}));
  EXPECT_FALSE(QueuePair::create(drive_, *controller_, {.depth = 64}));
  EXPECT_TRUE(QueuePair::create(drive_, *controller_, {.depth = 63}));
  EXPECT_FALSE(QueuePair::create(drive_, *controller_, {.transfer = 65 * kPage}));
}

TEST_F(Drives, TransferDataOfAnySize) {
  ASSERT_NO_FATAL_FAILURE(open({.depth = 2, .transfer = 64 * kPage}));
  const auto data = memory(66 * kPage);
  for (const uint32_t blocks : {1U, 8U, 9U, 16U, 17U, 24U, 512U}) {
    for (const uint64_t offset : {0U, 512U, 2048U}) {
      const size_t bytes = blocks * size_t{512};
      const auto mine = data->bytes().subspan(offset, bytes);
      for (size_t i = 0; i < bytes; ++i) mine[i] = std::byte(i * 7 + blocks + offset);
      const std::vector<std::byte> kept(mine.begin(), mine.end());
      ASSERT_TRUE(pair_->write(name_space_, 3, blocks, data->address() + offset).value());
      ASSERT_EQ(pair_->wait(kShort).value().status, 0);
      EXPECT_TRUE(std::equal(kept.begin(), kept.end(), drive_.medium.begin() + 3 * 512));
      std::ranges::fill(data->bytes(), std::byte{});
      ASSERT_TRUE(pair_->read(name_space_, 3, blocks, data->address() + offset).value());
      ASSERT_EQ(pair_->wait(kShort).value().status, 0);
      EXPECT_TRUE(std::ranges::equal(kept, mine)) << blocks << " blocks, offset " << offset;
      EXPECT_EQ(std::ranges::count(data->bytes(), std::byte{}),
                static_cast<ptrdiff_t>(data->bytes().size() - bytes) +
                    std::ranges::count(kept, std::byte{}))
          << "and nothing around it";
    }
  }
  ASSERT_TRUE(pair_->flush(name_space_).value());
  EXPECT_EQ(pair_->wait(kShort).value().status, 0);
}

TEST_F(Drives, RefuseWhatIsOutOfThem) {
  ASSERT_NO_FATAL_FAILURE(open({}));
  const auto data = memory(kPage);
  const auto refuses = [&](uint64_t block, uint32_t blocks) {
    return !pair_->write(name_space_, block, blocks, data->address());
  };
  EXPECT_TRUE(refuses(2048, 1));
  EXPECT_TRUE(refuses(2047, 2));
  EXPECT_TRUE(refuses(~uint64_t{0}, 1));
  EXPECT_TRUE(refuses(0, 0));
  EXPECT_TRUE(refuses(0, 9)) << "more than the pair is for";
  EXPECT_FALSE(refuses(2047, 1));
  EXPECT_EQ(pair_->wait(kShort)->status, 0);
  // What the drive says of it itself.
  name_space_.blocks = 4096;
  EXPECT_FALSE(refuses(2048, 1));
  EXPECT_EQ(pair_->wait(kShort)->status, 0x080);
}

TEST_F(Drives, AnswerInAnyOrder) {
  ASSERT_NO_FATAL_FAILURE(open({.depth = 3, .vector = 1}));
  const auto data = memory(3 * kPage);
  // More rounds than either queue has entries.
  for (int round = 0; round < 6; ++round) {
    drive_.held = true;
    std::vector<uint32_t> slots;
    for (uint64_t i = 0; i < 3; ++i)
      slots.push_back(pair_->read(name_space_, i, 1, data->address() + i * kPage).value().value());
    EXPECT_EQ(pair_->read(name_space_, 0, 1, data->address()).value(), std::nullopt)
        << "all in use";
    pair_->ring();
    EXPECT_EQ(pair_->under_way(), 3U);
    EXPECT_EQ(pair_->take().value(), std::nullopt);
    drive_.release();
    for (auto slot = slots.rbegin(); slot != slots.rend(); ++slot)
      EXPECT_EQ(pair_->wait(kShort).value().slot, *slot);
    EXPECT_EQ(pair_->under_way(), 0U);
  }
  EXPECT_EQ(pair_->doorbells(), 6 * 4U) << "one for three commands, one for each answer";
}

TEST_F(Drives, ThatSleepAreWokenByTheirInterrupt) {
  ASSERT_NO_FATAL_FAILURE(open({.vector = 1}));
  const auto data = memory(kPage);
  drive_.held = true;
  ASSERT_TRUE(pair_->read(name_space_, 0, 1, data->address()).value());
  EXPECT_EQ(pair_->wait(kShort).error().kind, ErrorClass::Unreachable);
  drive_.release();
  ASSERT_TRUE(pair_->wait(kShort));
  ASSERT_TRUE(pair_->flush(name_space_).value());
  ASSERT_TRUE(pair_->wait(kShort));
  EXPECT_EQ(pair_->interrupts(), 2U);
}

struct Lie {
  const char* what;
  void (*tell)(std::array<uint32_t, 4>&);
};

class Liars : public Drives, public testing::WithParamInterface<Lie> {};

TEST_P(Liars, AreNotBelieved) {
  ASSERT_NO_FATAL_FAILURE(open({.depth = 3}));
  const auto data = memory(kPage);
  drive_.alter = GetParam().tell;
  ASSERT_TRUE(pair_->read(name_space_, 0, 1, data->address()).value());
  const auto done = pair_->wait(kShort);
  ASSERT_FALSE(done) << GetParam().what;
  EXPECT_EQ(done.error().kind, ErrorClass::Failure);
  EXPECT_EQ(pair_->read(name_space_, 0, 1, data->address()).error().kind, ErrorClass::Failure)
      << "nothing more is given to it";
}

INSTANTIATE_TEST_SUITE_P(
    Drives, Liars,
    testing::Values(Lie{"ACommandThatIsNotUnderWay", [](auto& c) { c[3] = (c[3] & ~0xffffU) | 1; }},
                    Lie{"ACommandThatThereIsNot", [](auto& c) { c[3] |= 0xffff; }},
                    Lie{"AnotherQueue", [](auto& c) { c[2] = (c[2] & 0xffff) | 2U << 16; }}),
    [](const auto& lie) { return std::string(lie.param.what); });

TEST_F(Drives, ThatOthersResetAreNotBelieved) {
  ASSERT_NO_FATAL_FAILURE(open({.depth = 3}));
  const auto data = memory(kPage);
  ASSERT_TRUE(pair_->read(name_space_, 0, 1, data->address()).value());
  drive_.held = true;
  pair_->ring();
  drive_.reset_by_others();
  const auto done = pair_->take();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().kind, ErrorClass::State);
  EXPECT_EQ(pair_->flush(name_space_).error().kind, ErrorClass::State);
  pair_.reset();
  EXPECT_EQ(controller_->name_space(1).error().kind, ErrorClass::State);
  controller_.reset();
  EXPECT_FALSE(drive_.enabled) << "it must not be enabled again, with no queues";
}

// It is in memory, but data that was sent before it may be lost.
TEST_F(Drives, ACompletionOfBeforeALossDoesNotCount) {
  ASSERT_NO_FATAL_FAILURE(open({}));
  const auto data = memory(kPage);
  ASSERT_TRUE(pair_->read(name_space_, 0, 1, data->address()).value());
  pair_->ring();
  ++drive_.now_epoch;
  EXPECT_EQ(pair_->take().error().kind, ErrorClass::State);
}

// With what is submitted behind the loss nothing would ever happen.
TEST_F(Drives, NothingIsSubmittedBehindALoss) {
  ASSERT_NO_FATAL_FAILURE(open({}));
  const auto data = memory(kPage);
  ++drive_.now_epoch;
  const auto submitted = pair_->read(name_space_, 0, 1, data->address());
  ASSERT_FALSE(submitted);
  EXPECT_EQ(submitted.error().kind, ErrorClass::State);
}

// So it is not waited for as long as for one that is slow.
TEST_F(Drives, OneWithAFatalErrorIsStoppedAtOnce) {
  constexpr auto kPatience = 20s;
  auto controller = Controller::start(drive_, kPatience);
  ASSERT_TRUE(controller) << controller.error().message;
  drive_.deaf = true;
  drive_.broken = true;
  const auto begin = std::chrono::steady_clock::now();
  const auto asked = (*controller)->name_space(1);
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().kind, ErrorClass::Failure);
  EXPECT_NE(asked.error().message.find("has a fatal error"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience / 2);
  EXPECT_FALSE(drive_.enabled);
}

// With commands under way, and memory of their data that goes right behind the queues.
TEST_F(Drives, AreStoppedBeforeMemoryGoes) {
  ASSERT_NO_FATAL_FAILURE(open({.depth = 3}));
  {
    const auto data = memory(kPage);
    drive_.held = true;
    ASSERT_TRUE(pair_->read(name_space_, 0, 1, data->address()).value());
    pair_->ring();
    pair_.reset();
  }
  drive_.release();
  EXPECT_FALSE(drive_.fatal);
  // One that does not delete its queues is stopped as a whole.
  auto pair = QueuePair::create(drive_, *controller_, {});
  ASSERT_TRUE(pair) << pair.error().message;
  drive_.deaf = true;
  pair->reset();
  EXPECT_FALSE(drive_.enabled);
}

}  // namespace
}  // namespace pcilend::nvme
