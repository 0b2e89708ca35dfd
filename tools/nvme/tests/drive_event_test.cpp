// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/drive_event.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace pcilend::nvme {
namespace {

std::array<std::byte, kPage> page_of(const std::vector<uint32_t>& ids) {
  std::array<std::byte, kPage> page{};
  std::memcpy(page.data(), ids.data(), ids.size() * sizeof(uint32_t));
  return page;
}

TEST(DriveEvent, ChangedNamespacesEndAtTheFirstNone) {
  const auto changes = parse_changed_namespaces(page_of({3, 1, 0, 9}));
  EXPECT_FALSE(changes.all);
  EXPECT_EQ(changes.ids, (std::vector<uint32_t>{3, 1}));
  EXPECT_TRUE(changes.has(1));
  EXPECT_FALSE(changes.has(9));
  EXPECT_TRUE(parse_changed_namespaces(page_of({})).empty());
  EXPECT_EQ(parse_changed_namespaces(page_of(std::vector<uint32_t>(1024, 5))).ids.size(), 1024U);
}

TEST(DriveEvent, MoreOfThemThanAPageHasAreAll) {
  const auto changes = parse_changed_namespaces(page_of({0xffffffff}));
  EXPECT_TRUE(changes.all);
  EXPECT_TRUE(changes.has(77));
  EXPECT_EQ(to_string(changes), "its namespaces");
}

TEST(DriveEvent, IsOneLineHoweverManyThereAre) {
  EXPECT_EQ(to_string(NamespaceChanges{false, {4}}), "namespace 4");
  EXPECT_EQ(to_string(NamespaceChanges{false, {4, 5}}), "namespaces 4, 5");
  const NamespaceChanges many{false, std::vector<uint32_t>(20, 7)};
  EXPECT_EQ(to_string(many).substr(to_string(many).size() - 12), ", and 4 more");
}

TEST(DriveEvent, IsAskedForWhereTheDriveHasIt) {
  EXPECT_EQ(wanted_events(0), 0x1fU);
  EXPECT_EQ(wanted_events(~0U), 0x31fU);
}

}  // namespace
}  // namespace pcilend::nvme
