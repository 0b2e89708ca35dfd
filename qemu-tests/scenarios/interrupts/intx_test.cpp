// SPDX-License-Identifier: GPL-2.0-or-later
#include <regex>

#include "main_job/admin_steps.h"
#include "scenarios/devices/device_matrix.h"
#include "testing/asserts.h"
#include "testing/echo_server.h"
#include "testing/suite_lab.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

std::string ping() {
  return fmt::format("busybox ping -c 1 -W 1 {}", kEchoServer);
}

// Host1 has, among others, an e1000, which knows legacy interrupts only, on a wire with a server of
// echoes.
class Intx : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto options = matrix_options_of_this_run();
    ASSERT_OK(options);
    ASSERT_OK(start_lab(*options, lab_));
    auto server = start_echo_server(lender());
    ASSERT_OK(server);
    server_.emplace(std::move(*server));
    ASSERT_OK(lender().run(fmt::format("pcilend connect {}", borrower().node())));
  }
  static void TearDownTestSuite() {
    server_.reset();
    EXPECT_OK(end_lab(lab_));
  }

  // What the borrower's driver still wants of it ends at the lender's IOMMU. So does what it wants
  // itself, if it reads where to write to over a lost link: there it reads all-ones.
  void expect_stopped_accesses() {
    expected_ = {std::regex("^DMAR: DRHD: handling fault status reg"),
                 std::regex("^DMAR: \\[DMA (Read|Write) NO_PASID\\] Request device "
                            "\\[(0000:)?00:04\\.0\\] fault addr 0x100"),
                 std::regex("^DMAR: \\[DMA Write NO_PASID\\] Request device \\[(0000:)?" +
                            address_.substr(5) + "\\] fault addr 0xfffffffffffff000 ")};
  }

  void SetUp() override {
    ASSERT_TRUE(lab_) << "the lab did not start";
    ASSERT_OK(lender().mark_log());
    ASSERT_OK(borrower().mark_log());
    const auto address = lender().address("e1000");
    ASSERT_OK(address);
    address_ = *address;
    const auto offered = offer(lender(), address_);
    ASSERT_OK(offered);
    id_ = offered->at("id");
    ASSERT_OK(await_state(borrower(), id_, "available"));
  }

  void TearDown() override {
    if (!lab_) return;
    if (HasFailure()) tell_state();
    EXPECT_OK(borrower().exec("pcilend return --force " + id_));
    EXPECT_OK(lender().exec("pcilend unavailable --force " + address_));
    EXPECT_OK(lender().exec("pcilend remove " + address_));
    EXPECT_OK(lender().check_log(expected_));
    EXPECT_OK(borrower().check_log());
  }

  // For who reads a failure: is it the interrupt that is missing, the data, or the wire?
  static void tell_state() {
    for (const lab::Host* host : {&lender(), &borrower()})
      for (int look = 0; look < 2; ++look)
        EXPECT_OK(host->exec(
            "cat /proc/interrupts /proc/net/dev; ip neigh; pcilend list; pcilend metrics; "
            "for f in /sys/bus/pci/drivers/pcilend/0000:*; do lspci -vs ${f##*/}; "
            "setpci -s ${f##*/} COMMAND STATUS; done; sleep 1"));
  }

  static lab::Host& lender() { return lab_->host(1); }
  static lab::Host& borrower() { return lab_->host(2); }

  // Its driver has it, and reaches the server.
  void borrow() {
    const auto borrowed = borrower().json("pcilend borrow --wait --json " + id_);
    ASSERT_OK(borrowed);
    const auto& function = borrowed->at("functions").at(0);
    EXPECT_EQ(function.at("driver"), "e1000");
    virtual_ = function.at("virtual_bdf");
    const auto name =
        borrower().until(fmt::format("ls /sys/bus/pci/devices/{}/net | grep .", virtual_));
    ASSERT_OK(name);
    interface_ = name->text();
    ASSERT_OK(borrower().run(
        fmt::format("ip address add 10.9.0.2/24 dev {0} && ip link set {0} up", interface_)));
    ASSERT_OK(borrower().until(ping()));
  }

  // All-ones, as a descriptor over a lost link reads, makes QEMU's e1000 send a frame of no length,
  // after which QEMU's hub takes nothing more from that e1000. With CTRL.VME set the e1000 adds a
  // VLAN tag, so the frame has 4 bytes. The driver sets CTRL.VME in its probe, not after a reset.
  void tag_frames() {
    ASSERT_OK(
        borrower().run(fmt::format("ethtool -K {0} rxvlan off && ethtool -K {0} rxvlan on && "
                                   "ethtool -d {0} | grep -E 'VLAN mode: +enabled'",
                                   interface_)));
  }

  // What has an address is not returned.
  void give_back() {
    ASSERT_OK(borrower().run(fmt::format("ip link set {} down", interface_)));
    ASSERT_OK(borrower().run("pcilend return " + id_));
  }

  // How many the lender has relayed since it was started.
  [[nodiscard]] static uint64_t relayed() {
    const auto count = lender().run(
        "pcilend metrics | awk '$1 == \"pcilend_interrupts_relayed_total\" { n = $2 } "
        "END { print n + 0 }'");
    EXPECT_OK(count);
    return count ? std::stoull(*count) : 0;
  }
  // How many the virtual function's handler was called for.
  [[nodiscard]] static uint64_t delivered() {
    const auto count = borrower().run(
        "awk '/pcilend-intx/ { for (i = 2; $i ~ /^[0-9]+$/; i++) n += $i } END { print n + 0 }' "
        "/proc/interrupts");
    EXPECT_OK(count);
    return count ? std::stoull(*count) : 0;
  }
  // Does the lender take interrupts for a borrower?
  [[nodiscard]] static bool lender_listens() {
    const auto found = lender().exec("grep -E ' pcilend(,|$)' /proc/interrupts");
    EXPECT_OK(found);
    return found && found->code == 0;
  }

  // The lender's own driver has it again.
  void expect_back() const {
    EXPECT_OK(lender().until(fmt::format(
        "[ $(basename $(readlink /sys/bus/pci/devices/{}/driver)) = e1000 ]", address_)));
    EXPECT_FALSE(lender_listens());
  }

  static std::optional<lab::Lab> lab_;
  static std::optional<lab::Running> server_;

  lab::Expected expected_;  // in the lender's kernel log
  std::string address_;     // on the lender
  std::string id_;
  std::string virtual_;    // its address on the borrower
  std::string interface_;  // on the borrower
};

