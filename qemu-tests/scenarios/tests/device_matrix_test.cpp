// SPDX-License-Identifier: GPL-2.0-or-later
#include "scenarios/devices/device_matrix.h"

#include <gtest/gtest.h>

#include <set>

namespace pcilend::scenarios {
namespace {

TEST(FunctionTraits, AreReadFromLspci) {
  const FunctionTraits e1000e = parse_traits(
      "02:00.0 Ethernet controller: Intel Corporation 82574L Gigabit Network Connection\n"
      "\tFlags: bus master, fast devsel, latency 0, IRQ 20, IOMMU group 25\n"
      "\tMemory at fe640000 (32-bit, non-prefetchable) [size=128K]\n"
      "\tI/O ports at 8000 [size=32]\n"
      "\tMemory at fe680000 (64-bit, prefetchable) [disabled] [size=16K]\n"
      "\tExpansion ROM at fe600000 [disabled] [size=256K]\n"
      "\tCapabilities: [d0] MSI: Enable- Count=1/1 Maskable- 64bit+\n"
      "\tCapabilities: [a0] MSI-X: Enable+ Count=5 Masked-\n");
  EXPECT_EQ(e1000e.interrupts, "MSI-X");
  EXPECT_EQ(e1000e.bars, "128K, I/O 32, 16K 64-bit");

  const FunctionTraits edu = parse_traits(
      "\tFlags: fast devsel, IRQ 21, IOMMU group 36\n"
      "\tMemory at fd000000 (32-bit, non-prefetchable) [size=1M]\n"
      "\tCapabilities: [40] MSI: Enable- Count=1/1 Maskable- 64bit+\n");
  EXPECT_EQ(edu.interrupts, "MSI");
  EXPECT_EQ(edu.bars, "1M");

  EXPECT_EQ(parse_traits("\tFlags: fast devsel, IRQ 21\n").interrupts, "INTx");
  EXPECT_EQ(parse_traits("\tFlags: fast devsel\n").interrupts, "none");
}

TEST(MatrixTable, HasALineForEachFunction) {
  EXPECT_EQ(table_of({{"edu", "6.12", {"MSI", "1M"}, "works", "registers written and read"}}),
            "| function | kernel | interrupts | BARs | result | why |\n"
            "| --- | --- | --- | --- | --- | --- |\n"
            "| edu | 6.12 | MSI | 1M | works | registers written and read |\n");
}

TEST(Matrix, EachFunctionHasAnIdOfItsOwn) {
  std::set<std::string> ids;
  for (const MatrixFunction& function : matrix_functions())
    EXPECT_TRUE(ids.insert(function.name).second) << function.name;
  const auto options = matrix_options();
  ASSERT_TRUE(options);
  EXPECT_TRUE(options->check());
}

}  // namespace
}  // namespace pcilend::scenarios
