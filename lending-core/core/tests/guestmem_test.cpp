// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The guest-memory state machine against a simulated guest, VFIO container and IOMMU.
#include "pcilend/guestmem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

namespace {

constexpr u64 kPage = PCILEND_GUEST_PAGE;
constexpr u64 kBlock = PCILEND_GUEST_BLOCK;
constexpr u64 KiB = 1024, MiB = 1024 * KiB, GiB = 1024 * MiB, TiB = 1024 * GiB;

// A set of pages, kept as disjoint intervals.
class Pages {
 public:
  bool contains(u64 start, u64 end) const {
    auto it = upto(start);
    return it != spans_.end() && it->first <= start && it->second >= end;
  }
  bool touches(u64 start, u64 end) const {
    auto it = spans_.lower_bound(start);
    if (it != spans_.end() && it->first < end) return true;
    it = upto(start);
    return it != spans_.end() && it->second > start;
  }
  void add(u64 start, u64 end) {
    auto it = upto(start);
    if (it != spans_.end() && it->second >= start) {
      start = it->first;
      end = std::max(end, it->second);
      spans_.erase(it);
    }
    for (it = spans_.lower_bound(start); it != spans_.end() && it->first <= end;
         it = spans_.erase(it))
      end = std::max(end, it->second);
    spans_[start] = end;
  }
  void remove(u64 start, u64 end) {
    auto it = spans_.upper_bound(start);
    if (it != spans_.begin()) --it;
    while (it != spans_.end() && it->first < end) {
      auto [a, b] = *it;
      it = spans_.erase(it);
      if (a < std::min(b, start)) spans_[a] = std::min(b, start);
      if (std::max(a, end) < b) spans_[std::max(a, end)] = b;
    }
  }
  u64 bytes() const {
    u64 sum = 0;
    for (auto [a, b] : spans_) sum += b - a;
    return sum;
  }
  const std::map<u64, u64>& spans() const { return spans_; }
  bool operator==(const Pages&) const = default;

 private:
  std::map<u64, u64>::const_iterator upto(u64 start) const {
    auto it = spans_.upper_bound(start);
    return it == spans_.begin() ? spans_.end() : std::prev(it);
  }
  std::map<u64, u64> spans_;
};

class Guest : public ::testing::Test {
 protected:
  enum class Backing { huge, scattered };

  Guest() : memory_(std::make_unique<pcilend_guestmem>()) {
    pcilend_guestmem_init(memory_.get(), &kOps, this);
  }

  ~Guest() override {
    pcilend_guestmem_release(memory_.get());
    EXPECT_EQ(pinned_.bytes(), 0u) << "pages stay pinned";
    EXPECT_TRUE(mapped_.empty()) << "pages stay mapped";
  }

  // What QEMU does with VFIO_IOMMU_MAP_DMA; nobody is told.
  void ram(u64 start, u64 end) { ram_.add(start, end); }
  void rom(u64 start, u64 end) { rom_.add(start, end); }
  // VFIO_IOMMU_UNMAP_DMA: the notice comes, and afterwards no pin may be left.
  u64 unmap(u64 start, u64 end) {
    u64 given = pcilend_guestmem_forget(memory_.get(), start, end - start);
    EXPECT_FALSE(pinned_.touches(start, end)) << "type1 would BUG";
    ram_.remove(start, end);
    rom_.remove(start, end);
    return given;
  }

  void q35(u64 size) {
    legacy();
    u64 low = size >= 0xb0000000 ? 2 * GiB : size;
    ram(1 * MiB, low);
    if (size > low) ram(4 * GiB, 4 * GiB + size - low);
    rom(0xfffc0000, 4 * GiB);
  }
  void i440fx(u64 size) {
    legacy();
    u64 low = std::min<u64>(size, 0xc0000000);
    ram(1 * MiB, low);
    if (size > low) ram(4 * GiB, 4 * GiB + size - low);
    ram(0xfd000000, 0xfe000000);  // VGA memory, a BAR
    rom(0xfffc0000, 4 * GiB);
  }
  void legacy() {
    ram(0, 0xa0000);
    rom(0xc0000, 0xcb000);
    ram(0xcb000, 0xce000);
    rom(0xce000, 0xe4000);
    ram(0xe4000, 0xf0000);
    rom(0xf0000, 0x100000);
  }

