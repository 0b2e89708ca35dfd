// SPDX-License-Identifier: GPL-2.0-or-later
// A guest moves between hosts while it is off, as docs/migration.md says, and its functions with
// it.
#include "testing/echo_server.h"
#include "testing/lan.h"
#include "testing/three_hosts.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

using nlohmann::json;

constexpr const char* kGuest = "mover";

/*
 *   host1 (lender)                      host2 ══ guest with both
 *   nvme, nic ── wire ── server           │ lan, libvirtd listens
 *                                       host3
 */
class Migration : public OnThreeHosts {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(OnThreeHosts::SetUp());
    for (const char* device : {"nvme", "nic"}) {
      const auto address = lender().address(device);
      ASSERT_OK(address);
      addresses_.push_back(*address);
      const auto offered = offer(lender(), *address);
      ASSERT_OK(offered);
      ids_.push_back(offered->at("id"));
    }
    for (const int number : {2, 3}) await_available(host(number));
  }

  void TearDown() override {
    if (!lab_) return;
    for (const int number : {2, 3}) {
      // A scenario that failed in between.
      if (!host(number).exec("true")) EXPECT_OK(power_on(number));
      EXPECT_OK(
          host(number).exec(fmt::format("virsh destroy {}; virsh undefine {}", kGuest, kGuest)));
    }
    for (size_t i = 0; i < ids_.size(); ++i) {
      EXPECT_OK(lender().exec("pcilend reserve --cancel " + ids_[i]));
      EXPECT_OK(lender().exec("pcilend unavailable --force " + addresses_[i]));
      EXPECT_OK(lender().exec("pcilend remove " + addresses_[i]));
    }
    OnThreeHosts::TearDown();
  }

  void await_available(const lab::Host& host) const {
    for (const std::string& id : ids_) EXPECT_OK(await_state(host, id, "available"));
  }

  // Guest `kGuest` on a host, whether it is defined there or not.
  [[nodiscard]] lab::Guest guest_on(int number, lab::Hostdev kind = lab::Hostdev::Pci) const {
    auto spec = host(number).guest_spec(kGuest, ids_, kind);
    EXPECT_OK(spec);
    return host(number).guest(spec ? *spec : lab::GuestSpec());
  }

  // It runs, with a file system on its drive.
  void begin(const lab::Guest& guest) const {
    ASSERT_OK(guest.define());
    ASSERT_OK(guest.boot());
    ASSERT_OK(MainJob::await_disk(guest));
    ASSERT_OK(
        guest.run("busybox mke2fs /dev/nvme0n1 1024 >/dev/null && mkdir -p /mnt && "
                  "mount -t ext4 /dev/nvme0n1 /mnt && head -c 65536 /dev/urandom >/mnt/data && "
                  "sha256sum </mnt/data >/mnt/sum && umount /mnt"));
  }
  void expect_works(const lab::Guest& guest) const {
    ASSERT_OK(MainJob::await_disk(guest));
    EXPECT_OK(
        guest.run("mkdir -p /mnt && mount -t ext4 /dev/nvme0n1 /mnt && "
                  "[ \"$(sha256sum </mnt/data)\" = \"$(cat /mnt/sum)\" ] && umount /mnt"));
    EXPECT_OK(guest.run(
        "i=0; until [ -e /sys/class/net/eth0 ]; do i=$((i+1)); [ $i -lt 600 ] || exit 1; sleep "
        "0.1; "
        "done; ip address add 10.9.0.2/24 dev eth0 && ip link set eth0 up && "
        "i=0; until busybox ping -c 1 -W 1 10.9.0.1 >/dev/null; do i=$((i+1)); [ $i -lt 100 ] || "
        "exit 1; done",
        {{}, 5min}));
    EXPECT_OK(guest.run(send_around(64), {{}, 5min}));
  }
  // Its node; 0: nobody.
  static int borrower_of(const std::string& id) {
    const auto shown = lender().json("pcilend show --json " + id);
    EXPECT_OK(shown);
    const auto node = shown ? shown->at("functions").at(0).at("borrower") : json();
    return node.is_number() ? node.get<int>() : 0;
  }
  // The same functions, by the same domain, on that host.
  void expect_borrowed(int number, const std::string& domain) const {
    const auto list = lender().json("pcilend list --json");
    ASSERT_OK(list);
    size_t found = 0;
    for (const auto& function : list->at("functions")) {
      if (std::find(ids_.begin(), ids_.end(), function.at("id")) == ids_.end()) continue;
      ++found;
      EXPECT_EQ(function.at("borrower"), host(number).node());
    }
    EXPECT_EQ(found, ids_.size());
    const auto held = host(number).json("pcilend list --json");
    ASSERT_OK(held);
    for (const auto& function : held->at("functions")) EXPECT_EQ(function.at("owner"), domain);
  }

  static std::string domain_uuid(int number) {
    const auto uuid = host(number).run(fmt::format("virsh domuuid {} | head -n 1", kGuest));
    EXPECT_OK(uuid);
    return uuid ? lab::Output{0, *uuid, ""}.text() : "";
  }
  static std::string xml(int number) {
    const auto text = host(number).run(fmt::format("virsh dumpxml --inactive {}", kGuest));
    EXPECT_OK(text);
    return text.value_or("");
  }

  // All that the domain has stays its own while it is off, and the host that it goes to sees it.
  void reserve(int number, const std::string& domain) const {
    const auto reserved =
        host(number).json(fmt::format("pcilend reserve --json --for {} --ttl 900", domain));
    ASSERT_OK(reserved);
    EXPECT_EQ(reserved->at("functions").size(), ids_.size());
    const lab::Host& target = host(5 - number);
    ASSERT_OK(target.write("/tmp/moved.json", reserved->dump()));
    const auto seen = target.json("pcilend show --json - </tmp/moved.json");
    ASSERT_OK(seen);
    EXPECT_EQ(seen->at("functions").size(), ids_.size());
  }
  void expect_reserved(int number) const {
    for (const std::string& id : ids_) {
      const auto refused = host(number).exec("pcilend borrow " + id);
      ASSERT_OK(refused);
      EXPECT_NE(refused->code, 0);
      EXPECT_NE(refused->err.find("reserved"), std::string::npos) << refused->err;
    }
  }

  // Where its XML has come to by other means.
  void define_on(int number, const std::string& text) const {
    ASSERT_OK(host(number).write("/tmp/mover.xml", text));
    ASSERT_OK(host(number).run("virsh define /tmp/mover.xml"));
  }
  [[nodiscard]] std::string migrate_to(int number) const { return migrate(kGuest, host(number)); }

  std::vector<std::string> addresses_;  // on the lender
  std::vector<std::string> ids_;
};

