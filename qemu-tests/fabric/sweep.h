// SPDX-License-Identifier: GPL-2.0-or-later
// An attack: one host reads all over another's inbound aperture, to see what answers.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "fabric.h"

namespace pcilend::fabric {

inline constexpr uint64_t kSweepPage = 4096;

struct SweepRange {
  unsigned window = 0;
  uint64_t offset = 0;  // a multiple of kSweepPage
  uint64_t length = 0;
  uint64_t stride = kSweepPage;  // a multiple of kSweepPage
};

struct SweepHit {
  unsigned window;
  uint64_t offset;
  uint64_t length;
  uint64_t address;  // on the victim's bus
  Fabric::Probe target;
  uint64_t stride;  // answering probes inside are at most this far apart
};

struct SweepResult {
  std::vector<SweepHit> hits;  // in order, neighbours of one kind joined
  uint64_t probes = 0;         // messages sent
  Duration time{};
  bool stalled = false;  // the victim's QEMU stopped answering: the hits are not all
};

class Sweep {
 public:
  // `done` runs once, unless the sweep is destroyed first.
  Sweep(Fabric& fabric, const Adapter& victim, std::vector<SweepRange> ranges,
        std::function<void(SweepResult)> done);
  ~Sweep();
  Sweep(const Sweep&) = delete;
  Sweep& operator=(const Sweep&) = delete;
  // `done` may run before it returns.
  void start();

  // Both windows whole at a coarse stride, and to the page where something is known or likely to
  // be: around mapped memory and functions that were seen in use, and at both ends of each window.
  static std::vector<SweepRange> default_ranges(const Fabric& fabric, const Adapter& victim);

 private:
  // Part of a range that no finer one covers.
  struct Piece {
    unsigned window;
    uint64_t end;
    uint64_t stride;
    uint64_t next;    // offset still to be read
    uint64_t before;  // the message probe before that, or `next`
  };
  // What answered, and the neighbouring probes of its piece (itself where there is none).
  struct Found {
    unsigned window;
    uint64_t offset;
    uint64_t length;
    Fabric::Probe target;
    uint64_t below;
    uint64_t above;
  };
  // Pages from a coarse hit towards where the next coarse probe met nothing, one after another.
  struct Edge {
    unsigned window;
    uint64_t offset;
    bool upwards;
    uint64_t pages_left;
  };

  static std::deque<Piece> pieces_of(std::vector<SweepRange> ranges);
  [[nodiscard]] std::vector<SweepHit> joined() const;
  void pump();
  bool step();
  void probe(unsigned window, uint64_t offset, std::function<void(bool hit)> then);
  void find_edges();
  void follow(Edge edge);
  void watch();
  void finish(bool stalled);

  Fabric& fabric_;
  const Adapter& victim_;
  std::deque<Piece> pieces_;  // still to be read
  std::vector<Edge> edges_;
  std::function<void(SweepResult)> done_;
  std::vector<Found> found_;
  uint64_t probes_ = 0;
  uint64_t watched_ = 0;  // answers seen when last looked
  uint64_t answers_ = 0;
  size_t in_flight_ = 0;
  bool pumping_ = false;
  bool edges_found_ = false;
  TimePoint start_;
  std::optional<Timers::Id> watchdog_;
  std::shared_ptr<Sweep*> self_;  // for answers that come when the sweep is gone
};

}  // namespace pcilend::fabric
