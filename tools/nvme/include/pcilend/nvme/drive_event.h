// SPDX-License-Identifier: GPL-2.0-or-later
// What a drive tells by itself (Base, Asynchronous Event Request command).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pcilend/nvme/identify.h"

namespace pcilend::nvme {

// Namespaces that have come or gone, or are not what they were.
struct NamespaceChanges {
  bool all = false;  // may be any: more than can be told
  std::vector<uint32_t> ids;

  [[nodiscard]] bool empty() const { return !all && ids.empty(); }
  [[nodiscard]] bool has(uint32_t id) const;
};
// Of the log page of that name (Base 5.16.1.5), which may be anything.
NamespaceChanges parse_changed_namespaces(IdentifyPage page);
// For people: "namespaces 1, 2".
std::string to_string(const NamespaceChanges& changes);

struct DriveEvent {
  uint8_t type = 0;
  uint8_t info = 0;
  uint8_t log = 0;  // page that says more; read, the drive tells of the next one of its type
  std::optional<NamespaceChanges> changes;  // if it is about namespaces

  [[nodiscard]] bool is_of_namespaces() const { return type == 2 && info == 0; }
};

// What a drive can be asked to tell that has these events (ControllerInfo::events): for
// make_event_configuration().
uint32_t wanted_events(uint32_t supported);
// Of dword 0 of a completion; changes are in the log page.
DriveEvent parse_drive_event(uint32_t result);
// For people.
std::string to_string(const DriveEvent& event);

}  // namespace pcilend::nvme