std::optional<lab::Lab> Intx::lab_;
std::optional<lab::Running> Intx::server_;

/*
 *   host1 (lender)                                   host2 (borrower)
 *   e1000 ── INTx ── pcilend: masks it, tells ══════ virtual function ── e1000: serves it
 *     │                       opens it again ═══════ is through
 *   wire ── server of echoes
 */
TEST_F(Intx, DataOnBareMetal) {
  const uint64_t before = relayed();
  EXPECT_FALSE(lender_listens());
  ASSERT_NO_FATAL_FAILURE(borrow());
  EXPECT_TRUE(lender_listens());
  EXPECT_OK(borrower().run(send_around(256), {{}, 5min}));
  const uint64_t served = delivered();  // some more come meanwhile
  const uint64_t told = relayed() - before;
  EXPECT_GT(served, 8u);
  EXPECT_LE(served, told) << "each is told once";

  // A driver that lets go and comes back.
  ASSERT_OK(borrower().run(fmt::format("ip link set {} down", interface_)));
  EXPECT_OK(lab::eventually("e1000, which is down, has no handler", lab::kPatience,
                            [] { return !lender_listens(); }));
  ASSERT_OK(borrower().run(fmt::format("ip link set {} up", interface_)));
  ASSERT_OK(borrower().until(ping()));

  ASSERT_NO_FATAL_FAILURE(give_back());
  EXPECT_FALSE(lender_listens());
  ASSERT_OK(lender().run("pcilend unavailable " + address_));
  expect_back();
}

/*
 *   host1 (lender)                  host2 (borrower)                 guest
 *   e1000 ── INTx ── pcilend ══════ virtual function ── eventfd ──── e1000
 *                            ══════ enabled again ──── resample ──── end of interrupt
 */
