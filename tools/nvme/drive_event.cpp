// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/drive_event.h"

#include <algorithm>
#include <cstring>

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
    {2, 0, "some of its namespaces have come, gone, or changed"},
    {2, 1, "it has begun to activate firmware, and answers late"},
};

// Of Asynchronous Event Configuration (Base 5.27.1.8): warnings of its health, and those of OAES
// that are known above.
constexpr uint32_t kHealthWarnings = 0x1f;
constexpr uint32_t kNamespaceNotices = 1U << 8;
constexpr uint32_t kFirmwareNotices = 1U << 9;

constexpr uint32_t kAllOfThem = 0xffffffff;
constexpr size_t kTold = 16;  // in a line

}  // namespace

bool NamespaceChanges::has(uint32_t id) const {
  return all || std::ranges::find(ids, id) != ids.end();
}

NamespaceChanges parse_changed_namespaces(IdentifyPage page) {
  NamespaceChanges changes;
  for (size_t at = 0; at < page.size(); at += sizeof(uint32_t)) {
    uint32_t id = 0;
    std::memcpy(&id, page.data() + at, sizeof id);
    if (id == kAllOfThem) return {.all = true, .ids = {}};
    if (id == 0) break;
    changes.ids.push_back(id);
  }
  return changes;
}

std::string to_string(const NamespaceChanges& changes) {
  if (changes.all) return "its namespaces";
  const auto told = std::span(changes.ids).first(std::min(changes.ids.size(), kTold));
  const size_t more = changes.ids.size() - told.size();
  return fmt::format("namespace{} {}{}", changes.ids.size() == 1 ? "" : "s", fmt::join(told, ", "),
                     more ? fmt::format(", and {} more", more) : "");
}

uint32_t wanted_events(uint32_t supported) {
  return kHealthWarnings | (supported & (kNamespaceNotices | kFirmwareNotices));
}

DriveEvent parse_drive_event(uint32_t result) {
  return {static_cast<uint8_t>(result & 7),
          static_cast<uint8_t>(result >> 8),
          static_cast<uint8_t>(result >> 16),
          {}};
}

std::string to_string(const DriveEvent& event) {
  if (event.changes && !event.changes->all)
    return to_string(*event.changes) + ": come, gone, or changed";
  for (const Known& known : kKnown)
    if (known.type == event.type && known.info == event.info) return known.text;
  return fmt::format("event {:#x} of type {}", event.info, event.type);
}

}  // namespace pcilend::nvme
