// SPDX-License-Identifier: GPL-2.0-or-later
// What one adapter may reach in its host by bus address (IOVA): ranges the host's QEMU announced by
// DMA_MAP, backed by its mmapped memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "pcilend/fd.h"
#include "protocol.h"

namespace pcilend::fabric {

// Every memory file is mapped whole, once, and stays so until its adapter disconnects: a guest
// behind a vIOMMU maps and unmaps tens of thousands of pages of the same file.
class MemoryFiles {
 public:
  // The file's bytes; reads nothing but the descriptor, which can be closed afterwards. EINVAL for
  // a file that could shrink under us (no F_SEAL_SHRINK) or is too small, ENOSPC for too many.
  Parsed<std::span<std::byte>> map(int fd, uint64_t offset, uint64_t size);
  void clear() { files_.clear(); }
  [[nodiscard]] size_t count() const { return files_.size(); }

 private:
  using Key = std::pair<uint64_t, uint64_t>;  // device, inode
  std::map<Key, Mapping> files_;
};

class DmaTable {
 public:
  // EEXIST if any byte of it is mapped already.
  Parsed<> map(const DmaMap& map, UniqueFd fd);
  // Forgets the range; parts of entries outside it stay.
  void unmap(uint64_t address, uint64_t size);
  void unmap_all();
  // Forgets the entries and releases the memory.
  void clear();

  enum class Kind {
    None,     // no entry: a message to the host finds out what is there
    Memory,   // `bytes` are the memory
    Message,  // an entry without shared memory (ROM)
    Refused,  // a write to a read-only entry
  };
  struct Piece {
    Kind kind;
    uint64_t size;               // bytes from the address that are alike, at most those asked for
    std::span<std::byte> bytes;  // `size` of them for Memory, else empty
  };
  // What lies at `address`. `size` > 0, the range does not wrap.
  [[nodiscard]] Piece find(uint64_t address, uint64_t size, bool write) const;

  struct Range {
    uint64_t address;
    uint64_t size;
  };
  // Entries in order, neighbours joined.
  [[nodiscard]] std::vector<Range> ranges() const;
  [[nodiscard]] size_t count() const { return entries_.size(); }
  [[nodiscard]] uint64_t mapped_bytes() const { return mapped_bytes_; }

 private:
  struct Entry {
    uint64_t last;  // the last byte's address
    bool writable;
    std::byte* memory;  // nullptr: not shared
  };
  using Entries = std::map<uint64_t, Entry>;
  // The entry that holds `address`, or the first one above it.
  [[nodiscard]] Entries::const_iterator at_or_above(uint64_t address) const;

  Entries entries_;  // by first address
  uint64_t mapped_bytes_ = 0;
  MemoryFiles files_;
};

}  // namespace pcilend::fabric