  int pass() {
    pcilend_guestmem_begin(memory_.get());
    int ret;
    steps_ = 0;
    while ((ret = pcilend_guestmem_step(memory_.get())) > 0) {
      ++steps_;
      if (between_steps_) between_steps_();
    }
    return ret;
  }
  // Passes until stable, as the work item does; the number of passes.
  int settle(int limit = 40) {
    int passes = 0;
    while (!stable() && passes < limit) {
      EXPECT_EQ(pass(), 0);
      ++passes;
    }
    return passes;
  }
  bool stable() const { return pcilend_guestmem_stable(memory_.get()); }
  bool clean() const { return pcilend_guestmem_clean(memory_.get()); }

  // Everything the guest has, but for memory that is never lent (BARs in the PCI hole).
  Pages lendable() const {
    Pages all = ram_;
    all.remove(PCILEND_GUEST_VGA_START, PCILEND_GUEST_VGA_END);
    all.remove(0xfd000000, 4 * GiB);
    return all;
  }

  void expect_all_mapped() {
    EXPECT_EQ(pinned_, lendable());
    EXPECT_EQ(memory_->pinned, pinned_.bytes());
    Pages reached;
    for (u32 i = 0; i < memory_->segments; i++) {
      const auto& s = memory_->segment[i];
      for (auto [iova, piece] : mapped_)
        if (iova >= s.iova && iova < s.iova + (s.end - s.start))
          reached.add(s.start + (iova - s.iova), s.start + (iova - s.iova) + piece.size);
    }
    EXPECT_EQ(reached, pinned_);
  }

  u64 pfn_of(u64 gpa) const {
    u64 page = gpa / kPage;
    if (backing_ == Backing::huge)  // 2 MiB pages, neighbours swapped
      return 0x1000000 + ((page / 512) ^ 1) * 512 + page % 512;
    return 0x1000000 + (page ^ 1) * 3;
  }

  struct Piece {
    u64 size;
  };

  int pin(u64 gpa, u32 pages, u64* pfn) {
    ++pins_;
    EXPECT_GT(pages, 0u);
    EXPECT_LE(pages, 512u);
    if (during_pin_) during_pin_(gpa);
    if (fail_pin_ && gpa >= fail_pin_from_) return fail_pin_;
    u64 end = gpa + pages * kPage;
    if (!ram_.contains(gpa, end)) {
      for (u64 page = gpa; page < end; page += kPage) {
        if (ram_.contains(page, page + kPage)) continue;
        if (rom_.contains(page, page + kPage)) return -EPERM;
        return bar_.touches(page, page + kPage) ? -EFAULT : -EINVAL;
      }
    }
    EXPECT_FALSE(pinned_.touches(gpa, end)) << "pinned twice: " << std::hex << gpa;
    pinned_.add(gpa, end);
    for (u32 i = 0; i < pages; i++) pfn[i] = pfn_of(gpa + i * kPage);
    return 0;
  }
  void unpin(u64 gpa, u64 pages) {
    EXPECT_TRUE(pinned_.contains(gpa, gpa + pages * kPage)) << std::hex << gpa;
    EXPECT_EQ(iova_users(gpa, pages), 0) << "unpinned while mapped";
    pinned_.remove(gpa, gpa + pages * kPage);
  }
  int iova_users(u64 gpa, u64 pages) const {
    for (u32 i = 0; i < memory_->segments; i++) {
      const auto& s = memory_->segment[i];
      if (gpa < s.start || gpa >= s.end) continue;
      u64 iova = s.iova + (gpa - s.start);
      auto it = mapped_.lower_bound(iova);
      return it != mapped_.end() && it->first < iova + pages * kPage;
    }
    return 0;
  }
  int map(u64 iova, const pcilend_guest_run* run, u32 count) {
    if (fail_map_) return fail_map_;
    u64 at = iova, total = 0, slot_gpa = gpa_of(iova);
    for (u32 i = 0; i < count; i++) {
      for (u64 k = 0; k < run[i].pages; k++)
        EXPECT_EQ(run[i].pfn + k, pfn_of(slot_gpa + total + k * kPage));
      total += run[i].pages * kPage;
      runs_++;
    }
    EXPECT_EQ(at / kBlock, (at + total - 1) / kBlock) << "crosses a 2 MiB boundary";
    EXPECT_EQ(at % kBlock, slot_gpa % kBlock);
    EXPECT_FALSE(mapped_.count(iova));
    mapped_[iova] = {total};
    return 0;
  }
  // As IOMMU drivers do: a large page goes as a whole, so no piece may be cut.
  void iommu_unmap(u64 iova, u64 pages) {
    u64 end = iova + pages * kPage, sum = 0;
    auto it = mapped_.lower_bound(iova);
    if (it != mapped_.begin()) {
      auto before = std::prev(it);
      EXPECT_LE(before->first + before->second.size, iova) << "cuts a large page";
    }
    while (it != mapped_.end() && it->first < end) {
      EXPECT_LE(it->first + it->second.size, end) << "cuts a large page";
      sum += it->second.size;
      it = mapped_.erase(it);
    }
    EXPECT_EQ(sum, pages * kPage) << "not mapped";
  }
  int slot_get(u64 size, u64* iova) {
    if (fail_slot_) return fail_slot_;
    EXPECT_EQ(size % kBlock, 0u);
    *iova = next_slot_;
    next_slot_ += size;
    slots_.push_back(size);
    return 0;
  }
  u64 gpa_of(u64 iova) const {
    for (u32 i = 0; i < memory_->segments; i++) {
      const auto& s = memory_->segment[i];
      if (iova >= s.iova && iova < s.iova + (s.end - s.start)) return s.start + (iova - s.iova);
    }
    ADD_FAILURE() << "iova outside all segments: " << std::hex << iova;
    return 0;
  }

