// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/swept.h"

#include <fmt/ranges.h>

#include "testing/asserts.h"
#include "testing/option_rom.h"

namespace pcilend::scenarios {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kGiB = 1 << 30;

// The plan for the lab's adapters (docs/architecture.md, "One aperture each way").
constexpr uint64_t kDmaEnd = 2 * kGiB;
constexpr uint64_t kInterrupts = 0xfee00000;
constexpr uint64_t k4GiB = 4 * kGiB;
constexpr uint64_t kTable = 64 * kMiB;  // a Switchtec's BAR that begins with its look-up table

// Addresses of what both windows have, or, of a Switchtec, the one that is large enough.
struct Places {
  explicit Places(const SweepPlan& plan)
      : together(plan.exports == plan.memory),
        exports(together ? plan.exports_offset : uint64_t{1} << 40),
        slots(together ? plan.exports_offset + plan.exports_bytes : 8 * kGiB) {}

  bool together;
  uint64_t exports;
  uint64_t slots;
};

uint64_t slot_bytes(const lab::Output& link_json) {
  const auto links = nlohmann::json::parse(link_json.out, nullptr, false);
  if (links.is_discarded()) return UINT64_MAX;
  return links.at("links").at(0).at("slot_bytes");
}

}  // namespace

std::vector<lab::SweepRange> sweep_ranges(const SweepPlan& plan) {
  const Places places(plan);
  const uint64_t end = plan.exports_offset + plan.exports_bytes;
  std::vector<lab::SweepRange> ranges = {
      {plan.memory, 0, 4 * kMiB},
      {plan.memory, kDmaEnd - 16 * kMiB, 17 * kMiB},
      {plan.memory, kInterrupts - kMiB, 3 * kMiB},
      {plan.memory, places.slots - kMiB, 9 * kMiB},
      {plan.memory, plan.memory_bytes - kMiB, kMiB},
      {plan.exports, plan.exports_offset, 16 * kMiB},
      {plan.exports, end - kMiB, kMiB},
      {plan.memory, 0, plan.memory_bytes, 4 * kMiB},
  };
  if (places.together)
    ranges.push_back({1 - plan.memory, 0, kTable});
  else
    ranges.push_back({plan.exports, 0, end, 4 * kMiB});
  return ranges;
}

std::ostream& operator<<(std::ostream& out, const Reach& reach) {
  return out << fmt::format(
             "control {:#x}, interrupts {:#x}, slots {:#x}, exports {:#x}, roms {:#x}, "
             "shared {:#x}{}{}",
             reach.control, reach.interrupts, reach.slots, reach.exports, reach.roms, reach.shared,
             reach.elsewhere.empty() ? "" : ", and ", fmt::join(reach.elsewhere, ", "));
}

Reach sorted(const lab::SweepReport& report, const SweepPlan& plan) {
  const Places places(plan);
  Reach reach;
  uint64_t shared = 0;  // where the driver's memory is
  for (const lab::SweepHit& hit : report.answered) {
    const uint64_t end = hit.address + hit.length;
    const bool in_memory = hit.window == plan.memory;
    const bool in_exports = hit.window == plan.exports && hit.address >= places.exports &&
                            end <= places.exports + plan.exports_bytes;
    if (places.together && !in_memory && hit.target == "memory") {
      reach.shared += hit.length;
      shared = hit.address;
    } else if (in_memory && hit.target == "memory" && end <= kDmaEnd) {
      reach.control += hit.length;
    } else if (in_memory && hit.target == "interrupt" && hit.address >= kInterrupts &&
               end <= kInterrupts + kMiB) {
      reach.interrupts += hit.length;
    } else if (in_exports && hit.target == "bar") {
      reach.exports += hit.length;
    } else if (in_exports && hit.target == "memory") {
      reach.roms += hit.length;
    } else if (in_memory && hit.target == "memory" && hit.address >= places.slots) {
      reach.slots += hit.length;
    } else if (in_memory && shared != 0 && hit.address == shared && end <= k4GiB) {
      continue;  // the same, as it has an address in that window, too
    } else {
      reach.elsewhere.push_back(
          fmt::format("{} at {:#x}+{:#x}", hit.target, hit.address, hit.length));
    }
  }
  return reach;
}

uint64_t bar_bytes(const nlohmann::json& function) {
  uint64_t bytes = 0;
  for (const auto& bar : function.at("bars"))
    if (bar.at("index") != 6) bytes += bar.at("size").get<uint64_t>();
  return bytes;
}

void expect_reach(lab::Lab& lab, const char* stage, uint64_t exports, uint64_t slots,
                  const SweepPlan& plan) {
  const uint64_t roms = exports ? kRomBarBytes : 0;
  SCOPED_TRACE(stage);
  for (const int victim : {1, 2}) {
    const auto report = lab.fabric().sweep(victim, 3 - victim, sweep_ranges(plan));
    ASSERT_OK(report);
    const bool lends = victim == 1;
    const Reach expected{
        kControlBytes,     kMiB, lends ? 0 : slots, lends ? exports : 0, lends ? roms : 0,
        plan.shared_bytes, {}};
    EXPECT_EQ(sorted(*report, plan), expected) << lab::host_name(victim) << " is the victim";
    const auto links = lab.host(victim).json("pcilend link --json");
    ASSERT_OK(links);
    EXPECT_EQ(links->at("links").at(0).at("export_bytes"), expected.exports + expected.roms);
    // Slots are reserved in units of 2 MiB, until QEMU lets go of the drive; what is not memory
    // in them did not answer.
    ASSERT_OK(lab.host(victim).until("pcilend link --json", [&](const lab::Output& output) {
      const uint64_t reserved = slot_bytes(output);
      return expected.slots ? reserved >= expected.slots : reserved == 0;
    }));
    fmt::print(stderr, "{}: {} probes in {} s\n", stage, report->json.at("probes").dump(),
               report->json.at("seconds").dump());
  }
}

}  // namespace pcilend::scenarios
