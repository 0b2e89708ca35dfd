// SPDX-License-Identifier: GPL-2.0-or-later
#include "two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr uint64_t kPage = 4096;  // what pcilend_edu copies
constexpr int kMore = 16;         // copies more, which must not be seen between the hosts

bool succeeds(const lab::Output& output) {
  return output.code == 0;
}

/*
 *   host1 (lender, node 4)                      host2 (borrower, node 8)
 *   edu ── root port ───┐
 *                       ├── IOMMU ── NTB ══════ NTB ── virtual functions of edu and nvme, which no
 *   nvme, BAR 2: CMB ───┘                        │     driver has but pcilend_edu
 *                                                └──── nvme, BAR 2: CMB
 *
 * The DMA engine of edu copies a page between its buffer and the controller memory buffer of one of
 * the drives, and between its buffer and memory of host2.
 */
class P2p : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "p2p";
    ASSERT_OK(options.add_device("host1:pcie-root-port,id=port0,chassis=1,addr=18"));
    ASSERT_OK(options.add_device("host1:edu,id=edu,dma_mask=0xffffffffffffffff,bus=port0"));
    ASSERT_OK(
        options.add_device("host1:nvme,id=target,serial=target,drive-size=16M,cmb_size_mb=1"));
    ASSERT_OK(options.add_device("host2:nvme,id=local,serial=local,drive-size=16M,cmb_size_mb=1"));
    ASSERT_OK(start_lab(options, lab_));
    ASSERT_OK(lender().run(fmt::format("pcilend connect {}", borrower().node())));
    // The drives are targets only: their driver would use the memory buffers itself.
    for (const auto* host : {&lender(), &borrower()})
      ASSERT_OK(
          host->run("mkdir -p /etc/modprobe.d && echo blacklist nvme >/etc/modprobe.d/p2p.conf && "
                    "modprobe -r nvme"));
  }
  static void TearDownTestSuite() { EXPECT_OK(end_lab(lab_)); }

  void SetUp() override {
    ASSERT_TRUE(lab_) << "the lab did not start";
    start_ = std::chrono::steady_clock::now();
    ASSERT_OK(lender().mark_log());
    ASSERT_OK(borrower().mark_log());
    ASSERT_NO_FATAL_FAILURE(lend("edu", &edu_));
    ASSERT_NO_FATAL_FAILURE(lend("target", &target_));
    ASSERT_NO_FATAL_FAILURE(borrow(edu_, &edu_address_));
    ASSERT_NO_FATAL_FAILURE(borrow(target_, &target_address_));
  }

  void TearDown() override {
    if (!lab_) return;
    for (const std::string& id : {edu_, target_}) {
      if (id.empty()) continue;
      EXPECT_OK(borrower().exec("pcilend return --force " + id));
      EXPECT_OK(lender().exec("pcilend unavailable --force " + id));
      EXPECT_OK(lender().exec("pcilend remove " + id));
    }
    for (const auto* host : {&lender(), &borrower()}) {
      EXPECT_OK(host->check_log());
      const auto links = host->json("pcilend link --json");
      ASSERT_OK(links);
      EXPECT_EQ(links->at("links").at(0).at("export_bytes"), 0) << host->name();
      EXPECT_EQ(links->at("links").at(0).at("bad_messages"), 0) << host->name();
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
    fmt::print(stderr, "-- {} took {:.1f} s\n",
               testing::UnitTest::GetInstance()->current_test_info()->name(), took.count());
  }

  static lab::Host& lender() { return lab_->host(1); }
  static lab::Host& borrower() { return lab_->host(2); }

  static void lend(const std::string& device, std::string* id) {
    const auto address = lender().address(device);
    ASSERT_OK(address);
    ASSERT_OK(lender().run("pcilend add " + *address));
    ASSERT_OK(lender().run("pcilend available " + *address));
    const auto own = lender().json("pcilend list --json");
    ASSERT_OK(own);
    for (const auto& function : own->at("functions"))
      if (function.value("bdf", "") == *address) *id = function.at("id");
    ASSERT_FALSE(id->empty());
  }

  // Its PCI address on host2.
  static void borrow(const std::string& id, std::string* address) {
    ASSERT_OK(
        borrower().until(fmt::format("pcilend list | grep '^{}: .*\\[available]'", id), succeeds));
    const auto answer = borrower().json("pcilend borrow --json " + id);
    ASSERT_OK(answer);
    *address = answer->at("functions").at(0).at("virtual");
  }

  static json function(const lab::Host& host, const std::string& id) {
    const auto shown = host.json("pcilend show --json " + id);
    EXPECT_OK(shown);
    return shown ? shown->at("functions").at(0) : json::object();
  }
  [[nodiscard]] json reached() const { return function(borrower(), edu_).at("reaches"); }

  // edu copies a page of that function's BAR 2 into memory and back, and the data is right.
  [[nodiscard]] Result<lab::Output> copy(const std::string& peer, int repeat = 1) const {
    return borrower().exec(fmt::format("modprobe pcilend_edu function={} target={} bar=2 repeat={} "
                                       "&& rmmod pcilend_edu",
                                       edu_address_, peer, repeat),
                           {{}, 5min});
  }
  void expect_copied(const std::string& peer, int repeat, const std::string& where,
                     lab::Counters* counters) {
    ASSERT_OK(lab_->fabric().counters(true));
    const auto copied = copy(peer, repeat);
    ASSERT_OK(copied);
    EXPECT_EQ(copied->code, 0) << copied->err << borrower().log();
    const auto now = lab_->fabric().counters();
    ASSERT_OK(now);
    *counters = *now;
    const std::string said = fmt::format("pcilend_edu: {} is reached at {}", peer, where);
    EXPECT_NE(borrower().log().find(said), std::string::npos) << borrower().log();
  }
  void expect_refused() {
    const auto refused = copy(target_address_);
    ASSERT_OK(refused);
    EXPECT_NE(refused->code, 0);
    const std::string said = fmt::format("pcilend_edu: {} can't be mapped", target_address_);
    EXPECT_NE(borrower().log().find(said), std::string::npos) << borrower().log();
    ASSERT_OK(borrower().mark_log());
  }
  // The command fails, with these words on stderr.
  static void expect_failure(const std::string& command, const std::string& words) {
    const auto failed = borrower().exec(command);
    ASSERT_OK(failed);
    EXPECT_NE(failed->code, 0) << command;
    EXPECT_NE(failed->err.find(words), std::string::npos) << failed->err;
  }
  [[nodiscard]] std::string p2p(const std::string& options = "") const {
    return fmt::format("pcilend p2p {} {} {}", options, edu_, target_);
  }

  static std::optional<lab::Lab> lab_;
  std::string edu_;
  std::string target_;
  std::string edu_address_;
  std::string target_address_;

 private:
  std::chrono::steady_clock::time_point start_;
};