  static Guest* self(void* context) { return static_cast<Guest*>(context); }
  static const pcilend_guestmem_ops kOps;

  std::unique_ptr<pcilend_guestmem> memory_;
  Backing backing_ = Backing::huge;
  Pages ram_, rom_, bar_, pinned_;
  std::map<u64, Piece> mapped_;
  std::vector<u64> slots_;
  u64 next_slot_ = 8 * GiB;
  int pins_ = 0, runs_ = 0, steps_ = 0;
  int fail_pin_ = 0, fail_map_ = 0, fail_slot_ = 0;
  u64 fail_pin_from_ = 0;
  std::function<void()> between_steps_;
  std::function<void(u64)> during_pin_;
};

const pcilend_guestmem_ops Guest::kOps = {
    .pin = [](void* c, u64 gpa, u32 pages, u64* pfn) { return self(c)->pin(gpa, pages, pfn); },
    .unpin = [](void* c, u64 gpa, u64 pages) { self(c)->unpin(gpa, pages); },
    .map = [](void* c, u64 iova, const pcilend_guest_run* run,
              u32 count) { return self(c)->map(iova, run, count); },
    .unmap = [](void* c, u64 iova, u64 pages) { self(c)->iommu_unmap(iova, pages); },
    .slot_get = [](void* c, u64 size, u64* iova) { return self(c)->slot_get(size, iova); },
};

TEST_F(Guest, EmptyGuestIsStableWithNothing) {
  EXPECT_FALSE(clean());
  EXPECT_EQ(settle(), 1);
  EXPECT_TRUE(clean());
  EXPECT_EQ(memory_->segments, 0u);
  EXPECT_EQ(memory_->pinned, 0u);
}

TEST_F(Guest, Q35SmallIsOneSegment) {
  q35(256 * MiB);
  EXPECT_EQ(settle(), 2);
  expect_all_mapped();
  ASSERT_EQ(memory_->segments, 1u);
  EXPECT_EQ(memory_->segment[0].start, 0u);
  EXPECT_EQ(memory_->segment[0].end, 256 * MiB);
  EXPECT_EQ(slots_, (std::vector<u64>{256 * MiB}));
}

TEST_F(Guest, Q35LargeHasLowAndHigh) {
  q35(3 * GiB);
  settle();
  expect_all_mapped();
  ASSERT_EQ(memory_->segments, 2u);
  EXPECT_EQ(memory_->segment[0].end, 2 * GiB);
  EXPECT_EQ(memory_->segment[1].start, 4 * GiB);
  EXPECT_EQ(memory_->segment[1].end, 5 * GiB);
}

TEST_F(Guest, I440fxLeavesVideoMemoryAlone) {
  for (u64 size : {512 * MiB, 2 * GiB, 3 * GiB + 512 * MiB}) {
    SCOPED_TRACE(size);
    ram_ = rom_ = Pages();
    i440fx(size);
    settle();
    expect_all_mapped();
    EXPECT_LE(memory_->segment[0].end, 0xc0000000u);
    pcilend_guestmem_release(memory_.get());
    pcilend_guestmem_drop_segments(memory_.get());
  }
}

TEST_F(Guest, OddSizes) {
  ram(0, 0xa0000);
  ram(1 * MiB, 77 * MiB + 3 * kPage);
  ram(4 * GiB, 4 * GiB + 5 * kPage);
  settle();
  expect_all_mapped();
  EXPECT_EQ(memory_->segment[0].end, 78 * MiB);
  EXPECT_EQ(memory_->segment[1].end, 4 * GiB + 2 * MiB);
}

TEST_F(Guest, MemoryMovedToOneTerabyte) {
  legacy();
  ram(1 * MiB, 2 * GiB);
  ram(1 * TiB, 1 * TiB + 64 * MiB);
  settle();
  expect_all_mapped();
  EXPECT_EQ(memory_->segment[1].start, 1 * TiB);
}

TEST_F(Guest, HugePagesAreMappedWhole) {
  ram(0, 64 * MiB);
  ram_.remove(0xa0000, 0xc0000);
  settle();
  runs_ = 0;
  pcilend_guestmem_release(memory_.get());
  settle();
  // 31 whole blocks, and the first one in two pieces.
  EXPECT_EQ(runs_, 33);
  EXPECT_EQ(mapped_[memory_->segment[0].iova + 2 * MiB].size, 2 * MiB);
}

TEST_F(Guest, ScatteredPages) {
  backing_ = Backing::scattered;
  q35(32 * MiB);
  settle();
  expect_all_mapped();
}

TEST_F(Guest, StepsAreBounded) {
  q35(256 * MiB);
  ASSERT_EQ(pass(), 0);
  EXPECT_GE(steps_, 7);
  int most = 0;
  between_steps_ = [&] {
    most = std::max(most, pins_);
    pins_ = 0;
  };
  pins_ = 0;
  ASSERT_EQ(pass(), 0);
  EXPECT_LE(most, 16 * 512 / 16 + 64);
}

TEST_F(Guest, AQuietPassIsCheap) {
  q35(3 * GiB);
  settle();
  pins_ = 0;
  ASSERT_EQ(pass(), 0);
  EXPECT_LE(pins_, 700);
}

// SeaBIOS locks the BIOS area: QEMU takes all away and maps it again with holes.
TEST_F(Guest, FirmwareRemapsEverything) {
  q35(128 * MiB);
  settle();
  u64 before = memory_->pinned;
  EXPECT_EQ(unmap(0, 128 * MiB), before);
  EXPECT_FALSE(clean());
  EXPECT_FALSE(stable());
  EXPECT_EQ(memory_->pinned, 0u);
  q35(128 * MiB);
  EXPECT_EQ(settle(), 2);
  expect_all_mapped();
  EXPECT_EQ(memory_->segments, 1u) << "the slot is used again";
}

TEST_F(Guest, APassInTheMiddleOfARemapIsNotTheLast) {
  q35(128 * MiB);
  settle();
  unmap(0, 128 * MiB);
  ASSERT_EQ(pass(), 0);  // QEMU has not mapped it again yet
  EXPECT_FALSE(stable());
  ram(1 * MiB, 128 * MiB);  // … and now in part
  ASSERT_EQ(pass(), 0);
  ASSERT_EQ(pass(), 0);
  EXPECT_FALSE(stable()) << "less than before";
  legacy();
  EXPECT_LE(settle(), 2);
  expect_all_mapped();
}

TEST_F(Guest, MemoryThatStaysAwayIsGivenUpAfterPatience) {
  q35(128 * MiB);
  settle();
  unmap(64 * MiB, 128 * MiB);
  EXPECT_EQ(settle(), PCILEND_GUEST_PATIENCE);
  expect_all_mapped();
  unmap(32 * MiB, 64 * MiB);
  EXPECT_EQ(settle(), PCILEND_GUEST_PATIENCE);
}

TEST_F(Guest, RemapDuringAPass) {
  q35(256 * MiB);
  int moved = 0;
  between_steps_ = [&] {
    if (moved++ == 3) {
      unmap(0, 256 * MiB);
      q35(256 * MiB);
    }
  };
  ASSERT_EQ(pass(), 0);
  EXPECT_FALSE(clean()) << "what was unmapped behind the cursor is missing";
  between_steps_ = nullptr;
  ASSERT_EQ(pass(), 0);
  EXPECT_TRUE(clean());
  settle();
  expect_all_mapped();
}

TEST_F(Guest, RandomChangesHeal) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; round++) {
    SCOPED_TRACE(round);
    ram_ = rom_ = Pages();
    pcilend_guestmem_release(memory_.get());
    q35(96 * MiB);
    between_steps_ = [&] {
      u64 start = (random() % (96 * 256)) * kPage;
      u64 end = std::min<u64>(start + (1 + random() % 2000) * kPage, 96 * MiB);
      Pages back = ram_;
      unmap(start, end);
      if (random() % 2)
        for (auto [a, b] : back.spans())
          if (std::max(a, start) < std::min(b, end)) ram(std::max(a, start), std::min(b, end));
    };
    ASSERT_EQ(pass(), 0);
    between_steps_ = nullptr;
    ram(1 * MiB, 96 * MiB);
    ram(0, 0xa0000);
    settle();
    expect_all_mapped();
  }
}

