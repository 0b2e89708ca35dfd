// SPDX-License-Identifier: GPL-2.0-or-later
// What is known of a function that was leased.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pcilend/ids.h"

namespace pcilend {

struct Bar {
  uint32_t index = 0;  // 0 to 5, 6 = expansion ROM
  uint64_t size = 0;   // bytes
  uint32_t flags = 0;  // kBar*
};

// PCILEND_BAR_* of the wire protocol.
inline constexpr uint32_t kBarMem64 = 0x01;
inline constexpr uint32_t kBarPrefetch = 0x02;
inline constexpr uint32_t kBarIo = 0x04;

struct LeaseInfo {
  FunctionId id;
  uint16_t vendor = 0;
  uint16_t device = 0;
  uint32_t class_revision = 0;  // class << 8 | revision, as in config space 0x08
  std::vector<Bar> bars;
  std::string adapter;  // PCI address of the NTB that leads to it; empty: it is this host's
};

}  // namespace pcilend
