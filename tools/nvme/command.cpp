// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/command.h"

#include <algorithm>

#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

// Opcodes: Base 5, NVM 3.2.
constexpr uint8_t kDeleteSubmissionQueue = 0x00;
constexpr uint8_t kCreateSubmissionQueue = 0x01;
constexpr uint8_t kGetLogPage = 0x02;
constexpr uint8_t kReserved = 0x7f;
constexpr uint8_t kDeleteCompletionQueue = 0x04;
constexpr uint8_t kCreateCompletionQueue = 0x05;
constexpr uint8_t kIdentify = 0x06;
constexpr uint8_t kSetFeatures = 0x09;
constexpr uint8_t kEventRequest = 0x0c;
constexpr uint8_t kFlush = 0x00;
constexpr uint8_t kWrite = 0x01;
constexpr uint8_t kRead = 0x02;
constexpr uint8_t kWriteZeroes = 0x08;
constexpr uint8_t kDatasetManagement = 0x09;

constexpr uint32_t kNumberOfQueues = 0x07;
constexpr uint32_t kEventConfiguration = 0x0b;
constexpr uint32_t kRetainEvent = 1U << 15;
constexpr uint32_t kContiguous = 1;
constexpr uint32_t kInterrupts = 2;
constexpr uint32_t kForceUnitAccess = 1U << 30;
constexpr uint32_t kDeallocate = 1U << 2;

void put64(Command& command, size_t dword, uint64_t value) {
  command.dword[dword] = static_cast<uint32_t>(value);
  command.dword[dword + 1] = static_cast<uint32_t>(value >> 32);
}

Command make(uint8_t opcode, uint32_t name_space, const DataPointer& data = {}) {
  Command command;
  command.dword[0] = opcode;
  command.dword[1] = name_space;
  put64(command, 6, data.prp1);
  put64(command, 8, data.prp2);
  return command;
}

Command make_transfer(uint8_t opcode, uint32_t name_space, uint64_t block, uint32_t blocks,
                      const DataPointer& data) {
  Command command = make(opcode, name_space, data);
  put64(command, 10, block);
  command.dword[12] = (blocks - 1) & 0xffff;
  return command;
}

struct StatusName {
  uint16_t status;  // type << 8 | code
  const char* text;
};

// Base 3.3.3.2.1, NVM 3.1: those that a program can do something about.
constexpr StatusName kStatusNames[] = {
    {0x001, "the command is not known"},
    {0x002, "a field of the command is invalid"},
    {0x004, "its data could not be transferred"},
    {0x006, "an internal error of the drive"},
    {0x007, "it was aborted"},
    {kQueueDeleted, "its queue was deleted"},
    {0x00b, "no such namespace, or its format does not allow that"},
    {0x013, "an address of its data is invalid"},
    {0x080, "blocks behind the namespace's end"},
    {0x081, "the drive is full"},
    {0x082, "the namespace is not ready"},
    {0x100, "its completion queue is invalid"},
    {0x101, "its queue's id is invalid"},
    {0x102, "its queue's size is invalid"},
    {0x108, "its interrupt is invalid"},
    {0x182, "the blocks can't be written"},
    {0x280, "the blocks could not be written"},
    {0x281, "the blocks could not be read"},
    {0x286, "access is denied"},
};

}  // namespace

Completion Completion::parse(std::span<const uint32_t, 4> dwords) {
  Completion completion;
  completion.result = dwords[0];
  completion.queue = static_cast<uint16_t>(dwords[2] >> 16);
  completion.command = static_cast<uint16_t>(dwords[3]);
  completion.phase = (dwords[3] >> 16 & 1) != 0;
  completion.status = static_cast<uint16_t>(dwords[3] >> 17);
  return completion;
}

std::string status_text(uint16_t status) {
  const uint16_t code = status_code(status);
  const auto* const name =
      std::ranges::find_if(kStatusNames, [&](const auto& n) { return n.status == code; });
  return fmt::format("status {:#05x}{}", code,
                     name == std::end(kStatusNames) ? "" : fmt::format(" ({})", name->text));
}

