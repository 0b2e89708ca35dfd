// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/pci_names.h"

#include <gtest/gtest.h>

#include <fstream>

namespace pcilend {
namespace {

TEST(PciNames, ComeFromTheList) {
  const PciNames names(PCILEND_TESTDATA_DIR "/pci.ids");
  EXPECT_EQ(names.device_class(0x0108), "Non-Volatile memory controller");
  EXPECT_EQ(names.vendor(0x1b36), "Red Hat, Inc.");
  EXPECT_EQ(names.device(0x1b36, 0x0010), "QEMU NVM Express Controller");
}

TEST(PciNames, WhatHasNoNameGetsItsNumber) {
  const PciNames names(PCILEND_TESTDATA_DIR "/pci.ids");
  EXPECT_EQ(names.device_class(0xfe01), "Class fe01");
  EXPECT_EQ(names.vendor(0x4242), "Vendor 4242");
  EXPECT_EQ(names.device(0x1b36, 0x4242), "Device 4242");
}

TEST(PciNames, WithoutAListNumbersAreLeft) {
  const PciNames names("/nonexistent/pci.ids");
  EXPECT_EQ(names.vendor(0x1b36), "Vendor 1b36");
}

TEST(PciNames, AMalformedListIsUsedAsFarAsItGoes) {
  const std::string path = testing::TempDir() + "pcilend-bad-pci.ids";
  std::ofstream(path) << "1b36  Red Hat, Inc.\n\t\t\tnonsense\n8086  Intel Corporation\n";
  const PciNames names(path);
  EXPECT_EQ(names.vendor(0x1b36), "Red Hat, Inc.");
  EXPECT_EQ(names.vendor(0x8086), "Vendor 8086");
  std::remove(path.c_str());
}

}  // namespace
}  // namespace pcilend
