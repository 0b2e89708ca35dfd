// SPDX-License-Identifier: GPL-2.0-or-later
// A shared function behind another IOMMU than Intel's.
#include "scenarios/lending/shared_drive.h"

namespace pcilend::scenarios {
namespace {

using json = nlohmann::json;

class SharedLeaseElsewhere : public SharedLease {
 protected:
  /*
   *   host1 (lender): manager, client     host2: client     host3: client
   *
   * Each has edu copy, asks the manager, and has an interrupt of a drive.
   */
  void use_from_three_hosts() {
    auto keeper = manager("3");
    ASSERT_OK(keeper);
    for (int host : {1, 2, 3}) {
      SCOPED_TRACE(host);
      ASSERT_OK(await_state(lab_->host(host), id_, "borrowed"));
      auto client = ShareUser::start(lab_->host(host), "join", id_, "map 8192 copy ask who");
      ASSERT_OK(client);
      ASSERT_OK(client->end());
      EXPECT_EQ(client->said("copy")->at("same"), true);
      EXPECT_EQ(client->said("ask")->at("answer"),
                "who to " + client->said("joined")->at("lease").dump());
    }
    EXPECT_OK(await_clients(lender(), id_, 0));
    ASSERT_OK(keeper->kill());

    SharedDrive drive(*lab_);
    drive.begin("3,1");
    if (HasFatalFailure()) return;
    for (int host : {1, 2, 3}) {
      SCOPED_TRACE(host);
      // They have the same number one after the other, and what came when it was nobody's.
      const int wanted = host == 1 ? 2 : 3;
      auto client =
          drive.client(host, fmt::format("1 listen 0 raise 0 raise 0 await {} counts", wanted));
      ASSERT_OK(client);
      ASSERT_OK(client->end());
      EXPECT_EQ(client->said("counts")->at("0"), wanted);
      ASSERT_OK(drive.manager().await("raised", static_cast<size_t>(host)));
    }
    drive.end();
  }
};

class SharedLeaseOfAmdLender : public SharedLeaseElsewhere {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "shared-amd";
    options.other_iommu[1] = lab::Iommu::Amd;
    // 7.3 remaps no interrupts without a southbridge at 00:14.0, which QEMU has not.
    if (options.kernel == "backports")
      options.kernel_arguments[1] = {"pcilend.unsafe_interrupts=1"};
    start(std::move(options));
  }
};

TEST_F(SharedLeaseOfAmdLender, ThreeHostsHaveItAtOnce) {
  EXPECT_OK(lender().run("ls /sys/class/iommu | grep ivhd"));
  use_from_three_hosts();
}

}  // namespace
}  // namespace pcilend::scenarios
