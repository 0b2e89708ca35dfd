// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/book.h"

#include <gtest/gtest.h>

#include "pcilend/nvme/identify.h"

namespace pcilend::nvme {
namespace {

constexpr uint64_t kSlice = uint64_t{1} << 36;
constexpr uint64_t kNear = uint64_t{1} << 38;
constexpr uint64_t kBytes = uint64_t{1} << 20;

// Client 1 has all in its slice, client 2 has memory beside the drive.
class Books : public testing::Test {
 protected:
  void SetUp() override {
    for (const uint32_t client : {1U, 2U})
      book_.join({.lease = client,
                  .node = client * 4,
                  .slice = kSlice * client,
                  .slice_bytes = kBytes,
                  .vector = 1 + client * 2,
                  .vectors = 2});
    book_.give_near(2, kNear, kBytes);
  }

  // Of client 1; of 64 entries, which are a page and a quarter of one.
  [[nodiscard]] ErrorClass pair(uint64_t submission, uint64_t completion,
                                std::optional<uint16_t> vector = {}, uint32_t entries = 64,
                                uint32_t client = 1) const {
    const auto allowed = book_.allow_pair(client, {entries, submission, completion, vector});
    return allowed ? ErrorClass{} : allowed.error().kind;
  }

  Book book_{{.pairs = 2, .entries = 64}};
};

TEST_F(Books, QueuesAreWhereTheirClientIs) {
  constexpr ErrorClass kFine{};
  const uint64_t last = kSlice + kBytes - kPage;
  EXPECT_EQ(pair(kSlice, last), kFine);
  EXPECT_EQ(pair(last, kSlice), kFine);
  for (const uint64_t wrong : {uint64_t{0}, kSlice - kPage, kSlice + kBytes, 2 * kSlice, kNear,
                               ~uint64_t{0} - kPage + 1, kSlice + 64, kSlice + 1}) {
    EXPECT_EQ(pair(wrong, kSlice), ErrorClass::Usage) << std::hex << wrong;
    EXPECT_EQ(pair(kSlice, wrong), ErrorClass::Usage) << std::hex << wrong;
  }
  EXPECT_EQ(pair(kSlice, kSlice, {}, 64, 3), ErrorClass::NotFound);
}

// The drive could not write a completion beside it, and over a dead link it would read commands.
TEST_F(Books, OfAnotherHostsClientCommandsAreBesideTheDriveAndNothingElse) {
  const uint64_t slice = 2 * kSlice;
  EXPECT_EQ(pair(kNear, slice, {}, 64, 2), ErrorClass{});
  EXPECT_EQ(pair(slice, slice + kPage, {}, 64, 2), ErrorClass::Usage);
  EXPECT_EQ(pair(kNear, kNear + kPage, {}, 64, 2), ErrorClass::Usage);
  EXPECT_EQ(pair(kNear + kBytes, slice, {}, 64, 2), ErrorClass::Usage);
}

TEST_F(Books, QueuesEndWhereTheirMemoryDoes) {
  Book book({.pairs = 1, .entries = 65536});
  book.join({.lease = 1, .slice = kSlice, .slice_bytes = kBytes});
  const auto fits = [&](uint32_t entries, uint64_t submission, uint64_t completion) {
    return book.allow_pair(1, {entries, submission, completion, {}}).has_value();
  };
  EXPECT_TRUE(fits(128, kSlice + kBytes - 2 * kPage, kSlice));
  EXPECT_FALSE(fits(129, kSlice + kBytes - 2 * kPage, kSlice));
  EXPECT_TRUE(fits(256, kSlice, kSlice + kBytes - kPage));
  EXPECT_FALSE(fits(257, kSlice, kSlice + kBytes - kPage));
  EXPECT_FALSE(fits(65536, kSlice, kSlice)) << "4 MiB of commands";
}

TEST_F(Books, HaveLimits) {
  EXPECT_EQ(pair(kSlice, kSlice, {}, 1), ErrorClass::Usage);
  EXPECT_EQ(pair(kSlice, kSlice, {}, 65), ErrorClass::Usage);
  EXPECT_EQ(pair(kSlice, kSlice, 2), ErrorClass::Usage);
  EXPECT_EQ(book_.allow_pair(1, {64, kSlice, kSlice, 1})->vector, 4) << "the drive's number of it";
  book_.add_pair(1, 5);
  EXPECT_EQ(pair(kSlice, kSlice), ErrorClass{});
  book_.add_pair(1, 6);
  EXPECT_EQ(pair(kSlice, kSlice), ErrorClass::State);
  book_.remove_pair(1, 5);
  EXPECT_EQ(pair(kSlice, kSlice), ErrorClass{});
}

TEST_F(Books, QueuesAreTheirOwnersToDelete) {
  book_.add_pair(1, 5);
  book_.add_pair(2, 6);
  EXPECT_TRUE(book_.allow_delete(1, 5));
  EXPECT_EQ(book_.allow_delete(1, 6).error().kind, ErrorClass::NotFound);
  EXPECT_EQ(book_.allow_delete(1, 0).error().kind, ErrorClass::NotFound);
  EXPECT_EQ(book_.pairs(2), std::vector<uint16_t>{6});
  book_.leave(2);
  EXPECT_TRUE(book_.pairs(2).empty());
  EXPECT_EQ(book_.clients(), 1U);
}

// What it rings when its link is back must be nobody else's.
TEST_F(Books, InQuarantineIdsAreKeptAndNoneAreGiven) {
  book_.add_pair(1, 5);
  book_.quarantine(1);
  EXPECT_EQ(book_.pairs(1), std::vector<uint16_t>{5});
  EXPECT_EQ(book_.allow_delete(1, 5).error().kind, ErrorClass::NotFound) << "it is deleted";
  EXPECT_EQ(pair(kSlice, kSlice), ErrorClass::Unreachable);
}

TEST_F(Books, OnlyWhatReadsIsAllowed) {
  for (uint32_t what = 0; what < 0x100; ++what) {
    const bool allowed =
        book_.allow_identify(1, {static_cast<uint16_t>(what), 1, kSlice}).has_value();
    EXPECT_EQ(allowed, what == 0 || what == 2 || what == 3 || what == 5 || what == 6 || what == 8)
        << what;
    const bool log = book_.allow_log(1, {static_cast<uint16_t>(what), 1, 512, kSlice}).has_value();
    EXPECT_EQ(log, what >= 1 && what <= 3) << what;
  }
  EXPECT_FALSE(book_.allow_identify(1, {0x100, 1, kSlice}));
  for (const uint64_t wrong : {uint64_t{0}, 2 * kSlice, kSlice + 4, kSlice + kBytes, kNear}) {
    EXPECT_EQ(book_.allow_identify(1, {0, 1, wrong}).error().kind, ErrorClass::Usage);
    EXPECT_EQ(book_.allow_log(1, {2, 1, 512, wrong}).error().kind, ErrorClass::Usage);
  }
  EXPECT_FALSE(book_.allow_identify(2, {0, 1, kNear})) << "the drive does not write there";
  for (const uint32_t bytes : {0U, 3U, 4100U, ~0U})
    EXPECT_EQ(book_.allow_log(1, {2, 1, bytes, kSlice}).error().kind, ErrorClass::Usage);
}

TEST(Identify, OfASharedDriveHidesWhatIsShared) {
  std::array<std::byte, kPage> page;
  page.fill(std::byte{0xff});
  hide_what_is_shared(page);
  const auto is = [&](size_t at, size_t bytes, uint8_t value) {
    return std::all_of(page.begin() + static_cast<ptrdiff_t>(at),
                       page.begin() + static_cast<ptrdiff_t>(at + bytes),
                       [&](std::byte byte) { return byte == std::byte{value}; });
  };
  EXPECT_TRUE(is(92, 4, 0)) << "events";
  EXPECT_TRUE(is(256, 2, 0)) << "format, firmware, namespaces, doorbell buffers";
  EXPECT_TRUE(is(272, 8, 0)) << "host memory";
  EXPECT_TRUE(is(328, 4, 0)) << "sanitize";
  EXPECT_TRUE(is(520, 1, 0xdf)) << "reservations";
  EXPECT_TRUE(is(521, 1, 0xff));
  EXPECT_TRUE(is(522, 2, 0)) << "fused commands";
  EXPECT_TRUE(is(0, 92, 0xff));
  EXPECT_TRUE(is(524, kPage - 524, 0xff));
  page.fill(std::byte{});
  hide_what_is_shared(page);
  EXPECT_EQ(page[76], std::byte{2}) << "others may have it, too";
}

}  // namespace
}  // namespace pcilend::nvme
