// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/qmp.h"
#include "main_job/admin_steps.h"
#include "main_job/main_job.h"
#include "testing/asserts.h"
#include "testing/suite_lab.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

// Two hosts of their own; the lender has a drive and an empty slot.
class Persistence : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "persistence";
    ASSERT_OK(options.add_device("host1:nvme,serial=kept,drive-size=64M"));
    ASSERT_OK(options.add_device("host1:pcie-root-port,id=socket,chassis=1"));
    ASSERT_OK(start_lab(options, lab_));
  }
  static void TearDownTestSuite() { EXPECT_OK(end_lab(lab_)); }

  void SetUp() override {
    ASSERT_TRUE(lab_) << "the lab did not start";
    ASSERT_OK(lender().mark_log());
    ASSERT_OK(borrower().mark_log());
  }
  void TearDown() override {
    if (!lab_) return;
    EXPECT_OK(lender().run("rm -rf /etc/pcilend"));
    EXPECT_OK(lender().check_log());
    EXPECT_OK(borrower().check_log());
  }

  [[nodiscard]] static lab::Host& lender() { return lab_->host(1); }
  [[nodiscard]] static lab::Host& borrower() { return lab_->host(2); }

  // The lender's function at that address, as `host` lists it; null if it does not.
  static json function_at(const lab::Host& host, const std::string& bdf) {
    return scenarios::function_at(host, lender(), bdf).value_or(json());
  }
  static Result<> await_available(const std::string& bdf) {
    return lab::eventually("the borrower sees " + bdf + " available", lab::kPatience, [&] {
      const json function = function_at(borrower(), bdf);
      return function.is_object() && function.at("state") == "available";
    });
  }
  // Which boot of the lender the borrower talks to.
  static json lender_boot() {
    const auto links = borrower().json("pcilend link --json");
    return links ? links->at("links").at(0).at("peer_boot_id") : json();
  }

  static json lender_link() {
    const auto links = lender().json("pcilend link --json");
    return links ? links->at("links").at(0) : json::object();
  }

  static std::optional<lab::Lab> lab_;
};

std::optional<lab::Lab> Persistence::lab_;

/*
 *   host1 (lender, node 4)             host2 (borrower, node 8)
 *   nvme: connect, pin, add, label,
 *         allow, available, save ═════ available
 *   reset ── init: pcilend restore ═══ available again: the same id and UUID; pinned
 *   nothing typed                      borrows it
 */
TEST_F(Persistence, ALenderThatRebootsComesBack) {
  const auto address = lender().address(0);
  ASSERT_OK(address);
  MainJob job(lender(), borrower(), *address, "guest");
  ASSERT_OK(job.lend());
  ASSERT_OK(
      lender().run("pcilend connect 8 --adapter " + lender_link()["adapter"].get<std::string>()));
  ASSERT_OK(lender().run({"pcilend", "label", *address, "kept"}));
  ASSERT_OK(lender().run("pcilend allow " + *address + " 8"));
  ASSERT_OK(lender().run("pcilend save"));
  ASSERT_OK(job.see_available());
  const json before = function_at(borrower(), *address);
  const json boot = lender_boot();
  ASSERT_TRUE(boot.is_string());

  ASSERT_OK(lender().reset());
  ASSERT_OK(lab::eventually("the borrower talks to the lender's new boot", lab::kPatience,
                            [&] { return lender_boot().is_string() && lender_boot() != boot; }));
  ASSERT_OK(await_available(*address));
  const json after = function_at(borrower(), *address);
  EXPECT_EQ(after.at("id"), before.at("id"));
  EXPECT_EQ(after.at("uuid"), before.at("uuid"));
  const json own = function_at(lender(), *address);
  EXPECT_EQ(own.at("label"), "kept");
  EXPECT_EQ(own.at("allowed"), json({8}));
  EXPECT_EQ(lender_link()["pinned"], 8);
  const auto again = lender().json("pcilend restore --json");
  ASSERT_OK(again);
  EXPECT_EQ(again->at("steps"), json::array()) << "restored is restored";

  ASSERT_OK(job.borrow_and_use());
  ASSERT_OK(job.clean_up());
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

  {
    auto qmp = lab::Qmp::connect(lab_->layout().qmp(1), lab::Deadline(10s));
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
}

}  // namespace
}  // namespace pcilend::scenarios
