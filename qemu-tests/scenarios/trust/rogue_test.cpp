// SPDX-License-Identifier: GPL-2.0-or-later
// A node that speaks the wire protocol badly. Each attack must end in a line of the victim's log
// and in refusals, and cost nobody else anything.
#include <gmock/gmock.h>

#include <future>

#include "main_job/admin_steps.h"
#include "main_job/main_job.h"
#include "testing/asserts.h"
#include "testing/suite_lab.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kRogueNode = 12;
// What a command or I/O may take longer than four times what it takes without a flood: the rogue
// and another suite have the same CPUs.
constexpr auto kBusy = 10s;

/*
 *            rogue (node 12, a program)
 *           ╱ borrows          ╲ lends
 *   host1 (node 4)             host2 (node 8)
 *   nvme, nvme ═══════════════ guest: does I/O on host1's first drive all the time
 */
class RogueNode : public testing::Test {
 protected:
  static void SetUpTestSuite() { start("rogue-scenarios", lab::Adapter::Amd); }
  static void start(const std::string& name, lab::Adapter adapter, lab::Options options = {},
                    int more_drives = 0) {
    options.name = name;
    options.adapters = {adapter};
    options.rogue = true;
    ASSERT_OK(options.add_device("host1:nvme,serial=honest,drive-size=16M"));
    ASSERT_OK(options.add_device("host1:nvme,serial=attacked,drive-size=16M"));
    ASSERT_OK(options.add_device("host1:nec-usb-xhci,id=both,msi=on,msix=on,root-port=on"));
    for (int i = 0; i < more_drives; ++i)
      ASSERT_OK(options.add_device(fmt::format("host1:nvme,serial=more{},drive-size=1M", i)));
    ASSERT_OK(start_lab(options, lab_));
    job_.emplace(lender(), borrower(), *lender().address(0), "guest");
    ASSERT_OK(job_->lend());
    ASSERT_OK(job_->see_available());
    ASSERT_OK(job_->start_guest());
    ASSERT_OK(job_->await_guest_disk());
    const auto io = job_->guest().exec(MainJob::kUseDisk);
    ASSERT_OK(io);
    ASSERT_EQ(io->code, 0) << io->err;
    quiet_io_ = io->time;
    const std::string attacked = *lender().address(1);
    ASSERT_OK(lender().run(fmt::format("pcilend connect --force {}", kRogueNode)));
    ASSERT_OK(offer(lender(), attacked));
  }
  static void TearDownTestSuite() {
    if (lab_) {
      EXPECT_OK(job_->clean_up());
      for (const auto* host : {&lender(), &borrower()}) {
        for (const json& link : links(*host)) {
          EXPECT_EQ(link.at("export_bytes"), 0) << host->name();
          EXPECT_EQ(link.at("slot_bytes"), 0) << host->name();
        }
      }
    }
    job_.reset();
    EXPECT_OK(end_lab(lab_));
  }

  void SetUp() override {
    ASSERT_TRUE(lab_ && job_) << "the lab did not start";
    ASSERT_OK(lender().mark_log());
    ASSERT_OK(borrower().mark_log());
    before_ = {honest_link(lender()), honest_link(borrower())};
    for (const int victim : {1, 2}) join(victim);
  }

  void TearDown() override {
    if (!lab_ || !job_) return;
    for (const int victim : {1, 2}) act("leave", victim);
    for (const auto* host : {&lender(), &borrower()}) EXPECT_OK(host->check_log());
    EXPECT_OK(job_->guest().run(MainJob::kUseDisk));
    const std::array after{honest_link(lender()), honest_link(borrower())};
    for (size_t i = 0; i < after.size(); i++) {
      EXPECT_EQ(after[i].at("state"), "up");
      EXPECT_EQ(after[i].at("bad_messages"), before_[i].at("bad_messages"));
      EXPECT_EQ(after[i].at("timeouts"), before_[i].at("timeouts"));
      EXPECT_EQ(after[i].at("export_bytes"), before_[i].at("export_bytes"));
      EXPECT_EQ(after[i].at("slot_bytes"), before_[i].at("slot_bytes"));
    }
    EXPECT_EQ(rogue_link(lender()).at("export_bytes"), 0) << "what the rogue borrowed is fenced";
    EXPECT_EQ(rogue_link(borrower()).at("slot_bytes"), 0);
  }