/*
 *   host2: reserve, shutdown, virsh migrate ── lan ── host3: start
 */
TEST_F(Migration, ByLibvirt) {
  const lab::Guest here = guest_on(2), there = guest_on(3);
  ASSERT_NO_FATAL_FAILURE(begin(here));
  expect_works(here);
  const std::string domain = domain_uuid(2), before = xml(2);
  expect_borrowed(2, domain);

  reserve(2, domain);
  ASSERT_OK(here.shut_down());
  const auto off = std::chrono::steady_clock::now();
  await_available(host(3));
  expect_reserved(3);
  ASSERT_OK(host(2).run(migrate_to(3), {{}, 3min}));
  EXPECT_EQ(xml(3), before);
  EXPECT_OK(host(2).run(fmt::format("! virsh domuuid {}", kGuest)));
  ASSERT_OK(there.boot());
  ASSERT_OK(MainJob::await_disk(there));
  const std::chrono::duration<double> down = std::chrono::steady_clock::now() - off;
  fmt::print(stderr, "the guest's drive was away for {:.1f} s\n", down.count());
  expect_works(there);
  expect_borrowed(3, domain);
}

/*
 *   host2: reserve, shutdown, undefine ── host3: define, start; with mediated devices
 */
TEST_F(Migration, ByHand) {
  const lab::Guest here = guest_on(2, lab::Hostdev::Mdev), there = guest_on(3, lab::Hostdev::Mdev);
  ASSERT_NO_FATAL_FAILURE(begin(here));
  const std::string domain = domain_uuid(2), before = xml(2);
  reserve(2, domain);
  ASSERT_OK(here.shut_down());
  ASSERT_OK(here.undefine());
  await_available(host(3));
  expect_reserved(3);
  ASSERT_NO_FATAL_FAILURE(define_on(3, before));
  ASSERT_OK(there.boot());
  expect_works(there);
  expect_borrowed(3, domain);
  EXPECT_EQ(xml(3), before);
}

/*
 *   host2: reserve, shutdown, virsh migrate ── lan is cut; then host3 is off: it stays on host2,
 *          and starts there
 */
TEST_F(Migration, WithoutATargetItStays) {
  const lab::Guest here = guest_on(2);
  ASSERT_NO_FATAL_FAILURE(begin(here));
  const std::string domain = domain_uuid(2), before = xml(2);
  reserve(2, domain);
  ASSERT_OK(here.shut_down());

  ASSERT_OK(plug_lan(host(3), false));
  EXPECT_NE(host(2).exec(migrate_to(3), {{}, 3min})->code, 0);
  ASSERT_OK(plug_lan(host(3), true));
  EXPECT_EQ(xml(2), before);

  ASSERT_OK(host(3).power_off());
  EXPECT_NE(host(2).exec(migrate_to(3), {{}, 3min})->code, 0);
  EXPECT_EQ(xml(2), before);
  ASSERT_OK(here.boot());
  expect_works(here);
  expect_borrowed(2, domain);

  ASSERT_OK(power_on(3));
  EXPECT_OK(host(3).run(fmt::format("! virsh domuuid {}", kGuest)));
}

