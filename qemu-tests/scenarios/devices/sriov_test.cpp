// SPDX-License-Identifier: GPL-2.0-or-later
#include <regex>

#include "main_job/admin_steps.h"
#include "testing/asserts.h"
#include "testing/echo_server.h"
#include "testing/suite_lab.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

constexpr int kHosts = 3;

// A virtual function, and the host that borrows it.
struct Part {
  lab::Host& borrower;
  std::string address;  // on the lender
  std::string id;
  std::string interface;  // on the borrower
};

// Host1 has an adapter with virtual functions, on a wire with another one that serves echoes.
class Sriov : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "sriov";
    options.hosts = kHosts;
    attach_to_wire(options, "igb");
    ASSERT_OK(options.add_device("host1:pcie-root-port,id=port0,chassis=1,addr=18"));
    ASSERT_OK(options.add_device("host1:igb,id=igb,netdev=igb,bus=port0"));
    ASSERT_OK(add_wire(options));
    ASSERT_OK(start_lab(options, lab_));
    auto server = start_echo_server(lender());
    ASSERT_OK(server);
    server_.emplace(std::move(*server));
  }
  static void TearDownTestSuite() {
    server_.reset();
    EXPECT_OK(end_lab(lab_));
  }

  // Two virtual functions, each available.
  void SetUp() override {
    ASSERT_TRUE(lab_) << "the lab did not start";
    for (int host = 1; host <= kHosts; ++host) ASSERT_OK(lab_->host(host).mark_log());
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
      parts_.push_back({lab_->host(i + 2), address->substr(0, address->find('\n')), "", ""});
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
    EXPECT_OK(
        lender().exec(fmt::format("echo 0 >/sys/bus/pci/devices/{}/sriov_numvfs", physical_)));
    for (int host = 1; host <= kHosts; ++host)
      EXPECT_OK(lab_->host(host).check_log(host == 1 ? expected_ : lab::Expected()));
  }

  static lab::Host& lender() { return lab_->host(1); }

  static void lend(Part& part) {
    ASSERT_OK(lender().run(fmt::format("pcilend connect {}", part.borrower.node())));
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
    const auto name = part.borrower.run(
        fmt::format("ls /sys/bus/pci/devices/{}/net", function.at("virtual").get<std::string>()));
    ASSERT_OK(name);
    part.interface = name->substr(0, name->find('\n'));
    ASSERT_OK(
        part.borrower.run(fmt::format("ip address add 10.9.0.{}/24 dev {} && ip link set {} up",
                                      part.borrower.number(), part.interface, part.interface)));
    ASSERT_OK(part.borrower.until(fmt::format("busybox ping -c 1 -W 1 {}", kEchoServer)));
  }

  static std::optional<lab::Lab> lab_;
  static std::optional<lab::Running> server_;

  std::string physical_;    // its address
  lab::Expected expected_;  // in the lender's kernel log
  std::vector<Part> parts_;
};

std::optional<lab::Lab> Sriov::lab_;
std::optional<lab::Running> Sriov::server_;

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
    ASSERT_OK(part.borrower.run("pcilend return " + part.id));
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
  expected_ = {std::regex("^DMAR: DRHD: handling fault status reg"),
               std::regex("^DMAR: \\[DMA (Read|Write) NO_PASID\\] Request device "
                          "\\[(0000:)?00:04\\.0\\] fault addr 0x100000")};
  Part& part = parts_.front();
  ASSERT_NO_FATAL_FAILURE(borrow(part));
  ASSERT_OK(lender().run(fmt::format("echo 0 >/sys/bus/pci/devices/{}/sriov_numvfs", physical_)));
  ASSERT_OK(part.borrower.until("! ip link show " + part.interface));
  ASSERT_OK(part.borrower.until("! pcilend list | grep -q " + part.id + ":"));
}

}  // namespace
}  // namespace pcilend::scenarios
