// SPDX-License-Identifier: GPL-2.0-or-later
#include <fmt/ranges.h>

#include <ostream>

#include "two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kPage = 4096;
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
constexpr uint64_t kControlBytes = 5 * kPage;

// To the page at the ends of each range of the plan, where things are mapped first, and around the
// interrupts; what is memory is found to the page everywhere.
const std::vector<lab::SweepRange>& ranges() {
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

struct Reach {
  uint64_t control = 0;     // bytes of memory below kDmaEnd
  uint64_t interrupts = 0;  // bytes of the interrupt range
  uint64_t slots = 0;       // bytes of memory in guest slots
  uint64_t exports = 0;     // bytes of BARs in the export region
  std::vector<std::string> elsewhere;

  bool operator==(const Reach&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Reach& reach) {
  return out << fmt::format("control {:#x}, interrupts {:#x}, slots {:#x}, exports {:#x}{}{}",
                            reach.control, reach.interrupts, reach.slots, reach.exports,
                            reach.elsewhere.empty() ? "" : ", and ",
                            fmt::join(reach.elsewhere, ", "));
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
    else
      reach.elsewhere.push_back(
          fmt::format("{} at {:#x}+{:#x}", hit.target, hit.address, hit.length));
  }
  return reach;
}

uint64_t slot_bytes(const lab::Output& link_json) {
  const auto links = nlohmann::json::parse(link_json.out, nullptr, false);
  if (links.is_discarded()) return UINT64_MAX;
  return links.at("links").at(0).at("slot_bytes");
}

/*
 *   host1 (lender) <── reads all of it ── host2 (borrower)
 *   host1 (lender) ── reads all of it ──> host2 (borrower)
 *
 * At each stage of a lease each host reaches the other's control area, its interrupts, and what is
 * lent or leased: the borrower the BARs, the lender's drive the guest's memory. Not a page more.
 */
TEST_F(TwoHosts, APeerReachesWhatIsLentAndNoPageMore) {
  // Each probe that is refused is a fault of the adapter.
  expect_in_log("^DMAR: DRHD: handling fault status reg");
  expect_in_log(
      "^DMAR: \\[DMA Read NO_PASID\\] Request device \\[(0000:)?00:0[0-9a-f]\\.0\\] fault addr ");
  expect_stopped_accesses();
  const auto sweep = [&](const char* stage, uint64_t exports, uint64_t slots) {
    SCOPED_TRACE(stage);
    for (const int victim : {1, 2}) {
      const auto report = lab_->fabric().sweep(victim, 3 - victim, ranges());
      ASSERT_OK(report);
      Reach expected{kControlBytes, kMiB, victim == 2 ? slots : 0, victim == 1 ? exports : 0, {}};
      EXPECT_EQ(sorted(*report), expected) << lab::host_name(victim) << " is the victim";
      const auto links = lab_->host(victim).json("pcilend link --json");
      ASSERT_OK(links);
      EXPECT_EQ(links->at("links").at(0).at("export_bytes"), expected.exports);
      // Slots are reserved in units of 2 MiB, until QEMU lets go of the drive; what is not memory
      // in them did not answer.
      ASSERT_OK(lab_->host(victim).until("pcilend link --json", [&](const lab::Output& output) {
        const uint64_t reserved = slot_bytes(output);
        return expected.slots ? reserved >= expected.slots : reserved == 0;
      }));
      fmt::print(stderr, "{}: {} probes in {} s\n", stage, report->json.at("probes").dump(),
                 report->json.at("seconds").dump());
    }
  };

  ASSERT_OK(lender().run(fmt::format("pcilend connect {}", borrower().node())));
  sweep("connected", 0, 0);
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  sweep("available", 0, 0);

  const auto function = job().function_on(borrower());
  ASSERT_OK(function);
  uint64_t bars = 0;
  for (const auto& bar : function->at("bars")) bars += bar.at("size").get<uint64_t>();
  ASSERT_GT(bars, 0U);
  ASSERT_OK(borrower().run("pcilend borrow --frontend mdev " + job().id()));
  sweep("borrowed", bars, 0);
  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  ASSERT_OK(job().await_state(borrower(), "available"));
  sweep("returned", 0, 0);

  ASSERT_OK(job().start_guest());
  ASSERT_OK(job().await_guest_disk());
  const auto used = job().function_on(borrower());
  ASSERT_OK(used);
  const auto guest = used->at("guest_bytes").get<uint64_t>();
  EXPECT_GE(guest, 200 * kMiB) << "the guest has 256 MiB";
  EXPECT_LE(guest, 256 * kMiB);
  sweep("in use", bars, guest);
  EXPECT_OK(job().guest().run("dd if=/dev/nvme0n1 of=/dev/null bs=16k count=4 iflag=direct"));

  ASSERT_OK(lender().run("pcilend unavailable --force " + *lender().address(0)));
  ASSERT_OK(job().await_state(borrower(), "added"));
  sweep("revoked", 0, 0);
  EXPECT_OK(job().guest().run("true"));
  ASSERT_OK(job().guest().destroy());
}

}  // namespace
}  // namespace pcilend::scenarios
