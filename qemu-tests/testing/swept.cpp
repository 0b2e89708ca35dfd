// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/swept.h"

#include <fmt/ranges.h>

#include "testing/asserts.h"
#include "testing/option_rom.h"

namespace pcilend::scenarios {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kGiB = 1 << 30;

// The plan for the lab's adapters (docs/architecture.md, "One aperture each way"), and the sizes of
// their windows.
constexpr uint64_t kDmaEnd = 2 * kGiB;
constexpr uint64_t kInterrupts = 0xfee00000;
constexpr uint64_t kSlots = 8 * kGiB;
constexpr uint64_t kExports = uint64_t{1} << 40;
constexpr uint64_t kWindow0 = 64 * kGiB;
constexpr uint64_t kWindow1 = 16 * kGiB;

uint64_t slot_bytes(const lab::Output& link_json) {
  const auto links = nlohmann::json::parse(link_json.out, nullptr, false);
  if (links.is_discarded()) return UINT64_MAX;
  return links.at("links").at(0).at("slot_bytes");
}

}  // namespace

const std::vector<lab::SweepRange>& sweep_ranges() {
  static const std::vector<lab::SweepRange> list = {
      {0, 0, 4 * kMiB},
      {0, kDmaEnd - 16 * kMiB, 17 * kMiB},
      {0, kInterrupts - kMiB, 3 * kMiB},
      {0, kSlots - kMiB, 9 * kMiB},
      {0, kWindow0 - kMiB, kMiB},
      {1, 0, 16 * kMiB},
      {1, kWindow1 - kMiB, kMiB},
      {0, 0, kWindow0, 4 * kMiB},
      {1, 0, kWindow1, 4 * kMiB},
  };
  return list;
}

std::ostream& operator<<(std::ostream& out, const Reach& reach) {
  return out << fmt::format(
             "control {:#x}, interrupts {:#x}, slots {:#x}, exports {:#x}, roms {:#x}{}{}",
             reach.control, reach.interrupts, reach.slots, reach.exports, reach.roms,
             reach.elsewhere.empty() ? "" : ", and ", fmt::join(reach.elsewhere, ", "));
}

Reach sorted(const lab::SweepReport& report) {
  Reach reach;
  for (const lab::SweepHit& hit : report.answered) {
    const uint64_t end = hit.address + hit.length;
    if (hit.window == 0 && hit.target == "memory" && end <= kDmaEnd)
      reach.control += hit.length;
    else if (hit.window == 0 && hit.target == "interrupt" && hit.address >= kInterrupts &&
             end <= kInterrupts + kMiB)
      reach.interrupts += hit.length;
    else if (hit.window == 0 && hit.target == "memory" && hit.address >= kSlots)
      reach.slots += hit.length;
    else if (hit.window == 1 && hit.target == "bar" && hit.address >= kExports)
      reach.exports += hit.length;
    else if (hit.window == 1 && hit.target == "memory" && hit.address >= kExports)
      reach.roms += hit.length;
    else
      reach.elsewhere.push_back(
          fmt::format("{} at {:#x}+{:#x}", hit.target, hit.address, hit.length));
  }
  return reach;
}

uint64_t bar_bytes(const nlohmann::json& function) {
  uint64_t bytes = 0;
  for (const auto& bar : function.at("bars"))
    if (bar.at("index") != 6) bytes += bar.at("size").get<uint64_t>();
  return bytes;
}

void expect_reach(lab::Lab& lab, const char* stage, uint64_t exports, uint64_t slots) {
  const uint64_t roms = exports ? kRomBarBytes : 0;
  SCOPED_TRACE(stage);
  for (const int victim : {1, 2}) {
    const auto report = lab.fabric().sweep(victim, 3 - victim, sweep_ranges());
    ASSERT_OK(report);
    const bool lends = victim == 1;
    const Reach expected{kControlBytes,    kMiB, lends ? 0 : slots, lends ? exports : 0,
                         lends ? roms : 0, {}};
    EXPECT_EQ(sorted(*report), expected) << lab::host_name(victim) << " is the victim";
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
