// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/tsc.h"

#include <x86intrin.h>

#include <chrono>
#include <thread>

namespace pcilend::lab {
namespace {

using Clock = std::chrono::steady_clock;

struct Sample {
  uint64_t ticks = 0;
  Clock::time_point time;
};

// Of both clocks at one moment: of some tries, the one that was interrupted least.
Sample sample() {
  Sample best;
  auto least = Clock::duration::max();
  for (int i = 0; i < 16; i++) {
    const auto before = Clock::now();
    const uint64_t ticks = __rdtsc();
    const auto after = Clock::now();
    if (after - before >= least) continue;
    least = after - before;
    best = {ticks, before};
  }
  return best;
}

}  // namespace

uint64_t tsc_khz() {
  const Sample first = sample();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Sample last = sample();
  const std::chrono::duration<double, std::milli> time = last.time - first.time;
  return static_cast<uint64_t>(static_cast<double>(last.ticks - first.ticks) / time.count());
}

}  // namespace pcilend::lab
