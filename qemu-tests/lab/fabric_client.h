// SPDX-License-Identifier: GPL-2.0-or-later
// The fabric's control socket (qemu-tests/fabric/README.md).
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/deadline.h"
#include "pcilend/result.h"

namespace pcilend::lab {

// What crossed the NTB from one host to another and ended at one kind of target.
struct Traffic {
  uint64_t reads = 0;
  uint64_t writes = 0;
  uint64_t read_bytes = 0;
  uint64_t write_bytes = 0;
};

struct PathCounters {
  int from = 0;
  int to = 0;
  int path = 1;
  Traffic memory;
  Traffic bar;
  Traffic interrupt;
  uint64_t all_ones_reads = 0;  // reads that nothing answered
  uint64_t dropped_writes = 0;
};

struct Counters {
  std::vector<PathCounters> paths;
  nlohmann::json json;  // all that the fabric tells

  // Zeroes if there is no such path.
  [[nodiscard]] PathCounters path(int from, int to, int path = 1) const;
};

// What to read of a victim's aperture. Offset, length and stride are multiples of 4096.
struct SweepRange {
  unsigned window = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t stride = 4096;
};

// A piece of a victim's aperture that answered.
struct SweepHit {
  unsigned window = 0;
  uint64_t offset = 0;   // in the window, bytes
  uint64_t length = 0;   // bytes
  uint64_t address = 0;  // on the victim's bus
  std::string target;    // memory, bar, interrupt
};

struct SweepReport {
  std::vector<SweepHit> answered;
  nlohmann::json json;
};

class Fabric {
 public:
  explicit Fabric(std::string control) : control_(std::move(control)) {}

  // Path 0: all links of the two.
  Result<> link_up(int a, int b, int path = 0) const;
  Result<> link_down(int a, int b, int path = 0) const;
  // Down, and up again by itself.
  Result<> flap(int a, int b, std::chrono::milliseconds time, int path = 0) const;
  // Whether the driver of `host` hears of what becomes of its link to `peer`.
  Result<> tell_events(int host, int peer, bool told, int path = 0) const;
  // Posted writes of `from` are held on their way; or they arrive, whatever the link is: so many.
  Result<> hold(int from, int to, int path) const;
  Result<uint64_t> release(int from, int to, int path) const;
  [[nodiscard]] Result<uint64_t> held(int from, int to, int path) const;
  // The link goes down in the middle of what functions of `from` do in `to`'s memory.
  struct Trip {
    std::optional<uint64_t> reads;
    std::optional<uint64_t> writes;
    std::chrono::milliseconds flap{};
  };
  Result<> trip(int from, int to, int path, const Trip& trip) const;
  // It has not been reached yet.
  [[nodiscard]] Result<bool> trips(int from, int to, int path) const;
  Result<> set_delay(int a, int b, std::chrono::milliseconds delay, int path = 0) const;
  // Resets them after reading, if asked to.
  Result<Counters> counters(bool reset = false) const;
  // Reads `victim`'s aperture as `from` could; without ranges, all over it. Memory is always exact,
  // and where ranges overlap the finest counts. Takes minutes at most.
  Result<SweepReport> sweep(int victim, int from, const std::vector<SweepRange>& ranges = {}) const;

  // "01:00.0" of each function of `host` that its adapter towards `peer` lets through, where the
  // adapter has a table of those.
  Result<std::vector<std::string>> requesters(int host, int peer) const;

  // Reads of the host's functions are refused while none of them is in that table.
  Result<> check_requesters(int host, int peer, bool strict) const;
  // Others take all of its entries that are free, or give them back.
  Result<> fill_requesters(int host, int peer, bool full) const;

  // A message to the driver of `to`, as of the driver of `from`: of a Switchtec.
  Result<> send_message(int from, int to, uint32_t value) const;

  // Any request; the fabric's refusal is an error.
  Result<nlohmann::json> request(const nlohmann::json& request, const Deadline& deadline) const;

 private:
  [[nodiscard]] Result<> change(int a, int b, int path, nlohmann::json change) const;
  [[nodiscard]] Result<nlohmann::json> adapter(int host, int peer, int path) const;

  std::string control_;
};

// Refuses answers that are not of the documented form.
Result<Counters> parse_counters(nlohmann::json json);
Result<SweepReport> parse_sweep(nlohmann::json json);

}  // namespace pcilend::lab
