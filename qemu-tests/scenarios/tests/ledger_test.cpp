// SPDX-License-Identifier: GPL-2.0-or-later
#include "scenarios/faults/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace pcilend::scenarios {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string sum(char digit) {
  return std::string(64, digit);
}

TEST(Ledger, AReadOfWhatWasWrittenIsRight) {
  Ledger ledger;
  EXPECT_TRUE(ledger.note("write 3 " + sum('a')));
  EXPECT_TRUE(ledger.note("wrote 3 " + sum('a')));
  EXPECT_TRUE(ledger.note("read 3 " + sum('a')));
  EXPECT_EQ(ledger.writes(), 1);
  EXPECT_EQ(ledger.checked(), 1);
  EXPECT_THAT(ledger.latest(9), ElementsAre(3));
}

TEST(Ledger, AReadOfAnythingElseIsWrongData) {
  Ledger ledger;
  ASSERT_TRUE(ledger.note("wrote 3 " + sum('a')));
  const auto wrong = ledger.note("read 3 " + sum('b'));
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, HasSubstr("slot 3"));
}

TEST(Ledger, AnErrorIsCountedAndIsNoWrongData) {
  Ledger ledger;
  ASSERT_TRUE(ledger.note("wrote 3 " + sum('a')));
  EXPECT_TRUE(ledger.note("error 3"));
  EXPECT_EQ(ledger.errors(), 1);
  EXPECT_FALSE(ledger.note("read 3 " + sum('b'))) << "what was acknowledged stays so";
}

TEST(Ledger, AWriteWithoutAcknowledgementMayBeThereOrNot) {
  Ledger ledger;
  ASSERT_TRUE(ledger.note("wrote 3 " + sum('a')));
  ASSERT_TRUE(ledger.note("write 3 " + sum('b')));
  EXPECT_TRUE(ledger.note("read 3 " + sum('c')));
  EXPECT_EQ(ledger.checked(), 0);
  EXPECT_THAT(ledger.latest(9), IsEmpty());
}

TEST(Ledger, ARunForgetsItsSlotsAndNoOthers) {
  Ledger ledger;
  EXPECT_EQ(ledger.begin_run(1024), 0);
  ASSERT_TRUE(ledger.note("wrote 1 " + sum('a')));
  EXPECT_EQ(ledger.begin_run(3072), 1024);
  ASSERT_TRUE(ledger.note("wrote 1024 " + sum('b')));
  EXPECT_EQ(ledger.begin_run(1024), 0) << "the drive has no more";
  EXPECT_THAT(ledger.latest(9), ElementsAre(1024));
}

TEST(Ledger, TheLatestWritesComeFirst) {
  Ledger ledger;
  for (const char* slot : {"5", "2", "9"})
    ASSERT_TRUE(ledger.note(fmt::format("wrote {} {}", slot, sum('a'))));
  EXPECT_THAT(ledger.latest(2), ElementsAre(9, 2));
}

TEST(Ledger, NonsenseIsRefused) {
  Ledger ledger;
  for (const char* line : {"", "wrote", "wrote 1", "wrote 1 abc", "read -1 abc", "sh: not found"})
    EXPECT_FALSE(ledger.note(line)) << line;
  EXPECT_FALSE(ledger.note("wrote 4096 " + sum('a')));
  EXPECT_FALSE(ledger.note("thought 1 " + sum('a')));
}

// The scripts are run here, on a file in place of the device.
class LedgerScripts : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/ledger-XXXXXX";
    dir_ = ::mkdtemp(name);
    drive_ = dir_ / "drive";
    std::ofstream(drive_).close();
    fs::resize_file(drive_, 16L * Ledger::kSlotBytes);
  }
  void TearDown() override { fs::remove_all(dir_); }

  [[nodiscard]] std::string run(const std::string& script) const {
    const auto replaced = [](std::string text, const std::string& from, const std::string& to) {
      for (size_t at = 0; (at = text.find(from)) != std::string::npos;)
        text.replace(at, from.size(), to);
      return text;
    };
    std::string here = replaced(script, "cd /tmp\n", "cd " + dir_.native() + "\n");
    here = replaced(here, "/dev/nvme0n1", drive_);
    here = replaced(replaced(here, " iflag=direct", ""), " oflag=direct", "");
    std::ofstream(dir_ / "script") << here;
    FILE* shell = ::popen(("sh " + (dir_ / "script").native()).c_str(), "r");
    std::string said;
    char bytes[4096];
    while (const size_t n = std::fread(bytes, 1, sizeof bytes, shell)) said.append(bytes, n);
    ::pclose(shell);
    return said;
  }

  fs::path dir_;
  fs::path drive_;
};

TEST_F(LedgerScripts, WhatTheyWriteIsWhatTheyRead) {
  Ledger ledger;
  const int first = ledger.begin_run(4);
  ASSERT_TRUE(ledger.note_all(run(write_script(first, 4))));
  EXPECT_EQ(ledger.writes(), 4);
  EXPECT_EQ(ledger.checked(), 3);
  ASSERT_TRUE(ledger.note_all(run(read_script({0, 3, 2}))));
  EXPECT_EQ(ledger.checked(), 6);
  EXPECT_EQ(ledger.errors(), 0);
}

TEST_F(LedgerScripts, AShortReadIsAnError) {
  Ledger ledger;
  fs::resize_file(drive_, Ledger::kSlotBytes + 512);
  ASSERT_TRUE(ledger.note_all(run(read_script({1, 2}))));
  EXPECT_EQ(ledger.errors(), 2);
}

TEST_F(LedgerScripts, DamageIsFound) {
  Ledger ledger;
  ASSERT_TRUE(ledger.note_all(run(write_script(ledger.begin_run(4), 4))));
  std::fstream file(drive_, std::ios::in | std::ios::out);
  file.seekp(3L * Ledger::kSlotBytes + 99);
  file << "damage";
  file.close();
  EXPECT_TRUE(ledger.note_all(run(read_script({2}))));
  EXPECT_FALSE(ledger.note_all(run(read_script({3}))));
}

}  // namespace
}  // namespace pcilend::scenarios
