// SPDX-License-Identifier: GPL-2.0-or-later
#include "sweep.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace pcilend::fabric {
namespace {

// Messages under way at once: enough to hide the latency, few enough to let other traffic pass.
constexpr size_t kInFlight = 16;
constexpr auto kStall = std::chrono::seconds(10);
constexpr uint64_t kCoarse = 256 << 10;
constexpr uint64_t kEdge = 1 << 20;
constexpr uint64_t kBottom = 16 << 20;
constexpr uint64_t kGranule = 2 << 20;
constexpr size_t kMaxKnownRanges = 64;

uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

Sweep::Sweep(Fabric& fabric, const Adapter& victim, std::vector<SweepRange> ranges,
             std::function<void(SweepResult)> done)
    : fabric_(fabric),
      victim_(victim),
      pieces_(pieces_of(std::move(ranges))),
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

std::deque<Sweep::Piece> Sweep::pieces_of(std::vector<SweepRange> ranges) {
  // Finest first; coarser ones get what is left.
  std::stable_sort(ranges.begin(), ranges.end(),
                   [](const SweepRange& a, const SweepRange& b) { return a.stride < b.stride; });
  std::array<std::map<uint64_t, uint64_t>, kWindowCount> covered;  // first -> end
  std::deque<Piece> pieces;
  for (const SweepRange& range : ranges) {
    auto& taken = covered[range.window];
    const uint64_t end = range.offset + range.length;
    uint64_t at = range.offset;
    while (at < end) {
      auto next = taken.upper_bound(at);
      if (next != taken.begin() && std::prev(next)->second > at) {
        at = std::prev(next)->second;
        continue;
      }
      const uint64_t stop = next == taken.end() ? end : std::min(end, next->first);
      pieces.push_back({range.window, stop, range.stride, at, at});
      taken.emplace(at, stop);
      at = stop;
    }
  }
  return pieces;
}

bool Sweep::step() {
  while (!pieces_.empty()) {
    Piece& piece = pieces_.front();
    if (piece.next >= piece.end) {
      pieces_.pop_front();
      continue;
    }
    const uint64_t offset = piece.next;
    const uint64_t left = piece.end - offset;
    const Adapter::Landing landing =
        fabric_.link(victim_.host(), victim_.peer(), victim_.path()).up
            ? victim_.land(piece.window, offset, left, false)
            : Adapter::Landing{Adapter::Where::Nowhere, 0, left, {}, Target::Bar};
    // What lies here is known for landing.size bytes, but for messages: those are sent one by one,
    // and never past the beginning of something known.
    if (landing.where == Adapter::Where::Message) {
      const uint64_t step = std::min(piece.stride, round_up(landing.size, kSweepPage));
      const uint64_t above = std::min(offset + step, piece.end);
      const Found hit{piece.window, offset, kSweepPage, Fabric::Probe::Bar, piece.before, above};
      piece.before = offset;
      piece.next = above;
      probe(piece.window, offset, [this, hit](bool answered) {
        if (answered) found_.push_back(hit);
      });
      return true;
    }
    piece.next = piece.before = offset + round_up(landing.size, kSweepPage);
    if (landing.where == Adapter::Where::Nowhere) continue;
    const auto target =
        landing.where == Adapter::Where::Memory ? Fabric::Probe::Memory : Fabric::Probe::Interrupt;
    found_.push_back({piece.window, offset, landing.size, target, offset, offset + landing.size});
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
  fabric_.probe(victim_, window, offset,
                [self = self_, then = std::move(then)](Fabric::Probe answer) {
                  if (*self == nullptr) return;
                  Sweep& sweep = **self;
                  sweep.in_flight_--;
                  sweep.answers_++;
                  then(answer != Fabric::Probe::NoAnswer);
                  sweep.pump();
                });
}

void Sweep::find_edges() {
  edges_found_ = true;
  std::array<std::set<uint64_t>, kWindowCount> answered;
  for (const Found& hit : found_) {
    if (hit.target == Fabric::Probe::Bar) answered[hit.window].insert(hit.offset);
  }
  for (const Found& hit : found_) {
    if (hit.target != Fabric::Probe::Bar) continue;
    const auto& others = answered[hit.window];
    const uint64_t above = (hit.above - hit.offset) / kSweepPage;
    const uint64_t below = (hit.offset - hit.below) / kSweepPage;
    if (above > 1 && !others.contains(hit.above))
      edges_.push_back({hit.window, hit.offset + kSweepPage, true, above - 1});
    if (below > 1 && !others.contains(hit.below))
      edges_.push_back({hit.window, hit.offset - kSweepPage, false, below - 1});
  }
}

void Sweep::follow(Edge edge) {
  probe(edge.window, edge.offset, [this, edge](bool answered) {
    if (!answered) return;
    found_.push_back({edge.window, edge.offset, kSweepPage, Fabric::Probe::Bar, edge.offset,
                      edge.offset + kSweepPage});
    if (edge.pages_left <= 1) return;
    edges_.push_back({edge.window,
                      edge.upwards ? edge.offset + kSweepPage : edge.offset - kSweepPage,
                      edge.upwards, edge.pages_left - 1});
  });
}

std::vector<SweepHit> Sweep::joined() const {
  std::vector<Found> found = found_;
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::tie(a.window, a.target, a.offset) < std::tie(b.window, b.target, b.offset);
  });
  std::vector<SweepHit> hits;
  uint64_t above = 0;  // of the last one
  for (const Found& one : found) {
    if (!hits.empty() && hits.back().window == one.window && hits.back().target == one.target &&
        one.offset <= above) {
      SweepHit& last = hits.back();
      const uint64_t end = last.offset + last.length;
      if (one.offset > end) last.stride = std::max(last.stride, one.offset - end + kSweepPage);
      last.length = std::max(end, one.offset + one.length) - last.offset;
      above = std::max(above, one.above);
      continue;
    }
    const uint64_t address = victim_.land(one.window, one.offset, 1, false).address;
    hits.push_back({one.window, one.offset, one.length, address, one.target, kSweepPage});
    above = one.above;
  }
  std::sort(hits.begin(), hits.end(), [](const SweepHit& a, const SweepHit& b) {
    return std::tie(a.window, a.offset) < std::tie(b.window, b.offset);
  });
  return hits;
}