  static lab::Host& lender() { return lab_->host(1); }
  static lab::Host& borrower() { return lab_->host(2); }

  static json links(const lab::Host& host) {
    const auto list = host.json("pcilend link --json");
    EXPECT_OK(list);
    return list ? list->at("links") : json::array();
  }
  // The link to the other host, and to the rogue.
  static json honest_link(const lab::Host& host) { return links(host).at(0); }
  static json rogue_link(const lab::Host& host) { return links(host).at(1); }

  // The rogue's report; the test fails if the attack can't be made.
  static json act(const std::string& attack, int victim, std::chrono::milliseconds time = 1s,
                  uint32_t value = 0) {
    SCOPED_TRACE(attack);
    const auto report = lab_->rogue().attack(attack, victim, time, value);
    EXPECT_OK(report);
    return report.value_or(json::object());
  }
  static void join(int victim) { EXPECT_EQ(act("join", victim)["numbers"]["up"], 1); }
  static void expect_refused(const json& report, const std::string& attack) {
    EXPECT_THAT(report.value("granted", json::array({"?"})), IsEmpty()) << attack << report;
    EXPECT_EQ(report.value("unanswered", 1), 0) << attack << report;
  }

  // An attack that goes on for a while, during which the victim answers and the guest works. Not
  // both at once: in the lab a lender stands still while its drive reads guest memory.
  static void flood(const std::string& attack, int victim) {
    SCOPED_TRACE(attack);
    const auto host = &lab_->host(victim);
    const auto quiet = host->exec("pcilend list");
    ASSERT_OK(quiet);
    const auto start = std::chrono::steady_clock::now();
    const auto report = std::async(std::launch::async, [&] { return act(attack, victim, 3s); });
    do {
      const auto list = host->exec("pcilend list");
      ASSERT_OK(list);
      EXPECT_EQ(list->code, 0) << attack << ": " << list->err;
      EXPECT_LT(list->time, kBusy + 4 * quiet->time) << attack;
    } while (std::chrono::steady_clock::now() - start < 1s);
    const auto io = job_->guest().exec(MainJob::kUseDisk);
    ASSERT_OK(io);
    EXPECT_EQ(io->code, 0) << attack << ": " << io->out << io->err;
    EXPECT_LT(io->time, kBusy + 4 * quiet_io_) << attack;
    fmt::print(stderr, "{}: I/O of others took {} ms, {} ms without\n", attack, io->time.count(),
               quiet_io_.count());
    report.wait();
    join(victim);
  }

  // Of any adapter.
  static void expect_wrong_states_refused() {
    for (const char* attack : {"no-lease", "foreign-lease", "stale-lease"})
      expect_refused(act(attack, 1), attack);
  }
  static void expect_bad_messages_counted(std::initializer_list<const char*> attacks) {
    for (const char* attack : attacks) {
      const auto before = rogue_link(lender()).at("bad_messages").get<uint64_t>();
      act(attack, 1);
      EXPECT_GT(rogue_link(lender()).at("bad_messages").get<uint64_t>(), before) << attack;
    }
    EXPECT_TRUE(logged(lender(), fmt::format("node {} sent a bad control message", kRogueNode)));
  }
  static void expect_a_lease_to_give_its_own_only() {
    EXPECT_NE(act("borrow", 1)["numbers"]["lease"], 0);
    expect_refused(act("bad-ranges", 1), "bad-ranges");
    EXPECT_LE(act("exhaust-maps", 1)["numbers"]["mapped"], 256);
    EXPECT_NE(act("small-pages", 1, 1s, 16)["numbers"]["status"], 0) << "4 million pages of 4 KiB";
    expect_refused(act("config-writes", 1), "config-writes");
    EXPECT_EQ(act("return", 1)["numbers"]["status"], 0);
  }

  static bool logged(const lab::Host& host, const std::string& text) {
    return host.log().find(text) != std::string::npos;
  }

  static std::optional<lab::Lab> lab_;
  static std::optional<MainJob> job_;
  static std::chrono::milliseconds quiet_io_;

 private:
  std::array<json, 2> before_;
};

std::optional<lab::Lab> RogueNode::lab_;
std::optional<MainJob> RogueNode::job_;
std::chrono::milliseconds RogueNode::quiet_io_;

TEST_F(RogueNode, RequestsInAWrongStateAreRefused) {
  expect_wrong_states_refused();
}