std::optional<lab::Lab> P2p::lab_;

// From where reach.h has its addresses, and from below the DMA area's end.
constexpr const char* kAsPeer = "0x0000001";
constexpr const char* kAsMemory = "0x00000000";

/*
 *   host1                                       host2
 *   edu ══ IOMMU ══ CMB                         the CPU fills the CMB before, and reads it after
 *
 * However often edu copies, what crosses the fabric is what the CPU itself does: it starts each
 * copy.
 */
TEST_F(P2p, AFunctionReachesAnotherOfItsLender) {
  ASSERT_NO_FATAL_FAILURE(expect_refused());
  EXPECT_EQ(reached(), json::array());
  ASSERT_OK(borrower().run(p2p()));
  ASSERT_OK(borrower().run(p2p()));
  EXPECT_EQ(reached(), json::array({target_}));

  lab::Counters once;
  lab::Counters often;
  ASSERT_NO_FATAL_FAILURE(expect_copied(target_address_, 1, kAsPeer, &once));
  ASSERT_NO_FATAL_FAILURE(expect_copied(target_address_, 1 + kMore, kAsPeer, &often));
  const lab::PathCounters a = once.path(1, 2);
  const lab::PathCounters b = often.path(1, 2);
  EXPECT_EQ(a.memory.read_bytes, kPage) << "edu reads memory of host2 once";
  EXPECT_EQ(b.memory.read_bytes, kPage);
  EXPECT_GE(a.memory.write_bytes, kPage) << "and writes to it once";
  // The rest is the heartbeat, and the control messages around it.
  EXPECT_LT(b.memory.write_bytes, a.memory.write_bytes + kMore * kPage / 4);
  for (const lab::PathCounters& path : {a, b}) {
    EXPECT_EQ(path.bar.read_bytes, 0u) << "to a BAR of host2, or through it";
    EXPECT_EQ(path.bar.write_bytes, 0u);
    EXPECT_EQ(path.all_ones_reads, 0u);
    EXPECT_EQ(path.dropped_writes, 0u);
  }
  const lab::Traffic fewer = once.path(2, 1).bar;
  const lab::Traffic more = often.path(2, 1).bar;
  EXPECT_GE(fewer.write_bytes, kPage) << "the CPU fills the CMB";
  EXPECT_GE(fewer.read_bytes, kPage) << "the CPU compares the CMB";
  // Two ways: a page per copy would be 2 * kMore * kPage.
  EXPECT_LT(more.write_bytes, fewer.write_bytes + kMore * kPage / 4);
  EXPECT_LT(more.read_bytes, fewer.read_bytes + kMore * kPage / 4);
  fmt::print(stderr, "{} copies more: {} bytes more read by the CPU, {} written\n", 2 * kMore,
             more.read_bytes - fewer.read_bytes, more.write_bytes - fewer.write_bytes);
}

