// SPDX-License-Identifier: GPL-2.0-or-later
// Functions of this host, and the UUIDs that pcilend.ko gives them.
#include "pcilend/policy/local.h"

#include "pcilend/identity.h"
#include "root.h"

namespace pcilend::policy::test {
namespace {

class LocalTest : public RootTest {
 protected:
  std::vector<LocalFunction> functions(uint32_t node = 4) {
    auto found = local_functions(environment(), node);
    EXPECT_TRUE(found) << found.error().message;
    return found ? std::move(*found) : std::vector<LocalFunction>();
  }
};

TEST_F(LocalTest, AreReadFromSysfs) {
  install("0000:00:10.0", {});
  install("0000:00:02.0", {0x8086, 0x10d3, 0x020000});
  install("0000:00:1c.0", {0x1b36, 0x000c, 0x060400, 0, 1});
  install("10000:00:00.0", {});
  fs::create_directories(root_ / device("0000:00:11.0"));
  const auto found = functions();
  ASSERT_EQ(found.size(), 3u) << "a borrowed one, and one that is just going away, don't count";
  EXPECT_EQ(to_string(found[0].address), "0000:00:02.0");
  EXPECT_EQ(found[0].vendor, 0x8086);
  EXPECT_EQ(found[0].class_code, 0x020000u);
  EXPECT_FALSE(found[0].bridge);
  EXPECT_TRUE(found[2].bridge);
}

TEST_F(LocalTest, TheUuidIsTheKernels) {
  install("0000:00:10.0", {.serial = 0x1122334455667788});
  pcilend_identity identity{};
  identity.vendor = 0x1b36;
  identity.device = 0x0010;
  identity.subsystem_vendor = 0x1af4;
  identity.subsystem_device = 0x1100;
  identity.class_code = 0x010802;
  identity.lender = 4;
  identity.serial = 0x1122334455667788;
  Uuid expected;
  pcilend_uuid_make(expected.bytes.data(), &identity);
  EXPECT_EQ(functions()[0].uuid, expected);
  EXPECT_NE(functions(8)[0].uuid, expected) << "another lender's";

  identity.function = 256 + 3;
  pcilend_uuid_make(expected.bytes.data(), &identity);
  install("0000:00:10.5", {});
  fs::create_symlink("../0000:00:10.0", root_ / device("0000:00:10.5") / "physfn");
  fs::create_symlink("../0000:00:10.5", root_ / device("0000:00:10.0") / "virtfn3");
  EXPECT_EQ(functions()[1].uuid, expected) << "a virtual function has its physical one's serial";
}

TEST_F(LocalTest, WithASerialNumberTheUuidFollowsTheCard) {
  install("0000:00:10.0", {.serial = 7});
  install("0000:01:00.0", {.serial = 7});
  install("0000:02:00.0", {});
  install("0000:03:00.0", {});
  const auto found = functions();
  EXPECT_EQ(found[0].uuid, found[1].uuid);
  EXPECT_NE(found[2].uuid, found[3].uuid) << "without one it is the place's";
}

TEST_F(LocalTest, ACapabilityLoopEnds) {
  install("0000:00:10.0", {.serial = 7});
  std::string config = *environment().read("/" + (device("0000:00:10.0") / "config").native());
  config[0x140] = 0x0b;  // another capability
  config[0x142] = 0x01;
  config[0x143] = 0x14;  // whose next is itself
  write(device("0000:00:10.0") / "config", config);
  EXPECT_TRUE(functions()[0].uuid);
}

}  // namespace
}  // namespace pcilend::policy::test
