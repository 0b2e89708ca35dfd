// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/tenant.h"

#include <gtest/gtest.h>

namespace {

constexpr pcilend_tenant kHost = {false, {}, 0x40001, 0};
constexpr pcilend_tenant kGuest = {true, {0xd0, 1}, 0x40002, 0};

bool Same(const pcilend_tenant& a, const pcilend_tenant& b) {
  const bool same = pcilend_tenant_is_same(&a, &b);
  EXPECT_EQ(pcilend_tenant_is_same(&b, &a), same);
  return same;
}

TEST(Tenant, DriversOfThisHostAreOne) {
  EXPECT_TRUE(Same(kHost, {false, {}, 0x50003, 0}));
  EXPECT_TRUE(Same(kHost, {false, {0xd0, 1}, 0x50003, 7}));
  EXPECT_FALSE(Same(kHost, kGuest));
  EXPECT_FALSE(Same({false, {0xd0, 1}, 0x40002, 7}, {true, {0xd0, 1}, 0x40003, 7}));
}

TEST(Tenant, AGuestIsItsOwner) {
  EXPECT_TRUE(Same(kGuest, {true, {0xd0, 1}, 0x50003, 0}));
  EXPECT_FALSE(Same(kGuest, {true, {0xd0, 2}, 0x40003, 0}));
  EXPECT_FALSE(Same(kGuest, {true, {}, 0x40003, 0}));
}

TEST(Tenant, WhoIsNotKnownIsNobodyElse) {
  EXPECT_FALSE(Same({true, {}, 0x40002, 0}, {true, {}, 0x40003, 0}));
  EXPECT_TRUE(Same({true, {}, 0x40002, 0}, {true, {}, 0x40002, 0}));
}

TEST(Tenant, ASetIsOneTenant) {
  EXPECT_TRUE(Same({true, {}, 0x40002, 7}, {true, {0xd0, 1}, 0x40003, 7}));
  EXPECT_FALSE(Same({true, {}, 0x40002, 7}, {true, {}, 0x40003, 8}));
  EXPECT_FALSE(Same({true, {}, 0x40002, 7}, {true, {}, 0x50003, 7})) << "of another lender";
}

}  // namespace
