// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

// Writes, reads back and compares until it is told to stop; says what went wrong. A command that
// times out while the link is down makes the driver give the drive up for good, so there is time
// for a slow machine; what was under way when the link went down takes that time twice.
constexpr const char* kLoad =
    "echo 20000 >/sys/block/nvme0n1/queue/io_timeout; rm -f /tmp/stop; n=0; "
    "while [ ! -e /tmp/stop ]; do at=$((n % 60 * 8)); "
    "dd if=/dev/urandom of=/tmp/y bs=16k count=2 2>/dev/null; "
    "dd if=/tmp/y of=/dev/nvme0n1 bs=16k seek=$at conv=notrunc oflag=direct 2>/dev/null && "
    "dd if=/dev/nvme0n1 of=/tmp/z bs=16k skip=$at count=2 iflag=direct 2>/dev/null && "
    "{ cmp /tmp/y /tmp/z && n=$((n+1)) && echo $n >/tmp/n && mv /tmp/n /tmp/rounds || echo wrong "
    "data at $at; }; done";

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme: reset ═══ for 1 s ══════ guest under I/O: its driver starts the drive anew
 *
 * Whatever the guest is told that it has written or read is right.
 */
TEST_F(TwoHosts, AFlapCostsAResetAndNoData) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().start_guest());
  ASSERT_OK(job().await_guest_disk());
  auto load = job().guest().start(kLoad, {{}, 10min});
  ASSERT_OK(load);
  const auto rounds = [&] {
    const auto done = job().guest().exec("cat /tmp/rounds");
    return done && done->code == 0 ? std::stoi(done->out) : 0;
  };
  ASSERT_OK(lab::eventually("the guest does I/O", lab::kPatience, [&] { return rounds() > 0; }));
  const auto before = job().function_on(lender());
  ASSERT_OK(before);

  ASSERT_OK(lab_->fabric().link_down(1, 2));
  ASSERT_OK(await_links_down(lender()));
  ASSERT_OK(lab_->fabric().link_up(1, 2));
  ASSERT_OK(lab::eventually("the function was reset", lab::kPatience, [&] {
    const auto now = job().function_on(lender());
    return now && now->at("resets") > before->at("resets");
  }));
  const int so_far = rounds();
  ASSERT_OK(lab::eventually("I/O goes on", 5min, [&] { return rounds() > so_far + 1; }));
  const auto function = job().function_on(lender());
  ASSERT_OK(function);
  EXPECT_EQ(function->at("state"), "borrowed") << "the lease went on";

  ASSERT_OK(job().guest().run("touch /tmp/stop"));
  const auto ended = load->wait();
  ASSERT_OK(ended);
  EXPECT_EQ(ended->out, "");
  ASSERT_OK(job().shut_down_guest());
}

}  // namespace
}  // namespace pcilend::scenarios
