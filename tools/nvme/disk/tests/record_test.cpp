// SPDX-License-Identifier: GPL-2.0-or-later
#include "disk/record.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace pcilend::nvme {
namespace {

namespace fs = std::filesystem;

class Records : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/pcilend-record.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }
  [[nodiscard]] Environment environment() const { return Environment(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  fs::path root_;
};

DiskRecord ready() {
  DiskRecord record;
  record.function.value = 0x40001;
  record.name_space = 3;
  record.state = "ready";
  record.number = 2;
  record.blocks = 1000;
  record.block_bytes = 512;
  record.model = "A \"model\"";
  record.serial = "S1";
  record.identity = "0102 03";
  record.alone = true;
  record.shared_fs = true;
  record.queues = 2;
  record.depth = 64;
  record.power_cycles = 12;
  record.paths = {"0000:00:04.0"};
  record.clients = {{9, 0xfedcba9876543211}, {11, 5}};
  record.pid = 77;
  record.recoveries = 4;
  record.start = 0xfedcba9876543210;
  return record;
}

TEST(Writers, OfADiskAreItsOwnHostOnlyOrKnowOfOneAnother) {
  EXPECT_TRUE(check_writers(true, false, false));
  EXPECT_TRUE(check_writers(false, true, false));
  EXPECT_TRUE(check_writers(false, false, true));
  const auto refused = check_writers(false, false, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorClass::Usage);
}

TEST_F(Records, AreReadAsTheyWereWritten) {
  ASSERT_TRUE(write_record(environment(), ready()));
  const auto records = read_records(environment());
  ASSERT_TRUE(records) << records.error().message;
  ASSERT_EQ(records->size(), 1U);
  const DiskRecord& r = records->front();
  EXPECT_EQ(r.function.value, 0x40001U);
  EXPECT_EQ(r.name_space, 3U);
  EXPECT_EQ(r.state, "ready");
  EXPECT_EQ(r.disk(), "ublkb2");
  EXPECT_EQ(r.model, "A \"model\"");
  EXPECT_EQ(r.identity, "0102 03");
  EXPECT_EQ(r.start, 0xfedcba9876543210);
  EXPECT_EQ(r.recoveries, 4U);
  EXPECT_EQ(r.paths, std::vector<std::string>{"0000:00:04.0"});
  EXPECT_EQ(r.clients, (std::vector<ClientName>{{9, 0xfedcba9876543211}, {11, 5}}));
  EXPECT_EQ(r.power_cycles, 12U);
  EXPECT_TRUE(r.shared_fs);
  EXPECT_FALSE(r.read_only);
}

TEST_F(Records, GoWithWhatBelongsToThem) {
  ASSERT_TRUE(write_record(environment(), ready()));
  ASSERT_TRUE(environment().replace_file(properties_path(ready()), "PCILEND_FUNCTION=40001\n"));
  ASSERT_TRUE(environment().replace_file(options_path(ready().function), "OPTIONS=\n"));
  ASSERT_TRUE(remove_record(environment(), ready()));
  EXPECT_TRUE(fs::is_empty(root_ / "run/pcilend/nvme"));
  EXPECT_EQ(read_record(environment(), ready().function).error().kind, ErrorClass::NotFound);
}

TEST_F(Records, OthersFilesAreNone) {
  write("run/pcilend/nvme/ublkb0.env", "PCILEND_FUNCTION=40001\n");
  write("run/pcilend/nvme/saved.json", "{}");
  const auto none = read_records(environment());
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->empty());
  for (const char* text : {"", "[]", "{}", "{\"namespace\": \"x\"}", "{\"namespace\": 1}"}) {
    write("run/pcilend/nvme/40001.json", text);
    const auto read = read_records(environment());
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().kind, ErrorClass::Failure);
    EXPECT_THAT(read.error().message, testing::HasSubstr("/run/pcilend/nvme/40001.json"));
  }
}

TEST_F(Records, AreServedByTheProgramOnly) {
  DiskRecord record = ready();
  EXPECT_FALSE(is_served(environment(), record));
  write("proc/77/comm", "bash\n");
  EXPECT_FALSE(is_served(environment(), record));
  write("proc/77/comm", "pcilend-nvme-di\n");
  EXPECT_TRUE(is_served(environment(), record));
  record.pid = 0;
  EXPECT_FALSE(is_served(environment(), record));
}

}  // namespace
}  // namespace pcilend::nvme
