// SPDX-License-Identifier: GPL-2.0-or-later
// Other hardware than AMD's: a Switchtec, by the unmodified switchtec and ntb_hw_switchtec.
#include <gmock/gmock.h>

#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::Not;

/*
 *   host1 (lender, node 4)                               host2 (borrower, node 8)
 *   nvme ── IOMMU ── port ── NT endpoint ═ Switchtec ═ NT endpoint ── port ── memory
 *                            partition 0               partition 1
 *
 * Links are told by messages and a work queue, scratchpads are memory, each host programs its
 * windows in the other's partition, and a table says which functions get through.
 */
class Switchtec : public TwoHosts {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "switchtec";
    options.adapters = {lab::Adapter::Switchtec};
    ASSERT_OK(options.add_device("host1:nvme,serial=switchtec,drive-size=128M" +
                                 std::string(kNoShadowDoorbells)));
    ASSERT_OK(start_lab(options, lab_));
  }

  // The drive, as the lender's adapter knows requesters: "00:10.0".
  [[nodiscard]] std::string drive() const {
    return lender().address(0).value_or("0000:no drive").substr(5);
  }
  [[nodiscard]] std::vector<std::string> requesters() const {
    const auto ids = lab_->fabric().requesters(1, 2);
    EXPECT_OK(ids);
    return ids.value_or(std::vector<std::string>());
  }
  static Result<> await_link(const lab::Host& host, const std::string& state) {
    return lab::eventually("the link is " + state, lab::kPatience, [&] {
      const auto links = host.json("pcilend link --json");
      return links && links->at("links").at(0).at("state") == state;
    });
  }
};

TEST_F(Switchtec, MainJob) {
  const auto links = lender().json("pcilend link --json");
  ASSERT_OK(links);
  EXPECT_EQ(links->at("links").at(0).at("driver"), "switchtec");
  ASSERT_OK(job().fill_drive());
  EXPECT_THAT(requesters(), Not(Contains(drive())));
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  ASSERT_OK(job().start_guest());
  ASSERT_OK(job().await_guest_disk());
  EXPECT_THAT(requesters(), Contains(drive()));

  const auto before = job().lender_effort();
  ASSERT_OK(before);
  ASSERT_OK(lab_->fabric().counters(true));
  ASSERT_OK(job().read_in_guest());
  ASSERT_OK(job().write_in_guest());
  const auto after = job().lender_effort();
  ASSERT_OK(after);
  const auto counters = lab_->fabric().counters();
  ASSERT_OK(counters);
  EXPECT_EQ(after->messages - before->messages, 0u) << "control messages during the guest's I/O";
  const auto from_device = counters->path(1, 2);
  EXPECT_GE(from_device.memory.write_bytes, MainJob::kFiles * (1u << 20)) << "data the guest read";
  EXPECT_GT(from_device.interrupt.writes, 0u);

  ASSERT_OK(job().shut_down_guest());
  ASSERT_OK(job().await_state(lender(), "available"));
  EXPECT_THAT(requesters(), Not(Contains(drive())));
  ASSERT_OK(job().take_back());
}

TEST_F(Switchtec, ALostLinkIsNoticedAndComesBack) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().borrow_and_use());
  ASSERT_OK(lab_->fabric().link_down(1, 2));
  for (const auto* host : {&lender(), &borrower()}) ASSERT_OK(await_link(*host, "down"));
  ASSERT_OK(lab_->fabric().link_up(1, 2));
  for (const auto* host : {&lender(), &borrower()}) ASSERT_OK(await_link(*host, "up"));
  ASSERT_OK(job().see_available());
  ASSERT_OK(job().borrow_and_use());
  EXPECT_THAT(requesters(), Not(Contains(drive())));
}

}  // namespace
}  // namespace pcilend::scenarios
