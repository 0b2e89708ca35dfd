// SPDX-License-Identifier: GPL-2.0-or-later
// What a drive says of itself: pages of 4 KiB that it has written, which may be anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pcilend/nvme/command.h"

namespace pcilend::nvme {

using IdentifyPage = std::span<const std::byte, kPage>;

// Of Base 5.17.2.1.
struct ControllerInfo {
  std::string serial;  // printable ASCII, as are the others
  std::string model;
  std::string firmware;
  size_t transfer = 0;          // bytes of one command, at most; of kTransferMax
  uint32_t namespaces = 0;      // the highest that there may be
  bool volatile_cache = false;  // what was written is safe after a flush only
  bool deallocates = false;     // knows these commands
  bool writes_zeroes = false;
  uint32_t events = 0;  // that it can tell of by itself (OAES)
};

// Unsupported if its queues' entries are not those of this library.
Result<ControllerInfo> parse_controller(IdentifyPage page);

// Ids of namespaces, in ascending order, to the first 0 (Base 5.17.2.2); Failure if they are not
// in order.
Result<std::vector<uint32_t>> parse_active_namespaces(IdentifyPage page);

// Of NVM 4.1.5.1.
struct NamespaceInfo {
  uint32_t id = 0;
  uint64_t blocks = 0;
  uint32_t block_bytes = 0;  // 512 to 65,536, a power of two
  // Out of its descriptors, as where there are none, if they don't say:
  uint8_t command_set = 0;  // by which it is used. 0: blocks; 2: zones
  std::string identity;     // EUI64, NGUID and UUID, which no other one has; empty: it has none
};

// NotFound if there is none; Unsupported if its blocks have metadata, or a size that is not as
// above.
Result<NamespaceInfo> parse_namespace(uint32_t id, IdentifyPage page);

// What a namespace's descriptors say (Base 5.17.2.3).
void read_descriptors(IdentifyPage page, NamespaceInfo& name_space);

// Two answers of a drive can't be about one namespace. One that has no identity, or has not said
// it, may be any.
inline bool differ(std::string_view identity, std::string_view other) {
  return !identity.empty() && !other.empty() && identity != other;
}

// As clients of a shared drive see it: nothing that is one for all of them (host memory,
// reservations, what changes the drive), nothing that its manager keeps to itself (events), and
// others may have it, too.
void hide_what_is_shared(std::span<std::byte, kPage> controller);

// Of the log page of that name (Base 5.16.1.3).
struct Health {
  uint8_t warnings = 0;      // bits
  uint16_t kelvin = 0;       // 0: it does not say
  uint8_t percent_used = 0;  // 255: or more
  uint64_t power_cycles = 0;
};
inline constexpr size_t kHealthBytes = 512;
Health parse_health(std::span<const std::byte, kHealthBytes> log);

}  // namespace pcilend::nvme
