// SPDX-License-Identifier: GPL-2.0-or-later
// What the portable core's operations cost, each beside another way to do the same where there is
// one.
#include <benchmark/benchmark.h>

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "../core/tests/resolve_world.h"
#include "../core/tests/share_world.h"
#include "../core/tests/snapshots.h"
#include "../core/tests/wire_samples.h"
#include "pcilend/lease.h"
#include "pcilend/share.h"
#include "pcilend/vconfig.h"

namespace {

// Questions about random topologies of up to 8 hosts, as in core_resolve_test.
struct Questions {
  struct One {
    std::unique_ptr<resolve_world::Random> random;
    std::unique_ptr<resolve_world::World> world;
    pcilend_resolve_request request;
    std::vector<u8> distance;
    pcilend_path path = {};
  };
  std::vector<One> all;
  resolve_world::Space function{0, 1ULL << 40, 4};

  // With answers that cross `hops` links; negative: refusals.
  explicit Questions(int hops) {
    for (u64 seed = 1; all.size() < 256; ++seed) {
      One one;
      one.random = std::make_unique<resolve_world::Random>(seed);
      one.world = std::make_unique<resolve_world::World>(*one.random);
      one.request = one.world->Request(function);
      one.distance.resize(one.world->hosts.size());
      const int found = Ask(one);
      if (hops < 0 ? found < 0 : found == 1 && static_cast<int>(one.path.hops) == hops) {
        all.push_back(std::move(one));
      }
    }
  }
  static int Ask(One& one) {
    char why[PCILEND_RESOLVE_TEXT_BYTES];
    return pcilend_resolve(&one.world->topology, &one.request, one.distance.data(), &one.path, 1,
                           why, sizeof(why));
  }
};

void Resolve(benchmark::State& state) {
  Questions questions(static_cast<int>(state.range(0)));
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(Questions::Ask(questions.all[i++ % questions.all.size()]));
  }
}
BENCHMARK(Resolve)->Arg(0)->Arg(1)->Arg(2)->Arg(3)->Arg(-1)->ArgName("hops");

// The tests' way to find out how short the way is.
void ResolveByTryingAll(benchmark::State& state) {
  Questions questions(static_cast<int>(state.range(0)));
  size_t i = 0;
  for (auto _ : state) {
    const Questions::One& one = questions.all[i++ % questions.all.size()];
    const resolve_world::Oracle oracle(*one.world, one.request);
    benchmark::DoNotOptimize(oracle.Shortest(resolve_world::Oracle::kUsable));
  }
}
BENCHMARK(ResolveByTryingAll)->Arg(1)->Arg(2)->Arg(3)->ArgName("hops");

void WireCheck(benchmark::State& state) {
  const std::vector<samples::Sample> messages = samples::All();
  size_t i = 0;
  for (auto _ : state) {
    const samples::Sample& sample = messages[i++ % messages.size()];
    pcilend_msg_header header;
    std::memcpy(&header, sample.slot.data(), sizeof(header));
    benchmark::DoNotOptimize(
        pcilend_wire_check(sample.slot.data(), header.boot, header.sequence, nullptr));
  }
}
BENCHMARK(WireCheck);

void WireBegin(benchmark::State& state) {
  alignas(8) u8 slot[PCILEND_SLOT_BYTES];
  u32 sequence = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        pcilend_wire_begin(slot, PCILEND_MSG_FUNCTION, 0, 0, 0, sequence++, 1));
  }
}
BENCHMARK(WireBegin);

// With that many ranges in use, one of them is given back and another one taken.
void RangeAllocFree(benchmark::State& state) {
  const u32 used = static_cast<u32>(state.range(0));
  std::vector<pcilend_range_entry> entries(used + 1);
  pcilend_range range = {};
  pcilend_range_init(&range, 0, 1ULL << 40, entries.data(), used + 1);
  std::vector<u64> starts(used);
  for (u64& start : starts) pcilend_range_alloc(&range, 1 << 14, 1 << 14, &start);
  std::minstd_rand random(1);
  for (auto _ : state) {
    u64& start = starts[random() % used];
    pcilend_range_free(&range, start, 1 << 14);
    benchmark::DoNotOptimize(pcilend_range_alloc(&range, 1 << 14, 1 << 14, &start));
  }
}
BENCHMARK(RangeAllocFree)->Arg(8)->Arg(64)->Arg(512)->ArgName("used");

