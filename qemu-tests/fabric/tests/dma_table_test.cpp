// SPDX-License-Identifier: GPL-2.0-or-later
#include "dma_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <random>

#include "tests/client.h"

namespace pcilend::fabric {
namespace {

using test::Memory;
using Kind = DmaTable::Kind;

UniqueFd copy_of(int fd) {
  return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

class DmaTableTest : public testing::Test {
 protected:
  Parsed<> map(uint64_t address, uint64_t size, uint64_t offset = 0, bool writable = true) {
    return table.map({32, DmaMap::kRead | (writable ? DmaMap::kWrite : 0), offset, address, size},
                     copy_of(ram.fd()));
  }
  DmaTable::Piece find(uint64_t address, uint64_t size, bool write = false) {
    return table.find(address, size, write);
  }

  Memory ram{1 << 20};
  DmaTable table;
};

TEST_F(DmaTableTest, FindsMemoryAtItsFileOffset) {
  ASSERT_TRUE(map(0x100000, 0x2000, 0x4000));
  ram.put<uint32_t>(0x5004, 0xcafe);
  const auto piece = find(0x101004, 4);
  ASSERT_EQ(piece.kind, Kind::Memory);
  uint32_t value;
  std::memcpy(&value, piece.bytes.data(), 4);
  EXPECT_EQ(value, 0xcafeu);
  EXPECT_EQ(find(0x101ff0, 0x100).size, 0x10u);
  EXPECT_EQ(find(0x102000, 4).kind, Kind::None);
  EXPECT_EQ(find(0xffff0, 0x100).kind, Kind::None);
  EXPECT_EQ(find(0xffff0, 0x100).size, 0x10u) << "up to where an entry begins";
}

TEST_F(DmaTableTest, OverlapsAreRefusedAndChangeNothing) {
  ASSERT_TRUE(map(0x10000, 0x4000));
  for (const auto& [address, size] : std::map<uint64_t, uint64_t>{
           {0x10000, 0x4000}, {0xf000, 0x1001}, {0x13fff, 1}, {0x12000, 0x10}, {0x8000, 0x10000}})
    EXPECT_EQ(map(address, size).error(), EEXIST) << std::hex << address;
  EXPECT_EQ(table.count(), 1u);
  EXPECT_TRUE(map(0x14000, 0x1000));
  EXPECT_TRUE(map(0xf000, 0x1000));
  EXPECT_EQ(table.ranges().size(), 1u);
  EXPECT_EQ(table.mapped_bytes(), 0x6000u);
}

TEST_F(DmaTableTest, UnmapSplitsWhatItCuts) {
  ASSERT_TRUE(map(0x10000, 0x10000));
  table.unmap(0x14000, 0x4000);
  EXPECT_EQ(table.count(), 2u);
  EXPECT_EQ(table.mapped_bytes(), 0xc000u);
  EXPECT_EQ(find(0x13fff, 2).size, 1u);
  EXPECT_EQ(find(0x14000, 1).kind, Kind::None);
  EXPECT_EQ(find(0x17fff, 1).kind, Kind::None);
  ram.put<uint8_t>(0x8000, 0x5a);
  const auto rest = find(0x18000, 0x8000);
  ASSERT_EQ(rest.kind, Kind::Memory);
  EXPECT_EQ(rest.size, 0x8000u);
  EXPECT_EQ(rest.bytes[0], std::byte{0x5a});
}

TEST_F(DmaTableTest, UnmapTakesManyEntriesAndNothingElse) {
  for (uint64_t page = 0; page < 16; page++)
    ASSERT_TRUE(map(0x10000 + page * 0x2000, 0x1000, page * 0x1000));
  table.unmap(0x12000, 0x6000);
  EXPECT_EQ(table.count(), 13u);
  table.unmap(0, 0x10000);
  EXPECT_EQ(table.count(), 13u);
  table.unmap(0, UINT64_MAX);
  EXPECT_EQ(table.count(), 0u);
  EXPECT_EQ(table.mapped_bytes(), 0u);
}

TEST_F(DmaTableTest, TheTopOfTheAddressSpaceCanBeMapped) {
  ASSERT_TRUE(map(UINT64_MAX - 0xfff, 0x1000));
  EXPECT_EQ(find(UINT64_MAX, 1).kind, Kind::Memory);
  EXPECT_EQ(find(UINT64_MAX - 0x1000, 0x10).size, 1u);
  table.unmap(UINT64_MAX - 0x7ff, 0x800);
  EXPECT_EQ(find(UINT64_MAX, 1).kind, Kind::None);
  EXPECT_EQ(find(UINT64_MAX - 0xfff, 1).kind, Kind::Memory);
}

TEST_F(DmaTableTest, ReadOnlyRangesRefuseWrites) {
  ASSERT_TRUE(map(0x10000, 0x1000, 0, false));
  EXPECT_EQ(find(0x10000, 4, true).kind, Kind::Refused);
  EXPECT_EQ(find(0x10000, 4, false).kind, Kind::Memory);
}

TEST_F(DmaTableTest, ARangeWithoutADescriptorIsAskedFor) {
  ASSERT_TRUE(table.map({32, 3, 0, 0xc0000, 0x20000}, UniqueFd()));
  EXPECT_EQ(find(0xd0000, 4).kind, Kind::Message);
  table.unmap(0xc0000, 0x10000);
  EXPECT_EQ(find(0xc0000, 4).kind, Kind::None);
  EXPECT_EQ(find(0xd0000, 4).kind, Kind::Message);
}

TEST_F(DmaTableTest, BadFilesAreRefused) {
  EXPECT_EQ(map(0, 0x1000, 1 << 20).error(), EINVAL) << "behind its end";
  EXPECT_EQ(map(0, 0x1001, (1 << 20) - 0x1000).error(), EINVAL);
  const Memory loose(4096, false);
  EXPECT_EQ(table.map({32, 3, 0, 0, 4096}, copy_of(loose.fd())).error(), EINVAL)
      << "it could shrink under us";
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_FALSE(table.map({32, 3, 0, 0, 4096}, UniqueFd(ends[0])));
  ::close(ends[1]);
  EXPECT_EQ(table.count(), 0u);
}

TEST_F(DmaTableTest, AFileIsMappedOnceHoweverManyPagesAre) {
  MemoryFiles files;
  ASSERT_TRUE(files.map(ram.fd(), 0, 4096));
  const UniqueFd again = copy_of(ram.fd());
  ASSERT_TRUE(files.map(again.get(), 0x8000, 4096));
  EXPECT_EQ(files.count(), 1u);
  const Memory other(4096);
  ASSERT_TRUE(files.map(other.fd(), 0, 4096));
  EXPECT_EQ(files.count(), 2u);
}

TEST_F(DmaTableTest, TheNumberOfFilesIsLimited) {
  MemoryFiles files;
  int error = 0;
  for (int i = 0; i < 100 && error == 0; i++) {
    const Memory memory(4096);
    const auto mapped = files.map(memory.fd(), 0, 4096);
    if (!mapped) error = mapped.error();
  }
  EXPECT_EQ(error, ENOSPC);
}

TEST_F(DmaTableTest, ScatteredPagesByTheTenThousands) {
  Memory large(256 << 20);
  constexpr uint64_t kPages = 65536;
  for (uint64_t page = 0; page < kPages; page++) {
    const uint64_t source = (page * 40503) % kPages;
    ASSERT_TRUE(
        table.map({32, 3, source << 12, 1ull << 33 | page << 12, 4096}, copy_of(large.fd())));
  }
  EXPECT_EQ(table.count(), kPages);
  EXPECT_EQ(table.ranges().size(), 1u);
  large.put<uint64_t>(((12345 * 40503ull) % kPages) << 12 | 8, 99);
  const auto piece = find((1ull << 33) + (12345ull << 12) + 8, 8);
  ASSERT_EQ(piece.kind, Kind::Memory);
  EXPECT_EQ(piece.bytes[0], std::byte{99});
  EXPECT_EQ(find((1ull << 33) + 0xffc, 8).size, 4u) << "the next page is elsewhere";
}

// Whatever is mapped and unmapped, the table agrees with a byte-by-byte model.
TEST_F(DmaTableTest, AgreesWithABruteForceModel) {
  std::mt19937 random(1);
  constexpr uint64_t kSpace = 64;
  for (int round = 0; round < 200; round++) {
    table.clear();
    std::map<uint64_t, uint64_t> model;  // address -> file offset
    for (int step = 0; step < 30; step++) {
      const uint64_t address = random() % kSpace;
      const uint64_t size = 1 + random() % (kSpace - address);
      if (random() % 3 != 0) {
        const uint64_t offset = random() % 1000;
        bool clash = false;
        for (uint64_t i = 0; i < size; i++) clash |= model.contains(address + i);
        EXPECT_EQ(bool(map(address, size, offset)), !clash);
        for (uint64_t i = 0; !clash && i < size; i++) model[address + i] = offset + i;
      } else {
        table.unmap(address, size);
        for (uint64_t i = 0; i < size; i++) model.erase(address + i);
      }
      EXPECT_EQ(table.mapped_bytes(), model.size());
      for (uint64_t at = 0; at < kSpace; at++) {
        const auto piece = find(at, 1);
        ASSERT_EQ(piece.kind == Kind::Memory, model.contains(at));
        if (piece.kind != Kind::Memory) continue;
        ram.put<uint8_t>(model[at], static_cast<uint8_t>(step + 1));
        ASSERT_EQ(piece.bytes[0], static_cast<std::byte>(step + 1));
        ram.put<uint8_t>(model[at], 0);
      }
    }
  }
}

}  // namespace
}  // namespace pcilend::fabric
