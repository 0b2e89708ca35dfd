// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/controller_memory.h"

#include <gtest/gtest.h>

namespace pcilend::nvme {
namespace {

TEST(ControllerMemory, IsWhereItsRegistersSay) {
  // 16 units of 1 MiB, behind the first 2 of them in BAR 2.
  const auto memory = parse_controller_memory(2 << 12 | 2, 16 << 12 | 2 << 8 | 0x1d);
  ASSERT_TRUE(memory) << memory.error().message;
  EXPECT_EQ(memory->bar, 2U);
  EXPECT_EQ(memory->offset, uint64_t{2} << 20);
  EXPECT_EQ(memory->bytes, uint64_t{16} << 20);
  EXPECT_EQ(memory->address, kControllerMemoryAddress);
}

TEST(ControllerMemory, ThatIsOfNoUseIsRefused) {
  for (const auto& [location, size] : {
           std::pair{2U, 0U},                                  // none
           std::pair{2U, 16U << 12 | 0x1c},                    // not for commands
           std::pair{2U, 16U << 12 | 0x19},                    // not for lists
           std::pair{2U, 16U << 12 | 0x0d},                    // not for data of writes
           std::pair{6U, 16U << 12 | 0x1d},                    // in no BAR
           std::pair{2U, 16U << 12 | 7U << 8 | 0x1d},          // units that are not known
           std::pair{2U, 1U << 12 | 6U << 8 | 0x1d},           // 64 GiB
           std::pair{0xfffff002U, 1U << 12 | 4U << 8 | 0x1d},  // further in than BARs are large
           std::pair{~0U, ~0U},                                // gone
       })
    EXPECT_FALSE(parse_controller_memory(location, size)) << location << " " << size;
}

}  // namespace
}  // namespace pcilend::nvme
