// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/health.h"

#include <gtest/gtest.h>

#include <cstring>

namespace {

// QEMU's controller: MQES 2047, CQR, TO 15, CSS, MPSMIN 0, MPSMAX 4.
constexpr u64 kCap = 0x004000200f0107ff;

enum pcilend_health Look(u64 cap, u32 csts, const char* word = nullptr) {
  const char* why = nullptr;
  const auto health = pcilend_health_nvme(cap, csts, &why);
  EXPECT_EQ(why == nullptr, health == PCILEND_HEALTH_READY);
  if (word != nullptr && why != nullptr) {
    EXPECT_NE(std::strstr(why, word), nullptr) << why;
  }
  return health;
}

TEST(Health, NvmeAsResetLeavesIt) {
  EXPECT_EQ(Look(kCap, 0), PCILEND_HEALTH_READY);
  EXPECT_EQ(Look(kCap, 0x0c), PCILEND_HEALTH_READY) << "shutdown status says nothing here";
}

TEST(Health, NvmeStillEnabledNeedsTime) {
  EXPECT_EQ(Look(kCap, 1, "CSTS.RDY"), PCILEND_HEALTH_WAIT);
}

TEST(Health, NvmeBroken) {
  EXPECT_EQ(Look(kCap, ~0u, "all-ones"), PCILEND_HEALTH_BROKEN);
  EXPECT_EQ(Look(~0ull, 0, "all-ones"), PCILEND_HEALTH_BROKEN);
  EXPECT_EQ(Look(kCap, 2, "CSTS.CFS"), PCILEND_HEALTH_BROKEN);
  EXPECT_EQ(Look(kCap, 3, "CSTS.CFS"), PCILEND_HEALTH_BROKEN);
  EXPECT_EQ(Look(0, 0, "no sense"), PCILEND_HEALTH_BROKEN);
  EXPECT_EQ(Look(kCap & ~0xffffull, 0, "no sense"), PCILEND_HEALTH_BROKEN) << "queues of one entry";
  EXPECT_EQ(Look(kCap | 5ull << 48, 0, "no sense"), PCILEND_HEALTH_BROKEN)
      << "smallest page above the largest";
}

TEST(Health, NvmeTimeIsBounded) {
  EXPECT_EQ(pcilend_health_nvme_ms(kCap), 5000u) << "7.5 s by itself";
  EXPECT_EQ(pcilend_health_nvme_ms(kCap & ~0xff000000ull), 0u);
  EXPECT_EQ(pcilend_health_nvme_ms((kCap & ~0xff000000ull) | 3 << 24), 1500u);
  EXPECT_EQ(pcilend_health_nvme_ms(~0ull), 5000u);
}

}  // namespace
