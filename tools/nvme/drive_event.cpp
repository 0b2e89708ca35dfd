// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/drive_event.h"

#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

struct Known {
  uint8_t type;
  uint8_t info;
  const char* text;
};

// Base, Asynchronous Event Request.
constexpr Known kKnown[] = {
    {0, 0, "a doorbell was rung of a queue that there is not"},
    {0, 1, "a doorbell was rung with a value that it can't have"},
    {0, 2, "its self-test found it broken"},
    {0, 3, "an internal error that lasts: replace it"},
    {0, 4, "an internal error that has passed"},
    {0, 5, "its firmware can't be loaded"},
    {1, 0, "it is not reliable any more: save what is on it"},
    {1, 1, "its temperature is out of bounds"},
    {1, 2, "its spare blocks come to an end"},
    {2, 0, "its namespaces have changed: attach disks of it anew"},
    {2, 1, "it has begun to activate firmware, and answers late"},
};

}  // namespace

DriveEvent parse_drive_event(uint32_t result) {
  return {static_cast<uint8_t>(result & 7), static_cast<uint8_t>(result >> 8),
          static_cast<uint8_t>(result >> 16)};
}

std::string to_string(const DriveEvent& event) {
  for (const Known& known : kKnown)
    if (known.type == event.type && known.info == event.info) return known.text;
  return fmt::format("event {:#x} of type {}", event.info, event.type);
}

}  // namespace pcilend::nvme
