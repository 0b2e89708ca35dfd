// SPDX-License-Identifier: GPL-2.0-or-later
// Two adapters, of two products, from one host to the other: a lease goes over one of them, and
// does not care what happens to the other. Nobody else gets in by showing a node id that is known.
#include <gmock/gmock.h>

#include "main_job/admin_steps.h"
#include "main_job/main_job.h"
#include "testing/asserts.h"
#include "testing/suite_lab.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kFirst = "0000:00:04.0";  // adapters of both hosts
constexpr const char* kSecond = "0000:01:00.0";
constexpr const char* kRogues = "0000:00:06.0";
constexpr uint64_t kChunk = 128 << 10;   // bytes written, and read, by a round of I/O
constexpr uint64_t kControl = 64 << 10;  // no more than that goes over a link for its heartbeat

// Writes the disk, reads it back and compares until it is told to stop.
constexpr const char* kLoad =
    "rm -f /tmp/stop /tmp/rounds; n=0; while [ ! -e /tmp/stop ]; do "
    "dd if=/dev/urandom of=/tmp/y bs=16k count=8 2>/dev/null; "
    "dd if=/tmp/y of={0} bs=16k seek=64 conv=notrunc oflag=direct 2>/dev/null && "
    "dd if={0} of=/tmp/z bs=16k skip=64 count=8 iflag=direct 2>/dev/null && cmp /tmp/y /tmp/z "
    "|| {{ echo failed after $n; break; }}; n=$((n+1)); echo $n >/tmp/n; mv /tmp/n /tmp/rounds; "
    "done";

/*
 *   host1 (node 4)                          host2 (node 8)
 *   drive one ═══ 04.0 ═══ path 1 ═══ 04.0 ═══ nvme driver of host2     AMD
 *   drive two ═ 01:00.0 ══ path 2 ═ 01:00.0 ══ nvme driver of host2     Switchtec
 *   a set of two drives
 *       │
 *       └──────── 06.0 ─── the rogue, which says that it is node 8
 */
