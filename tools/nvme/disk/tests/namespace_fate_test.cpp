// SPDX-License-Identifier: GPL-2.0-or-later
#include "disk/namespace_fate.h"

#include <gtest/gtest.h>

#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

constexpr uint64_t kBlocks = 1000;
const NamespaceInfo kKnown{1, kBlocks, 512, 0};

NamespaceFate fate(const Result<NamespaceInfo>& now) {
  return fate_of(kKnown, kBlocks, now);
}

TEST(NamespaceFate, IsThatOfTheDisksBlocks) {
  EXPECT_EQ(fate(kKnown), NamespaceFate::Same);
  EXPECT_EQ(fate(NamespaceInfo{1, kBlocks + 1, 512, 0}), NamespaceFate::Grown);
  EXPECT_EQ(fate(NamespaceInfo{1, kBlocks - 1, 512, 0}), NamespaceFate::Other);
  EXPECT_EQ(fate(NamespaceInfo{1, kBlocks, 4096, 0}), NamespaceFate::Other);
  EXPECT_EQ(fate(NamespaceInfo{1, kBlocks, 512, 2}), NamespaceFate::Other);
}

TEST(NamespaceFate, OneThatWasMadeAnewIsAnotherOne) {
  const NamespaceInfo known{1, kBlocks, 512, 0, "0102"};
  EXPECT_EQ(fate_of(known, kBlocks, known), NamespaceFate::Same);
  EXPECT_EQ(fate_of(known, kBlocks, NamespaceInfo{1, kBlocks, 512, 0, "0103"}),
            NamespaceFate::Other);
  EXPECT_EQ(fate_of(known, kBlocks, NamespaceInfo{1, kBlocks + 1, 512, 0, "0103"}),
            NamespaceFate::Other);
  EXPECT_EQ(fate_of(known, kBlocks, kKnown), NamespaceFate::Same) << "it does not say";
}

// Of a disk that has outlived an earlier growth.
TEST(NamespaceFate, IsComparedWithTheDiskAndNotWithTheDrive) {
  EXPECT_EQ(fate_of({1, 2 * kBlocks, 512, 0}, kBlocks, NamespaceInfo{1, kBlocks, 512, 0}),
            NamespaceFate::Same);
}

TEST(NamespaceFate, IsNotKnownOfADriveThatDoesNotAnswer) {
  EXPECT_EQ(fate(tl::unexpected(Error{ErrorClass::NotFound, ""})), NamespaceFate::Other);
  EXPECT_EQ(fate(tl::unexpected(Error{ErrorClass::Unsupported, ""})), NamespaceFate::Other);
  EXPECT_EQ(fate(tl::unexpected(Error{ErrorClass::Unreachable, ""})), NamespaceFate::Unknown);
  EXPECT_EQ(fate(tl::unexpected(Error{ErrorClass::State, ""})), NamespaceFate::Unknown);
}

}  // namespace
}  // namespace pcilend::nvme