/*
 *   host1: somebody holds the device lock of its drive ═══ rogue: has no lease on it, and is
 * refused for as long as that takes                              meanwhile
 */
TEST_F(RogueNode, WhoHasNoLeaseIsRefusedWithoutAWait) {
  ASSERT_OK(lender().run("modprobe pcilend_hold device=" + *lender().address(1)));
  const auto report = lab_->rogue().attack("no-lease", 1);
  EXPECT_OK(lender().run("rmmod pcilend_hold"));
  ASSERT_OK(report);
  expect_refused(*report, "no-lease");
  EXPECT_EQ(report->at("numbers").value("no-answer", 0), 0) << *report;
}

TEST_F(RogueNode, PolledRequestsNeedALeaseToo) {
  const json report = act("flood-polled", 1);
  expect_refused(report, "flood-polled");
  EXPECT_EQ(report["numbers"].value("no-answer", 0), 0) << report;
  ASSERT_NO_FATAL_FAILURE(flood("flood-polled", 1));
}

TEST_F(RogueNode, ReplaysAndNamesOfOthersAreCountedAndLogged) {
  expect_bad_messages_counted({"replay", "foreign-notices", "twins", "flood-garbage"});
}

TEST_F(RogueNode, ALeaseGivesItsOwnRangesAndRegistersOnly) {
  expect_a_lease_to_give_its_own_only();
}

// It has MSI-X, so nobody needs its MSI.
TEST_F(RogueNode, AFunctionsMsiIsNotWrittenBesideItsMsix) {
  const auto address = lender().address("both");
  ASSERT_OK(address);
  const auto function = offer(lender(), *address);
  ASSERT_OK(function);
  const auto id = std::stoul(function->at("id").get<std::string>(), nullptr, 16);
  ASSERT_NE(act("borrow", 1, 1s, static_cast<uint32_t>(id))["numbers"]["lease"], 0);
  const json report = act("config-writes", 1);
  expect_refused(report, "config-writes");
  EXPECT_EQ(report.dump().find("accepted-"), std::string::npos) << report;
  EXPECT_EQ(act("return", 1)["numbers"]["status"], 0);
  ASSERT_OK(lender().until("pcilend unavailable " + *address));
  EXPECT_OK(lender().run("pcilend remove " + *address));
}

TEST_F(RogueNode, FloodsSlowNobodyDown) {
  for (const char* attack : {"flood-requests", "flood-garbage", "storm"}) flood(attack, 1);
  flood("flood-notices", 2);
}

TEST_F(RogueNode, NorDoOtherFloods) {
  for (const char* attack : {"flood-deaf", "jump-head", "jump-tail", "wild-heart", "scribble-area",
                             "scribble-scratchpads", "reboots", "bounce"})
    flood(attack, 1);
  for (const char* attack : {"flood-intx", "reborn", "flip-connected"}) flood(attack, 2);
}

// Of its own function it may switch the legacy interrupt on and off as it likes: that costs it its
// own messages, and ends with the lease.
TEST_F(RogueNode, LegacyInterruptsAreNobodyElses) {
  EXPECT_THAT(act("flood-intx", 1).value("granted", json::array({"?"})), IsEmpty());
  EXPECT_NE(act("borrow", 1)["numbers"]["lease"], 0);
  ASSERT_NO_FATAL_FAILURE(flood("flood-intx", 1));
  ASSERT_OK(lender().until("! grep -E ' pcilend(,|$)' /proc/interrupts"));
}

/*
 *   rogue: borrows from host1, has it expose the drive to host2, and no longer; lends to host2's
 *          functions what it does not have
 */
TEST_F(RogueNode, WhatItExposesIsItsOwnAndBounded) {
  const json before = honest_link(lender()).at("export_bytes");
  EXPECT_NE(act("borrow", 1)["numbers"]["lease"], 0);
  const json told = act("foreign-exposures", 1);
  expect_refused(told, "foreign-exposures");
  EXPECT_GT(told["numbers"]["told"], 0);
  EXPECT_LE(told["numbers"]["told"], 64);
  ASSERT_NO_FATAL_FAILURE(flood("flood-expose", 1));
  // It has joined as another boot, so the lease is over.
  EXPECT_OK(lab::eventually("nothing more is exposed", lab::kPatience,
                            [&] { return honest_link(lender()).at("export_bytes") == before; }));
}

