// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/book.h"

#include <algorithm>

#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

// CNS (Base 5.17.1, NVM 4.1.5) of what is of namespaces, or of a command set; the controller's own
// page is asked for in pieces.
constexpr uint16_t kIdentifies[] = {0x00, 0x02, 0x03, 0x05, 0x06, 0x08};
// Errors, SMART, firmware (Base 5.16.1). Not changed namespaces: who reads that list first takes it
// from the others.
constexpr uint16_t kLogs[] = {0x01, 0x02, 0x03};

bool is_within(uint64_t address, uint64_t bytes, uint64_t start, uint64_t size) {
  return address >= start && bytes <= size && address - start <= size - bytes;
}

template <class Range>
bool has(const Range& all, uint16_t one) {
  return std::ranges::find(all, one) != std::end(all);
}

}  // namespace

Result<const Book::Entry*> Book::find(uint32_t client) const {
  const auto it = clients_.find(client);
  if (it == clients_.end())
    return fail(ErrorClass::NotFound, "client {} is not known: join the drive", client);
  return &it->second;
}

void Book::give_near(uint32_t client, uint64_t address, uint64_t bytes) {
  const auto it = clients_.find(client);
  if (it == clients_.end()) return;
  it->second.near = address;
  it->second.near_bytes = bytes;
}

void Book::quarantine(uint32_t client) {
  const auto it = clients_.find(client);
  if (it != clients_.end()) it->second.quarantined = true;
}

void Book::give_key(uint32_t client, uint64_t key) {
  const auto it = clients_.find(client);
  if (it != clients_.end()) it->second.key = key;
}

Result<> Book::allow_clear(const mail::Clear& clear) const {
  const auto& [lease, key] = clear.client;
  const auto it = clients_.find(lease);
  if (it == clients_.end() || key == 0 || it->second.key != key)
    return fail(ErrorClass::NotFound, "client {} is not here, or has another key", lease);
  return {};
}

bool Book::quarantined(uint32_t client) const {
  const auto it = clients_.find(client);
  return it != clients_.end() && it->second.quarantined;
}

std::vector<uint16_t> Book::pairs(uint32_t client) const {
  const auto it = clients_.find(client);
  return it == clients_.end() ? std::vector<uint16_t>() : it->second.pairs;
}

Result<QueueRequest> Book::allow_pair(uint32_t client, const QueueRequest& request) const {
  const auto found = find(client);
  if (!found) return tl::unexpected(found.error());
  const Entry& entry = **found;
  const ClientNotice& notice = entry.notice;
  if (entry.quarantined)
    return fail(ErrorClass::Unreachable, "client {} has lost its link, or was cleared: join anew",
                client);
  if (entry.pairs.size() >= limits_.pairs)
    return fail(ErrorClass::State, "client {} has {} pairs of queues, as many as it may have",
                client, entry.pairs.size());
  if (request.entries < 2 || request.entries > limits_.entries)
    return fail(ErrorClass::Usage, "queues have 2 to {} entries here: not {}", limits_.entries,
                request.entries);
  if (request.submission % kPage != 0 || request.completion % kPage != 0)
    return fail(ErrorClass::Usage, "a queue begins a page of 4 KiB");
  const uint64_t commands = request.entries * sizeof(Command);
  const uint64_t completions = request.entries * kCompletionBytes;
  // Over a link that is dead all-ones are read, which would be commands.
  const bool submission =
      entry.near_bytes ? is_within(request.submission, commands, entry.near, entry.near_bytes)
                       : is_within(request.submission, commands, notice.slice, notice.slice_bytes);
  if (!submission)
    return fail(ErrorClass::Usage, "commands at {:#x}: client {} has them in its {}",
                request.submission, client, entry.near_bytes ? "memory near the drive" : "slice");
  if (!is_within(request.completion, completions, notice.slice, notice.slice_bytes))
    return fail(ErrorClass::Usage, "completions at {:#x}: client {} has them in its slice",
                request.completion, client);
  QueueRequest allowed = request;
  if (request.vector && *request.vector >= notice.vectors)
    return fail(ErrorClass::Usage, "interrupt {}: client {} has joined with {}", *request.vector,
                client, notice.vectors);
  if (request.vector) allowed.vector = static_cast<uint16_t>(notice.vector + *request.vector);
  return allowed;
}

void Book::add_pair(uint32_t client, uint16_t id) {
  const auto it = clients_.find(client);
  if (it != clients_.end()) it->second.pairs.push_back(id);
}

Result<> Book::allow_delete(uint32_t client, uint16_t id) const {
  const auto entry = find(client);
  if (!entry) return tl::unexpected(entry.error());
  // Of one in quarantine they are deleted.
  if ((*entry)->quarantined || !has((*entry)->pairs, id))
    return fail(ErrorClass::NotFound, "client {} has no pair of queues {}", client, id);
  return {};
}

void Book::remove_pair(uint32_t client, uint16_t id) {
  const auto it = clients_.find(client);
  if (it != clients_.end()) std::erase(it->second.pairs, id);
}

Result<> Book::allow_identify(uint32_t client, const mail::AskIdentify& ask) const {
  const auto entry = find(client);
  if (!entry) return tl::unexpected(entry.error());
  if (!has(kIdentifies, ask.what))
    return fail(ErrorClass::Permission, "Identify {:#x} is not for clients of a shared drive",
                ask.what);
  const ClientNotice& notice = (*entry)->notice;
  if (ask.page % kPage != 0 || !is_within(ask.page, kPage, notice.slice, notice.slice_bytes))
    return fail(ErrorClass::Usage, "Identify to {:#x}: give a page of the slice", ask.page);
  return {};
}

Result<> Book::allow_log(uint32_t client, const mail::AskLog& ask) const {
  const auto entry = find(client);
  if (!entry) return tl::unexpected(entry.error());
  if (!has(kLogs, ask.log))
    return fail(ErrorClass::Permission, "log page {:#x} is not for clients of a shared drive",
                ask.log);
  const ClientNotice& notice = (*entry)->notice;
  if (ask.bytes == 0 || ask.bytes > kPage || ask.bytes % 4 != 0 || ask.data % kPage != 0 ||
      !is_within(ask.data, ask.bytes, notice.slice, notice.slice_bytes))
    return fail(ErrorClass::Usage, "log page to {} bytes at {:#x}: give a page of the slice",
                ask.bytes, ask.data);
  return {};
}

}  // namespace pcilend::nvme
