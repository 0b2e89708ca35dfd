// SPDX-License-Identifier: GPL-2.0-or-later
// What a drive tells by itself (Base, Asynchronous Event Request command).
#pragma once

#include <cstdint>
#include <string>

namespace pcilend::nvme {

struct DriveEvent {
  uint8_t type = 0;
  uint8_t info = 0;
  uint8_t log = 0;  // page that says more; read, the drive tells of the next one of its type
};

// Of dword 0 of a completion.
DriveEvent parse_drive_event(uint32_t result);
// For people.
std::string to_string(const DriveEvent& event);

}  // namespace pcilend::nvme