class Paths : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "paths";
    options.paths = 2;
    options.adapters = {lab::Adapter::Amd, lab::Adapter::Switchtec};
    options.rogue = true;
    for (int i = 1; i <= 2; ++i) options.kernel_arguments[i].push_back("pcilend.lease_ms=10000");
    for (const char* serial : {"one", "two"})
      ASSERT_OK(options.add_device(
          fmt::format("host1:nvme,serial={},drive-size=32M{}", serial, kNoShadowDoorbells)));
    ASSERT_OK(options.add_device("host2:nvme,serial=three,drive-size=4M"));
    ASSERT_OK(options.add_device("host1:nvme,serial=a,drive-size=1M,addr=18.0,multifunction=on"));
    ASSERT_OK(options.add_device("host1:nvme,serial=b,drive-size=1M,addr=18.1"));
    ASSERT_OK(start_lab(options, lab_));
  }
  static void TearDownTestSuite() { EXPECT_OK(end_lab(lab_)); }

  void SetUp() override {
    ASSERT_TRUE(lab_) << "the lab did not start";
    for (auto* host : {&lender(), &borrower()}) {
      ASSERT_OK(host->mark_log());
      for (const char* adapter : {kFirst, kSecond}) ASSERT_OK(await_link(*host, adapter, "up"));
    }
    for (size_t drive = 0; drive < 2; ++drive) {
      const auto address = lender().address(drive);
      ASSERT_OK(address);
      jobs_.emplace_back(lender(), borrower(), *address, "unused");
    }
  }

  void TearDown() override {
    if (!lab_) return;
    EXPECT_OK(lab_->fabric().link_up(1, 2));
    if (guest_) {
      const auto state = guest_->state();
      if (state && *state == "running") EXPECT_OK(guest_->destroy());
      if (state) EXPECT_OK(guest_->undefine());
    }
    for (MainJob& job : jobs_) EXPECT_OK(job.clean_up());
    for (const auto* host : {&lender(), &borrower()}) {
      for (const json& link : links(*host)) {
        EXPECT_EQ(link.at("export_bytes"), 0) << "BARs still exported by " << host->name();
        EXPECT_EQ(link.at("slot_bytes"), 0) << "guest memory still mapped on " << host->name();
        EXPECT_EQ(link.at("leases"), 0) << host->name();
      }
      EXPECT_OK(host->check_log());
    }
  }

  [[nodiscard]] static lab::Host& lender() { return lab_->host(1); }
  [[nodiscard]] static lab::Host& borrower() { return lab_->host(2); }

  static json links(const lab::Host& host) {
    const auto list = host.json("pcilend link --json");
    EXPECT_OK(list);
    return list ? list->at("links") : json::array();
  }
  static json link(const lab::Host& host, const std::string& adapter) {
    for (const json& link : links(host))
      if (link.at("adapter") == adapter) return link;
    return json::object();
  }
  static Result<> await_link(const lab::Host& host, const std::string& adapter,
                             const std::string& state) {
    return lab::eventually(fmt::format("link {} of {} is {}", adapter, host.name(), state),
                           lab::kPatience,
                           [&] { return link(host, adapter).value("state", "") == state; });
  }

  // The function at that address of the lender, as the borrower lists it.
  static json function_at(const std::string& address) {
    const auto list = borrower().json("pcilend list --json");
    EXPECT_OK(list);
    if (list)
      for (const json& function : list->at("functions"))
        if (function.at("lender") == 4 && function.at("bdf") == address) return function;
    return json::object();
  }
  // What the borrower says about a drive's function.
  json function(size_t drive) {
    const auto told = jobs_.at(drive).function_on(borrower());
    EXPECT_OK(told);
    return told.value_or(json::object());
  }

  // A drive goes to the borrower's own driver.
  void borrow(size_t drive) {
    const auto borrowed = jobs_.at(drive).borrow();
    ASSERT_OK(borrowed);
    disks_.at(drive) = borrowed->disk;
  }
  // Writes known data, and reads it back.
  Result<> write_and_check(size_t drive) {
    PCILEND_TRY(borrower().run(
        fmt::format("dd if=/dev/urandom of=/tmp/data bs=16k count=8 2>/dev/null && "
                    "dd if=/tmp/data of={0} bs=16k oflag=direct 2>/dev/null && "
                    "dd if={0} of=/tmp/back bs=16k count=8 iflag=direct 2>/dev/null && "
                    "cmp /tmp/data /tmp/back",
                    disks_.at(drive))));
    return {};
  }
  Result<std::string> sum_of(size_t drive) {
    return borrower().run(fmt::format(
        "dd if={} bs=16k count=8 iflag=direct 2>/dev/null | sha256sum", disks_.at(drive)));
  }

  // Bytes that drives of the lender moved to and from the borrower's memory, by path.
  Result<std::vector<uint64_t>> moved_by(const std::function<Result<>()>& work) {
    PCILEND_TRY(lab_->fabric().counters(true));
    PCILEND_TRY(work());
    const auto counters = lab_->fabric().counters();
    if (!counters) return tl::unexpected(counters.error());
    std::vector<uint64_t> moved;
    for (const int path : {1, 2}) {
      const lab::Traffic& memory = counters->path(1, 2, path).memory;
      moved.push_back(memory.read_bytes + memory.write_bytes);
    }
    return moved;
  }

  static std::optional<lab::Lab> lab_;
  std::vector<MainJob> jobs_;         // one for each drive
  std::array<std::string, 2> disks_;  // their names on the borrower
  std::optional<lab::Guest> guest_;
};

std::optional<lab::Lab> Paths::lab_;

