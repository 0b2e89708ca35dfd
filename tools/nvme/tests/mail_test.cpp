// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/mail.h"

#include <gtest/gtest.h>

#include "pcilend/share.h"

namespace pcilend::nvme::mail {
namespace {

std::vector<uint8_t> raw(const std::vector<std::byte>& bytes) {
  std::vector<uint8_t> numbers;
  for (const std::byte byte : bytes) numbers.push_back(static_cast<uint8_t>(byte));
  return numbers;
}

const Question kQuestions[] = {
    Hello{0x1122334455667788},
    Clear{{7, 0x1122334455667788}},
    Fence{Fencing::Ask, 8},
    Fence{Fencing::Off, 8},
    Fence{Fencing::On, 8},
    CreatePair{{64, 0x1000001000, 0x1000002000, 3}},
    CreatePair{{65536, ~uint64_t{0}, 0, {}}},
    DeletePair{31},
    AskIdentify{2, 1, 0x1000003000},
    AskController{3936},
    AskLog{2, 0xffffffff, 512, 0x1000003000},
    AskChanges{0x1122334455667788},
};
const Answer kAnswers[] = {
    Refusal{{ErrorClass::State, "all 31 queues are in use"}},
    Confirmed{},
    Welcome{1024, 1, 0x40007, 0x1000000000, 2 << 20, 0, 0, 0},
    Welcome{1024, 1, 0, 0x800000000, 0x10000, 2, 0x20000, 7},
    Created{{31, 0x10f8, 0x10fc}},
    Piece{{std::byte{1}, std::byte{2}}},
    Fenced{true},
    Fenced{false},
    Changes{7, {false, {}}},
    Changes{7, {true, {}}},
    Changes{8, {false, {1, 0xfffffffe}}},
    Changes{9, {false, std::vector<uint32_t>(kChangedMax, 3)}},
};

TEST(Mail, IsReadAsItWasWritten) {
  for (const Question& question : kQuestions) {
    const auto bytes = encode(9, question);
    EXPECT_LE(bytes.size(), kMailMax);
    const auto read = decode_question(bytes);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->number, 9U);
    EXPECT_EQ(read->what.index(), question.index());
    EXPECT_EQ(encode(9, read->what), bytes);
    EXPECT_FALSE(decode_answer(bytes));
  }
  for (const Answer& answer : kAnswers) {
    const auto bytes = encode(0xfffffffe, answer);
    EXPECT_LE(bytes.size(), kMailMax);
    const auto read = decode_answer(bytes);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->number, 0xfffffffeU);
    EXPECT_EQ(encode(0xfffffffe, read->what), bytes);
    EXPECT_FALSE(decode_question(bytes));
  }
}

// It goes between hosts that may have other builds.
TEST(Mail, IsTheseBytes) {
  EXPECT_EQ(raw(encode(0x01020304, CreatePair{{64, 0x1122334455667000, 0x1000002000, 3}})),
            (std::vector<uint8_t>{3,    0,    2,    0,    4,    3, 2,    1, 0, 0x70, 0x66,
                                  0x55, 0x44, 0x33, 0x22, 0x11, 0, 0x20, 0, 0, 0x10, 0,
                                  0,    0,    64,   0,    0,    0, 3,    0, 1, 0}));
  EXPECT_EQ(raw(encode(1, DeletePair{0x1f})),
            (std::vector<uint8_t>{3, 0, 3, 0, 1, 0, 0, 0, 0x1f, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(Mail, OfAnyOtherLengthIsRefused) {
  for (const Question& question : kQuestions) {
    auto bytes = encode(9, question);
    bytes.push_back(std::byte{});
    EXPECT_FALSE(decode_question(bytes));
    for (bytes.pop_back(); !bytes.empty();) {
      bytes.pop_back();
      EXPECT_FALSE(decode_question(bytes)) << bytes.size();
    }
  }
}

TEST(Mail, OfAnotherVersionIsToldApart) {
  auto bytes = encode(9, DeletePair{1});
  bytes[0] = std::byte{1};
  const auto read = decode_question(bytes);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().kind, ErrorClass::Unsupported);
  EXPECT_EQ(number_of(bytes), 9U);
}

TEST(Mail, WhatMustBeNothingIs) {
  auto bytes = encode(9, DeletePair{1});
  bytes[15] = std::byte{1};
  EXPECT_FALSE(decode_question(bytes));
  auto hello = encode(9, Hello{5});
  hello[8] = std::byte{1};
  EXPECT_FALSE(decode_question(hello));
  auto create = encode(9, CreatePair{{64, 0x1000, 0x2000, {}}});
  create[30] = std::byte{2};
  EXPECT_FALSE(decode_question(create));
}

TEST(Mail, MoreNamespacesThanItHasRoomForAreAll) {
  const std::vector<uint32_t> many(kChangedMax + 1, 3);
  const auto read = decode_answer(encode(1, Changes{4, {false, many}}));
  ASSERT_TRUE(read);
  EXPECT_TRUE(std::get<Changes>(read->what).which.all);
  EXPECT_TRUE(std::get<Changes>(read->what).which.ids.empty());
}

TEST(Mail, NamespacesThatAreNotCountedAreRefused) {
  constexpr size_t kAll = 16, kCount = 18, kFirst = 24;
  auto bytes = encode(1, Changes{4, {false, {1, 2}}});
  for (const auto& [at, value] :
       {std::pair(kCount, 1), std::pair(kCount, 3), std::pair(kCount, 255), std::pair(kAll, 1),
        std::pair(kAll, 2), std::pair(kFirst, 0)}) {
    auto changed = bytes;
    changed[at] = std::byte(value);
    EXPECT_FALSE(decode_answer(changed)) << at << " " << value;
  }
}

TEST(Mail, ARefusalIsOneLineForATerminal) {
  const std::string odd = std::string("a\x1b[2J") + std::string(300, 'x') + "\n";
  const auto read = decode_answer(encode(1, Refusal{{ErrorClass::Usage, odd}}));
  ASSERT_TRUE(read);
  const auto& error = std::get<Refusal>(read->what).error;
  EXPECT_EQ(error.kind, ErrorClass::Usage);
  EXPECT_EQ(error.message, "a?[2J" + std::string(179, 'x'));
}

}  // namespace
}  // namespace pcilend::nvme::mail
