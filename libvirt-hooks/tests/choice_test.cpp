// SPDX-License-Identifier: GPL-2.0-or-later
// Mediated devices of a domain that may be any function of a kind: which it gets, and keeps.
#include "hook_fixture.h"
#include "record.h"

namespace pcilend {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(HookTest, AChoiceIsMadeRecordedAndGivenBack) {
  kernel_.functions[0].class_revision = 0x02000001;
  kernel_.functions[1].class_revision = 0x01080202;
  const Domain d = choosing({{}, "0108", {}, {}, ""});
  ASSERT_TRUE(prepare(d));
  EXPECT_THAT(kernel_.log, ElementsAre(fmt::format("borrow 40002 vfio {}", kDomain)));
  EXPECT_EQ(created(0x40002), kAny);
  const auto record = load_record(environment_, parse_uuid(kDomain).value());
  ASSERT_TRUE(record && *record);
  ASSERT_EQ((*record)->functions.size(), 1u);
  EXPECT_EQ(to_string((*record)->functions[0].id), "40002");
  add_mdev(kAny);
  ASSERT_TRUE(release(d));
  EXPECT_EQ(removed(kAny), "1");
  EXPECT_EQ(kernel_.log.back(), fmt::format("return 40002 {}", kDomain));
}

TEST_F(HookTest, EveryCriterionCounts) {
  Function& f = kernel_.functions[0];
  f.class_revision = 0x01080202;
  f.label = "fast";
  for (const Choice& good : std::vector<Choice>{{{}, "01", {}, {}, ""},
                                                {{}, "010802", {}, {}, ""},
                                                {{}, "", 0x1b36, {}, ""},
                                                {{}, "", {}, 0x0010, ""},
                                                {{}, "", {}, {}, "fast"},
                                                {{}, "0108", 0x1b36, 0x0010, "fast"}})
    EXPECT_TRUE(good.matches(f)) << good.text();
  for (const Choice& bad : std::vector<Choice>{{{}, "02", 0x1b36, {}, ""},
                                               {{}, "010803", {}, {}, ""},
                                               {{}, "0108", 0x8086, {}, ""},
                                               {{}, "", 0x1b36, 0x0011, ""},
                                               {{}, "0108", {}, {}, "fas"}})
    EXPECT_FALSE(bad.matches(f)) << bad.text();
}

TEST_F(HookTest, OfEqualOnesTheLeastUsedLinkIsTaken) {
  Function busy = kernel_.functions[0];
  busy.id.value = 0x40003;
  busy.uuid.bytes[15] = 3;
  busy.state = PCILEND_FUNCTION_BORROWED;
  busy.borrower = 8;
  busy.adapter = "0000:00:04.0";
  kernel_.functions.push_back(busy);
  kernel_.functions[0].paths = {"0000:00:04.0"};
  kernel_.functions[1].paths = {"0000:00:04.0", "0000:00:05.0"};
  ASSERT_TRUE(prepare(choosing({{}, "", 0x1b36, {}, ""})));
  EXPECT_THAT(kernel_.log, ElementsAre(fmt::format("borrow 40002 vfio {}", kDomain)));
}

TEST_F(HookTest, TheNextIsTriedWhereALenderRefuses) {
  kernel_.refuse = [](const std::string& entry) -> Result<> {
    if (entry.starts_with("borrow 40001"))
      return fail(ErrorClass::State, "it is reserved for node 12");
    return {};
  };
  ASSERT_TRUE(prepare(choosing({{}, "", 0x1b36, {}, ""})));
  EXPECT_THAT(kernel_.log, ElementsAre(fmt::format("borrow 40002 vfio {}", kDomain)));
  const auto record = load_record(environment_, parse_uuid(kDomain).value());
  ASSERT_TRUE(record && *record);
  EXPECT_EQ((*record)->functions.size(), 1u);
}

TEST_F(HookTest, AChoiceTakesNothingThatTheDomainNames) {
  Domain d = choosing({{}, "", 0x1b36, {}, ""});
  d.mdevs.push_back(parse_uuid(kFirst).value());
  ASSERT_TRUE(prepare(d));
  EXPECT_EQ(created(0x40001), kFirst);
  EXPECT_EQ(created(0x40002), kAny);
  ASSERT_TRUE(release(d));
  d.mdevs.push_back(parse_uuid(kSecond).value());
  const auto refused = prepare(d);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "the domain wants more functions than are free");
  EXPECT_FALSE(fs::exists(record_path(kDomain)));
}

TEST_F(HookTest, AChoiceThatCannotBeMadeSaysWhyOfEach) {
  const Choice choice{{}, "", 0x1b36, {}, ""};
  kernel_.functions[0].state = PCILEND_FUNCTION_ADDED;
  kernel_.functions[1].state = PCILEND_FUNCTION_BORROWED;
  kernel_.functions[1].borrower = 12;
  auto refused = prepare(choosing(choice));
  ASSERT_FALSE(refused);
  EXPECT_EQ(
      refused.error().message,
      "no function of vendor 1b36 is free: 40001 (Red Hat, Inc. QEMU NVM Express Controller) "
      "is not available: on node 4 run 'pcilend available 0000:00:05.0'; 40002 (Red Hat, Inc. "
      "QEMU NVM Express Controller) is borrowed by node 12: end its use there first");
  kernel_.functions.clear();
  refused = prepare(choosing(choice));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "no host offers a function of vendor 1b36: 'pcilend list' shows all");
}

TEST_F(HookTest, AForeignMdevIsNotTakenForAChoice) {
  add_mdev(kAny);
  const auto refused = prepare(choosing({{}, "", 0x1b36, {}, ""}));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr("is there already, and not of a function of vendor 1b36"));
  EXPECT_THAT(kernel_.log, IsEmpty());
}

TEST_F(HookTest, AnMdevThatIsThereFixesTheChoice) {
  const fs::path place = fs::path("sys/devices/pcilend/40002") / kAny;
  touch(place / "remove");
  touch(place / "iommu_group");
  fs::create_directory_symlink(root_ / place, root_ / "sys/bus/mdev/devices" / kAny);
  const Domain d = choosing({{}, "", 0x1b36, {}, ""});
  ASSERT_TRUE(prepare(d));
  EXPECT_THAT(kernel_.log, ElementsAre(fmt::format("borrow 40002 vfio {}", kDomain)));
  // It also tells a lost record's function.
  fs::remove(record_path(kDomain));
  ASSERT_TRUE(reconcile(d));
  ASSERT_TRUE(release(d));
  EXPECT_EQ(kernel_.log.back(), fmt::format("return 40002 {}", kDomain));
}

// Below a kind: what it has borrowed tells which one it is.
TEST_F(HookTest, WhatAnMdevHasBorrowedFixesTheChoice) {
  add_mdev(kAny);
  hold(kernel_.functions[1], fmt::format("mdev:{}", kAny));
  const Domain d = choosing({{}, "", 0x1b36, {}, ""});
  ASSERT_TRUE(prepare(d));
  const auto record = load_record(environment_, parse_uuid(kDomain).value());
  ASSERT_TRUE(record && *record);
  ASSERT_EQ((*record)->functions.size(), 1u);
  EXPECT_EQ(to_string((*record)->functions[0].id), "40002");
  ASSERT_TRUE(release(d));
  EXPECT_THAT(kernel_.log, IsEmpty());
}

}  // namespace
}  // namespace pcilend