TEST_F(Guest, UnmapTakesWholeBlocks) {
  q35(16 * MiB);
  settle();
  EXPECT_EQ(unmap(4 * MiB + 8 * kPage, 4 * MiB + 9 * kPage), 2 * MiB);
  settle();
  expect_all_mapped();
  // A hole of one page in a large page is found exactly.
  EXPECT_EQ(memory_->pinned, lendable().bytes());
}

TEST_F(Guest, UnmapOfNothingPinnedStillCallsForAPass) {
  q35(16 * MiB);
  settle();
  EXPECT_EQ(unmap(0xf0000, 0x100000), 0u);  // a ROM goes …
  EXPECT_FALSE(stable());
  ram(0xf0000, 0x100000);  // … and memory comes
  settle();
  expect_all_mapped();
}

TEST_F(Guest, HotpluggedMemoryGetsASegment) {
  q35(1 * GiB);
  settle();
  ram(4 * GiB, 4 * GiB + 256 * MiB);
  ASSERT_EQ(pass(), 0);
  expect_all_mapped();
  EXPECT_FALSE(stable()) << "found something: look again";
  ram(4 * GiB + 256 * MiB, 4 * GiB + 512 * MiB);
  ram(32 * GiB, 32 * GiB + 128 * MiB);
  settle();
  expect_all_mapped();
  EXPECT_EQ(memory_->segments, 4u);
  const pcilend_guest_segment& last = memory_->segment[3];
  EXPECT_EQ(pcilend_guestmem_iova(memory_.get(), last.start + kPage), last.iova + kPage);
}

