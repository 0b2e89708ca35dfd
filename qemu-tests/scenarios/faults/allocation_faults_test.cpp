// SPDX-License-Identifier: GPL-2.0-or-later
// Scenarios for the debug kernel only (make test-debug).
#include "scenarios/faults/allocation_faults.h"

#include <algorithm>

#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

// The hosts are those of TwoHosts, started anew.
class DebugKernel : public TwoHosts {};

// More allocations than any command makes.
constexpr int kMost = 400;

// What a host knows of functions: "40001 available", a line each.
Result<std::string> states(const lab::Host& host) {
  const auto list = host.json("pcilend list --json");
  if (!list) return tl::unexpected(list.error());
  std::string text;
  for (const auto& function : list->at("functions"))
    text += fmt::format("{} {}\n", function.at("id").get<std::string>(),
                        function.at("state").get<std::string>());
  return text;
}

// Fails each allocation of `program` in turn, until it runs without meeting one. A failure is one
// line and changes nothing, or says that it did; what was done in spite of it is undone.
void fail_each(const lab::Host& host, const AllocationFaults& faults, const std::string& program,
               const std::string& undo) {
  const auto before = states(host);
  ASSERT_OK(before);
  for (int nth = 1; nth <= kMost; ++nth) {
    const auto output = faults.run(program, nth);
    ASSERT_OK(output);
    const auto failed = faults.failed();
    ASSERT_OK(failed);
    if (*failed == 0) {
      EXPECT_EQ(output->code, 0) << program << ": " << output->err;
      EXPECT_GT(nth, 1) << program << " allocates nothing";
      return;
    }
    if (output->code != 0) {
      EXPECT_EQ(std::count(output->err.begin(), output->err.end(), '\n'), 1) << output->err;
    }
    if (output->code == 0 || output->err.find("it is done") != std::string::npos)
      ASSERT_OK(host.run(undo));
    const auto after = states(host);
    ASSERT_OK(after);
    EXPECT_EQ(*after, *before) << program << " when allocation " << nth << " fails";
  }
  FAIL() << program << " makes more than " << kMost << " allocations";
}

// While it lives the host has no nvme driver: its probe and removal are not ours, and on 6.12 wait
// for themselves for ever when they fail at the wrong place (nvme_init_subsystem()).
class WithoutDriver {
 public:
  explicit WithoutDriver(const lab::Host& host) : host_(host) {
    EXPECT_OK(
        host_.run("mkdir -p /etc/modprobe.d && "
                  "echo 'install nvme /bin/true' >/etc/modprobe.d/faults.conf && "
                  "modprobe -r nvme"));
  }
  WithoutDriver(const WithoutDriver&) = delete;
  WithoutDriver& operator=(const WithoutDriver&) = delete;
  ~WithoutDriver() { EXPECT_OK(host_.run("rm /etc/modprobe.d/faults.conf && modprobe nvme")); }

 private:
  const lab::Host& host_;
};

// Since the scenario began no trace was written but those of vmalloc, which says so when it has no
// memory.
void expect_traces_of_vmalloc_only(const lab::Host& host) {
  const auto others = host.run(
      "dmesg | awk '/pcilend-lab: mark/ { n = v = 0 } /vmalloc error:/ { v = 1 } "
      "/Call Trace:/ { n += !v; v = 0 } END { printf \"%d\", n }'");
  ASSERT_OK(others);
  EXPECT_EQ(*others, "0") << "traces";
}

// A guest starts with the function and reads from it: what failed before left nothing behind.
void use_in_guest(MainJob& job) {
  ASSERT_OK(job.see_available());
  ASSERT_OK(job.start_guest());
  ASSERT_OK(job.await_guest_disk());
  ASSERT_OK(job.guest().run("dd if=/dev/nvme0n1 of=/dev/null bs=16k count=4 iflag=direct"));
  ASSERT_OK(job.guest().shut_down());
}

/*
 *   host1 (lender)                             host2 (borrower)
 *   connect, add, remove: each with each of    uses it, in a guest, afterwards
 *   its allocations failing once, then without
 */
TEST_F(DebugKernel, ConnectAndAddSurviveWithoutMemory) {
  const std::string address = *lender().address(0);
  const std::string peer = std::to_string(borrower().node());
  {
    const auto faults = AllocationFaults::in(lender(), "pcilend");
    ASSERT_OK(faults);
    fail_each(lender(), *faults, "pcilend connect " + peer, "pcilend disconnect " + peer);
    fail_each(lender(), *faults, "pcilend add " + address, "pcilend remove " + address);
    fail_each(lender(), *faults, "pcilend remove " + address, "pcilend add " + address);
  }
  ASSERT_OK(job().lend());
  use_in_guest(job());
}