TEST_F(Paths, EachLeaseGoesOverItsOwnAndOutlivesTheOther) {
  for (MainJob& job : jobs_) {
    ASSERT_OK(job.lend());
    ASSERT_OK(job.see_available());
  }
  // One function each, whatever number of links it is seen over.
  const auto list = borrower().json("pcilend list --json");
  ASSERT_OK(list);
  EXPECT_EQ(list->at("functions").size(), 2U) << *list;
  ASSERT_OK(lab::eventually("both paths lead to drive one", lab::kPatience, [&] {
    return function(0).at("paths") == json::array({kFirst, kSecond});
  }));

  for (const size_t drive : {0, 1}) ASSERT_NO_FATAL_FAILURE(borrow(drive));
  EXPECT_EQ(function(0).at("adapter"), kFirst);
  EXPECT_EQ(function(1).at("adapter"), kSecond);
  ASSERT_OK(borrower().run("pcilend show " + jobs_[0].id()));
  const auto one = moved_by([&] { return write_and_check(0); });
  ASSERT_OK(one);
  EXPECT_GE(one->at(0), 2 * kChunk);
  EXPECT_LT(one->at(1), kControl) << "drive one has used the path of drive two";
  const auto two = moved_by([&] { return write_and_check(1); });
  ASSERT_OK(two);
  EXPECT_LT(two->at(0), kControl) << "drive two has used the path of drive one";
  EXPECT_GE(two->at(1), 2 * kChunk);
  const auto sum = sum_of(0);
  ASSERT_OK(sum);

  // Path 1 is cut until its lease is over.
  auto load = borrower().start(fmt::format(kLoad, disks_[1]), {{}, 20min});
  ASSERT_OK(load);
  const auto before = jobs_[1].function_on(lender());
  ASSERT_OK(before);
  ASSERT_OK(lab_->fabric().link_down(1, 2, 1));
  ASSERT_OK(jobs_[0].await_state(lender(), "available", 3min));
  ASSERT_OK(jobs_[0].await_state(borrower(), "available"));
  EXPECT_EQ(function(0).at("paths"), json::array({kSecond}));
  const auto rounds = [&] {
    const auto done = borrower().exec("cat /tmp/rounds");
    return done && done->code == 0 ? std::stoi(done->out) : 0;
  };
  const int so_far = rounds();
  ASSERT_OK(lab::eventually("drive two goes on", 3min, [&] { return rounds() > so_far + 1; }));
  ASSERT_OK(borrower().run("touch /tmp/stop"));
  const auto ended = load->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->out + ended->err, "") << "of the I/O on drive two";
  const auto after = jobs_[1].function_on(lender());
  ASSERT_OK(after);
  EXPECT_EQ(after->at("lease"), before->at("lease"));
  EXPECT_EQ(after->at("resets"), before->at("resets"));

  // Both over path 2 now, with what was written before.
  ASSERT_NO_FATAL_FAILURE(borrow(0));
  EXPECT_EQ(function(0).at("adapter"), kSecond);
  EXPECT_EQ(function(1).at("adapter"), kSecond);
  EXPECT_EQ(sum_of(0).value_or("?"), *sum);
  ASSERT_OK(write_and_check(0));

  // The cable is back: new leases may take it, those there are stay where they are.
  ASSERT_OK(lab_->fabric().link_up(1, 2, 1));
  for (const auto* host : {&lender(), &borrower()}) ASSERT_OK(await_link(*host, kFirst, "up"));
  ASSERT_OK(lab::eventually("both paths lead to drive one", lab::kPatience,
                            [&] { return function(0).at("paths").size() == 2; }));
  EXPECT_EQ(function(0).at("adapter"), kSecond);
  ASSERT_OK(write_and_check(0));
  ASSERT_OK(write_and_check(1));
  for (MainJob& job : jobs_) {
    ASSERT_OK(borrower().run("pcilend return " + job.id()));
    ASSERT_OK(job.await_state(borrower(), "available"));
  }

  // As the administrator says, not as it would be best.
  const std::string id = jobs_[0].id();
  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio --adapter " + std::string(kSecond) +
                           " " + id));
  EXPECT_EQ(function(0).at("adapter"), kSecond);
  ASSERT_OK(borrower().run("pcilend return " + id));
  const auto elsewhere =
      borrower().exec("pcilend borrow --frontend vfio --adapter 0000:00:06.0 " + id);
  ASSERT_OK(elsewhere);
  EXPECT_NE(elsewhere->code, 0);
  EXPECT_THAT(elsewhere->err, HasSubstr("does not offer it over that adapter"));
}

/*
 *   host1 (node 4)                          host2 (node 8)
 *   drive one ═════════════════════════════ nvme driver of host2
 *   nvme driver of host1 ══════════════════ drive three
 */
