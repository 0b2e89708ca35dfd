// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/mappings.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <tuple>

namespace {

constexpr u64 kPage = PCILEND_PAGE;

class Mappings : public testing::Test {
 protected:
  int Add(u64 start, u64 size, u64 target) {
    return pcilend_mappings_add(&mappings_, start * kPage, size * kPage, target);
  }
  int Drop(u64 start, u64 size) {
    return pcilend_mappings_drop(&mappings_, start * kPage, size * kPage);
  }

  std::array<pcilend_shared_mapping, 8> entry_ = {};
  pcilend_mappings mappings_ = {entry_.data(), static_cast<u32>(entry_.size()), 0};
};

TEST_F(Mappings, EqualOnesAreCounted) {
  EXPECT_EQ(Add(0, 16, 100), 1);
  EXPECT_EQ(Add(0, 16, 100), 0);
  EXPECT_EQ(mappings_.count, 1u);
  EXPECT_EQ(Drop(0, 16), 0);
  EXPECT_EQ(Drop(0, 16), 1);
  EXPECT_EQ(Drop(0, 16), -ENOENT);
  EXPECT_EQ(Add(0, 16, 200), 1) << "forgotten with the last user";
}

TEST_F(Mappings, OverlapsAreRefused) {
  ASSERT_EQ(Add(16, 16, 100), 1);
  EXPECT_EQ(Add(16, 16, 101), -EEXIST);
  for (const auto& [start, size] : {std::pair{16, 8}, {24, 8}, {8, 9}, {31, 4}, {0, 64}, {20, 1}})
    EXPECT_EQ(Add(start, size, 100), -EEXIST) << start;
  EXPECT_EQ(Add(0, 16, 1), 1);
  EXPECT_EQ(Add(32, 16, 1), 1);
  EXPECT_EQ(Drop(16, 8), -ENOENT);
  EXPECT_EQ(Drop(0, 32), -ENOENT);
  EXPECT_EQ(Drop(16, 16), 1) << "refusals have counted nothing";
}

TEST_F(Mappings, FullIsSaid) {
  for (u64 i = 0; i < entry_.size(); ++i) ASSERT_EQ(Add(i, 1, i), 1);
  EXPECT_EQ(Add(entry_.size(), 1, 0), -ENOSPC);
  EXPECT_EQ(Add(3, 1, 3), 0) << "an equal one needs no room";
}

// Each user's mappings equal a count kept by key.
TEST_F(Mappings, CountsAsAMapDoes) {
  std::mt19937 random(1);
  std::map<std::pair<u64, u64>, std::pair<u64, u32>> model;
  int shared = 0;
  for (int i = 0; i < 200000; ++i) {
    const u64 start = random() % 12, size = 1 + random() % 3, target = random() % 2;
    const auto known = model.find({start, size});
    if (random() % 2) {
      bool overlaps = false;
      for (const auto& [key, value] : model)
        overlaps |= start < key.first + key.second && key.first < start + size;
      int expected = 1;
      if (known != model.end() && known->second.first == target)
        expected = 0;
      else if (overlaps)
        expected = -EEXIST;
      else if (model.size() == entry_.size())
        expected = -ENOSPC;
      ASSERT_EQ(Add(start, size, target), expected);
      shared += expected == 0;
      if (expected >= 0) {
        auto& value = model[{start, size}];
        value = {target, value.second + 1};
      }
    } else {
      int expected = -ENOENT;
      if (known != model.end()) expected = --known->second.second == 0;
      ASSERT_EQ(Drop(start, size), expected);
      if (expected == 1) model.erase(known);
    }
    ASSERT_EQ(mappings_.count, model.size());
  }
  EXPECT_GT(shared, 1000);
}

}  // namespace