// What a lender answers is its own affair, as long as it ends.
TEST_F(RogueNode, ALenderThatAnswersBadlyIsNotBorrowedFrom) {
  const std::string id = fmt::format("{:x}", kRogueNode << 16 | 1);
  act("offer", 2, 1s, 2);
  for (const char* manner : {"silent", "wrong-type", "wrong-payload", "bad-placement"}) {
    act(manner, 2);
    const auto borrowed = borrower().exec("pcilend borrow --frontend vfio " + id, {{}, 1min});
    ASSERT_OK(borrowed);
    EXPECT_NE(borrowed->code, 0) << manner;
    EXPECT_LT(borrowed->time, 30s) << manner;
    act("honest", 2);
    join(2);
    act("offer", 2, 1s, 2);
  }
}

/*
 *   rogue: answers no release of a    ═══ host2: a process lets 12 connections go, and asks for
 *          connection; has no memory              memory beside a function of the rogue: its host
 *          beside a function                      first tells the rogue what was let go
 *
 * It waits for one answer, and not for each of 12. A rogue that answers again is told of the rest.
 */
TEST_F(RogueNode, AnOwnerThatDoesNotAnswerIsNotAskedForEachConnection) {
  constexpr int kConnections = 12;
  const std::string function = fmt::format("{:x}", kRogueNode << 16 | 1);
  const std::string segment = fmt::format("{:x}", kRogueNode << 16 | 9);
  const auto releases = [] {
    const auto status = lab_->rogue().status();
    EXPECT_OK(status);
    return status ? status->at("links").at(1).at("notices").value("request segment-release", 0) : 0;
  };
  act("offer", 2, 1s, 2);
  ASSERT_OK(await_state(borrower(), function, "available"));
  const int before = releases();
  act("unreleasing", 2);
  // The 4 minutes are enough for a process that waits for each request, too.
  const auto said = borrower().json(fmt::format("/usr/lib/pcilend-lab/segment-user leave {} {} {}",
                                                segment, kConnections, function),
                                    {{}, 4min});
  ASSERT_OK(said);
  EXPECT_EQ(said->at("left"), kConnections);
  EXPECT_THAT(said->at("said").get<std::string>(), HasSubstr("gives no more for it"));
  const int waited_for = releases() - before;
  EXPECT_GT(waited_for, 0) << "it was asked for one";
  EXPECT_LT(waited_for, kConnections / 2);

  act("honest", 2);
  const int silent = releases();
  EXPECT_OK(lab::eventually("all of them are told", lab::kPatience,
                            [&] { return releases() >= silent + kConnections; }));
}

/*
 *   rogue: lends a BAR of 16 KiB; then it has 4 GiB, with ═══ host2: keeps to what was granted
 *          the MSI-X table in its middle
 */
TEST_F(RogueNode, WhatALenderHasGrantedDoesNotGrow) {
  const std::string id = fmt::format("{:x}", kRogueNode << 16 | 1);
  act("offer", 2, 1s, 2);
  act("grows", 2);
  ASSERT_OK(borrower().until("pcilend list | grep -q " + id));
  ASSERT_OK(borrower().exec("pcilend borrow --frontend vfio " + id, {{}, 1min}));
  // What is shown of it here is in a PCI domain of its own.
  const auto shown = borrower().run("lspci -vv -D | grep -A 40 '^[89a-f][0-9a-f]*:' || true");
  ASSERT_OK(shown);
  EXPECT_EQ(shown->find("offset=40000000"), std::string::npos) << *shown;
  const auto bytes = rogue_link(borrower()).at("slot_bytes");
  EXPECT_EQ(bytes, 0);
  act("honest", 2);
  join(2);
}

/*
 *   rogue: lends, and reboots with a smaller memory window ═══ host2: a user of VFIO keeps its
 *          waits until that user lets go                              memory mapped where it was
 */