Result<DataPointer> make_prps(uint64_t address, size_t bytes, const PrpList& list) {
  const size_t offset = address % kPage;
  if (bytes == 0 || address % 4 != 0)
    return fail(ErrorClass::Usage, "{} bytes at {:#x}: NVMe has some, from a multiple of 4 on",
                bytes, address);
  DataPointer data{address, 0};
  const size_t first = std::min(bytes, kPage - offset);
  const uint64_t next = address + first;
  const size_t pages = (bytes - first + kPage - 1) / kPage;
  if (pages > kPrpEntries)
    return fail(ErrorClass::Usage, "{} bytes are more than one command takes here, which is {}",
                bytes, kTransferMax);
  if (pages == 1) data.prp2 = next;
  if (pages < 2) return data;
  // Behind its end a controller has nothing to read, which QEMU's does up to the end of the page.
  const size_t unused = kPrpEntries - pages;
  for (size_t i = 0; i < pages; ++i) list.entries[unused + i] = next + i * kPage;
  data.prp2 = list.address + unused * sizeof(uint64_t);
  return data;
}

Command make_identify(Identify what, uint32_t name_space, uint64_t page) {
  Command command = make(kIdentify, name_space, {page, 0});
  command.dword[10] = static_cast<uint32_t>(what);
  return command;
}

Command make_log_page(uint8_t log, uint32_t name_space, uint32_t bytes, uint64_t data) {
  Command command = make(kGetLogPage, name_space, {data, 0});
  command.dword[10] = (bytes / 4 - 1) << 16 | kRetainEvent | log;
  return command;
}

Command make_event_log(uint8_t log, uint32_t bytes, uint64_t data) {
  Command command = make_log_page(log, kAllNamespaces, bytes, data);
  command.dword[10] &= ~kRetainEvent;
  return command;
}

Command make_event_request() {
  return make(kEventRequest, 0);
}

Command make_event_configuration(uint32_t wanted) {
  Command command = make(kSetFeatures, 0);
  command.dword[10] = kEventConfiguration;
  command.dword[11] = wanted;
  return command;
}

Command make_unknown() {
  return make(kReserved, 0);
}

Command make_queue_count(uint16_t pairs) {
  Command command = make(kSetFeatures, 0);
  const uint32_t wanted = pairs - 1U;
  command.dword[10] = kNumberOfQueues;
  command.dword[11] = wanted << 16 | wanted;
  return command;
}

Command make_completion_queue(uint16_t id, uint32_t entries, uint64_t address, bool interrupts,
                              uint16_t vector) {
  Command command = make(kCreateCompletionQueue, 0, {address, 0});
  command.dword[10] = (entries - 1) << 16 | id;
  command.dword[11] =
      kContiguous | (interrupts ? kInterrupts | static_cast<uint32_t>(vector) << 16 : 0U);
  return command;
}

Command make_submission_queue(uint16_t id, uint32_t entries, uint64_t address) {
  Command command = make(kCreateSubmissionQueue, 0, {address, 0});
  command.dword[10] = (entries - 1) << 16 | id;
  command.dword[11] = static_cast<uint32_t>(id) << 16 | kContiguous;
  return command;
}

Command make_delete_submission_queue(uint16_t id) {
  Command command = make(kDeleteSubmissionQueue, 0);
  command.dword[10] = id;
  return command;
}

Command make_delete_completion_queue(uint16_t id) {
  Command command = make(kDeleteCompletionQueue, 0);
  command.dword[10] = id;
  return command;
}

Command make_read(uint32_t name_space, uint64_t block, uint32_t blocks, const DataPointer& data) {
  return make_transfer(kRead, name_space, block, blocks, data);
}

Command make_write(uint32_t name_space, uint64_t block, uint32_t blocks, const DataPointer& data) {
  return make_transfer(kWrite, name_space, block, blocks, data);
}

Command make_flush(uint32_t name_space) {
  return make(kFlush, name_space);
}

Command make_write_through(uint32_t name_space, uint64_t block, uint32_t blocks,
                           const DataPointer& data) {
  Command command = make_transfer(kWrite, name_space, block, blocks, data);
  command.dword[12] |= kForceUnitAccess;
  return command;
}

Command make_write_zeroes(uint32_t name_space, uint64_t block, uint32_t blocks) {
  return make_transfer(kWriteZeroes, name_space, block, blocks, {});
}

// Dword 10: ranges, less one.
Command make_deallocate(uint32_t name_space, uint64_t range) {
  Command command = make(kDatasetManagement, name_space, {range, 0});
  command.dword[11] = kDeallocate;
  return command;
}

}  // namespace pcilend::nvme
