// SPDX-License-Identifier: GPL-2.0-or-later
// Borrowed functions in the hands of Debian's own users of VFIO, which choose IOVAs as they like.
#include <csignal>

#include "testing/attached.h"
#include "testing/echo_server.h"
#include "testing/two_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

constexpr const char* kDebian = "/mnt";  // on host2
constexpr const char* kTestpmdAddress = "10.9.0.9";
constexpr int kPings = 20;

/*
 *   host1 (lender)                          host2 (borrower)
 *   nvme
 *   e1000e, igb ── wire ── host1 itself     a Debian with QEMU's tools and DPDK
 */
class VfioUsers : public TwoHosts {
 protected:
  static void SetUpTestSuite() {
    lab::Options options;
    options.name = "users";
    ASSERT_OK(
        options.add_device(fmt::format("host1:nvme,id=nvme,serial={},drive-size=16M", kSerial)));
    for (const char* nic : {"e1000e", "igb"}) {
      attach_to_wire(options, nic);
      ASSERT_OK(options.add_device(fmt::format("host1:{0},id={0},netdev={0},root-port=on", nic)));
    }
    ASSERT_OK(add_wire(options));
    ASSERT_OK(attach(options, 2, Attached::VfioUsers, "virtio-blk-pci,id=users"));
    ASSERT_OK(start_lab(options, lab_));
    auto server = start_echo_server(lab_->host(1));
    ASSERT_OK(server);
    server_.emplace(std::move(*server));
    const auto users = await_disk(lab_->host(2), *lab_->host(2).address("users"));
    ASSERT_OK(users);
    ASSERT_OK(lab_->host(2).run(fmt::format(
        "mount -o ro {0} {1} && mount --rbind /dev {1}/dev && mount --rbind /sys {1}/sys && "
        "mount -t proc proc {1}/proc && mount --bind /tmp {1}/tmp && mount --bind /run {1}/run",
        *users, kDebian)));
  }

  static void TearDownTestSuite() {
    server_.reset();
    TwoHosts::TearDownTestSuite();
  }

  void TearDown() override {
    if (!lab_) return;
    if (!nic_.empty()) {
      EXPECT_OK(borrower().exec("pcilend return --force " + nic_id_));
      EXPECT_OK(lender().exec("pcilend unavailable --force " + nic_));
      EXPECT_OK(lender().exec("pcilend remove " + nic_));
    }
    TwoHosts::TearDown();
  }

  // A command of that Debian.
  static std::string debian(const std::string& command) {
    return fmt::format("chroot {} {}", kDebian, command);
  }

  // Host2 has borrowed that NIC, by the kernel's own vfio-pci: DPDK knows drivers by their names.
  void borrow_nic(const std::string& nic, std::string* at) {
    const auto address = lender().address(nic);
    ASSERT_OK(address);
    ASSERT_OK(lender().run(fmt::format("pcilend connect {}", borrower().node())));
    nic_ = *address;
    const auto offered = offer(lender(), nic_);
    ASSERT_OK(offered);
    nic_id_ = offered->at("id");
    ASSERT_OK(await_state(borrower(), nic_id_, "available"));
    ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + nic_id_));
    const auto function = function_on(borrower(), nic_id_);
    ASSERT_OK(function);
    *at = function->at("virtual_bdf");
    ASSERT_OK(borrower().run(fmt::format(
        "modprobe vfio-pci && cd /sys/bus/pci/devices/{0} && echo vfio-pci >driver_override && "
        "echo {0} >driver/unbind && echo {0} >/sys/bus/pci/drivers_probe && "
        "[ $(basename $(readlink driver)) = vfio-pci ]",
        *at)));
  }

  // testpmd answers to everything on that NIC, until it is interrupted. It has two threads, and the
  // host one CPU.
  void expect_answers(const std::string& nic, const std::string& memory) {
    SCOPED_TRACE(nic);
    std::string at;
    ASSERT_NO_FATAL_FAILURE(borrow_nic(nic, &at));
    const auto bad_sums = [&] {
      const auto sums = lender().run("awk '/^Icmp: [0-9]/ { print $4 }' /proc/net/snmp");
      EXPECT_OK(sums);
      return sums.value_or("");
    };
    const std::string before = bad_sums();
    auto testpmd = borrower().start(
        debian(fmt::format(
            "dpdk-testpmd --lcores '(0,1)@0' --no-telemetry --iova-mode=va {} -a {} -- "
            "--forward-mode=icmpecho --auto-start --total-num-mbufs=2048 --stats-period=1 --rxd=64 "
            "--txd=64",
            memory, at)),
        {{}, 10min});
    ASSERT_OK(testpmd);
    const auto ready = lab::eventually("testpmd forwards", lab::kPatience, [&] {
      return testpmd->ended() ||
             testpmd->output_so_far().find("NIC statistics") != std::string::npos;
    });
    EXPECT_OK(ready);
    if (!testpmd->ended()) {
      EXPECT_OK(lender().until(fmt::format("busybox ping -c 1 -W 1 {}", kTestpmdAddress)));
      const auto pings = lender().run(
          fmt::format("busybox ping -q -c {} -s 1400 -W 5 {}", kPings, kTestpmdAddress));
      EXPECT_OK(pings);
      if (pings) EXPECT_NE(pings->find(" 0% packet loss"), std::string::npos) << *pings;
      const auto refused = borrower().exec("pcilend return " + nic_id_);
      ASSERT_OK(refused);
      EXPECT_EQ(refused->code, static_cast<int>(ErrorClass::State)) << refused->err;
      testpmd->interrupt();
    }
    const auto ended = testpmd->wait();
    ASSERT_OK(ended);
    // Interrupted, it stops its ports, says so, and ends by the same signal.
    EXPECT_EQ(ended->code, 128 + SIGINT) << ended->out << ended->err;
    EXPECT_NE(ended->out.find("Bye..."), std::string::npos) << ended->out << ended->err;
    EXPECT_EQ(bad_sums(), before) << "answers that were damaged";

    ASSERT_OK(borrower().run("pcilend return " + nic_id_));
    ASSERT_OK(await_state(lender(), nic_id_, "available"));
    ASSERT_OK(lender().run(fmt::format("pcilend unavailable {0} && pcilend remove {0}", nic_)));
    nic_.clear();
  }

 private:
  static std::optional<lab::Running> server_;
  std::string nic_;
  std::string nic_id_;
};

