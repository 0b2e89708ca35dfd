// SPDX-License-Identifier: GPL-2.0-or-later
// What the simulated hosts have in common: messages, apertures, and the hardware that knows better
// than lenders and borrowers what is true, and holds them to their promises.
#pragma once

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "pcilend/identity.h"
#include "pcilend/layout.h"
#include "pcilend/range.h"
#include "pcilend/wire.h"

namespace pcilend::sim {

using Time = u64;  // virtual, ms

// Bugs to put in on purpose, to see that they are found.
enum class Sabotage {
  kNone,
  kNoFence,
  kNoReset,
  kStaleLease,
  kLeakExports,
  kDeafBorrower,
  kEarlySlot,
  kDmaThroughLoss,
  kNoRecovery
};

using Slot = std::array<u8, PCILEND_SLOT_BYTES>;

inline pcilend_msg_header Header(const Slot& slot) {
  pcilend_msg_header header;
  std::memcpy(&header, slot.data(), sizeof(header));
  return header;
}

template <typename Payload>
Payload Body(const Slot& slot) {
  Payload payload;
  std::memcpy(&payload, slot.data() + sizeof(pcilend_msg_header), sizeof(payload));
  return payload;
}

// The IOVA space of one adapter: what its peer can reach of this host.
class Aperture {
 public:
  explicit Aperture(const pcilend_layout& layout) : layout_(&layout) { Clear(); }
  Aperture(const Aperture&) = delete;
  Aperture& operator=(const Aperture&) = delete;

  // As after the host's boot.
  void Clear() {
    exports_ = slots_ = {};
    pcilend_range_init(&exports_, layout_->exports.iova, layout_->exports.size, entries_.data(),
                       kEntries);
    pcilend_range_init(&slots_, layout_->slots.iova, layout_->slots.size,
                       entries_.data() + kEntries, kEntries);
  }
  const pcilend_layout& layout() const { return *layout_; }
  pcilend_range& exports() { return exports_; }
  pcilend_range& slots() { return slots_; }
  u64 used() const { return exports_.allocated + slots_.allocated; }

  // Which window and offset the peer sees [iova, +size) at.
  bool Locate(u64 iova, u64 size, u32* window, u64* offset) const {
    for (u32 i = 0; i < layout_->windows; ++i) {
      const u64 start = layout_->window[i].translation;
      if (iova < start || layout_->window[i].size < size ||
          iova - start > layout_->window[i].size - size) {
        continue;
      }
      *window = i;
      *offset = iova - start;
      return true;
    }
    return false;
  }

  // Ranges of this aperture that functions of the peer do DMA to; see Hardware.
  struct Reached {
    u32 function;
    u64 iova, size;
  };
  std::vector<Reached> reached;

 private:
  static constexpr u32 kEntries = 96;
  const pcilend_layout* layout_;
  std::array<pcilend_range_entry, 2 * kEntries> entries_;
  pcilend_range exports_;
  pcilend_range slots_;
};

struct Lessee {
  u32 node = 0;
  u64 boot = 0;
  u32 lease = 0;
  bool operator==(const Lessee&) const = default;
};

// The functions as they really are. The first broken promise is kept in wrong().
class Hardware {
 public:
  explicit Hardware(size_t functions) : functions_(functions) {}

  const std::string& wrong() const { return wrong_; }
  void Demand(bool condition, const char* promise, u32 function) {
    if (condition || !wrong_.empty()) return;
    wrong_ = std::string(promise) + " (function " + std::to_string(function) + ")";
  }

