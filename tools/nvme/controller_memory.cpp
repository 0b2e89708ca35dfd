// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/controller_memory.h"

#include "pcilend/nvme/command.h"
#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

constexpr uint32_t kCommands = 1;
constexpr uint32_t kLists = 1 << 2;
constexpr uint32_t kWrites = 1 << 4;
constexpr uint32_t kWanted = kCommands | kLists | kWrites;
constexpr uint32_t kUnitMax = 6;  // 64 GiB

}  // namespace

Result<ControllerMemory> parse_controller_memory(uint32_t location, uint32_t size) {
  const uint32_t unit = size >> 8 & 0xf;
  const uint64_t pages = size >> 12;
  if (pages == 0 || unit > kUnitMax)
    return fail(ErrorClass::Unsupported, "the drive has no memory of its own that can be used");
  if ((size & kWanted) != kWanted)
    return fail(ErrorClass::Unsupported,
                "the drive's own memory is not for commands, lists and data of writes: leave it");
  const uint64_t unit_bytes = uint64_t{kPage} << 4 * unit;
  const ControllerMemory memory{.bar = location & 7,
                                .offset = (location >> 12) * unit_bytes,
                                .bytes = pages * unit_bytes,
                                .address = kControllerMemoryAddress};
  if (memory.bar > 5 || memory.bytes > kControllerMemoryAddress ||
      memory.offset > kControllerMemoryAddress)
    return fail(ErrorClass::Unsupported,
                "the drive has {} bytes of memory in BAR {}: more than can be placed", memory.bytes,
                memory.bar);
  return memory;
}

}  // namespace pcilend::nvme
