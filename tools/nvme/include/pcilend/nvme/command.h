// SPDX-License-Identifier: GPL-2.0-or-later
// Commands and completions of NVMe as they are in memory. "Base" is the NVM Express base
// specification 2.0, "NVM" its NVM command set 1.0. Little-endian hosts only, as pcilend is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "pcilend/error.h"

namespace pcilend::nvme {

inline constexpr size_t kPage = 4096;  // of memory, as the controller is told (CC.MPS 0)

// A submission queue's entry (Base 3.3.3). Its identifier is its ring's business.
struct Command {
  std::array<uint32_t, 16> dword{};
};
static_assert(sizeof(Command) == 64);

// A completion queue's entry (Base 3.3.3.2): what of it is looked at.
struct Completion {
  uint32_t result = 0;   // dword 0
  uint16_t queue = 0;    // submission queue
  uint16_t command = 0;  // identifier
  uint16_t status = 0;   // without the phase; 0 is success
  bool phase = false;

  static Completion parse(std::span<const uint32_t, 4> dwords);
};
inline constexpr size_t kCompletionBytes = 16;

// Type and code of a completion's status, without what the drive says of asking again
// (Base 3.3.3.2).
inline constexpr uint16_t status_code(uint16_t status) {
  return status & 0x7ff;
}
// Its queue was deleted while it was under way: it may be done or not.
inline constexpr uint16_t kQueueDeleted = 0x008;

// For people: "status 0x002 (a field of the command is invalid)" (Base 3.3.3.2.1).
std::string status_text(uint16_t status);

// Where a command's data is (Base 4.1.1).
struct DataPointer {
  uint64_t prp1 = 0;
  uint64_t prp2 = 0;
};

// A page that has addresses of pages, and where the controller finds it.
struct PrpList {
  std::span<uint64_t> entries;  // kPrpEntries; written here, never read
  uint64_t address = 0;         // a multiple of kPage
};
inline constexpr size_t kPrpEntries = kPage / sizeof(uint64_t);

// What one list, which chains to no other, always suffices for.
inline constexpr size_t kTransferMax = kPrpEntries * kPage;

// `bytes` from the device address `address` on, a multiple of 4, as many as there are, in one
// piece. Writes to the list what does not fit into the command. Usage if it can't be said so.
Result<DataPointer> make_prps(uint64_t address, size_t bytes, const PrpList& list);

// What no drive knows, in either command set: it fails.
Command make_unknown();

// Admin commands (Base 5).
enum class Identify : uint8_t {
  Namespace = 0,
  Controller = 1,
  ActiveNamespaces = 2,
  Descriptors = 3
};
Command make_identify(Identify what, uint32_t name_space, uint64_t page);
// The first `bytes` of a log page, a multiple of 4 up to kPage; reading it clears no event.
Command make_log_page(uint8_t log, uint32_t name_space, uint32_t bytes, uint64_t data);
// The same, after which the drive tells of the next event that this page has.
Command make_event_log(uint8_t log, uint32_t bytes, uint64_t data);
// Ends when the drive has something to tell (drive_event.h).
Command make_event_request();
// What it is to tell of (Base 5.27.1.8).
Command make_event_configuration(uint32_t wanted);
inline constexpr uint8_t kHealthLog = 0x02;
inline constexpr uint8_t kChangedNamespacesLog = 0x04;  // a page
inline constexpr uint32_t kAllNamespaces = 0xffffffff;
// Wishes for as many I/O queues of each kind; completions' dword 0 has what was given
// (Base 5.27.1.5).
Command make_queue_count(uint16_t pairs);
inline uint16_t queues_given(uint32_t result) {
  const auto submission = static_cast<uint16_t>(result);
  const auto completion = static_cast<uint16_t>(result >> 16);
  const uint16_t least = submission < completion ? submission : completion;
  return least == 0xffff ? least : static_cast<uint16_t>(least + 1);
}
// Contiguous, of 2 to 65,536 entries (Base 5.4, 5.5). Without interrupts: `vector` is ignored.
Command make_completion_queue(uint16_t id, uint32_t entries, uint64_t address, bool interrupts,
                              uint16_t vector);
Command make_submission_queue(uint16_t id, uint32_t entries, uint64_t address);
Command make_delete_submission_queue(uint16_t id);
Command make_delete_completion_queue(uint16_t id);

// I/O commands (NVM 3.2). `blocks`: 1 to 65,536.
Command make_read(uint32_t name_space, uint64_t block, uint32_t blocks, const DataPointer& data);
Command make_write(uint32_t name_space, uint64_t block, uint32_t blocks, const DataPointer& data);
Command make_flush(uint32_t name_space);

// What disks need besides (NVM 3.2.3, 3.2.8). A write that is on the medium once it is done:
Command make_write_through(uint32_t name_space, uint64_t block, uint32_t blocks,
                           const DataPointer& data);
// `blocks` as above; they stay allocated.
Command make_write_zeroes(uint32_t name_space, uint64_t block, uint32_t blocks);
// What is there is not needed any more. `range`: the device address of one DeallocateRange.
struct DeallocateRange {
  uint32_t attributes = 0;
  uint32_t blocks = 0;
  uint64_t block = 0;
};
static_assert(sizeof(DeallocateRange) == 16);
Command make_deallocate(uint32_t name_space, uint64_t range);

}  // namespace pcilend::nvme