  // A lender grants a lease.
  void Granted(u32 f, const Lessee& lessee) {
    Function& fn = functions_[f];
    Demand(fn.lessee.lease == 0, "lent to one borrower at a time", f);
    Demand(!fn.unfenced, "fenced since the last lease", f);
    Demand(!fn.unreset, "reset since the last lease", f);
    Demand(lessee.lease > fn.last_lease, "no lease number is used twice", f);
    fn.lessee = lessee;
    fn.last_lease = lessee.lease;
    fn.unfenced = fn.unreset = true;
    fn.link_lost = false;
  }
  // The lender regards the lease as over.
  void Ended(u32 f, Time now) {
    functions_[f].lessee = {};
    for (Belief& belief : functions_[f].beliefs) {
      if (belief.stale_since == 0) belief.stale_since = now + 1;
    }
  }
  void Fenced(u32 f) {
    Demand(functions_[f].reach == 0, "a fenced function reaches nothing", f);
    Demand(!functions_[f].master, "a fenced function does no DMA", f);
    functions_[f].unfenced = false;
  }
  void WasReset(u32 f) {
    Demand(!functions_[f].unfenced, "fenced before it is reset", f);
    functions_[f].unreset = false;
    functions_[f].tainted = false;
  }
  // ... while it is lent.
  void WasResetLent(u32 f) {
    Demand(!functions_[f].master, "bus mastering is off when it is reset", f);
    functions_[f].tainted = false;
  }
  // Its bus mastering.
  void Master(u32 f, bool on) {
    Demand(!on || !functions_[f].link_lost, "no DMA over a link that is lost", f);
    Demand(!on || !functions_[f].tainted,
           "what did DMA when its link was lost is reset before it does more", f);
    functions_[f].master = on;
  }
  // The link of its lease is lost, or there again; the lender has done what it does then.
  void LinkLost(u32 f, bool did_dma) {
    functions_[f].link_lost = true;
    functions_[f].tainted = functions_[f].tainted || did_dma;
    Demand(!functions_[f].master, "no DMA over a link that is lost", f);
  }
  void LinkBack(u32 f) { functions_[f].link_lost = false; }
  // Somebody else has reset it; the lender has done what it does then.
  void ResetByOthers(u32 f) {
    functions_[f].tainted = true;
    Demand(!functions_[f].master, "no DMA after a reset that its borrower does not know of", f);
  }
  bool master(u32 f) const { return functions_[f].master; }
  // The lender did what a message under this lease asked for.
  void Obeyed(u32 f, const Lessee& lessee) {
    Demand(functions_[f].lessee == lessee && lessee.lease != 0, "only the lease in force is obeyed",
           f);
  }
  // Its lender's host was off: no lease, and nothing that a lease left. Lease numbers start over.
  void PoweredUp(u32 f, Time now) {
    Ended(f, now);
    functions_[f].unfenced = functions_[f].unreset = false;
    functions_[f].master = functions_[f].tainted = functions_[f].link_lost = false;
    functions_[f].last_lease = 0;
  }

  // DMA of a function to a range of the borrower's aperture.
  void Mapped(u32 f, Aperture& aperture, u64 iova, u64 size) {
    aperture.reached.push_back({f, iova, size});
    ++functions_[f].reach;
  }
  void Unmapped(u32 f, Aperture& aperture, u64 iova, u64 size) {
    for (auto& r : aperture.reached) {
      if (r.function != f || r.iova != iova || r.size != size) continue;
      r = aperture.reached.back();
      aperture.reached.pop_back();
      --functions_[f].reach;
      return;
    }
    Demand(false, "what is unmapped was mapped", f);
  }
  // A borrower takes memory for a function, or gives up what it had: no DMA must hit it.
  void Untouched(u32 f, const Aperture& aperture, u64 iova, u64 size) {
    for (const auto& r : aperture.reached) {
      Demand(r.iova + r.size <= iova || iova + size <= r.iova,
             "no function reaches memory that is not lent to it", f);
    }
  }
  // Neighbours in use: [start, +size) was just allocated from @range.
  void Alone(u32 f, const pcilend_range& range, u64 start, u64 size) {
    bool there = false;
    for (u32 i = 0; i < range.count; ++i) {
      const pcilend_range_entry& e = range.entry[i];
      there = there || (e.start == start && e.size == size);
      Demand((e.start == start && e.size == size) || e.start + e.size <= start ||
                 start + size <= e.start,
             "ranges of an aperture never overlap", f);
    }
    Demand(there && start >= range.start && start + size <= range.start + range.size,
           "a range lies in its region", f);
  }

  // What borrowers believe to hold.
  void Believes(u32 f, const Lessee& lessee, Time now) {
    functions_[f].beliefs.push_back({lessee, functions_[f].lessee == lessee ? 0 : now + 1});
  }
  // Returns how long the belief was wrong.
  Time Forgets(u32 f, u32 node, Time now) {
    Time wrong_for = 0;
    std::erase_if(functions_[f].beliefs, [&](const Belief& b) {
      if (b.lessee.node != node) return false;
      if (b.stale_since != 0) wrong_for = now + 1 - b.stale_since;
      return true;
    });
    return wrong_for;
  }

  struct Belief {
    Lessee lessee;
    Time stale_since;  // + 1; 0: it is right
  };
  const std::vector<Belief>& beliefs(u32 f) const { return functions_[f].beliefs; }
  const Lessee& lessee(u32 f) const { return functions_[f].lessee; }
  size_t functions() const { return functions_.size(); }

 private:
  struct Function {
    Lessee lessee;
    u32 last_lease = 0;
    u32 reach = 0;
    bool unfenced = false;
    bool unreset = false;
    bool master = false;     // bus mastering is on
    bool link_lost = false;  // of its lease
    bool tainted = false;    // may hold commands of before a loss
    std::vector<Belief> beliefs;
  };
  std::vector<Function> functions_;
  std::string wrong_;
};

}  // namespace pcilend::sim