/*
 *   host1 (lender)                             host2 (borrower)
 *   available, unavailable: each with each of  uses it, in a guest, afterwards
 *   its allocations failing once, then without
 */
TEST_F(DebugKernel, AvailableSurvivesWithoutMemory) {
  const std::string address = *lender().address(0);
  ASSERT_OK(lender().run("pcilend connect " + std::to_string(borrower().node())));
  ASSERT_OK(lender().run("pcilend add " + address));
  // It can't fail, says Linux, and warns when it does.
  expect_in_log("WARNING: CPU: .* at __iommu_release_dma_ownership");
  expect_in_log("Call Trace:");
  {
    const WithoutDriver none(lender());
    const auto faults = AllocationFaults::in(lender(), "pcilend");
    ASSERT_OK(faults);
    fail_each(lender(), *faults, "pcilend available " + address, "pcilend unavailable " + address);
    fail_each(lender(), *faults, "pcilend unavailable " + address, "pcilend available " + address);
  }
  ASSERT_OK(lender().run("pcilend remove " + address));
  ASSERT_OK(job().lend());
  use_in_guest(job());
}

/*
 *   host1 (lender)                             host2 (borrower)
 *   lends                                      borrow, return: each with each of its allocations
 *                                              failing once, then without; then a guest uses it
 */
TEST_F(DebugKernel, BorrowSurvivesWithoutMemory) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  {
    const WithoutDriver none(borrower());
    // The PCI core itself does not survive it: it leaks a bridge's windows, puts the bridge twice,
    // and warns of a device that it can't add (6.12.107: pci_register_host_bridge(),
    // pci_device_add()).
    const auto faults =
        AllocationFaults::in(borrower(), "pcilend", "pci_scan_slot", "pci_create_root_bus");
    ASSERT_OK(faults);
    fail_each(borrower(), *faults, "pcilend borrow " + job().id(), "pcilend return " + job().id());
    fail_each(borrower(), *faults, "pcilend return " + job().id(), "pcilend borrow " + job().id());
  }
  use_in_guest(job());
}

/*
 *   host1 (lender)          host2 (borrower)
 *   pcilend.ko ════════════ pcilend.ko, pcilend_mdev.ko: allocations fail anywhere, in workers
 *                           too, while a function is borrowed, used by a guest, and returned
 */
TEST_F(DebugKernel, LendingSurvivesWithoutMemory) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  const struct {
    lab::Host& host;
    const char* module;
    bool guest;
  } places[] = {
      {lender(), "pcilend", false},
      {borrower(), "pcilend", false},
      {borrower(), "pcilend_mdev", true},
  };
  // VFIO asks for 13 KB for a device, and without pages turns to vmalloc.
  expect_in_log("Call Trace:");
  int all = 0;
  for (const auto& place : places) {
    const auto faults = AllocationFaults::in(place.host, place.module);
    ASSERT_OK(faults);
    for (const int nth : {1, 2, 3, 5, 8, 13, 21}) {
      ASSERT_OK(faults->every(nth, 1));
      if (place.guest) {
        auto guest = job().another_guest(fmt::format("short{}", nth));
        ASSERT_OK(guest);
        ASSERT_OK(guest->define());
        if (guest->start()) ASSERT_OK(guest->destroy());
        ASSERT_OK(guest->undefine());
      } else {
        const auto borrowed = borrower().exec("pcilend borrow " + job().id());
        ASSERT_OK(borrowed);
        if (borrowed->code == 0) ASSERT_OK(borrower().exec("pcilend return " + job().id()));
      }
      const auto failed = faults->failed();
      ASSERT_OK(failed);
      all += *failed;
      // What a failure interrupted is finished or undone, without anyone's help.
      const auto kept = borrower().exec("pcilend return --force " + job().id());
      ASSERT_OK(kept);
      ASSERT_OK(job().await_state(borrower(), "available"));
      ASSERT_OK(job().await_state(lender(), "available"));
    }
  }
  EXPECT_GT(all, 10) << "allocations that failed";
  ASSERT_OK(job().start_guest());
  ASSERT_OK(job().await_guest_disk());
  ASSERT_OK(job().guest().run("dd if=/dev/nvme0n1 of=/dev/null bs=16k count=4 iflag=direct"));
  ASSERT_OK(job().guest().shut_down());
  expect_traces_of_vmalloc_only(lender());
  expect_traces_of_vmalloc_only(borrower());
}

}  // namespace
}  // namespace pcilend::scenarios
