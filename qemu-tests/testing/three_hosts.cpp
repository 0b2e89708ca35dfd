// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/three_hosts.h"

#include "testing/echo_server.h"
#include "testing/lan.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

Result<lab::Options> three_hosts() {
  lab::Options options;
  options.name = "three";
  options.hosts = 3;
  for (const char* id : {"nic", "igb"}) attach_to_wire(options, id);
  for (const char* device : {"nvme,id=nvme,serial=nvme,drive-size=16M", "e1000e,id=nic,netdev=nic",
                             "igb,id=igb,netdev=igb,root-port=on",
                             "nvme,id=a,serial=a,drive-size=16M,addr=1c.0,multifunction=on",
                             "nvme,id=b,serial=b,drive-size=16M,addr=1c.1"})
    PCILEND_TRY(options.add_device(fmt::format("host1:{}", device)));
  PCILEND_TRY(add_wire(options));
  PCILEND_TRY(add_lan(options, 2, 3));
  return options;
}

}  // namespace

std::optional<lab::Lab> OnThreeHosts::lab_;
std::optional<lab::Running> OnThreeHosts::server_;

void OnThreeHosts::SetUpTestSuite() {
  const auto options = three_hosts();
  ASSERT_OK(options);
  ASSERT_OK(start_lab(*options, lab_));
  auto server = start_echo_server(lender());
  ASSERT_OK(server);
  server_.emplace(std::move(*server));
  for (const int number : {2, 3}) {
    ASSERT_OK(lender().run(fmt::format("pcilend connect {}", host(number).node())));
    ASSERT_OK(join_lan(host(number)));
  }
}

void OnThreeHosts::TearDownTestSuite() {
  server_.reset();
  if (lab_) EXPECT_OK(lender().run("pcilend disconnect 8 && pcilend disconnect 12"));
  EXPECT_OK(end_lab(lab_));
}

void OnThreeHosts::SetUp() {
  ASSERT_TRUE(lab_) << "the lab did not start";
  start_ = std::chrono::steady_clock::now();
  for (int number = 1; number <= kHosts; ++number) ASSERT_OK(host(number).mark_log());
}

void OnThreeHosts::TearDown() {
  if (!lab_) return;
  for (int number = 1; number <= kHosts; ++number) {
    expect_nothing_mapped(host(number));
    EXPECT_OK(host(number).check_log(number == 1 ? expected_ : lab::Expected()));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
  fmt::print(stderr, "-- {} took {:.1f} s\n",
             testing::UnitTest::GetInstance()->current_test_info()->name(), took.count());
}

Result<> OnThreeHosts::power_on(int number) {
  PCILEND_TRY(host(number).power_on());
  return join_lan(host(number));
}

void OnThreeHosts::expect_refused(const lab::Host& host, const std::string& command,
                                  const std::string& words) {
  const auto output = host.exec(command);
  ASSERT_OK(output);
  EXPECT_NE(output->code, 0) << command;
  EXPECT_NE(output->err.find(words), std::string::npos) << command << ": " << output->err;
}

}  // namespace pcilend::scenarios
