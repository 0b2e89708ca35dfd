// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

/*
 *   host1 (lender, node 4)                      host2 (borrower, node 8)
 *   one slot, without ACS: ─┬─ adapter ════════ adapter
 *     one IOMMU group       └─ nvme
 */
class SharedGroup : public TwoHosts {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "shared-group";
    ASSERT_OK(options.add_device("host1:nvme,serial=beside,drive-size=16M,addr=4.1"));
    ASSERT_OK(start_lab(options, lab_));
  }

  static Result<> await_link(const lab::Host& host, const std::string& state,
                             const std::string& reason) {
    return lab::eventually(fmt::format("{}'s link is {}", host.name(), state), lab::kPatience, [&] {
      const auto links = host.json("pcilend link --json");
      if (!links) return false;
      const auto& link = links->at("links").at(0);
      return link.at("state") == state &&
             (reason.empty() ||
              link.at("reason").get<std::string>().find(reason) != std::string::npos);
    });
  }
};

/*
 *   host1: refuses its adapter, whose domain would be the drive's too ═══ host2: no link
 *   host1: refuses the drive, with which the adapter would have to be lent
 *   host1, told that it may (unsafe_groups=1) ═════════════════════════════ host2: a link
 */
TEST_F(SharedGroup, AnAdapterThatSharesItsGroupIsRefused) {
  EXPECT_OK(await_link(lender(), "refused", "its IOMMU group has other devices"));
  const auto other = borrower().json("pcilend link --json");
  ASSERT_OK(other);
  EXPECT_NE(other->at("links").at(0).at("state"), "up") << other->dump();

  // The adapter has the class of a bridge, but does DMA: its header says so.
  const std::string address = *lender().address(0);
  ASSERT_OK(lender().run("grep -q ^0x0680 /sys/bus/pci/devices/0000:00:04.0/class"));
  ASSERT_OK(lender().run("pcilend add " + address));
  const auto refused = lender().exec("pcilend available " + address);
  ASSERT_OK(refused);
  EXPECT_NE(refused->code, 0);
  EXPECT_NE(refused->err.find("0000:00:04.0 (ntb_hw_amd)"), std::string::npos) << refused->err;
  ASSERT_OK(lender().run("pcilend remove " + address));

  ASSERT_OK(reload_pcilend(lender(), "unsafe_groups=1"));
  EXPECT_OK(await_link(lender(), "up", ""));
  EXPECT_OK(await_link(borrower(), "up", ""));
  EXPECT_NE(lender().log().find("other devices share its IOMMU group"), std::string::npos);

  ASSERT_OK(reload_pcilend(lender(), ""));
  EXPECT_OK(await_link(lender(), "refused", "its IOMMU group has other devices"));
}

}  // namespace
}  // namespace pcilend::scenarios