TEST_F(Paths, BothHostsLendAndBorrowAtOnce) {
  const auto address = borrower().address(0);
  ASSERT_OK(address);
  jobs_.emplace_back(borrower(), lender(), *address, "unused");
  std::vector<lab::Running> work;
  MainJob* both[] = {&jobs_[0], &jobs_[2]};
  for (MainJob* job : both) {
    ASSERT_OK(job->lend());
    ASSERT_OK(job->see_available());
  }
  for (const MainJob* job : both) {
    const auto drive = job->borrow();
    ASSERT_OK(drive);
    auto running = job->borrower().start(fmt::format(kLoad, drive->disk), {{}, 20min});
    ASSERT_OK(running);
    work.push_back(std::move(*running));
  }
  // Each goes on since both have begun.
  for (const MainJob* job : both) {
    ASSERT_OK(job->borrower().until("[ -e /tmp/rounds ] && mv /tmp/rounds /tmp/first"));
    ASSERT_OK(job->borrower().until("[ -e /tmp/rounds ]"));
  }
  for (const lab::Running& one : work) EXPECT_FALSE(one.ended());
  for (size_t i = 0; i < work.size(); ++i) {
    const MainJob& job = *both[i];
    ASSERT_OK(job.borrower().run("touch /tmp/stop"));
    const auto ended = work[i].wait();
    ASSERT_OK(ended);
    EXPECT_EQ(ended->out + ended->err, "") << job.borrower().name();
    const auto sum = job.borrower().run("sha256sum </tmp/y");
    ASSERT_OK(sum);
    ASSERT_OK(job.borrower().run("pcilend return " + job.id()));
    // The lender's own driver reads what the borrower has written last.
    ASSERT_OK(job.lender().run("pcilend unavailable " + job.id()));
    const auto disk = job.lender_disk();
    ASSERT_OK(disk);
    EXPECT_EQ(job.lender().run(fmt::format(
                  "dd if={} bs=16k skip=64 count=8 iflag=direct 2>/dev/null | sha256sum", *disk)),
              *sum);
  }
}

/*
 *   host1 (node 4)                          host2 (node 8)
 *   drive one ═══ 04.0 ═══ path 1 ═══ 04.0 ═══ a guest
 *   drive two ═ 01:00.0 ══ path 2 ═ 01:00.0 ══ with both
 *
 * Each reaches the guest's memory by its own adapter, and the same pages.
 */
TEST_F(Paths, AGuestHasFunctionsOverBothAdapters) {
  for (MainJob& job : jobs_) {
    ASSERT_OK(job.lend());
    ASSERT_OK(job.see_available());
  }
  for (const size_t drive : {0, 1})
    ASSERT_OK(lab::eventually("both paths lead there", lab::kPatience,
                              [&] { return function(drive).at("paths").size() == 2; }));
  const auto spec = borrower().guest_spec("both", {jobs_[0].id(), jobs_[1].id()});
  ASSERT_OK(spec);
  guest_.emplace(borrower().guest(*spec));
  ASSERT_OK(guest_->define());
  ASSERT_OK(guest_->start());
  ASSERT_OK(MainJob::await_disk(*guest_));
  ASSERT_OK(guest_->run(
      "i=0; until [ -b /dev/nvme1n1 ]; do i=$((i+1)); [ $i -lt 600 ] || exit 1; sleep 0.1; done"));
  EXPECT_NE(function(0).at("adapter"), function(1).at("adapter"));

  for (const size_t drive : {0, 1}) {
    const std::string serial = drive == 0 ? "one" : "two";
    SCOPED_TRACE(serial);
    const auto moved = moved_by([&]() -> Result<> {
      PCILEND_TRY(guest_->run(fmt::format(
          "for d in nvme0 nvme1; do [ \"$(tr -d ' ' </sys/class/nvme/$d/serial)\" != {} ] || "
          "reach /dev/${{d}}n1 64 100000-10000000 || exit; done",
          serial)));
      return {};
    });
    ASSERT_OK(moved);
    const size_t its = function(drive).at("adapter") == kFirst ? 0 : 1;
    EXPECT_GE(moved->at(its), kChunk);
    EXPECT_LT(moved->at(1 - its), kControl) << "by the other one's adapter";
  }
  // At the same time.
  EXPECT_OK(guest_->run(
      "reach /dev/nvme0n1 48 100000-10000000 & reach /dev/nvme1n1 48 100000-10000000 && wait $!"));
  ASSERT_OK(guest_->shut_down());
  for (MainJob& job : jobs_) EXPECT_OK(job.await_state(borrower(), "available"));
}

/*
 *   a ═══ 01:00.0, as asked for ═══ borrowed
 *   b ═══ 01:00.0, because a is ═══ borrowed; over 04.0 it is refused until a is returned
 */
