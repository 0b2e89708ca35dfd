// SPDX-License-Identifier: GPL-2.0-or-later
// What a function reaches, and who reaches it, in the hands of a user of VFIO.
#include "scenarios/bare_metal/vfio_client.h"
#include "testing/swept.h"

namespace pcilend::scenarios {
namespace {

using nlohmann::json;

// What the IOMMUs of these hosts stop. A kernel says ten of those in 5 s, and those of a former
// scenario may have been among them: then it is done again.
void expect_to_be_told(const std::vector<const lab::Host*>& hosts,
                       const std::function<void()>& again) {
  EXPECT_OK(lab::eventually("the kernels say what their IOMMUs have stopped", lab::kPatience, [&] {
    if (std::ranges::all_of(hosts, [](const lab::Host* host) {
          return host->log().find("DMA Write NO_PASID") != std::string::npos;
        }))
      return true;
    again();
    return false;
  }));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ client: has it write to its memory, and all around that
 *
 * What the client has mapped is written to, and nothing else on either host.
 */
TEST_F(VfioClient, AFunctionReachesItsUsersMemoryAndNothingElse) {
  expect_in_log("^DMAR: DRHD: handling fault status reg");
  expect_in_log(
      "^DMAR: \\[DMA Write NO_PASID\\] Request device \\[(0000:)?00:(10|04)\\.0\\] fault ");
  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  uint64_t strays = 0;
  const auto run = [&](const char* command) {
    EXPECT_OK(lab_->fabric().counters(true));
    const auto said = borrower().json(client(command));
    EXPECT_OK(said);
    const auto counters = lab_->fabric().counters();
    EXPECT_OK(counters);
    if (!said || !counters) return lab::PathCounters();
    EXPECT_EQ(said->at("serials"), json({kSerial, kSerial}));
    strays = said->at("strays");
    return counters->path(1, 2);
  };
  const auto stayed = run("stay");
  ASSERT_EQ(strays, 0U);
  EXPECT_GT(stayed.memory.write_bytes, 8192U);
  const auto strayed = run("stray");
  ASSERT_GT(strays, 250U);
  // Each command that went astray has raised an interrupt, and written its completion of 16 bytes.
  // The lender's heartbeats are some bytes more, or less; a page would be too much.
  EXPECT_EQ(strayed.interrupt.writes, stayed.interrupt.writes + strays);
  EXPECT_LT(strayed.memory.write_bytes, stayed.memory.write_bytes + 16 * strays + 4096);
  // Near to its user's memory it is the borrower's IOMMU that stops it, elsewhere the lender's.
  EXPECT_GT(strayed.dropped_writes, 0U);
  EXPECT_EQ(strayed.bar.writes, strayed.dropped_writes);
  expect_to_be_told({&borrower(), &lender()}, [&] { (void)run("stray"); });
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ client by PCI address: its memory, and all around that
 */
TEST_F(VfioClient, ByItsPciAddressItReachesItsUsersMemoryAndNothingElse) {
  expect_in_log("^DMAR: DRHD: handling fault status reg");
  expect_in_log(
      "^DMAR: \\[DMA Write NO_PASID\\] Request device \\[(0000:)?00:(10|04)\\.0\\] fault ");
  ASSERT_NO_FATAL_FAILURE(share("nvme"));
  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + id_));
  uuid_ = "8004:01:00.0";
  const auto said = borrower().json(client("stray"));
  ASSERT_OK(said);
  EXPECT_EQ(said->at("serials"), json({kSerial, kSerial}));
  EXPECT_GT(said->at("strays").get<int>(), 250);
  // Within a granule it is the borrower's IOMMU that stops it, elsewhere the lender's.
  expect_to_be_told({&borrower(), &lender()}, [&] { EXPECT_OK(borrower().run(client("stray"))); });
  ASSERT_OK(borrower().run("pcilend return " + id_));
}

/*
 *   host1 (lender) <── reads all of it ── host2 (borrower)
 *   nvme ════════════════════════════════ client, with two pages of memory
 *   host1 (lender) ── reads all of it ──> host2 (borrower)
 */
TEST_F(VfioClient, APeerReachesWhatIsLentAndNoPageMore) {
  for (const char* fault : kSweepFaults) expect_in_log(fault);
  expect_stopped_accesses();
  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  const auto idle = function_on(borrower(), id_);
  ASSERT_OK(idle);
  expect_reach(*lab_, "not in use", bar_bytes(*idle), 0);
  std::optional<lab::Running> running;
  ASSERT_NO_FATAL_FAILURE(start_client("look", &running));
  const auto used = function_on(borrower(), id_);
  ASSERT_OK(used);
  EXPECT_EQ(used->at("guest_bytes"), 8192);
  expect_reach(*lab_, "in use", bar_bytes(*used), used->at("guest_bytes"));
  ASSERT_OK(lender().run("pcilend unavailable --force " + address_));
  ASSERT_NO_FATAL_FAILURE(expect_state(borrower(), "added"));
  ASSERT_OK(running->wait());
  expect_reach(*lab_, "revoked", 0, 0);
}

/*
 *   host1 (lender)                  host2 (borrower)
 *   xhci ══ messages ═════════════ a domain's: into the interrupt controller
 *   nvme ── message ── pcilend ══ relayed ══ another tenant's: it reaches none of that
 *
 * Interrupt remapping takes both for the adapter, so only one of them may reach it.
 */
TEST_F(VfioClient, AnotherTenantOfTheAdapterDoesNotReachItsInterrupts) {
  expect_in_log("^DMAR: DRHD: handling fault status reg");
  expect_in_log(
      "^DMAR: \\[DMA Write NO_PASID\\] Request device \\[(0000:)?00:10\\.0\\] fault addr 0xfe000");
  const auto relayed = [&](const lab::Host& host) {
    const auto function = function_on(host, id_);
    EXPECT_OK(function);
    return function && function->at("relayed") == true;
  };
  const auto messages = [&](const std::string& command) {
    EXPECT_OK(lab_->fabric().counters(true));
    EXPECT_OK(borrower().run(command));
    const auto counters = lab_->fabric().counters();
    EXPECT_OK(counters);
    return counters ? counters->path(1, 2).interrupt.writes : 0;
  };
  ASSERT_NO_FATAL_FAILURE(lend_to_a_domain("msix"));
  const std::string first = address_;
  const std::string first_id = id_;
  EXPECT_FALSE(relayed(borrower()));
  const auto place = place_on_borrower();
  ASSERT_OK(place);

  ASSERT_NO_FATAL_FAILURE(lend("nvme"));
  EXPECT_TRUE(relayed(borrower()));
  EXPECT_TRUE(relayed(lender()));
  EXPECT_OK(borrower().run("dmesg | grep 'another tenant has functions over 0000:00:04.0'"));
  // Of faults the kernel logs ten in 5 s; whatever ran before may have had those.
  EXPECT_OK(lab::eventually("the log tells that it was stopped", lab::kPatience, [&] {
    EXPECT_EQ(messages(client("write-interrupts")), 0U);
    return lender().log().find("fault addr 0xfe000") != std::string::npos;
  }));
  EXPECT_GT(messages(fmt::format("{} {} msix", kClient, *place)), 0U);

  ASSERT_OK(borrower().run("pcilend return --force " + first_id));
  ASSERT_OK(lender().run(fmt::format("pcilend unavailable {0} && pcilend remove {0}", first)));
  EXPECT_TRUE(relayed(borrower())) << "until it is borrowed anew";
  ASSERT_OK(borrower().run(remove_device(uuid_)));
  ASSERT_OK(borrower().run(make_device(uuid_)));
  EXPECT_FALSE(relayed(borrower()));
  EXPECT_GT(messages(client("nvme")), 0U);
}

/*
 *   host1 (lender)                      host2 (borrower)
 *   nvme ══════════════════════════════ client, stopped (SIGSTOP)
 *   unavailable --force                 the drive is lost to it, and it can't let go
 *   xhci ══════════════════════════════ another client: at another place of the window
 *                                       the first one goes on: what it reads is all-ones
 *
 * Meanwhile each host reads all that it reaches of the other one: host2 the xhci alone.
 */
TEST_F(VfioClient, AStoppedUserReachesNothingOfTheNextLease) {
  for (const char* fault : kSweepFaults) expect_in_log(fault);
  expect_stopped_accesses();
  ASSERT_NO_FATAL_FAILURE(share("nvme"));
  const std::string first = address_;
  const std::string first_id = id_;
  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + id_));
  uuid_ = "8004:01:00.0";
  std::optional<lab::Running> stopped;
  ASSERT_NO_FATAL_FAILURE(start_client("look", &stopped));
  ASSERT_OK(borrower().run("pkill -STOP -x vfio-client"));
  ASSERT_OK(lender().run("pcilend unavailable --force " + first));
  EXPECT_OK(
      borrower().until(fmt::format("pcilend list -n -o id,frontend | grep -q '{}.*vfio' && "
                                   "dmesg | grep -q 'its user is asked to let go'",
                                   first_id)));
  const auto busy = borrower().exec("pcilend borrow " + first_id);
  ASSERT_OK(busy);
  EXPECT_NE(busy->code, 0) << "it is still held";

