// SPDX-License-Identifier: GPL-2.0-or-later
// Kinds, from sysfs and to it.
#include "pcilend/policy/kinds.h"

#include <gmock/gmock.h>

#include "pcilend/policy/local.h"
#include "pcilend/policy/restore.h"
#include "root.h"

namespace pcilend::policy::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kNewKind = "sys/bus/pci/drivers/pcilend_mdev/new_kind";
constexpr const char* kRemoveKind = "sys/bus/pci/drivers/pcilend_mdev/remove_kind";
constexpr const char* kNotLoaded = "pcilend_mdev.ko is not loaded: modprobe pcilend_mdev";

class KindsTest : public RootTest {
 protected:
  static std::vector<KindEntry> configured(const std::string& kinds) {
    auto config = parse_config("x.json", R"({"kinds": [)" + kinds + "]}");
    EXPECT_TRUE(config) << (config ? "" : config.error().message);
    return config ? std::move(config->kinds) : std::vector<KindEntry>();
  }

  // "ACTION TEXT: OUTCOME[: REASON]" of each step.
  std::vector<std::string> restored(const std::string& kinds, bool dry_run = false) {
    std::vector<std::string> lines;
    for (const auto& step : restore_kinds(environment(), configured(kinds), dry_run))
      lines.push_back(fmt::format("{} {}: {}{}", name_of(step.action), step.kind,
                                  name_of(step.outcome),
                                  step.reason.empty() ? "" : ": " + step.reason));
    return lines;
  }

  std::string file(const std::string& path) { return environment().read(path).value_or("none"); }

  // An attribute that refuses what is written to it.
  void break_attribute(const char* path) {
    fs::remove(root_ / path);
    fs::create_directory(root_ / path);
  }
};

TEST_F(KindsTest, AreReadByAddress) {
  make_kind("8000:00:1a.0", "fast device=144d::0108 label=rack 7", 3);
  make_kind("8000:00:01.0", "storage device=::01xx");
  write("sys/bus/pci/drivers/pcilend_mdev/0000:00:05.0/vendor", "0x1b36");  // lent by this host
  const auto kinds = present_kinds(environment());
  ASSERT_TRUE(kinds) << kinds.error().message;
  ASSERT_EQ(kinds->size(), 2u);
  EXPECT_EQ(kinds->front().text(), "storage device=::01xx");
  const PresentKind& fast = kinds->back();
  EXPECT_EQ(fast.name, "fast");
  EXPECT_EQ(fast.type, "pcilend_mdev-fast");
  EXPECT_EQ(to_string(fast.address), "8000:00:1a.0");
  EXPECT_EQ(fast.matches, "device=144d::0108 label=rack 7");
  EXPECT_EQ(fast.available, 2u);
  EXPECT_EQ(fast.devices, 3u);
}

TEST_F(KindsTest, NeedTheModule) {
  fs::create_directories(root_ / "sys/bus/pci/drivers/pcilend_mdev");
  const auto kinds = present_kinds(environment());
  ASSERT_FALSE(kinds);
  EXPECT_EQ(kinds.error().kind, ErrorClass::Unreachable);
  EXPECT_EQ(kinds.error().message, kNotLoaded);
  for (const bool dry_run : {true, false})
    EXPECT_THAT(restored(R"({"name": "a", "label": "x"}, {"name": "b", "label": "x"})", dry_run),
                ElementsAre(fmt::format("add-kind a label=x: failed: {}", kNotLoaded),
                            fmt::format("add-kind b label=x: failed: {}", kNotLoaded)));
  EXPECT_THAT(restored(""), IsEmpty()) << "a host without kinds needs no module";
}

TEST_F(KindsTest, WhatIsMissingIsMade) {
  make_kind("8000:00:01.0", "storage device=::01xx");
  const std::string fast = R"({"name": "fast", "device": "144D::0108"})";
  EXPECT_THAT(restored(fast, true), ElementsAre("add-kind fast device=144d::0108: planned"));
  EXPECT_EQ(file(kNewKind), "");
  EXPECT_THAT(restored(fast), ElementsAre("add-kind fast device=144d::0108: done"));
  EXPECT_EQ(file(kNewKind), "fast device=144d::0108");
  make_kind("8000:00:1a.0", "fast device=144d::0108");
  EXPECT_THAT(restored(fast), IsEmpty());
}

TEST_F(KindsTest, WhatIsDifferentIsMadeAnew) {
  make_kind("8000:00:1a.0", "fast label=a");
  const std::string fast = R"({"name": "fast", "label": "b"})";
  EXPECT_THAT(restored(fast, true),
              ElementsAre("remove-kind fast label=a: planned", "add-kind fast label=b: planned"));
  EXPECT_EQ(file(kRemoveKind), "");
  EXPECT_THAT(restored(fast),
              ElementsAre("remove-kind fast label=a: done", "add-kind fast label=b: done"));
  EXPECT_EQ(file(kRemoveKind), "fast");
  EXPECT_EQ(file(kNewKind), "fast label=b");
}

TEST_F(KindsTest, OneThatHasDevicesStays) {
  make_kind("8000:00:1a.0", "fast label=a", 1);
  break_attribute(kRemoveKind);
  EXPECT_THAT(
      restored(R"({"name": "fast", "label": "b"}, {"name": "slow", "label": "b"})"),
      ElementsAre("remove-kind fast label=a: failed: mediated devices of it exist: remove them "
                  "first: they are in /sys/bus/pci/drivers/pcilend_mdev/8000:00:1a.0/"
                  "mdev_supported_types/pcilend_mdev-fast/devices",
                  "add-kind slow label=b: done"));
}

TEST_F(KindsTest, OtherRefusalsAreReported) {
  make_kind("8000:00:1a.0", "fast label=a");
  break_attribute(kRemoveKind);
  break_attribute(kNewKind);
  const auto steps = restored(R"({"name": "fast", "label": "b"}, {"name": "slow", "label": "b"})");
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_THAT(steps[0], HasSubstr("remove_kind: Is a directory"));
  EXPECT_THAT(steps[1], HasSubstr("new_kind: Is a directory: 'dmesg' says why"));
}

TEST_F(KindsTest, OneThatWentMeanwhileIsNoError) {
  make_kind("8000:00:1a.0", "fast label=a");
  const auto kinds = present_kinds(environment());
  ASSERT_TRUE(kinds);
  break_attribute(kRemoveKind);
  fs::remove_all(root_ / "sys/bus/pci/drivers/pcilend_mdev/8000:00:1a.0");
  EXPECT_TRUE(end_kind(environment(), kinds->front()));
}

// Nor are those that it has borrowed: a filter must not lend them on.
TEST_F(KindsTest, AreNoFunctionsOfThisHost) {
  install("0000:00:10.0", {});
  install("8000:00:01.0", {0xfffe, 0x0001, 0x010000});
  install("8004:01:00.0", {});
  const auto functions = local_functions(environment(), 8);
  ASSERT_TRUE(functions);
  ASSERT_EQ(functions->size(), 1u);
  EXPECT_EQ(to_string(functions->front().address), "0000:00:10.0");
}

}  // namespace
}  // namespace pcilend::policy::test
