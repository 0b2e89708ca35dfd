// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/echo_server.h"
#include "testing/three_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

// A virtual function, and the host that borrows it.
struct Part {
  lab::Host& borrower;
  std::string address;  // on the lender
  std::string id;
  std::string interface;  // on the borrower
};

// Host1 has an adapter with virtual functions, on a wire with another one that serves echoes.
class Sriov : public OnThreeHosts {
 protected:
  // Two virtual functions, each available.
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(OnThreeHosts::SetUp());
    const auto physical = lender().address("igb");
    ASSERT_OK(physical);
    physical_ = *physical;
    const std::string device = "/sys/bus/pci/devices/" + physical_;
    ASSERT_OK(
        lender().run(fmt::format("pf=$(ls {0}/net) && ip link set $pf up && "
                                 "echo 2 >{0}/sriov_numvfs && "
                                 "ip link set $pf vf 0 mac 52:54:00:09:00:02 && "
                                 "ip link set $pf vf 1 mac 52:54:00:09:00:03",
                                 device)));
    for (int i = 0; i < 2; ++i) {
      const auto address = lender().run(fmt::format("basename $(readlink {}/virtfn{})", device, i));
      ASSERT_OK(address);
      parts_.push_back({host(i + 2), address->substr(0, address->find('\n')), "", ""});
      ASSERT_NO_FATAL_FAILURE(lend(parts_.back()));
    }
  }

  void TearDown() override {
    if (!lab_) return;
    for (const Part& part : parts_) {
      EXPECT_OK(part.borrower.exec("pcilend return --force " + part.id));
      EXPECT_OK(lender().exec("pcilend unavailable --force " + part.address));
      EXPECT_OK(lender().exec("pcilend remove " + part.address));
    }
    EXPECT_OK(lender().exec(fmt::format(
        "cd /sys/bus/pci/devices/{} && echo 0 >sriov_numvfs && ip link set $(ls net) down",
        physical_)));
    OnThreeHosts::TearDown();
  }

  static void lend(Part& part) {
    const auto offered = offer(lender(), part.address);
    ASSERT_OK(offered);
    part.id = offered->at("id");
    ASSERT_OK(await_state(part.borrower, part.id, "available"));
  }

  static void borrow(Part& part) {
    const auto borrowed = part.borrower.json("pcilend borrow --wait --json " + part.id);
    ASSERT_OK(borrowed);
    const auto& function = borrowed->at("functions").at(0);
    EXPECT_EQ(function.at("driver"), "igbvf");
    const auto name = part.borrower.run(fmt::format("ls /sys/bus/pci/devices/{}/net",
                                                    function.at("virtual_bdf").get<std::string>()));
    ASSERT_OK(name);
    part.interface = name->substr(0, name->find('\n'));
    ASSERT_OK(
        part.borrower.run(fmt::format("ip address add 10.9.0.{}/24 dev {} && ip link set {} up",
                                      part.borrower.number(), part.interface, part.interface)));
    ASSERT_OK(part.borrower.until(fmt::format("busybox ping -c 1 -W 1 {}", kEchoServer)));
  }

  std::string physical_;  // its address
  std::vector<Part> parts_;
};

/*
 *   host1 (lender)                         host2, host3
 *   igb ─┬─ physical function: igb
 *        ├─ virtual function 0 ═══════════ host2: igbvf ── data to host1 and back ─┐ at the
 *        └─ virtual function 1 ═══════════ host3: igbvf ── data to host1 and back ─┘ same time
 */
TEST_F(Sriov, VirtualFunctionsGoToTwoHosts) {
  for (Part& part : parts_) ASSERT_NO_FATAL_FAILURE(borrow(part));
  std::vector<lab::Running> work;
  for (const Part& part : parts_) {
    auto running = part.borrower.start(send_around(256), {{}, 5min});
    ASSERT_OK(running);
    work.push_back(std::move(*running));
  }
  for (lab::Running& running : work) {
    const auto output = running.wait();
    ASSERT_OK(output);
    EXPECT_EQ(output->code, 0) << output->out << output->err;
  }

  ASSERT_OK(lender().run("pcilend add " + physical_));
  const auto offered = lender().exec("pcilend available " + physical_);
  ASSERT_OK(lender().run("pcilend remove " + physical_));
  ASSERT_OK(offered);
  EXPECT_NE(offered->err.find("its virtual functions are enabled"), std::string::npos)
      << offered->err;

  for (const Part& part : parts_) {
    const auto refused = part.borrower.exec("pcilend return " + part.id);
    ASSERT_OK(refused);
    EXPECT_NE(refused->err.find("is up and has an address"), std::string::npos) << refused->err;
    ASSERT_OK(part.borrower.run(
        fmt::format("ip link set {} down && pcilend return {}", part.interface, part.id)));
    ASSERT_OK(lender().run("pcilend unavailable " + part.address));
    const auto driver = lender().run(
        fmt::format("basename $(readlink /sys/bus/pci/devices/{}/driver)", part.address));
    ASSERT_OK(driver);
    EXPECT_EQ(*driver, "igbvf\n");
  }
}

/*
 *   host1 (lender)                         host2
 *   igb: sriov_numvfs becomes 0
 *        ╰─ virtual function 0 ═══ gone ══ igbvf: it is unplugged, and the host lives
 */
TEST_F(Sriov, AVirtualFunctionThatGoesAwayIsUnplugged) {
  // What its driver still wants of it ends at the lender's IOMMU.
  expect_in_log("^DMAR: DRHD: handling fault status reg");
  expect_in_log(
      "^DMAR: \\[DMA (Read|Write) NO_PASID\\] Request device "
      "\\[(0000:)?00:04\\.0\\] fault addr 0x100000");
  Part& part = parts_.front();
  ASSERT_NO_FATAL_FAILURE(borrow(part));
  ASSERT_OK(lender().run(fmt::format("echo 0 >/sys/bus/pci/devices/{}/sriov_numvfs", physical_)));
  ASSERT_OK(part.borrower.until("! ip link show " + part.interface));
  ASSERT_OK(part.borrower.until("! pcilend list | grep -q " + part.id + ":"));
}

}  // namespace
}  // namespace pcilend::scenarios