  const auto bar_of = [&](const std::string& place) {
    return borrower().run(fmt::format("head -n 1 /sys/bus/pci/devices/{}/resource", place));
  };
  const auto first_bar = bar_of("8004:01:00.0");
  ASSERT_OK(first_bar);
  ASSERT_NO_FATAL_FAILURE(share("msix"));
  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + id_));
  const auto second = borrower().json("pcilend show --json " + id_);
  ASSERT_OK(second);
  const auto second_bar = bar_of(second->at("functions").at(0).at("virtual_bdf"));
  ASSERT_OK(second_bar);
  EXPECT_NE(first_bar->substr(0, 18), second_bar->substr(0, 18));

  const auto reached = [&](int victim) {
    const auto report = lab_->fabric().sweep(victim, 3 - victim, sweep_ranges());
    EXPECT_OK(report);
    return report ? sorted(*report) : Reach();
  };
  const uint64_t xhci = bar_bytes(second->at("functions").at(0));
  EXPECT_EQ(reached(1), (Reach{kControlBytes, kInterruptBytes, 0, xhci, 0, 0, {}}));
  // VFIO has mapped its memory until the first client ends, and nothing of host1 may write there.
  constexpr uint64_t kItsOwn = 8192;
  EXPECT_EQ(reached(2), (Reach{kControlBytes, kInterruptBytes, kItsOwn, 0, 0, 0, {}}));

  ASSERT_OK(borrower().run("pkill -CONT -x vfio-client"));
  const auto ended = stopped->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->code, 0) << ended->err;
  EXPECT_NE(ended->out.find("\"mapped\":4294967295"), std::string::npos) << ended->out;
  EXPECT_OK(borrower().until("[ ! -e /sys/bus/pci/devices/8004:01:00.0 ]"));
  ASSERT_OK(borrower().run("pcilend return " + id_));
  ASSERT_OK(lender().exec("pcilend remove " + first));
}

}  // namespace
}  // namespace pcilend::scenarios
