// SPDX-License-Identifier: GPL-2.0-or-later
#include "sweep.h"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>
#include <utility>

namespace pcilend::fabric {
namespace {

// Messages under way at once: enough to hide the latency, few enough to let other traffic pass.
constexpr size_t kInFlight = 16;
constexpr auto kStall = std::chrono::seconds(10);
constexpr uint64_t kCoarse = 1 << 20;
constexpr uint64_t kEdge = 1 << 20;
constexpr uint64_t kBottom = 16 << 20;
constexpr uint64_t kGranule = 2 << 20;
constexpr size_t kMaxKnownRanges = 64;

uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

bool before(const SweepHit& a, const SweepHit& b) {
  return std::tie(a.window, a.target, a.offset) < std::tie(b.window, b.target, b.offset);
}

// Merges hits of one kind that touch, overlap or follow each other at their stride.
std::vector<SweepHit> join(std::vector<SweepHit> hits) {
  std::sort(hits.begin(), hits.end(), before);
  std::vector<SweepHit> joined;
  for (const SweepHit& hit : hits) {
    if (!joined.empty()) {
      SweepHit& last = joined.back();
      const bool alike = last.window == hit.window && last.target == hit.target;
      const uint64_t last_end = last.offset + last.length;
      // The last probe of `last` was in its last page.
      const uint64_t reach = std::max(last_end, last_end - kSweepPage + last.stride);
      if (alike && hit.offset <= reach) {
        last.length = std::max(last_end, hit.offset + hit.length) - last.offset;
        if (hit.offset > last_end) last.stride = std::max(last.stride, hit.stride);
        continue;
      }
    }
    joined.push_back(hit);
  }
  std::sort(joined.begin(), joined.end(), [](const SweepHit& a, const SweepHit& b) {
    return std::tie(a.window, a.offset) < std::tie(b.window, b.offset);
  });
  return joined;
}

}  // namespace

Sweep::Sweep(Fabric& fabric, size_t from, size_t victim, std::vector<SweepRange> ranges,
             std::function<void(SweepResult)> done)
    : fabric_(fabric),
      from_(from),
      victim_(victim),
      ranges_(ranges.begin(), ranges.end()),
      done_(std::move(done)),
      start_(fabric.now()),
      self_(std::make_shared<Sweep*>(this)) {}

Sweep::~Sweep() {
  *self_ = nullptr;
  if (watchdog_) fabric_.timers().cancel(*watchdog_);
}

void Sweep::start() {
  watch();
  pump();
}

void Sweep::watch() {
  watchdog_ = fabric_.timers().arm(fabric_.now() + kStall, [this] {
    if (answers_ == watched_ && in_flight_ != 0) {
      finish(true);
      return;
    }
    watched_ = answers_;
    watch();
  });
}

void Sweep::pump() {
  if (pumping_) return;
  pumping_ = true;
  while (in_flight_ < kInFlight && step()) {
  }
  pumping_ = false;
  if (in_flight_ == 0) finish(false);
}

bool Sweep::step() {
  while (!ranges_.empty()) {
    SweepRange& range = ranges_.front();
    if (range.length == 0) {
      ranges_.pop_front();
      continue;
    }
    const Adapter::Landing landing =
        fabric_.link(from_, victim_).up
            ? victim().land(range.window, range.offset, range.length, false)
            : Adapter::Landing{Adapter::Where::Nowhere, 0, range.length, {}, Target::Bar};
    const uint64_t offset = range.offset;
    // What lies here is known for landing.size bytes, but for messages: those are asked one by one.
    const bool ask = landing.where == Adapter::Where::Message;
    const uint64_t stride = range.stride;
    const uint64_t skip = std::min(range.length, ask ? stride : round_up(landing.size, stride));
    const unsigned window = range.window;
    range.offset += skip;
    range.length -= skip;
    if (ask) {
      probe(window, offset, [this, window, offset, stride](bool hit) {
        if (hit) record(window, offset, kSweepPage, Fabric::Probe::Bar, stride);
      });
      return true;
    }
    if (landing.where == Adapter::Where::Memory)
      record(window, offset, landing.size, Fabric::Probe::Memory, kSweepPage);
    if (landing.where == Adapter::Where::Interrupt)
      record(window, offset, landing.size, Fabric::Probe::Interrupt, kSweepPage);
  }
  if (!edges_found_ && in_flight_ == 0) find_edges();
  if (!edges_.empty()) {
    const Edge edge = edges_.back();
    edges_.pop_back();
    follow(edge);
    return true;
  }
  return false;
}

void Sweep::probe(unsigned window, uint64_t offset, std::function<void(bool)> then) {
  in_flight_++;
  probes_++;
  fabric_.probe(from_, victim_, window, offset,
                [self = self_, then = std::move(then)](Fabric::Probe answer) {
                  if (*self == nullptr) return;
                  Sweep& sweep = **self;
                  sweep.in_flight_--;
                  sweep.answers_++;
                  then(answer != Fabric::Probe::NoAnswer);
                  sweep.pump();
                });
}

void Sweep::record(unsigned window, uint64_t offset, uint64_t length, Fabric::Probe target,
                   uint64_t stride) {
  const uint64_t address = victim().registers().translations()[window].address + offset;
  hits_.push_back({window, offset, length, address, target, stride});
}

void Sweep::find_edges() {
  edges_found_ = true;
  std::array<std::set<uint64_t>, kWindowCount> answered;
  for (const SweepHit& hit : hits_) {
    if (hit.target == Fabric::Probe::Bar) answered[hit.window].insert(hit.offset);
  }
  for (const SweepHit& hit : hits_) {
    if (hit.target != Fabric::Probe::Bar || hit.stride == kSweepPage) continue;
    const uint64_t pages = hit.stride / kSweepPage - 1;
    if (!answered[hit.window].contains(hit.offset + hit.stride))
      edges_.push_back({hit.window, hit.offset + kSweepPage, true, pages});
    if (hit.offset >= hit.stride && !answered[hit.window].contains(hit.offset - hit.stride))
      edges_.push_back({hit.window, hit.offset - kSweepPage, false, pages});
  }
}

void Sweep::follow(Edge edge) {
  probe(edge.window, edge.offset, [this, edge](bool hit) {
    if (!hit) return;
    record(edge.window, edge.offset, kSweepPage, Fabric::Probe::Bar, kSweepPage);
    if (edge.pages_left <= 1) return;
    edges_.push_back({edge.window,
                      edge.upwards ? edge.offset + kSweepPage : edge.offset - kSweepPage,
                      edge.upwards, edge.pages_left - 1});
  });
}

void Sweep::finish(bool stalled) {
  if (!done_) return;
  if (watchdog_) fabric_.timers().cancel(*std::exchange(watchdog_, std::nullopt));
  const auto done = std::exchange(done_, nullptr);
  done({join(std::move(hits_)), probes_, fabric_.now() - start_, stalled});
}

std::vector<SweepRange> Sweep::default_ranges(const Fabric& fabric, size_t from, size_t victim) {
  const Adapter& target = fabric.adapter(victim, from);
  const std::vector<DmaTable::Range> memory = target.memory().ranges();
  std::vector<SweepRange> ranges;
  for (unsigned window = 0; window < kWindowCount; window++) {
    const Translation& translation = target.registers().translations()[window];
    const uint64_t limit = std::min(translation.limit, target.window_size(window));
    if (limit == 0) continue;
    // Pages of [first, last) on the victim's bus, as far as the window shows them.
    const auto add_bus = [&](uint64_t first, uint64_t last) {
      first = std::max(first, translation.address);
      last = std::min(last, translation.address + limit);
      if (first >= last) return;
      const uint64_t offset = (first - translation.address) / kSweepPage * kSweepPage;
      ranges.push_back({window, offset, last - translation.address - offset, kSweepPage});
    };
    for (size_t i = 0; i < std::min(memory.size(), kMaxKnownRanges); i++) {
      const uint64_t first = memory[i].address;
      const uint64_t last = first + memory[i].size;
      add_bus(first > kEdge ? first - kEdge : 0, first);
      add_bus(last, last + kEdge);
    }
    for (const uint64_t granule : fabric.answered_granules(fabric.adapter(from, victim)))
      add_bus(granule > kEdge ? granule - kEdge : 0, granule + kGranule + kEdge);
    ranges.push_back({window, 0, std::min(limit, kBottom), kSweepPage});
    const uint64_t top = limit > kEdge ? (limit - kEdge) / kSweepPage * kSweepPage : 0;
    ranges.push_back({window, top, limit - top, kSweepPage});
    ranges.push_back({window, 0, limit, kCoarse});
  }
  return ranges;
}

}  // namespace pcilend::fabric
