// SPDX-License-Identifier: GPL-2.0-or-later
#include "manager/fence_record.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace pcilend::nvme {
namespace {

constexpr const char* kFile = "/var/lib/pcilend/fenced-70636c64-5c3e-8a11-9d27-0f4b6a1e33c2";

class FenceRecords : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/pcilend-fence.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  [[nodiscard]] Environment environment() const { return Environment(root_); }
  [[nodiscard]] FenceRecord record(
      const std::string& drive = "70636c64-5c3e-8a11-9d27-0f4b6a1e33c2") const {
    return {environment(), drive};
  }

  std::filesystem::path root_;
};

TEST_F(FenceRecords, AreKept) {
  EXPECT_EQ(record().read().value(), std::set<uint32_t>());
  ASSERT_TRUE(record().write({8, 12}));
  EXPECT_EQ(record().read().value(), (std::set<uint32_t>{8, 12}));
  EXPECT_EQ(record("0000:00:11.0").read().value(), std::set<uint32_t>());
  EXPECT_EQ(environment().read(kFile).value(), "8\n12\n");
  ASSERT_TRUE(record().write({}));
  EXPECT_FALSE(environment().exists(kFile));
}

TEST_F(FenceRecords, ThatCannotBeReadAreNotTakenForNone) {
  for (const char* text : {"8", "8 12\n", "\n", "0\n", "-8\n", "8\n4294967296\n", "eight\n"}) {
    ASSERT_TRUE(environment().replace_file(kFile, text));
    EXPECT_FALSE(record().read()) << text;
  }
}

}  // namespace
}  // namespace pcilend::nvme
