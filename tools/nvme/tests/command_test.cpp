// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/command.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pcilend::nvme {
namespace {

constexpr uint64_t kBase = uint64_t{1} << 36;

class Prps : public testing::Test {
 protected:
  Prps() { entries_.fill(~uint64_t{0}); }

  Result<DataPointer> make(uint64_t address, size_t bytes) {
    return make_prps(address, bytes, {entries_, kListAddress});
  }
  [[nodiscard]] size_t written() const {
    return static_cast<size_t>(std::ranges::count_if(entries_, [](auto e) { return e != ~0ULL; }));
  }

  static constexpr uint64_t kListAddress = kBase + 0x100000;
  std::array<uint64_t, kPrpEntries> entries_{};
};

TEST_F(Prps, OneAndTwoPagesAreInTheCommand) {
  const struct {
    uint64_t offset;
    size_t bytes;
    uint64_t second;
  } cases[] = {{0, 512, 0},     {0, 4096, 0},       {2048, 2048, 0}, {2048, 2052, 4096},
               {0, 8192, 4096}, {4092, 4100, 4096}, {4092, 4, 0}};
  for (const auto& c : cases) {
    const auto data = make(kBase + c.offset, c.bytes);
    ASSERT_TRUE(data) << data.error().message;
    EXPECT_EQ(data->prp1, kBase + c.offset) << c.offset << " " << c.bytes;
    EXPECT_EQ(data->prp2, c.second ? kBase + c.second : 0) << c.offset << " " << c.bytes;
  }
  EXPECT_EQ(written(), 0U);
}

TEST_F(Prps, MoreAreAtTheEndOfTheList) {
  const auto data = make(kBase + 512, 8192 + 4096);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->prp1, kBase + 512);
  EXPECT_EQ(data->prp2, kListAddress + 4096 - 3 * 8);
  EXPECT_EQ(written(), 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(entries_[509 + i], kBase + 4096 * (i + 1));
}

TEST_F(Prps, AFullListDoesNotChain) {
  const auto data = make(kBase + 4, kTransferMax);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->prp2, kListAddress);
  EXPECT_EQ(written(), kPrpEntries);
  EXPECT_EQ(entries_.back(), kBase + kTransferMax);
  EXPECT_FALSE(make(kBase + 4, kTransferMax + 4096));
}

TEST_F(Prps, WhatNvmeCannotSayIsRefused) {
  EXPECT_FALSE(make(kBase, 0));
  EXPECT_FALSE(make(kBase + 2, 512));
  EXPECT_EQ(written(), 0U);
}

TEST(Commands, AreAsTheSpecificationHasThem) {
  const Command read = make_read(3, 0x123456789a, 8, {0x1000, 0x2000});
  const std::array<uint32_t, 16> wanted{0x02, 3,      0, 0,          0,    0, 0x1000,
                                        0,    0x2000, 0, 0x3456789a, 0x12, 7};
  EXPECT_EQ(read.dword, wanted);
  EXPECT_EQ(make_write(3, 0, 65536, {}).dword[12], 0xffffU);
  EXPECT_EQ(make_flush(7).dword[1], 7U);

  const Command completions = make_completion_queue(5, 256, kBase, true, 9);
  EXPECT_EQ(completions.dword[0], 0x05U);
  EXPECT_EQ(completions.dword[7], kBase >> 32);
  EXPECT_EQ(completions.dword[10], 255U << 16 | 5);
  EXPECT_EQ(completions.dword[11], 9U << 16 | 3);
  EXPECT_EQ(make_completion_queue(5, 256, kBase, false, 9).dword[11], 1U);
  EXPECT_EQ(make_submission_queue(5, 65536, kBase).dword[10], 0xffffU << 16 | 5);
  EXPECT_EQ(make_submission_queue(5, 2, kBase).dword[11], 5U << 16 | 1);
  EXPECT_EQ(make_queue_count(64).dword[11], 63U << 16 | 63);
}

TEST(Commands, GivenQueuesAreTheLeastOfBothKinds) {
  EXPECT_EQ(queues_given(3U << 16 | 7), 4);
  EXPECT_EQ(queues_given(7U << 16 | 3), 4);
  EXPECT_EQ(queues_given(0xffffffff), 0xffff);
}

TEST(Completions, AreParsed) {
  const std::array<uint32_t, 4> dwords{17, 0, 5U << 16 | 2, 0x281U << 17 | 1U << 16 | 42};
  const auto completion = Completion::parse(dwords);
  EXPECT_EQ(completion.result, 17U);
  EXPECT_EQ(completion.queue, 5);
  EXPECT_EQ(completion.command, 42);
  EXPECT_TRUE(completion.phase);
  EXPECT_EQ(completion.status, 0x281);
  EXPECT_EQ(status_text(completion.status), "status 0x281 (the blocks could not be read)");
  EXPECT_EQ(status_text(0x7fe), "status 0x7fe");
}

TEST(Commands, OfDisks) {
  const Command through = make_write_through(3, 0x100000002, 8, {kBase, kBase + 4096});
  const Command write = make_write(3, 0x100000002, 8, {kBase, kBase + 4096});
  EXPECT_EQ(through.dword[12], write.dword[12] | 1U << 30);
  EXPECT_EQ(through.dword[0], write.dword[0]);
  const Command zeroes = make_write_zeroes(3, 0x100000002, 65536);
  EXPECT_EQ(zeroes.dword[0], 0x08U);
  EXPECT_EQ(zeroes.dword[1], 3U);
  EXPECT_EQ(zeroes.dword[10], 2U);
  EXPECT_EQ(zeroes.dword[11], 1U);
  EXPECT_EQ(zeroes.dword[12], 0xffffU);
  const Command deallocate = make_deallocate(3, kBase + 512);
  EXPECT_EQ(deallocate.dword[0], 0x09U);
  EXPECT_EQ(deallocate.dword[6], 512U);
  EXPECT_EQ(deallocate.dword[7], static_cast<uint32_t>(kBase >> 32));
  EXPECT_EQ(deallocate.dword[10], 0U);  // one range
  EXPECT_EQ(deallocate.dword[11], 4U);
}

}  // namespace
}  // namespace pcilend::nvme