TEST_F(Intx, DataInAGuest) {
  const uint64_t before = relayed();
  const auto spec = borrower().guest_spec("guest", {id_});
  ASSERT_OK(spec);
  const lab::Guest guest = borrower().guest(*spec);
  ASSERT_OK(guest.define());
  const auto undefine = std::shared_ptr<void>(nullptr, [&](void*) {
    const auto state = guest.state();
    if (state && *state == "running") EXPECT_OK(guest.destroy());
    EXPECT_OK(guest.undefine());
  });
  ASSERT_OK(guest.start());
  ASSERT_OK(guest.await_answer());
  ASSERT_OK(
      guest.run("modprobe e1000; i=0; until [ -e /sys/class/net/eth0 ]; do i=$((i+1)); [ $i -lt "
                "2400 ] || exit 1; "
                "sleep 0.1; done; ip address add 10.9.0.2/24 dev eth0 && ip link set eth0 up",
                {{}, 5min}));
  ASSERT_OK(
      guest.run(fmt::format("i=0; until {}; do i=$((i+1)); [ $i -lt 100 ] || exit 1; done", ping()),
                {{}, 5min}));
  EXPECT_OK(guest.run(send_around(64), {{}, 5min}));
  EXPECT_GT(relayed(), before + 8);
  EXPECT_TRUE(lender_listens());
  ASSERT_OK(guest.shut_down());
  EXPECT_OK(lab::eventually("the function is returned", lab::kPatience,
                            [] { return !lender_listens(); }));
}

/*
 *   host1 (lender)                         host2 (borrower)
 *   e1000 ── INTx ── pcilend ═══ down ════ e1000 under traffic: what got lost is asked for again
 */
TEST_F(Intx, GoesOnAfterALinkFlap) {
  expect_stopped_accesses();  // from when the link is up until it was reset
  ASSERT_NO_FATAL_FAILURE(borrow());
  auto traffic = borrower().start(fmt::format("busybox ping -i 0.05 {}", kEchoServer), {{}, 10min});
  ASSERT_OK(traffic);
  for (int i = 0; i < 2; ++i) {
    ASSERT_NO_FATAL_FAILURE(tag_frames());
    ASSERT_OK(lab_->fabric().link_down(1, 2));
    ASSERT_OK(await_links_down(lender()));
    ASSERT_OK(lab_->fabric().link_up(1, 2));
    ASSERT_OK(borrower().until(ping()));
  }
  traffic->interrupt();
  EXPECT_OK(borrower().run(send_around(64), {{}, 5min}));
  ASSERT_NO_FATAL_FAILURE(give_back());
  EXPECT_FALSE(lender_listens());
}

/*
 *   host1: unavailable --force ═══ host2: e1000 under traffic is removed, and both hosts live
 */
TEST_F(Intx, RevokedUnderTraffic) {
  expect_stopped_accesses();
  ASSERT_NO_FATAL_FAILURE(borrow());
  auto traffic =
      borrower().start(fmt::format("while {} >/dev/null; do :; done", send_around(32)), {{}, 5min});
  ASSERT_OK(traffic);
  const uint64_t before = relayed();
  ASSERT_OK(lab::eventually("data goes", lab::kPatience, [&] { return relayed() > before + 8; }));
  ASSERT_OK(lender().run("pcilend unavailable --force " + address_));
  expect_back();
  ASSERT_OK(borrower().until("! ip link show " + interface_));
  ASSERT_OK(borrower().until("! grep pcilend-intx /proc/interrupts"));
  traffic->interrupt();
}

/*
 *   host1 (lender)                host2 (borrower)
 *   e1000: masked ════════════════ COMMAND.INTX_DISABLE = 1: no interrupts, no data
 *   e1000: tells what came ═══════ COMMAND.INTX_DISABLE = 0: data again
 */
TEST_F(Intx, IsMaskedByTheCommandRegister) {
  ASSERT_NO_FATAL_FAILURE(borrow());
  ASSERT_OK(borrower().run(fmt::format("setpci -s {} COMMAND=400:400", virtual_)));
  const auto masked = [] {
    const auto count = delivered();
    EXPECT_OK(borrower().exec(ping()));
    return delivered() == count;
  };
  EXPECT_OK(lab::eventually("no interrupt comes", lab::kPatience, masked));
  const auto deaf = borrower().exec(ping());
  ASSERT_OK(deaf);
  EXPECT_NE(deaf->code, 0);
  ASSERT_OK(borrower().run(fmt::format("setpci -s {} COMMAND=0:400", virtual_)));
  ASSERT_OK(borrower().until(ping()));
  ASSERT_NO_FATAL_FAILURE(give_back());
}

}  // namespace
}  // namespace pcilend::scenarios