TEST_F(Paths, ASetGoesOverOneLink) {
  std::vector<std::string> addresses;
  for (const size_t drive : {2, 3}) addresses.push_back(lender().address(drive).value());
  ASSERT_OK(lender().run("pcilend connect 8"));
  for (const auto& address : addresses) ASSERT_OK(lender().run("pcilend add " + address));
  for (const auto& address : addresses) ASSERT_OK(lender().run("pcilend available " + address));
  for (const auto& address : addresses)
    ASSERT_OK(lab::eventually("both paths lead to " + address, lab::kPatience, [&] {
      const json function = function_at(address);
      return function.value("state", "") == "available" && function.at("paths").size() == 2;
    }));
  const std::string a = function_at(addresses[0]).at("id"), b = function_at(addresses[1]).at("id");
  const std::string borrow = "pcilend borrow --frontend vfio ";

  ASSERT_OK(borrower().run(borrow + "--adapter " + kSecond + " " + a));
  ASSERT_OK(borrower().run(borrow + b));
  EXPECT_EQ(function_at(addresses[1]).at("adapter"), kSecond) << "not the one with fewest leases";
  ASSERT_OK(borrower().run("pcilend return " + b));
  const auto refused = borrower().exec(borrow + "--adapter " + kFirst + " " + b);
  ASSERT_OK(refused);
  EXPECT_NE(refused->code, 0);
  EXPECT_THAT(refused->err, HasSubstr("others of its group are borrowed over another adapter"));
  ASSERT_OK(borrower().run("pcilend return " + a));

  ASSERT_OK(borrower().run(borrow + "--adapter " + kFirst + " " + b));
  EXPECT_EQ(function_at(addresses[1]).at("adapter"), kFirst);
  ASSERT_OK(borrower().run("pcilend return " + b));
  for (const auto& address : addresses) ASSERT_OK(lender().run("pcilend unavailable " + address));
  for (const auto& address : addresses) ASSERT_OK(lender().run("pcilend remove " + address));
}

TEST_F(Paths, NobodyElseGetsInWithTheIdOfAKnownNode) {
  for (MainJob& job : jobs_) {
    ASSERT_OK(job.lend());
    ASSERT_OK(job.see_available());
  }
  const auto rogue = [&](const std::string& attack, uint32_t value) {
    const auto report = lab_->rogue().attack(attack, 1, 1s, value);
    EXPECT_OK(report);
    return report.value_or(json::object());
  };
  const auto strangers = [&] {
    const auto text =
        lender().run("pcilend metrics | sed -n 's/^pcilend_strangers_refused_total //p'");
    EXPECT_OK(text);
    return text ? std::stoi(*text) : -1;
  };
  const int before = strangers();

  rogue("join", 8);
  ASSERT_OK(await_link(lender(), kRogues, "refused"));
  EXPECT_THAT(link(lender(), kRogues).at("reason").get<std::string>(),
              HasSubstr("says that this is somebody else"));
  EXPECT_EQ(strangers(), before + 1);
  EXPECT_THAT(lender().log(), HasSubstr("audit: node=8 action=path result=-76"));
  const uint32_t one = std::stoul(jobs_[0].id(), nullptr, 16);
  EXPECT_EQ(rogue("borrow", one)["numbers"]["lease"], 0);
  EXPECT_EQ(function(0).at("state"), "available");

  // Pinned, the node is let in behind its own adapters only, whoever comes first.
  for (const char* adapter : {kFirst, kSecond})
    ASSERT_OK(lender().run(fmt::format("pcilend connect 8 --adapter {}", adapter)));
  // The first pin has ended the other link, until that had one, too.
  for (const char* adapter : {kFirst, kSecond}) ASSERT_OK(await_link(lender(), adapter, "up"));
  rogue("join", 8);
  ASSERT_OK(lab::eventually("the rogue is kept out by the pin", lab::kPatience, [&] {
    const std::string reason = link(lender(), kRogues).value("reason", "");
    return reason.find("is pinned to another adapter") != std::string::npos;
  }));
  for (const char* adapter : {kFirst, kSecond}) {
    EXPECT_EQ(link(lender(), adapter).at("state"), "up");
    EXPECT_EQ(link(lender(), adapter).at("pinned"), 8);
  }
  rogue("leave", 0);
  ASSERT_OK(lender().run("pcilend disconnect 8"));
}

}  // namespace
}  // namespace pcilend::scenarios