TEST_F(Guest, HolesInASegmentAreFoundAgain) {
  q35(64 * MiB);
  settle();
  unmap(20 * MiB, 40 * MiB);
  settle();
  ram(20 * MiB, 20 * MiB + 4 * kPage);                       // touches other memory
  ram(24 * MiB + 12 * KiB, 24 * MiB + 12 * KiB + 96 * KiB);  // covers a multiple of 64 KiB
  ram(39 * MiB + 900 * KiB, 40 * MiB);
  ASSERT_EQ(pass(), 0);
  expect_all_mapped();
}

// Islands smaller than the grain, known from when they touched other memory, then more around them.
TEST_F(Guest, KnownIslandsAreNotJumpedOver) {
  q35(64 * MiB);
  settle();
  for (u64 at = 4 * MiB; at < 60 * MiB; at += 2 * MiB) {
    unmap(at, at + 2 * MiB);
    ram(at, at + kPage);
    ram(at + 60 * KiB, at + 72 * KiB);
  }
  settle();
  expect_all_mapped();
  std::mt19937 random(3);
  for (int round = 0; round < 400; round++) {
    u64 at = 4 * MiB + (random() % (50 * 256)) * kPage;
    u64 end = at + (1 + random() % 40) * kPage;
    if (random() % 3) {
      if (!ram_.touches(at, end)) ram(at, end);
    } else {
      unmap(at, end);
    }
    if (random() % 4 == 0) {
      ASSERT_EQ(pass(), 0);
    }
  }
  ram(1 * MiB, 64 * MiB);
  settle();
  expect_all_mapped();
}

TEST_F(Guest, MappedBarsAreNoMemory) {
  q35(16 * MiB);
  bar_.add(16 * MiB, 17 * MiB);
  bar_.add(0xc0000000, 0xc0004000);
  settle();
  expect_all_mapped();
}