void Sweep::finish(bool stalled) {
  if (!done_) return;
  if (watchdog_) fabric_.timers().cancel(*std::exchange(watchdog_, std::nullopt));
  const auto done = std::exchange(done_, nullptr);
  done({joined(), probes_, fabric_.now() - start_, stalled});
}

std::vector<SweepRange> Sweep::default_ranges(const Fabric& fabric, const Adapter& target) {
  const std::vector<DmaTable::Range> memory = target.memory().ranges();
  std::vector<SweepRange> ranges;
  const auto sweep_opening = [&](unsigned window, const Opening& opening) {
    // Pages of [first, last) on the victim's bus, as far as the window shows them.
    const auto add_bus = [&](uint64_t first, uint64_t last) {
      first = std::max(first, opening.address);
      last = std::min(last, opening.address + opening.length);
      if (first >= last) return;
      const uint64_t offset = (first - opening.address) / kSweepPage * kSweepPage;
      ranges.push_back(
          {window, opening.offset + offset, last - opening.address - offset, kSweepPage});
    };
    for (size_t i = 0; i < std::min(memory.size(), kMaxKnownRanges); i++) {
      const uint64_t first = memory[i].address;
      const uint64_t last = first + memory[i].size;
      add_bus(first > kEdge ? first - kEdge : 0, first);
      add_bus(last, last + kEdge);
    }
    for (const uint64_t granule :
         fabric.answered_granules(fabric.adapter(target.peer(), target.host(), target.path())))
      add_bus(granule > kEdge ? granule - kEdge : 0, granule + kGranule + kEdge);
    const uint64_t length = opening.length;
    ranges.push_back({window, opening.offset, std::min(length, kBottom), kSweepPage});
    const uint64_t top = length > kEdge ? (length - kEdge) / kSweepPage * kSweepPage : 0;
    ranges.push_back({window, opening.offset + top, length - top, kSweepPage});
    ranges.push_back({window, opening.offset, length, kCoarse});
  };
  for (unsigned window = 0; window < kWindowCount; window++) {
    for (const Opening& opening : target.model().inbound(window))
      if (opening.length != 0) sweep_opening(window, opening);
  }
  return ranges;
}

}  // namespace pcilend::fabric
