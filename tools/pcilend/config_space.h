// SPDX-License-Identifier: GPL-2.0-or-later
// What a PCI configuration space says.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pcilend {

struct Capability {
  uint16_t offset = 0;
  uint16_t id = 0;
  bool extended = false;
  std::string name;
  std::string detail;  // may be empty
};

struct ConfigBar {
  unsigned index = 0;  // 0 to 5, 6 = expansion ROM
  bool io = false;
  bool bits64 = false;
  bool prefetchable = false;
  uint64_t address = 0;  // 0: not assigned
};

struct ConfigSpace {
  uint16_t vendor = 0;
  uint16_t device = 0;
  uint32_t class_revision = 0;  // class << 8 | revision
  uint8_t header_type = 0;      // without the multi-function bit
  uint16_t subsystem_vendor = 0;
  uint16_t subsystem_device = 0;
  uint8_t interrupt_pin = 0;             // 1 to 4 for A to D; 0: none
  std::vector<std::string> command;      // what is on
  std::vector<ConfigBar> bars;           // those that do not read as 0
  std::vector<Capability> capabilities;  // in the order of their lists
};

// `bytes`: 256 or 4096 of them. Lists that loop or point outside end there.
ConfigSpace decode_config_space(std::span<const uint8_t> bytes);

}  // namespace pcilend
