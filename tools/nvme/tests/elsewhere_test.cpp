// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/elsewhere.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/placement.h"
#include "fake_controller.h"
#include "pcilend/nvme/controller.h"

namespace pcilend::nvme {
namespace {

using namespace std::chrono_literals;
using test::FakeController;

constexpr uint64_t kAddress = uint64_t{1} << 37;
constexpr size_t kBytes = 16 * kPage;

// A drive that reaches a memfd, in the place of a dma-buf.
class ReachingController final : public FakeController {
 public:
  Result<std::unique_ptr<Reach>> map(int buffer) override {
    auto view = Mapping::map(buffer, 0, kBytes, true);
    if (!view) return tl::unexpected(std::move(view).error());
    ++reaches;
    return std::make_unique<Window>(*this, std::move(*view));
  }

  int reaches = 0;

 private:
  class Window final : public Reach {
   public:
    Window(ReachingController& drive, Mapping view)
        : drive_(drive), view_(std::move(view)), shown_(drive.show(kAddress, view_.bytes())) {}
    Window(const Window&) = delete;
    Window& operator=(const Window&) = delete;
    ~Window() override { --drive_.reaches; }
    [[nodiscard]] uint64_t address() const override { return kAddress; }

   private:
    ReachingController& drive_;
    Mapping view_;
    std::unique_ptr<Memory> shown_;
  };
};

class Elsewheres : public testing::Test {
 protected:
  void SetUp() override {
    auto controller = Controller::start(drive_, 20ms);
    ASSERT_TRUE(controller) << controller.error().message;
    controller_ = std::move(*controller);
    buffer_ = UniqueFd(::memfd_create("elsewhere", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(buffer_.get(), kBytes), 0);
  }
  void TearDown() override {
    EXPECT_FALSE(drive_.fatal);
    EXPECT_EQ(drive_.reaches, 0);
  }

  [[nodiscard]] Result<std::unique_ptr<Elsewhere>> behind(uint64_t offset, size_t bytes) {
    return Elsewhere::behind(drive_, buffer_.get(), offset, bytes);
  }

  ReachingController drive_;
  std::unique_ptr<Controller> controller_;
  UniqueFd buffer_;
};

TEST_F(Elsewheres, HaveNames) {
  const auto bar = parse_elsewhere("40002:2+64K");
  ASSERT_TRUE(bar) << bar.error().message;
  EXPECT_EQ(bar->function, FunctionId{0x40002});
  EXPECT_EQ(bar->bar, 2U);
  EXPECT_EQ(bar->offset, 64U << 10);
  const auto buffer = parse_elsewhere("fd:7+1M");
  ASSERT_TRUE(buffer) << buffer.error().message;
  EXPECT_FALSE(buffer->function);
  EXPECT_EQ(buffer->buffer, 7);
  EXPECT_EQ(buffer->offset, 1U << 20);
  EXPECT_EQ(parse_elsewhere("fd:0")->buffer, 0);
  for (const char* text :
       {"", "40002", "40002:", ":2", "40002:2+", "40002:2+x", "40002:2+1T", "fd:", "fd:-1", "fd:x",
        "fd:99999999999", "40002:2:3", "zz:1", "40002:2+17179869184G", "40002:2 "}) {
    const auto refused = parse_elsewhere(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().kind, ErrorClass::Usage);
    EXPECT_NE(refused.error().message.find("FUNCTION:BAR[+OFFSET]"), std::string::npos);
  }
}

TEST_F(Elsewheres, AreWholePagesOfWhatIsThere) {
  EXPECT_FALSE(behind(100, kPage));
  EXPECT_FALSE(behind(kBytes, kPage));
  EXPECT_FALSE(behind(kPage, kBytes));
  EXPECT_FALSE(behind(~uint64_t{0} - kPage + 1, kPage));
  EXPECT_FALSE(Elsewhere::behind(drive_, -1, 0, kPage));
  const auto memory = behind(2 * kPage, 100);
  ASSERT_TRUE(memory) << memory.error().message;
  EXPECT_EQ((*memory)->address(), kAddress + 2 * kPage);
  EXPECT_EQ((*memory)->bytes().size(), kPage);
  FakeController other;
  EXPECT_EQ(Elsewhere::behind(other, buffer_.get(), 0, kPage).error().kind,
            ErrorClass::Unsupported);
}

TEST_F(Elsewheres, HaveCommandsAndListsAndNothingElse) {
  const auto memory = behind(0, kBytes);
  ASSERT_TRUE(memory) << memory.error().message;
  const auto device = place_queues(drive_, {.queues = memory->get()});
  const auto commands = device->allocate(kPage, {.device_writes = false, .host_reads = false});
  ASSERT_TRUE(commands);
  EXPECT_EQ((*commands)->address(), kAddress);
  const auto completions = device->allocate(kPage, {.device_reads = false, .host_writes = false});
  ASSERT_TRUE(completions);
  EXPECT_LT((*completions)->address(), kAddress);
  // It is not quietly put where it was not asked for.
  const auto large = device->allocate(kBytes, {.device_writes = false, .host_reads = false});
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().kind, ErrorClass::Usage);
}

TEST_F(Elsewheres, HaveWhatABenchDoes) {
  const BenchOptions options{
      .transfer = 2 * kPage, .commands = 6, .depth = 3, .write = true, .staged = true};
  ASSERT_EQ(queue_bytes(options), (1 + 3 + 6) * kPage);
  ASSERT_EQ(data_bytes(options), 6 * kPage);
  {
    const auto queues = behind(0, queue_bytes(options));
    ASSERT_TRUE(queues) << queues.error().message;
    const auto device = place_queues(drive_, {.queues = queues->get()});
    const auto report =
        run_bench({*device, *controller_, controller_->name_space(1).value()}, options);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->compared, 6U);
  }
  {
    const auto data = behind(kPage, data_bytes(options) + completion_bytes(options));
    ASSERT_TRUE(data) << data.error().message;
    const auto device =
        place_queues(drive_, {.completions = data->get(), .completions_at = data_bytes(options)});
    // Commands are as they were; completions are there.
    const auto completions = device->allocate(16, {.device_reads = false, .host_writes = false});
    ASSERT_TRUE(completions) << completions.error().message;
    EXPECT_EQ((*completions)->address(), (*data)->address() + data_bytes(options));
    EXPECT_FALSE(device->allocate(16, {.device_reads = false, .host_writes = false}));
  }
  {
    const auto data = behind(kPage, data_bytes(options) + completion_bytes(options));
    ASSERT_TRUE(data) << data.error().message;
    const auto device =
        place_queues(drive_, {.completions = data->get(), .completions_at = data_bytes(options)});
    BenchTarget target{*device, *controller_, controller_->name_space(1).value()};
    target.data = data->get();
    BenchOptions direct = options;
    direct.staged = false;
    direct.seed = 2;
    const auto report = run_bench(target, direct);
    ASSERT_TRUE(report) << report.error().message;
    // The last one that was read.
    uint64_t word = 0;
    ASSERT_EQ(::pread(buffer_.get(), &word, sizeof word, kPage), static_cast<ssize_t>(sizeof word));
    bool found = false;
    for (uint64_t command = 0; command < 6; ++command)
      found |= word == content(2, command * options.transfer);
    EXPECT_TRUE(found);
    drive_.medium[0] ^= std::byte{1};
    direct.write = false;
    direct.verify = true;
    EXPECT_FALSE(run_bench(target, direct));
  }
}

}  // namespace
}  // namespace pcilend::nvme