/*
 *   host2: guest runs; dies ────────── host3: define, start: its functions were reserved for it
 */
TEST_F(Migration, ItsHostDiesAndItStartsOnAnother) {
  const lab::Guest here = guest_on(2), there = guest_on(3);
  ASSERT_NO_FATAL_FAILURE(begin(here));
  const std::string domain = domain_uuid(2), before = xml(2);
  reserve(2, domain);
  ASSERT_OK(host(2).power_off());
  // Fenced, once its lease has run out.
  await_available(host(3));
  expect_reserved(3);
  ASSERT_NO_FATAL_FAILURE(define_on(3, before));
  ASSERT_OK(there.boot());
  expect_works(there);
  expect_borrowed(3, domain);

  // It comes back with the domain, which can't start there meanwhile.
  ASSERT_OK(power_on(2));
  const auto second =
      host(2).until(fmt::format("virsh start {} 2>&1", kGuest), [](const lab::Output& output) {
        return output.out.find("is borrowed by node 12") != std::string::npos;
      });
  EXPECT_OK(second);
  expect_works(there);
}

/*
 *   host2: reserve, shutdown, virsh migrate ── lan ── host3: start, without its link to host1
 *                                                     host3: start; dies
 *   host2: define, start
 *   host2: reserve, shutdown, virsh migrate ── cut
 *   host2: dies ───────────────────────────────────── host3: define, start
 */
TEST_F(Migration, EitherHostDiesOnTheWay) {
  const lab::Guest here = guest_on(2), there = guest_on(3);
  ASSERT_NO_FATAL_FAILURE(begin(here));
  const std::string domain = domain_uuid(2), before = xml(2);
  reserve(2, domain);
  ASSERT_OK(here.shut_down());
  ASSERT_OK(host(2).run(migrate_to(3), {{}, 3min}));

  ASSERT_OK(lab_->fabric().link_down(1, 3));
  const auto refused = host(3).exec(fmt::format("virsh start {}", kGuest));
  ASSERT_OK(refused);
  EXPECT_NE(refused->code, 0);
  EXPECT_NE(refused->err.find("the link to its lender is down: see 'pcilend link'"),
            std::string::npos)
      << refused->err;
  // The functions are listed as they were, and that they can't be had now.
  const auto listed = function_on(host(3), ids_.front());
  ASSERT_OK(listed);
  EXPECT_EQ(listed->at("state"), "available");
  EXPECT_EQ(listed->at("reason"), "no link to its lender is up: see 'pcilend link'");
  ASSERT_OK(lab_->fabric().link_up(1, 3));
  ASSERT_OK(await_links_up(host(3)));
  await_available(host(3));

  auto starting = host(3).start(fmt::format("virsh start {}", kGuest));
  ASSERT_OK(starting);
  ASSERT_OK(lab::eventually("host3 borrows the first", lab::kPatience,
                            [&] { return borrower_of(ids_.front()) == host(3).node(); }));
  ASSERT_OK(host(3).power_off());
  await_available(host(2));
  ASSERT_NO_FATAL_FAILURE(define_on(2, before));
  ASSERT_OK(here.boot());
  expect_works(here);
  expect_borrowed(2, domain);

  ASSERT_OK(power_on(3));
  // It may have died before its disk had that.
  ASSERT_OK(host(3).run(fmt::format("! virsh domuuid {0} || virsh undefine {0}", kGuest)));
  reserve(2, domain);
  ASSERT_OK(here.shut_down());
  ASSERT_OK(plug_lan(host(3), false));
  auto moving = host(2).start(migrate_to(3), {{}, 3min});
  ASSERT_OK(moving);
  ASSERT_OK(host(2).until("pgrep -f 'virsh migrate'"));
  ASSERT_OK(host(2).power_off());
  ASSERT_OK(plug_lan(host(3), true));
  EXPECT_OK(host(3).run(fmt::format("! virsh domuuid {}", kGuest)));
  ASSERT_NO_FATAL_FAILURE(define_on(3, before));
  await_available(host(3));
  ASSERT_OK(there.boot());
  expect_works(there);
  expect_borrowed(3, domain);
  ASSERT_OK(power_on(2));
}

}  // namespace
}  // namespace pcilend::scenarios
