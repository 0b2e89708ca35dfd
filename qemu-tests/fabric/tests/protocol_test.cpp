// SPDX-License-Identifier: GPL-2.0-or-later
#include "protocol.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/client.h"

namespace pcilend::fabric {
namespace {

using test::bytes_from;
using test::join;
using test::value_bytes;

Bytes version(uint16_t major, uint16_t minor, std::string_view text) {
  return join({bytes_of(major), bytes_of(minor), std::as_bytes(std::span(text))});
}

TEST(ParseVersion, TakesWhatQemuSends) {
  const std::string text =
      R"({"capabilities": {"migration": {"pgsize": 4096}, "max_msg_fds": 16, "write_multiple": true}})";
  EXPECT_EQ(parse_version(version(0, 1, text + '\0')), 1);
  EXPECT_EQ(parse_version(version(0, 0, "")), 0);
}

TEST(ParseVersion, RefusesOtherMajorVersionsAndBrokenText) {
  using namespace std::string_view_literals;
  for (const Bytes& body : {
           version(1, 0, ""),
           version(0, 0, "{}"),      // no NUL
           version(0, 0, "{\0"sv),   // not JSON
           version(0, 0, "[]\0"sv),  // not an object
           version(0, 0, "\0"sv),    // empty
           Bytes(3),
           Bytes(),
       }) {
    const auto minor = parse_version(body);
    ASSERT_FALSE(minor);
    EXPECT_EQ(minor.error(), EINVAL);
  }
}

TEST(ParseDmaMap, RefusesEverySizeButItsOwn) {
  const DmaMap map{sizeof map, DmaMap::kRead, 0, 0x1000, 0x1000};
  const Bytes whole = value_bytes(map);
  ASSERT_TRUE(parse_dma_map(whole));
  for (size_t size = 0; size < whole.size(); size++)
    EXPECT_FALSE(parse_dma_map(std::span(whole).first(size))) << size;
  EXPECT_FALSE(parse_dma_map(join({whole, whole})));
}

TEST(ParseDmaMap, ChecksRangesAndFlags) {
  struct Case {
    DmaMap map;
    bool good;
  };
  for (const Case& c : {
           Case{{32, 3, 0, 0, 1}, true},
           Case{{32, 3, 0, UINT64_MAX, 1}, true},
           Case{{32, 3, 0, UINT64_MAX, 2}, false},
           Case{{32, 3, 0, 0, 0}, false},
           Case{{32, 3, UINT64_MAX, 0, 2}, false},
           Case{{32, 4, 0, 0, 4096}, false},
           Case{{32, 0, 0, 0, 4096}, true},
       }) {
    EXPECT_EQ(bool(parse_dma_map(bytes_of(c.map))), c.good)
        << c.map.address << ' ' << c.map.size << ' ' << c.map.offset << ' ' << c.map.flags;
  }
}

TEST(ParseDmaUnmap, TheWholeAddressSpaceNeedsNoRange) {
  EXPECT_TRUE(parse_dma_unmap(bytes_of(DmaUnmap{24, DmaUnmap::kAll, 0, 0})));
  EXPECT_FALSE(parse_dma_unmap(bytes_of(DmaUnmap{24, 0, 0, 0})));
  EXPECT_FALSE(parse_dma_unmap(bytes_of(DmaUnmap{24, 1, 0, 4096})));
  EXPECT_TRUE(parse_dma_unmap(bytes_of(DmaUnmap{24, 0, 4096, 4096})));
  EXPECT_FALSE(parse_dma_unmap(bytes_of(DmaUnmap{24, 0, UINT64_MAX, 4096})));
}

TEST(ParseIndices, NeedRoomForTheAnswer) {
  EXPECT_EQ(parse_region_index(bytes_of(RegionInfo{32, 0, 7, 0, 0, 0})), 7u);
  EXPECT_FALSE(parse_region_index(bytes_of(RegionInfo{31, 0, 7, 0, 0, 0})));
  EXPECT_FALSE(parse_region_index(Bytes(16)));
  EXPECT_EQ(parse_irq_index(bytes_of(IrqInfo{16, 0, 2, 0})), 2u);
  EXPECT_FALSE(parse_irq_index(bytes_of(IrqInfo{8, 0, 2, 0})));
}

TEST(ParseSetIrqs, OneKindOfDataAndOneAction) {
  const auto with = [](uint32_t flags) { return IrqSet{20, flags, 2, 0, 0}; };
  EXPECT_TRUE(parse_set_irqs(bytes_of(with(0x21))));
  EXPECT_TRUE(parse_set_irqs(bytes_of(with(0x24))));
  for (const uint32_t flags : {0x00u, 0x01u, 0x20u, 0x25u, 0x38u, 0x61u, 0x23u})
    EXPECT_FALSE(parse_set_irqs(bytes_of(with(flags)))) << flags;
}

TEST(ParseSetIrqs, DataAgreesWithTheCount) {
  const IrqSet set{23, IrqSet::kDataBool | IrqSet::kActionTrigger, 2, 0, 3};
  const Bytes three(3, std::byte{1});
  const auto request = parse_set_irqs(join({bytes_of(set), three}));
  ASSERT_TRUE(request);
  EXPECT_EQ(request->data.size(), 3u);
  EXPECT_FALSE(parse_set_irqs(join({bytes_of(set), std::span(three).first(2)})));
  IrqSet huge = set;
  huge.count = UINT32_MAX;
  EXPECT_FALSE(parse_set_irqs(join({bytes_of(huge), three})));
  EXPECT_FALSE(parse_set_irqs(Bytes(19)));
}

TEST(ParseRegionAccess, SizesAgree) {
  EXPECT_TRUE(parse_region_read(bytes_of(RegionAccess{0, 2, 8})));
  EXPECT_EQ(parse_region_read(bytes_of(RegionAccess{0, 2, kMaxTransfer + 1})).error(), E2BIG);
  EXPECT_FALSE(parse_region_read(Bytes(15)));
  EXPECT_FALSE(parse_region_read(Bytes(17)));

  const Bytes data(8);
  const auto write = parse_region_write(join({bytes_of(RegionAccess{16, 4, 8}), data}));
  ASSERT_TRUE(write);
  EXPECT_EQ(write->access.offset, 16u);
  EXPECT_EQ(write->data.size(), 8u);
  EXPECT_EQ(parse_region_write(join({bytes_of(RegionAccess{16, 4, 7}), data})).error(), EINVAL);
  EXPECT_EQ(parse_region_write(join({bytes_of(RegionAccess{16, 4, 9}), data})).error(), EINVAL);
  EXPECT_EQ(parse_region_write(bytes_of(RegionAccess{0, 4, UINT32_MAX})).error(), E2BIG);
}

TEST(ParseDmaReadReply, TruncatedDataIsAnError) {
  const DmaAccess access{0x1000, 8};
  EXPECT_TRUE(parse_dma_read_reply(join({bytes_of(access), Bytes(8)}), 8));
  EXPECT_FALSE(parse_dma_read_reply(join({bytes_of(access), Bytes(7)}), 8));
  EXPECT_FALSE(parse_dma_read_reply(join({bytes_of(access), Bytes(9)}), 8));
  EXPECT_FALSE(parse_dma_read_reply(join({bytes_of(access), Bytes(8)}), 16));
  EXPECT_FALSE(parse_dma_read_reply({}, 0));
}

Header header_of(const Bytes& message) {
  Header header;
  std::memcpy(&header, message.data(), sizeof header);
  return header;
}

TEST(Make, VersionReplyIsWhatQemuAccepts) {
  const Bytes reply = make_version_reply(7, 0);
  const Header header = header_of(reply);
  EXPECT_EQ(header.id, 7);
  EXPECT_EQ(header.size, reply.size());
  EXPECT_EQ(header.flags, Header::kReply);
  EXPECT_EQ(reply.back(), std::byte{0});
  const auto json = nlohmann::json::parse(reinterpret_cast<const char*>(reply.data()) + 20);
  EXPECT_LE(json["capabilities"]["max_msg_fds"], 16);
  EXPECT_EQ(json["capabilities"]["max_data_xfer_size"], 1048576);
  EXPECT_FALSE(json["capabilities"].contains("write_multiple"));
}

TEST(Make, ErrorsCarryNoBody) {
  const Bytes error = make_error(Header{9, 2, 48, 0, 0}, EEXIST);
  const Header header = header_of(error);
  EXPECT_EQ(error.size(), sizeof(Header));
  EXPECT_EQ(header.flags, 0x21u);
  EXPECT_EQ(header.error, static_cast<uint32_t>(EEXIST));
  EXPECT_EQ(header.command, 2);
}

TEST(Make, DmaWriteHasItsDataAtByte32AndWantsNoReply) {
  const Bytes write = make_dma_write(3, 0xfee00000, bytes_from("abcd"));
  EXPECT_EQ(write.size(), 36u);
  EXPECT_EQ(header_of(write).flags, Header::kNoReply);
  EXPECT_EQ(std::memcmp(write.data() + 32, "abcd", 4), 0);
  DmaAccess access;
  std::memcpy(&access, write.data() + 16, sizeof access);
  EXPECT_EQ(access.address, 0xfee00000u);
  EXPECT_EQ(access.count, 4u);
}

}  // namespace
}  // namespace pcilend::fabric