// The same with std::map: first fit in the ranges in use, by start.
void RangeByStdMap(benchmark::State& state) {
  const u32 used = static_cast<u32>(state.range(0));
  std::map<u64, u64> ranges;
  const auto alloc = [&ranges](u64 size) {
    u64 at = 0;
    for (const auto& [start, length] : ranges) {
      if (start - at >= size) break;
      at = start + length;
    }
    ranges.emplace(at, size);
    return at;
  };
  std::vector<u64> starts(used);
  for (u64& start : starts) start = alloc(1 << 14);
  std::minstd_rand random(1);
  for (auto _ : state) {
    u64& start = starts[random() % used];
    ranges.erase(start);
    start = alloc(1 << 14);
    benchmark::DoNotOptimize(start);
  }
}
BENCHMARK(RangeByStdMap)->Arg(8)->Arg(64)->Arg(512)->ArgName("used");

void VconfigRead(benchmark::State& state) {
  const snapshots::Snapshot snapshot = snapshots::All().front();
  auto config = std::make_unique<pcilend_vconfig>();
  pcilend_vconfig_init(config.get(), snapshot.bytes.data(), snapshot.length, snapshot.bar.data());
  u32 offset = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(pcilend_vconfig_read(config.get(), offset, 4));
    offset = (offset + 4) % 256;
  }
}
BENCHMARK(VconfigRead);

void VconfigWrite(benchmark::State& state) {
  const snapshots::Snapshot snapshot = snapshots::All().front();
  auto config = std::make_unique<pcilend_vconfig>();
  pcilend_vconfig_init(config.get(), snapshot.bytes.data(), snapshot.length, snapshot.bar.data());
  u32 value = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(pcilend_vconfig_write(config.get(), 4, 2, value++ & 6));
  }
}
BENCHMARK(VconfigWrite);

// A whole lease: borrowed, returned, fenced, reset.
void LeaseOfFourSteps(benchmark::State& state) {
  pcilend_lease lease = {};
  pcilend_lease_numbers numbers = {};
  pcilend_lease_result result;
  pcilend_lease_event event = {};
  const auto apply = [&](pcilend_lease_event_type type) {
    event.type = type;
    return pcilend_lease_apply(&lease, &event, &numbers, &result);
  };
  event.node = 8;
  event.boot = 1;
  event.lease_ms = PCILEND_LEASE_MS_DEFAULT;
  apply(PCILEND_LEASE_ADD);
  apply(PCILEND_LEASE_MAKE_AVAILABLE);
  apply(PCILEND_LEASE_RESET_OK);
  for (auto _ : state) {
    apply(PCILEND_LEASE_BORROW);
    event.lease = lease.number;
    apply(PCILEND_LEASE_RETURN);
    apply(PCILEND_LEASE_FENCED);
    if (apply(PCILEND_LEASE_RESET_OK) != 0) state.SkipWithError("the lease does not end");
    if (numbers.last > 4000000000) numbers.last = 0;
  }
}
BENCHMARK(LeaseOfFourSteps);

// A whole client of a shared function, beside that many others: from JOIN until it is over.
void ShareClient(benchmark::State& state) {
  share_world::World world;
  world.Manage();
  world.SetPolicy(share_world::Policy());
  const auto join = [&world] {
    world.Join(8, 1);
    const u32 lease = world.result().lease;
    world.Of(PCILEND_SHARE_MAPPED, lease);
    return lease;
  };
  for (int64_t other = 0; other < state.range(0); ++other) join();
  for (auto _ : state) {
    const u32 lease = join();
    world.Peer(PCILEND_SHARE_RETURN, 8, 1, lease);
    world.Of(PCILEND_SHARE_CLOSED, lease);
    world.Cleared(lease, world.Find(lease)->round);
    world.Of(PCILEND_SHARE_UNMAPPED, lease);
    if (world.Find(lease) != nullptr) state.SkipWithError("the client does not end");
  }
}
BENCHMARK(ShareClient)->Arg(0)->Arg(63)->ArgName("others");

}  // namespace
