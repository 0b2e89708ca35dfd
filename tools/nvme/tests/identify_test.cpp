// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/identify.h"

#include <gtest/gtest.h>

#include <cstring>

namespace pcilend::nvme {
namespace {

class Pages : public testing::Test {
 protected:
  template <class Word>
  void put(size_t at, Word value) {
    std::memcpy(page_.data() + at, &value, sizeof value);
  }
  void put_text(size_t at, std::string_view text) {
    std::memcpy(page_.data() + at, text.data(), text.size());
  }
  void make_controller() {
    put_text(4, "S1                  A model \x1b[2J                             ");
    put_text(64, "1.0     ");
    put<uint8_t>(77, 5);
    put<uint8_t>(512, 0x66);
    put<uint8_t>(513, 0x44);
    put<uint32_t>(516, 256);
    put<uint8_t>(525, 1);
  }
  void make_namespace(uint8_t format, uint32_t entry) {
    put<uint64_t>(0, 1000);
    put<uint8_t>(26, format);
    put<uint32_t>(128 + 4 * (format & 0xf), entry);
  }

  std::array<std::byte, kPage> page_{};
};

TEST_F(Pages, OfAController) {
  make_controller();
  const auto info = parse_controller(page_);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->serial, "S1");
  EXPECT_EQ(info->model, "A model ?[2J") << "a terminal takes it for text";
  EXPECT_EQ(info->firmware, "1.0");
  EXPECT_EQ(info->transfer, 32 * kPage);
  EXPECT_EQ(info->namespaces, 256U);
  EXPECT_TRUE(info->volatile_cache);
  for (const uint8_t unlimited : {0, 9, 31, 32, 255}) {
    put(77, unlimited);
    EXPECT_EQ(parse_controller(page_)->transfer, kTransferMax) << unlimited;
  }
}

TEST_F(Pages, OfAControllerWithOtherQueues) {
  for (const uint8_t entry : {0x00, 0x55, 0x77, 0xff}) {
    make_controller();
    put(512, entry);
    EXPECT_FALSE(parse_controller(page_)) << entry;
    make_controller();
    put(513, entry);
    EXPECT_FALSE(parse_controller(page_)) << entry;
  }
}

TEST_F(Pages, OfActiveNamespaces) {
  put<uint32_t>(0, 1);
  put<uint32_t>(4, 7);
  put<uint32_t>(12, 9);
  EXPECT_EQ(parse_active_namespaces(page_).value(), (std::vector<uint32_t>{1, 7}));
  put<uint32_t>(8, 7);
  EXPECT_FALSE(parse_active_namespaces(page_));
  for (uint32_t i = 0; i < 1024; ++i) put(4 * size_t{i}, i + 1);
  EXPECT_EQ(parse_active_namespaces(page_)->size(), 1024U);
}

TEST_F(Pages, OfANamespace) {
  make_namespace(3, 12U << 16);
  const auto info = parse_namespace(2, page_);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->id, 2U);
  EXPECT_EQ(info->blocks, 1000U);
  EXPECT_EQ(info->block_bytes, 4096U);
}

// Bits 6:5 of the format count only where there are more than 16 of them.
TEST_F(Pages, OfANamespaceWithManyFormats) {
  make_namespace(0x61, 9U << 16);
  put<uint32_t>(128 + 4 * 0x31, 12U << 16);
  EXPECT_EQ(parse_namespace(1, page_)->block_bytes, 512U);
  put<uint8_t>(25, 63);
  EXPECT_EQ(parse_namespace(1, page_)->block_bytes, 4096U);
}

TEST_F(Pages, OfNamespacesThatCannotBeUsed) {
  EXPECT_EQ(parse_namespace(1, page_).error().kind, ErrorClass::NotFound);
  for (const uint32_t entry : {8U << 16, 17U << 16, 255U << 16, 9U << 16 | 8}) {
    make_namespace(0, entry);
    EXPECT_EQ(parse_namespace(1, page_).error().kind, ErrorClass::Unsupported) << entry;
  }
  make_namespace(0, 9U << 16);
  put<uint8_t>(29, 1);
  EXPECT_EQ(parse_namespace(1, page_).error().kind, ErrorClass::Unsupported) << "protected";
}

TEST_F(Pages, SayWhatADriveKnows) {
  make_controller();
  EXPECT_FALSE(parse_controller(page_)->deallocates);
  EXPECT_FALSE(parse_controller(page_)->writes_zeroes);
  put<uint16_t>(520, 1 << 2);
  EXPECT_TRUE(parse_controller(page_)->deallocates);
  EXPECT_FALSE(parse_controller(page_)->writes_zeroes);
  put<uint16_t>(520, 1 << 3);
  EXPECT_FALSE(parse_controller(page_)->deallocates);
  EXPECT_TRUE(parse_controller(page_)->writes_zeroes);
}

TEST_F(Pages, OfDescriptorsSayTheCommandSetAndTheIdentity) {
  NamespaceInfo info;
  read_descriptors(page_, info);
  EXPECT_EQ(info.command_set, 0);
  EXPECT_EQ(info.identity, "");
  put<uint8_t>(0, 1);  // EUI64, then a UUID, then the command set
  put<uint8_t>(1, 8);
  put<uint8_t>(11, 0xab);
  put<uint8_t>(12, 3);
  put<uint8_t>(13, 16);
  put<uint8_t>(31, 0xcd);
  put<uint8_t>(32, 4);
  put<uint8_t>(33, 1);
  put<uint8_t>(36, 2);
  read_descriptors(page_, info);
  EXPECT_EQ(info.command_set, 2);
  EXPECT_EQ(info.identity, "00000000000000ab 000000000000000000000000000000cd");
  put<uint8_t>(33, 2);  // not a command set's length
  read_descriptors(page_, info);
  EXPECT_EQ(info.command_set, 0);
  // Lengths that end anywhere, also behind the page.
  for (unsigned length = 1; length < 256; ++length) {
    page_.fill(static_cast<std::byte>(length));
    read_descriptors(page_, info);
  }
  EXPECT_TRUE(differ("00", "01"));
  EXPECT_FALSE(differ("00", "00"));
  EXPECT_FALSE(differ("", "01"));
}

}  // namespace
}  // namespace pcilend::nvme
