// SPDX-License-Identifier: GPL-2.0-or-later
// Calls in any order, most of them sensible, with holes and an end of any kind. Whatever comes,
// the granules stay sound, and what is planned can be added and could not be larger. Input: the
// space, then call by call.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "../tests/resolve_world.h"
#include "pcilend/granules.h"

namespace {

using resolve_world::Bytes;

// Wider than addresses, so that nothing in here wraps.
using Wide = unsigned __int128;

constexpr size_t kReservations = 4;

void Demand(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

bool Overlap(Wide a, Wide a_size, Wide b, Wide b_size) {
  return a < b + b_size && b < a + a_size;
}

class Fuzz {
 public:
  explicit Fuzz(Bytes& bytes) : bytes_(bytes), entries_(bytes.Below(13)), holes_(bytes.Below(4)) {
    base_ = bytes.OneIn(2) ? 0 : Anything();
    for (pcilend_hole& hole : holes_) hole = {Address(), bytes.OneIn(8) ? Anything() : Size()};
    const u64 end = bytes.OneIn(2) ? ~0ULL : Address();
    const u32 holes = static_cast<u32>(holes_.size());
    storage_ = holes_;
    storage_.resize(holes + kReservations);
    pcilend_granules_init(&granules_, entries_.data(), static_cast<u32>(entries_.size()),
                          storage_.data(), holes, holes + kReservations, end);
    given_ = holes;
  }

  void Step() {
    switch (bytes_.Below(10)) {
      case 0:
      case 1:
        PlanAndAdd();
        break;
      case 2: {
        const u64 start = Address(), size = Size();
        Add(start, size, Address());
        break;
      }
      case 3:
      case 4:
        Map();
        break;
      case 5:
        Unmap();
        break;
      case 6:
        RemoveEmpty();
        break;
      case 7: {
        const u64 start = Address();
        Reserve(start, Size());
        break;
      }
      case 8:
        Unreserve();
        break;
      default:
        Remove(Address());
    }
    Check();
  }

 private:
  u64 Anything() { return bytes_.Below(~0ULL) >> bytes_.Below(64); }

  // Mostly page aligned, in a granule, at the edge of a hole, at the end or close to the base.
  u64 Address() {
    u64 address = base_;
    switch (bytes_.Below(8)) {
      case 0:
        return Anything();
      case 1:
        address = granules_.end;
        break;
      case 2:
        if (holes_.empty()) break;
        address = holes_[bytes_.Below(holes_.size())].start - bytes_.Below(2);
        break;
      case 3: {
        if (holes_.empty()) break;
        const pcilend_hole& hole = holes_[bytes_.Below(holes_.size())];
        address = hole.start + hole.size - bytes_.Below(2);
        break;
      }
      case 4:
      case 5: {
        if (granules_.count == 0) break;
        const pcilend_granule& granule = entries_[bytes_.Below(granules_.count)];
        address = granule.start + bytes_.Below(5) * (granule.size / 4);
        break;
      }
      default:
        address += bytes_.Below(16) << bytes_.Below(40);
    }
    return bytes_.OneIn(8) ? address : address & ~(PCILEND_PAGE - 1);
  }

  // Mostly some pages, or as many as something of a granule has.
  u64 Size() {
    switch (bytes_.Below(8)) {
      case 0:
        return Anything();
      case 1:
      case 2: {
        if (granules_.count == 0) break;
        const pcilend_granule& granule = entries_[bytes_.Below(granules_.count)];
        const u64 sizes[] = {granule.size, granule.mapped, granule.size - granule.mapped};
        return sizes[bytes_.Below(3)] + bytes_.Below(2) * PCILEND_PAGE;
      }
      default:
        break;
    }
    return (1 + bytes_.Below(4)) * PCILEND_PAGE << bytes_.Below(36);
  }

  void Add(u64 start, u64 size, u64 slot) {
    int expected = 0;
    if (size == 0 || (start | size | slot) % PCILEND_PAGE != 0 || !Allowed(start, size) ||
        Wide(slot) + size > Wide(1) << 64) {
      expected = -ERANGE;
    } else if (!Free(start, size)) {
      expected = -EEXIST;
    } else if (count_ == entries_.size()) {
      expected = -ENOSPC;
    }
    Demand(pcilend_granules_add(&granules_, start, size, slot) == expected, "what may be is added");
    if (expected != 0) return;
    ++count_;
    const pcilend_granule* added = pcilend_granules_find(&granules_, start);
    Demand(added != nullptr && added->start == start && added->size == size &&
               added->slot == slot && added->mapped == 0,
           "it is as it was added");
  }

  void Remove(u64 start) {
    int expected = -ENOENT;
    for (u32 i = 0; i < granules_.count; ++i) {
      if (entries_[i].start == start) expected = entries_[i].mapped != 0 ? -EBUSY : 0;
    }
    Demand(pcilend_granules_remove(&granules_, start) == expected, "what is empty is removed");
    if (expected == 0) --count_;
  }

  void Reserve(u64 start, u64 size) {
    int expected = 0;
    if (size == 0 || (start | size) % PCILEND_PAGE != 0 || !Allowed(start, size)) {
      expected = -ERANGE;
    } else if (!Free(start, size)) {
      expected = -EEXIST;
    } else if (holes_.size() - given_ == kReservations) {
      expected = -ENOSPC;
    }
    Demand(pcilend_granules_reserve(&granules_, start, size) == expected, "what is free is had");
    if (expected == 0) holes_.push_back({start, size});
  }

  // Mostly one that was reserved; never a hole of the beginning.
  void Unreserve() {
    u64 start = Address(), size = Size();
    if (holes_.size() > given_ && !bytes_.OneIn(4)) {
      const pcilend_hole& hole = holes_[given_ + bytes_.Below(holes_.size() - given_)];
      start = hole.start;
      size = hole.size;
    }
    const auto is_it = [&](const pcilend_hole& hole) {
      return hole.start == start && hole.size == size;
    };
    if (std::any_of(holes_.begin(), holes_.begin() + given_, is_it)) return;
    const auto it = std::find_if(holes_.begin() + given_, holes_.end(), is_it);
    const int expected = it == holes_.end() ? -ENOENT : 0;
    Demand(pcilend_granules_unreserve(&granules_, start, size) == expected, "it is given back");
    if (expected == 0) holes_.erase(it);
  }

  void PlanAndAdd() {
    const u64 iova = Address();
    const u64 limit = bytes_.OneIn(2) ? ~0ULL : Size();
    u64 start = 1, size = 1;
    const int error = pcilend_granules_plan(&granules_, iova, limit, &start, &size);
    const bool held = pcilend_granules_find(&granules_, iova) != nullptr;
    const Wide page = iova & ~(PCILEND_PAGE - 1);
    Demand((error == 0) == (start != 1) && (error == 0) == (size != 1), "untouched on failure");
    switch (error) {
      case 0:
        break;
      case -EINVAL:
        Demand(limit < PCILEND_PAGE, "the limit is less than a page");
        return;
      case -EEXIST:
        Demand(held, "a granule holds it");
        return;
      case -ENOSPC:
        Demand(granules_.count == granules_.capacity, "all entries are in use");
        Demand(!held && Allowed(page, PCILEND_PAGE), "with an entry it could be had");
        return;
      default:
        Demand(error == -ERANGE, "known errors");
        Demand(!held && !Allowed(page, PCILEND_PAGE), "not a page of it is allowed");
        return;
    }
    Demand(!held && iova >= start && iova - start < size, "it holds the address");
    Demand(std::has_single_bit(size) && size >= PCILEND_PAGE && size <= limit, "its size");
    const u64 largest = AmongBars(iova)
                            ? std::max<u64>(PCILEND_GRANULE_FIRST_BAR, MappedAmongBars())
                            : std::max<u64>(PCILEND_GRANULE_FIRST, granules_.mapped);
    const Wide twice = Wide(size) * 2, around = iova / twice * twice;
    Demand(size <= largest, "no larger than what is mapped");
    Demand(!CrossesEdge(start, size), "on one side of the BARs' edges");
    Demand(twice > limit || twice > largest || CrossesEdge(around, twice) || !Free(around, twice),
           "the largest");
    const u32 before = count_;
    Add(start, size, start);
    Demand(count_ == before + 1, "what is planned can be added");
  }

  // The granule in which all of that lies, or NULL.
  const pcilend_granule* Around(u64 iova, u64 size) const {
    if (size == 0 || (iova | size) % PCILEND_PAGE != 0) return nullptr;
    for (u32 i = 0; i < granules_.count; ++i) {
      const pcilend_granule& granule = entries_[i];
      if (iova >= granule.start && Wide(iova) + size <= Wide(granule.start) + granule.size) {
        return &granule;
      }
    }
    return nullptr;
  }

  void Map() {
    const u64 iova = Address(), size = Size();
    const pcilend_granule* granule = Around(iova, size);
    const bool fits = granule != nullptr && size <= granule->size - granule->mapped;
    const int error = pcilend_granules_mapped(&granules_, iova, size);
    Demand(error == (fits ? 0 : -ERANGE), "what fits is mapped");
    if (fits) mapped_ += size;
  }

  void Unmap() {
    const u64 iova = Address(), size = Size();
    const pcilend_granule* granule = Around(iova, size);
    const bool fits = granule != nullptr && size <= granule->mapped;
    const int error = pcilend_granules_unmapped(&granules_, iova, size);
    Demand(error == (fits ? 0 : -ERANGE), "what was mapped is unmapped");
    if (fits) mapped_ -= size;
  }

  void RemoveEmpty() {
    const pcilend_granule* empty = pcilend_granules_empty(&granules_);
    for (u32 i = 0; i < granules_.count && &entries_[i] != empty; ++i) {
      Demand(entries_[i].mapped != 0, "the first that is empty");
    }
    if (empty == nullptr) return;
    Demand(empty->mapped == 0, "it is empty");
    Remove(empty->start);
  }

  static bool AmongBars(u64 iova) { return iova >= PCILEND_BARS_START && iova < PCILEND_BARS_END; }

  static bool CrossesEdge(Wide start, Wide size) {
    return (start < PCILEND_BARS_START && start + size > PCILEND_BARS_START) ||
           (start < PCILEND_BARS_END && start + size > PCILEND_BARS_END);
  }

  u64 MappedAmongBars() const {
    u64 mapped = 0;
    for (u32 i = 0; i < granules_.count; ++i) {
      if (AmongBars(entries_[i].start)) mapped += entries_[i].mapped;
    }
    return mapped;
  }

  bool Allowed(Wide start, Wide size) const {
    return start + size <= Wide(granules_.end) + 1 &&
           std::none_of(holes_.begin(), holes_.end(), [&](const pcilend_hole& hole) {
             return hole.size != 0 && Overlap(start, size, hole.start, hole.size);
           });
  }

  bool Free(Wide start, Wide size) const {
    return Allowed(start, size) &&
           std::none_of(entries_.begin(), entries_.begin() + granules_.count,
                        [&](const pcilend_granule& granule) {
                          return Overlap(start, size, granule.start, granule.size);
                        });
  }

  void Check() const {
    Demand(granules_.count == count_, "as many as were added and not removed");
    Demand(granules_.holes == holes_.size(), "as many as were reserved and not given back");
    Demand(granules_.mapped == mapped_, "all that was mapped and not unmapped");
    Wide behind = 0, mapped = 0;
    for (u32 i = 0; i < granules_.count; ++i) {
      const pcilend_granule& granule = entries_[i];
      Demand(granule.start >= behind, "sorted and disjoint");
      Demand(granule.size != 0 && (granule.start | granule.size | granule.slot) % PCILEND_PAGE == 0,
             "page aligned");
      Demand(Allowed(granule.start, granule.size), "nothing of a hole, nor past the end");
      Demand(Wide(granule.slot) + granule.size <= Wide(1) << 64, "slots don't wrap");
      Demand(granule.mapped <= granule.size, "no more mapped than its size");
      for (const u64 iova : {granule.start, granule.start + (granule.size - 1)}) {
        Demand(pcilend_granules_find(&granules_, iova) == &granule, "found by its addresses");
      }
      behind = Wide(granule.start) + granule.size;
      mapped += granule.mapped;
    }
    Demand(static_cast<u64>(mapped) == granules_.mapped, "the sum of what is mapped");
  }

  Bytes& bytes_;
  std::vector<pcilend_granule> entries_;
  std::vector<pcilend_hole> holes_;    // those of the beginning, and what is reserved
  std::vector<pcilend_hole> storage_;  // the same as the granules keep them
  size_t given_ = 0;
  pcilend_granules granules_ = {};
  u64 base_ = 0;
  u32 count_ = 0;
  u64 mapped_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const u8* data, size_t size) {
  Bytes bytes(data, size);
  Fuzz fuzz(bytes);
  for (int i = 0; i < 256 && !bytes.Empty(); ++i) fuzz.Step();
  return 0;
}
