// SPDX-License-Identifier: GPL-2.0-or-later
#include "disk/translator.h"

#include <gmock/gmock.h>

#include <cerrno>

namespace pcilend::nvme {
namespace {

using testing::HasSubstr;

// 1,000 blocks of 4 KiB: 8,000 sectors.
DiskTraits traits() {
  DiskTraits t;
  t.name_space = {1, 1000, 4096};
  t.transfer = 131072;
  t.volatile_cache = t.deallocates = t.writes_zeroes = true;
  return t;
}

Translator translator(const DiskTraits& t) {
  auto made = Translator::make(t);
  EXPECT_TRUE(made) << made.error().message;
  return *made;
}

ublksrv_io_desc request(uint32_t operation, uint64_t sector, uint32_t sectors) {
  ublksrv_io_desc desc{};
  desc.op_flags = operation;
  desc.start_sector = sector;
  desc.nr_sectors = sectors;
  return desc;
}

TEST(Translator, ReadsAndWritesAreInBlocks) {
  const Translator t = translator(traits());
  const auto read = t.translate(request(UBLK_IO_OP_READ, 16, 24));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->work, Work::Read);
  EXPECT_EQ(read->block, 2U);
  EXPECT_EQ(read->blocks, 3U);
  EXPECT_EQ(read->bytes, 12288U);
  EXPECT_FALSE(read->through);
  const auto write = t.translate(request(UBLK_IO_OP_WRITE | UBLK_IO_F_FUA, 7992, 8));
  ASSERT_TRUE(write);
  EXPECT_EQ(write->work, Work::Write);
  EXPECT_EQ(write->block, 999U);
  EXPECT_TRUE(write->through);
  const auto flush = t.translate(request(UBLK_IO_OP_FLUSH, 0, 0));
  ASSERT_TRUE(flush);
  EXPECT_EQ(flush->work, Work::Flush);
  EXPECT_EQ(flush->bytes, 0U);
}

TEST(Translator, ZeroesAndDiscardsMoveNoData) {
  const Translator t = translator(traits());
  const auto zeroes = t.translate(request(UBLK_IO_OP_WRITE_ZEROES | UBLK_IO_F_NOUNMAP, 8, 256));
  ASSERT_TRUE(zeroes);
  EXPECT_EQ(zeroes->work, Work::WriteZeroes);
  EXPECT_EQ(zeroes->blocks, 32U);
  EXPECT_EQ(zeroes->bytes, 0U);
  // Larger than a command's data may be.
  const auto discard = t.translate(request(UBLK_IO_OP_DISCARD, 0, 8000));
  ASSERT_TRUE(discard);
  EXPECT_EQ(discard->work, Work::Deallocate);
  EXPECT_EQ(discard->blocks, 1000U);
  EXPECT_EQ(discard->bytes, 0U);
}

TEST(Translator, WhatTheDiskIsNotMadeForIsRefused) {
  const Translator t = translator(traits());
  const struct {
    uint32_t operation;
    uint64_t sector;
    uint32_t sectors;
    int error;
  } cases[] = {
      {UBLK_IO_OP_READ, 0, 0, -EINVAL},    // nothing
      {UBLK_IO_OP_READ, 1, 8, -EINVAL},    // no whole blocks
      {UBLK_IO_OP_READ, 8, 4, -EINVAL},    //
      {UBLK_IO_OP_READ, 0, 264, -EINVAL},  // more than a command
      {UBLK_IO_OP_READ, 8000, 8, -EIO},    // behind the end
      {UBLK_IO_OP_WRITE, 7992, 16, -EIO},  // over it
      {UBLK_IO_OP_WRITE, ~uint64_t{7}, 8, -EIO},  {UBLK_IO_OP_DISCARD, 8, 8000, -EIO},
      {UBLK_IO_OP_DISCARD, 8, 0xfffffff8, -EIO},  {UBLK_IO_OP_WRITE_ZEROES, 0, 264, -EINVAL},
      {UBLK_IO_OP_WRITE_SAME, 0, 8, -EOPNOTSUPP}, {0xff, 0, 8, -EOPNOTSUPP},
  };
  for (const auto& c : cases) {
    const auto task = t.translate(request(c.operation, c.sector, c.sectors));
    ASSERT_FALSE(task) << c.operation << " " << c.sector << " " << c.sectors;
    EXPECT_EQ(task.error(), c.error) << c.operation << " " << c.sector << " " << c.sectors;
  }
}

TEST(Translator, WhatTheDriveDoesNotKnowIsRefused) {
  DiskTraits plain = traits();
  plain.deallocates = plain.writes_zeroes = plain.volatile_cache = false;
  const Translator t = translator(plain);
  EXPECT_EQ(t.translate(request(UBLK_IO_OP_DISCARD, 0, 8)).error(), -EOPNOTSUPP);
  EXPECT_EQ(t.translate(request(UBLK_IO_OP_WRITE_ZEROES, 0, 8)).error(), -EOPNOTSUPP);
  EXPECT_EQ(t.parameters().types, static_cast<__u32>(UBLK_PARAM_TYPE_BASIC));
  EXPECT_EQ(t.parameters().basic.attrs, 0U);
}

TEST(Translator, OneThatIsReadOnlyIsNotWrittenTo) {
  DiskTraits ro = traits();
  ro.read_only = true;
  const Translator t = translator(ro);
  for (uint32_t operation : {UBLK_IO_OP_WRITE, UBLK_IO_OP_DISCARD, UBLK_IO_OP_WRITE_ZEROES})
    EXPECT_EQ(t.translate(request(operation, 0, 8)).error(), -EROFS) << operation;
  EXPECT_TRUE(t.translate(request(UBLK_IO_OP_READ, 0, 8)));
  EXPECT_TRUE(t.translate(request(UBLK_IO_OP_FLUSH, 0, 0)));
  EXPECT_NE(t.parameters().basic.attrs & UBLK_ATTR_READ_ONLY, 0U);
  EXPECT_EQ(t.parameters().types, static_cast<__u32>(UBLK_PARAM_TYPE_BASIC));
}

TEST(Translator, TheKernelIsToldWhatTheDriveTakes) {
  const ublk_params p = translator(traits()).parameters();
  EXPECT_EQ(p.len, sizeof p);
  EXPECT_EQ(p.basic.logical_bs_shift, 12);
  EXPECT_EQ(p.basic.physical_bs_shift, 12);
  EXPECT_EQ(p.basic.max_sectors, 256U);
  EXPECT_EQ(p.basic.dev_sectors, 8000U);
  EXPECT_EQ(p.basic.attrs, static_cast<__u32>(UBLK_ATTR_VOLATILE_CACHE | UBLK_ATTR_FUA));
  EXPECT_EQ(p.discard.discard_granularity, 4096U);
  EXPECT_EQ(p.discard.max_discard_segments, 1);
  EXPECT_NE(p.discard.max_discard_sectors, 0U);
  EXPECT_EQ(p.discard.max_write_zeroes_sectors, 256U);
}

TEST(Translator, DrivesThatMakeNoDiskAreRefused) {
  const auto says = [](const DiskTraits& t, const char* words) {
    const auto made = Translator::make(t);
    ASSERT_FALSE(made) << words;
    EXPECT_EQ(made.error().kind, ErrorClass::Unsupported);
    EXPECT_THAT(made.error().message, HasSubstr(words));
  };
  DiskTraits t = traits();
  t.name_space.command_set = 2;
  says(t, "has zones");
  t.name_space.command_set = 1;
  says(t, "is not of blocks");
  t = traits();
  t.name_space.block_bytes = 8192;
  says(t, "blocks of namespace 1 have 8192 bytes");
  t.name_space.block_bytes = 0;
  says(t, "have 0 bytes");
  t.name_space.block_bytes = 520;
  says(t, "have 520 bytes");
  t = traits();
  t.name_space.blocks = 0;
  says(t, "0 blocks");
  t.name_space.blocks = ~uint64_t{0};
  says(t, "no disk has");
  t = traits();
  t.transfer = 512;
  says(t, "512 bytes at most");
}

TEST(Translator, AStatusIsAnAnswer) {
  EXPECT_EQ(answer_to(0), 0);
  EXPECT_EQ(answer_to(0x4281), -ENODATA);  // with "do not retry"
  EXPECT_EQ(answer_to(0x081), -ENOSPC);
  EXPECT_EQ(answer_to(0x001), -EOPNOTSUPP);
  EXPECT_EQ(answer_to(0x007), -EIO);
}

}  // namespace
}  // namespace pcilend::nvme