std::optional<lab::Running> VfioUsers::server_;

/*
 *   host1 (lender)                 host2 (borrower)
 *   nvme ═════════════════════════ qemu-io, qemu-img: nvme://8004:01:00.0/1
 *
 * What they write is there for each of them, and for the lender afterwards.
 */
TEST_F(VfioUsers, QemusNvmeDriver) {
  ASSERT_OK(job().lend());
  ASSERT_OK(job().see_available());
  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + job().id()));
  const auto function = job().function_on(borrower());
  ASSERT_OK(function);
  EXPECT_EQ(function->at("driver"), "pcilend_vfio");
  const std::string drive =
      fmt::format("nvme://{}/1", function->at("virtual_bdf").get<std::string>());
  const std::string raw = debian("qemu-io -f raw ");

  ASSERT_OK(borrower().run("head -c 256K /dev/urandom >/tmp/data"));
  ASSERT_OK(borrower().run(raw +
                           "-c 'write -s /tmp/data 0 256K' -c 'write -P 0xa5 1M 64K' "
                           "-c 'aio_write -P 0x3c 1088K 4K' -c aio_flush -c flush " +
                           drive));
  ASSERT_OK(borrower().run(raw +
                           "-c 'read -P 0xa5 1M 64K' -c 'read -P 0x3c 1088K 4K' "
                           "-c 'readv -P 0xa5 1M 4K 12K 512' " +
                           drive));
  ASSERT_OK(borrower().run(
      debian(fmt::format("qemu-img dd -f raw -O raw bs=64k count=4 if={} of=/tmp/read", drive)) +
      " && cmp /tmp/data /tmp/read"));

  // 16 at a time, each of them from and to a buffer of its own.
  for (const char* direction : {"-w --pattern=0x11 --offset=2097152", "--offset=2097152"})
    EXPECT_OK(borrower().run(debian(fmt::format(
        "qemu-img bench -f raw -t writeback -c 128 -d 16 -s 4096 {} {}", direction, drive))));
  EXPECT_OK(borrower().run(raw + "-c 'read -P 0x11 2M 512K' " + drive));

  ASSERT_OK(borrower().run("pcilend return " + job().id()));
  ASSERT_OK(job().await_state(lender(), "available"));
  ASSERT_OK(lender().run("pcilend unavailable " + *lender().address(0)));
  const auto disk = job().lender_disk();
  ASSERT_OK(disk);
  const auto here = lender().run(
      fmt::format("dd if={} bs=256k count=1 iflag=direct 2>/dev/null | sha256sum", *disk));
  ASSERT_OK(here);
  EXPECT_EQ(*here, borrower().run("sha256sum </tmp/data").value_or(""));
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   e1000e ═══════════════════════ dpdk-testpmd, in pages of 4 KiB at 2 TiB
 *     │ wire
 *   ping ...
 */
TEST_F(VfioUsers, DpdkHasAnE1000e) {
  expect_answers("e1000e", "--no-huge -m 32 --base-virtaddr=0x20000000000");
}

/*
 *   host1 (lender)                 host2 (borrower)
 *   igb ══════════════════════════ dpdk-testpmd, in huge pages
 *     │ wire
 *   ping ...
 */
TEST_F(VfioUsers, DpdkHasAnIgbInHugePages) {
  ASSERT_OK(borrower().run("echo 64 >/proc/sys/vm/nr_hugepages"));
  expect_answers("igb", "--in-memory -m 64");
  EXPECT_OK(borrower().run("echo 0 >/proc/sys/vm/nr_hugepages"));
}

}  // namespace
}  // namespace pcilend::scenarios