/*
 *   host1: edu ══ CMB                           host2: --end; return; the lease is taken
 *
 * What is over is refused on host2, and nothing is left of it on host1.
 */
TEST_F(P2p, ItEndsWithTheCommandAndWithEitherLease) {
  lab::Counters counters;
  ASSERT_OK(borrower().run(p2p()));
  ASSERT_NO_FATAL_FAILURE(expect_copied(target_address_, 1, kAsPeer, &counters));
  ASSERT_OK(borrower().run(p2p("--end")));
  ASSERT_OK(borrower().run(p2p("--end")));
  EXPECT_EQ(reached(), json::array());
  ASSERT_NO_FATAL_FAILURE(expect_refused());

  // The target's, by its return.
  ASSERT_OK(borrower().run(p2p()));
  ASSERT_NO_FATAL_FAILURE(expect_copied(target_address_, 1, kAsPeer, &counters));
  ASSERT_OK(borrower().run("pcilend return " + target_));
  EXPECT_EQ(reached(), json::array());
  expect_failure(p2p(), "run 'pcilend borrow " + target_ + "'");
  ASSERT_NO_FATAL_FAILURE(borrow(target_, &target_address_));
  ASSERT_NO_FATAL_FAILURE(expect_refused());
  ASSERT_OK(borrower().run(p2p()));
  ASSERT_NO_FATAL_FAILURE(expect_copied(target_address_, 1, kAsPeer, &counters));

  // The source's, by its return.
  ASSERT_OK(borrower().run("pcilend return " + edu_));
  ASSERT_NO_FATAL_FAILURE(borrow(edu_, &edu_address_));
  EXPECT_EQ(reached(), json::array());
  ASSERT_NO_FATAL_FAILURE(expect_refused());

  // The target's, by its lender's will.
  ASSERT_OK(borrower().run(p2p()));
  ASSERT_OK(lender().run("pcilend unavailable --force " + target_));
  ASSERT_OK(lab::eventually("nothing is reached", lab::kPatience,
                            [&] { return reached() == json::array(); }));
  EXPECT_EQ(function(lender(), edu_).at("faults"), 0);
}

/*
 *   host1                                       host2
 *   edu ══ IOMMU ══ NTB ═══════════════════════ NTB ══ IOMMU ══ CMB of the drive in host2
 */
TEST_F(P2p, ATargetInTheBorrowerNeedsNoCommand) {
  const auto local = borrower().address("local");
  ASSERT_OK(local);
  lab::Counters counters;
  expect_copied(*local, 1, kAsMemory, &counters);
  EXPECT_EQ(counters.path(1, 2).bar.read_bytes, kPage);
  EXPECT_EQ(counters.path(1, 2).bar.write_bytes, kPage);
  EXPECT_EQ(reached(), json::array());
}

/*
 *   host2: pcilend p2p of what can't be: each refusal says what to do
 */
TEST_F(P2p, RefusalsNameTheCure) {
  expect_failure(fmt::format("pcilend p2p {0} {0}", edu_), "name another one");
  expect_failure(fmt::format("pcilend p2p {} 40009", edu_), "no function 40009");
  ASSERT_OK(borrower().run("pcilend return " + edu_));
  expect_failure(p2p(), "run 'pcilend borrow " + edu_ + "'");
  ASSERT_OK(borrower().run(p2p("--end")));
}

}  // namespace
}  // namespace pcilend::scenarios
