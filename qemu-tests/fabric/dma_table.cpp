// SPDX-License-Identifier: GPL-2.0-or-later
#include "dma_table.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace pcilend::fabric {
namespace {

constexpr size_t kMaxFiles = 64;
// QEMU stops at 65,535 mappings per device; leave room, but keep a bad client from eating memory.
constexpr size_t kMaxEntries = 1 << 20;

}  // namespace

Parsed<std::span<std::byte>> MemoryFiles::map(int fd, uint64_t offset, uint64_t size) {
  struct stat status {};
  if (::fstat(fd, &status) < 0) return tl::unexpected(errno);
  const auto length = static_cast<uint64_t>(status.st_size);
  if (offset > length || size > length - offset) return tl::unexpected(EINVAL);

  const Key key{status.st_dev, status.st_ino};
  auto found = files_.find(key);
  if (found == files_.end()) {
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return tl::unexpected(EINVAL);
    if (files_.size() >= kMaxFiles) return tl::unexpected(ENOSPC);
    auto mapping = Mapping::map(fd, 0, length, true);
    if (!mapping) return tl::unexpected(ENOMEM);
    found = files_.emplace(key, std::move(*mapping)).first;
  }
  const auto bytes = found->second.bytes();
  // The file may have grown since it was mapped.
  if (offset + size > bytes.size()) return tl::unexpected(EINVAL);
  return bytes.subspan(offset, size);
}

DmaTable::Entries::const_iterator DmaTable::at_or_above(uint64_t address) const {
  auto next = entries_.upper_bound(address);
  if (next != entries_.begin()) {
    const auto before = std::prev(next);
    if (before->second.last >= address) return before;
  }
  return next;
}

Parsed<> DmaTable::map(const DmaMap& map, UniqueFd fd) {
  const uint64_t last = map.address + (map.size - 1);
  const auto clash = at_or_above(map.address);
  if (clash != entries_.end() && clash->first <= last) return tl::unexpected(EEXIST);
  if (entries_.size() >= kMaxEntries) return tl::unexpected(ENOSPC);
  std::byte* memory = nullptr;
  if (fd) {
    const auto bytes = files_.map(fd.get(), map.offset, map.size);
    if (!bytes) return tl::unexpected(bytes.error());
    memory = bytes->data();
  }
  entries_.emplace(map.address, Entry{last, (map.flags & DmaMap::kWrite) != 0, memory});
  mapped_bytes_ += map.size;
  return {};
}

void DmaTable::unmap(uint64_t address, uint64_t size) {
  const uint64_t last = address + (size - 1);
  for (auto at = at_or_above(address); at != entries_.end() && at->first <= last;) {
    const uint64_t first = at->first;
    const Entry entry = at->second;
    at = entries_.erase(at);
    if (first < address) entries_.emplace(first, Entry{address - 1, entry.writable, entry.memory});
    if (entry.last > last) {
      std::byte* rest = entry.memory != nullptr ? entry.memory + (last + 1 - first) : nullptr;
      entries_.emplace(last + 1, Entry{entry.last, entry.writable, rest});
    }
    mapped_bytes_ -= std::min(entry.last, last) - std::max(first, address) + 1;
    if (entry.last > last) break;
  }
}

void DmaTable::unmap_all() {
  entries_.clear();
  mapped_bytes_ = 0;
}

void DmaTable::clear() {
  unmap_all();
  files_.clear();
}

DmaTable::Piece DmaTable::find(uint64_t address, uint64_t size, bool write) const {
  const auto at = at_or_above(address);
  if (at == entries_.end()) return {Kind::None, size, {}};
  if (at->first > address) return {Kind::None, std::min(size, at->first - address), {}};
  const Entry& entry = at->second;
  const uint64_t length = std::min(size - 1, entry.last - address) + 1;
  if (write && !entry.writable) return {Kind::Refused, length, {}};
  if (entry.memory == nullptr) return {Kind::Message, length, {}};
  return {Kind::Memory, length, std::span(entry.memory + (address - at->first), length)};
}

std::vector<DmaTable::Range> DmaTable::ranges() const {
  std::vector<Range> joined;
  for (const auto& [first, entry] : entries_) {
    const uint64_t size = entry.last - first + 1;
    if (!joined.empty() && joined.back().address + joined.back().size == first)
      joined.back().size += size;
    else
      joined.push_back({first, size});
  }
  return joined;
}

}  // namespace pcilend::fabric