TEST_F(RogueNode, APlanThatIsInUseStays) {
  const std::string id = fmt::format("{:x}", kRogueNode << 16 | 1);
  act("offer", 2, 1s, 2);
  ASSERT_OK(await_state(borrower(), id, "available"));
  const auto function = function_on(borrower(), id);
  ASSERT_OK(function);
  const auto uuid = function->at("uuid").get<std::string>();
  ASSERT_OK(borrower().run(fmt::format(
      "echo {} >/sys/bus/pcilend/devices/{}/mdev_supported_types/pcilend-function/create", uuid,
      id)));
  auto client = borrower().start(fmt::format("/usr/lib/pcilend-lab/vfio-client {} keep", uuid));
  ASSERT_OK(client);
  EXPECT_OK(lab::eventually("it has memory mapped", lab::kPatience, [&] {
    return client->output_so_far().find("\"ready\":true") != std::string::npos;
  }));
  const json mapped = rogue_link(borrower()).at("slot_bytes");
  EXPECT_GT(mapped, 0);

  act("shrink", 2, 1s, 4);
  EXPECT_OK(lab::eventually("it waits", lab::kPatience, [&] {
    const json reason = rogue_link(borrower()).at("reason");
    return reason.is_string() &&
           reason.get<std::string>().find("until guests let go") != std::string::npos;
  }));
  EXPECT_EQ(rogue_link(borrower()).at("slot_bytes"), mapped);
  client->interrupt();
  EXPECT_OK(client->wait());
  EXPECT_OK(borrower().run(fmt::format("echo 1 >/sys/bus/mdev/devices/{}/remove", uuid)));
  EXPECT_OK(lab::eventually("a plan that fits", lab::kPatience,
                            [&] { return rogue_link(borrower()).at("state") == "up"; }));
  act("shrink", 2, 1s, 64);
  join(2);
}

// Nobody holds a function for ever.
TEST_F(RogueNode, ADeadBorrowerLosesItsLease) {
  const std::string attacked = *lender().address(1);
  EXPECT_NE(act("borrow", 1)["numbers"]["lease"], 0) << "for an hour, it asked";
  const auto list = lender().json("pcilend list --json");
  ASSERT_OK(list);
  std::vector<json> times;
  for (const json& function : list->at("functions"))
    if (function.at("borrower") == kRogueNode) times.push_back(function.at("lease_ms"));
  EXPECT_THAT(times, testing::ElementsAre(60000));
  act("die", 1);
  join(1);  // another life: what the former one held is fenced
  ASSERT_OK(lender().until("pcilend list", [](const lab::Output& o) {
    return o.out.find("node 12") == std::string::npos;
  }));
}

// The same three hosts, each pair at the ends of a Switchtec: the rogue sets its windows in its
// victim's partition, and its scratchpads are its victim's memory.
class RogueNodeOnSwitchtec : public RogueNode {
 protected:
  static void SetUpTestSuite() { start("rogue-switchtec", lab::Adapter::Switchtec); }
};

TEST_F(RogueNodeOnSwitchtec, IsRefusedCountedAndSlowsNobodyDown) {
  expect_wrong_states_refused();
  expect_bad_messages_counted({"replay", "flood-garbage"});
  expect_a_lease_to_give_its_own_only();
  for (const char* attack : {"storm", "wild-heart", "scribble-scratchpads", "reboots", "bounce"})
    flood(attack, 1);
}

// The same with host1 behind AMD-Vi.
class RogueNodeAtAmdLender : public RogueNode {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.other_iommu[1] = lab::Iommu::Amd;
    if (options.kernel == "backports")  // as AmdLender
      options.kernel_arguments[1] = {"pcilend.unsafe_interrupts=1"};
    start("rogue-amd", lab::Adapter::Amd, options, kMore);
  }
  static constexpr int kFirstMore = 3;
  static constexpr int kMore = 10;
};

TEST_F(RogueNodeAtAmdLender, WhatItsIommuDoesNotTranslateIsNotMapped) {
  EXPECT_NE(act("borrow", 1)["numbers"]["lease"], 0);
  const json report = act("hyper-transport", 1);
  expect_refused(report, "hyper-transport");
  EXPECT_EQ(report["numbers"]["mapped"], 2);
  EXPECT_EQ(act("return", 1)["numbers"]["status"], 0);
}

// Page tables are memory of the lender's that no cgroup of its answers for: a node has 64 MiB of
// them in all, at six pages a range.
TEST_F(RogueNodeAtAmdLender, HasNoMorePageTablesForMoreLeases) {
  for (int i = 0; i < kMore; ++i) ASSERT_OK(offer(lender(), *lender().address(kFirstMore + i)));
  const json report = act("exhaust-tables", 1);
  EXPECT_EQ(report["numbers"]["leases"], kMore + 1);
  EXPECT_EQ(report["numbers"]["mapped"], (64 << 8) / 6);
}

}  // namespace
}  // namespace pcilend::scenarios