TEST_F(Guest, PinErrorsEndThePassAndAreTold) {
  q35(64 * MiB);
  fail_pin_ = -ENOMEM;
  fail_pin_from_ = 32 * MiB;
  EXPECT_EQ(pass(), -ENOMEM);
  EXPECT_FALSE(clean());
  fail_pin_ = 0;
  settle();
  expect_all_mapped();
}

TEST_F(Guest, MapErrorsUnpin) {
  q35(16 * MiB);
  fail_map_ = -ENOMEM;
  EXPECT_EQ(pass(), -ENOMEM);
  EXPECT_EQ(pinned_.bytes(), 0u);
  fail_map_ = -EINVAL;  // must not be taken for a hole
  EXPECT_EQ(pass(), -EIO);
  fail_map_ = 0;
  settle();
  expect_all_mapped();
}

TEST_F(Guest, NoSlot) {
  q35(16 * MiB);
  fail_slot_ = -ENOSPC;
  EXPECT_EQ(pass(), -ENOSPC);
  EXPECT_EQ(memory_->segments, 0u);
  EXPECT_EQ(pinned_.bytes(), 0u);
}

TEST_F(Guest, TooManySegments) {
  for (u64 i = 0; i <= PCILEND_GUEST_SEGMENTS; i++)
    ram(4 * GiB + i * 128 * MiB, 4 * GiB + i * 128 * MiB + kPage);
  int ret = pass();
  EXPECT_TRUE(ret == 0 || ret == -ENOSPC);
  EXPECT_LE(memory_->segments, u32{PCILEND_GUEST_SEGMENTS});
}

// A hostile VMM: single pages everywhere, more than there is room for.
TEST_F(Guest, TooManyRanges) {
  ram(0, 640 * KiB);
  ram(1 * MiB, 512 * MiB);
  settle();
  for (u64 at = 4 * MiB; at < 512 * MiB; at += 128 * KiB) unmap(at, at + kPage);
  EXPECT_LE(memory_->ranges, u32{PCILEND_GUEST_RANGES});
  int ret = pass();
  EXPECT_EQ(ret, -ENOSPC);
  EXPECT_LE(memory_->ranges, u32{PCILEND_GUEST_RANGES});
  // Unmapping in the middle of a range when the table is full gives up its end as well.
  unmap(2 * MiB, 2 * MiB + kPage);
  EXPECT_LE(memory_->ranges, u32{PCILEND_GUEST_RANGES});
  unmap(0, 512 * MiB);
  EXPECT_EQ(memory_->ranges, 0u);
}

TEST_F(Guest, ForgetOfAbsurdRanges) {
  q35(16 * MiB);
  settle();
  EXPECT_EQ(pcilend_guestmem_forget(memory_.get(), 1 * TiB, ~0ULL), 0u);
  EXPECT_EQ(pcilend_guestmem_forget(memory_.get(), 16 * MiB, kPage), 0u);
  EXPECT_EQ(pcilend_guestmem_forget(memory_.get(), ~0ULL - kPage + 1, kPage), 0u);
  EXPECT_GT(pcilend_guestmem_forget(memory_.get(), 0, ~0ULL), 0u);
  EXPECT_EQ(memory_->pinned, 0u);
}

TEST_F(Guest, BacksOffWhileUnstable) {
  q35(16 * MiB);
  settle();
  EXPECT_EQ(pcilend_guestmem_delay(memory_.get()), u32{PCILEND_GUEST_DELAY_MS});
  u32 last = 0;
  for (int i = 0; i < 12; i++) {
    unmap(2 * MiB, 4 * MiB);
    ram(2 * MiB, 4 * MiB);
    ASSERT_EQ(pass(), 0);
    EXPECT_GE(pcilend_guestmem_delay(memory_.get()), last);
    last = pcilend_guestmem_delay(memory_.get());
  }
  EXPECT_EQ(last, u32{PCILEND_GUEST_DELAY_MAX_MS});
  settle();
  EXPECT_EQ(pcilend_guestmem_delay(memory_.get()), u32{PCILEND_GUEST_DELAY_MS});
}

TEST_F(Guest, StepWithoutAPass) {
  EXPECT_EQ(pcilend_guestmem_step(memory_.get()), 0);
}

}  // namespace
