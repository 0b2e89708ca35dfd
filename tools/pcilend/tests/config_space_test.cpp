// SPDX-License-Identifier: GPL-2.0-or-later
#include "config_space.h"

#include <gtest/gtest.h>

namespace pcilend::test {
namespace {

std::vector<uint8_t> with_list(size_t size) {
  std::vector<uint8_t> config(size, 0);
  config[0x06] = 0x10;  // has capabilities
  config[0x34] = 0x40;
  return config;
}

TEST(ConfigSpace, AListThatLoopsEnds) {
  auto config = with_list(256);
  config[0x40] = 0x09;
  config[0x41] = 0x50;
  config[0x50] = 0x01;
  config[0x51] = 0x40;
  const auto space = decode_config_space(config);
  ASSERT_EQ(space.capabilities.size(), 2u);
  EXPECT_EQ(space.capabilities[0].name, "Vendor Specific");
  EXPECT_EQ(space.capabilities[1].detail, "D0");
}

TEST(ConfigSpace, AListThatPointsIntoTheHeaderEnds) {
  auto config = with_list(256);
  config[0x34] = 0x10;
  EXPECT_TRUE(decode_config_space(config).capabilities.empty());
}

TEST(ConfigSpace, CapabilitiesAtTheVeryEndAreNotReadBeyond) {
  auto config = with_list(256);
  config[0x34] = 0xfc;
  config[0xfc] = 0x11;
  const auto space = decode_config_space(config);
  ASSERT_EQ(space.capabilities.size(), 1u);
  EXPECT_EQ(space.capabilities[0].name, "MSI-X");
}

TEST(ConfigSpace, ExtendedListsEndAtLoopsAndAtTheEnd) {
  std::vector<uint8_t> config(4096, 0);
  config[0x100] = 0x01;
  config[0x102] = 0x01;
  config[0x103] = 0x20;  // next: 0x200
  config[0x200] = 0x42;
  config[0x202] = 0xc1;
  config[0x203] = 0xff;  // next: 0xffc
  config[0xffc] = 0x10;
  config[0xffe] = 0x01;
  config[0xfff] = 0x10;  // next: 0x100
  const auto space = decode_config_space(config);
  ASSERT_EQ(space.capabilities.size(), 3u);
  EXPECT_EQ(space.capabilities[0].name, "Advanced Error Reporting");
  EXPECT_EQ(space.capabilities[1].name, "capability 42");
  EXPECT_EQ(space.capabilities[2].offset, 0xffc);
}

TEST(ConfigSpace, ADeviceThatIsGoneHasNothing) {
  const auto space = decode_config_space(std::vector<uint8_t>(4096, 0xff));
  EXPECT_EQ(space.vendor, 0xffff);
  EXPECT_TRUE(space.capabilities.empty());
  EXPECT_TRUE(space.bars.empty());
}

TEST(ConfigSpace, BarsOf64BitsTakeTwo) {
  std::vector<uint8_t> config(256, 0);
  config[0x10] = 0x0c;
  config[0x14] = 0x40;
  config[0x18] = 0x01;
  config[0x19] = 0xc0;
  config[0x32] = 0x01;
  const auto space = decode_config_space(config);
  ASSERT_EQ(space.bars.size(), 3u);
  EXPECT_EQ(space.bars[0].address, 0x4000000000u);
  EXPECT_TRUE(space.bars[0].bits64 && space.bars[0].prefetchable);
  EXPECT_EQ(space.bars[1].index, 2u);
  EXPECT_TRUE(space.bars[1].io);
  EXPECT_EQ(space.bars[1].address, 0xc000u);
  EXPECT_EQ(space.bars[2].index, 6u);
}

}  // namespace
}  // namespace pcilend::test
