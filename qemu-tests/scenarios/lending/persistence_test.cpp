// SPDX-License-Identifier: GPL-2.0-or-later
#include <gmock/gmock.h>

#include "lab/qmp.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

class Persistence : public TwoHosts {
 protected:
  void TearDown() override {
    if (!lab_) return;
    EXPECT_OK(lender().run("rm -rf /etc/pcilend"));
    TwoHosts::TearDown();
    EXPECT_OK(lender().run("pcilend disconnect 8"));
  }

  // The lender's function at that address, as `host` lists it; null if it does not.
  [[nodiscard]] json function_at(const lab::Host& host, const std::string& bdf) const {
    return scenarios::function_at(host, lender(), bdf).value_or(json());
  }
  [[nodiscard]] Result<> await_available(const std::string& bdf) const {
    return lab::eventually("the borrower sees " + bdf + " available", lab::kPatience, [&] {
      const json function = function_at(borrower(), bdf);
      return function.is_object() && function.at("state") == "available";
    });
  }
  // Which boot of the lender the borrower talks to.
  [[nodiscard]] json lender_boot() const {
    const auto links = borrower().json("pcilend link --json");
    return links ? links->at("links").at(0).at("peer_boot_id") : json();
  }

  [[nodiscard]] json lender_link() const {
    const auto links = lender().json("pcilend link --json");
    return links ? links->at("links").at(0) : json::object();
  }
};

/*
 *   host1 (lender, node 4)             host2 (borrower, node 8)
 *   nvme: connect, pin, add, label,
 *         allow, available, save ═════ available
 *   reset ── init: pcilend restore ═══ available again: the same id and UUID; pinned
 *   nothing typed                      borrows it
 */
TEST_F(Persistence, ALenderThatRebootsComesBack) {
  const auto address = lender().address("nvme");
  ASSERT_OK(address);
  ASSERT_OK(job().lend());
  ASSERT_OK(
      lender().run("pcilend connect 8 --adapter " + lender_link()["adapter"].get<std::string>()));
  ASSERT_OK(lender().run({"pcilend", "label", *address, "kept"}));
  ASSERT_OK(lender().run("pcilend allow " + *address + " 8"));
  ASSERT_OK(lender().run("pcilend save"));
  ASSERT_OK(job().see_available());
  const json before = function_at(borrower(), *address);
  const json boot = lender_boot();
  ASSERT_TRUE(boot.is_string());

  ASSERT_OK(lender().reset());
  ASSERT_OK(lab::eventually("the borrower talks to the lender's new boot", lab::kPatience,
                            [&] { return lender_boot().is_string() && lender_boot() != boot; }));
  // Until the new boot has told what it has, the former one's is listed.
  ASSERT_OK(borrower().until(
      "dmesg | awk '/pcilend-lab: mark/ { n = 0 } /link to node 4 is up/ { n = 1 } "
      "n && /: MDEV: Registered/ { n = 2 } END { exit n != 2 }'"));
  ASSERT_OK(await_available(*address));
  const json after = function_at(borrower(), *address);
  ASSERT_TRUE(after.is_object());
  EXPECT_EQ(after.at("id"), before.at("id"));
  EXPECT_EQ(after.at("uuid"), before.at("uuid"));
  const json own = function_at(lender(), *address);
  EXPECT_EQ(own.at("label"), "kept");
  EXPECT_EQ(own.at("allowed"), json({8}));
  EXPECT_EQ(lender_link()["pinned"], 8);
  const auto again = lender().json("pcilend restore --json");
  ASSERT_OK(again);
  EXPECT_EQ(again->at("steps"), json::array()) << "restored is restored";

  ASSERT_OK(job().borrow_and_use());
}

/*
 *   host1: its udev takes each line of the rules that it has
 */
TEST_F(TwoHosts, UdevAcceptsTheRules) {
  const auto verified = lender().run(
      "udevadm verify $(find /lib/udev/rules.d/ /etc/udev/rules.d/ -name '*pcilend*')");
  ASSERT_OK(verified);
  EXPECT_THAT(*verified,
              testing::HasSubstr("2 udev rules files have been checked.\n  Success: 2\n"));
}

/*
 *   host1 (lender)                          host2 (borrower)
 *   available-filter -s BUS:
 *   QMP device_add ── udev: pcilend restore
 *   nvme: added, available ════════════════ available
 *   unavailable-filter -s BUS: ════════════ added
 */
TEST_F(Persistence, APluggedInFunctionIsLentByAFilter) {
  ASSERT_OK(lender().run("pcilend connect 8"));
  const auto socket = lender().address("socket");
  ASSERT_OK(socket);
  const auto number = lender().run("cat /sys/bus/pci/devices/" + *socket + "/secondary_bus_number");
  ASSERT_OK(number);
  const std::string bus = fmt::format("{:02x}:", std::stoi(*number));
  ASSERT_OK(lender().run("pcilend available-filter --slot " + bus + " --label plugged"));
  const auto listed = lender().run("pcilend available-filter --list");
  ASSERT_OK(listed);
  EXPECT_EQ(*listed, "-s " + bus +
                         ", label 'plugged' (/etc/pcilend/filters.json: "
                         "filters.available[0])\n");

  const auto connect = [&] { return lab::Qmp::connect(lab_->layout().qmp(1), lab::Deadline(10s)); };
  {
    auto qmp = connect();
    ASSERT_OK(qmp);
    ASSERT_OK(qmp->execute("blockdev-add", {{"driver", "null-co"},
                                            {"node-name", "blank"},
                                            {"size", 64 << 20},
                                            {"read-zeroes", true}}));
    ASSERT_OK(qmp->execute("device_add", {{"driver", "nvme"},
                                          {"id", "plugged"},
                                          {"bus", "socket"},
                                          {"drive", "blank"},
                                          {"serial", "plugged"}}));
  }
  const std::string address = "0000:" + bus + "00.0";
  ASSERT_OK(await_available(address));
  EXPECT_EQ(function_at(lender(), address).at("label"), "plugged");
  EXPECT_EQ(function_at(lender(), address).at("driver"), "pcilend");

  const auto excluded = lender().run("pcilend unavailable-filter --slot " + bus);
  ASSERT_OK(excluded);
  EXPECT_EQ(*excluded, "make " + address + " unavailable: done\n");
  EXPECT_EQ(function_at(lender(), address).at("state"), "added");
  ASSERT_OK(lender().run("pcilend remove " + address));

  auto qmp = connect();
  ASSERT_OK(qmp);
  ASSERT_OK(qmp->execute("device_del", {{"id", "plugged"}}));
  ASSERT_OK(qmp->wait_for_event("DEVICE_DELETED", lab::Deadline(lab::kPatience)));
  ASSERT_OK(qmp->execute("blockdev-del", {{"node-name", "blank"}}));
}

}  // namespace
}  // namespace pcilend::scenarios
