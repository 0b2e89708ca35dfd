// SPDX-License-Identifier: GPL-2.0-or-later
#include "scenarios/peer_to_peer/peer_to_peer.h"

#include "testing/pci_hostdev.h"

namespace pcilend::scenarios {

using nlohmann::json;

std::optional<lab::Lab> PeerToPeer::lab_;
int PeerToPeer::hosts_ = 0;

Result<lab::Options> peer_to_peer_lab(const std::string& name, int lenders) {
  lab::Options options;
  options.name = name;
  options.hosts = lenders + 1;
  const auto drive = [](int host, const std::string& id) {
    return fmt::format("host{0}:nvme,id={1},serial={1},drive-size=16M,cmb_size_mb=1", host, id);
  };
  for (const auto& device : {std::string("host1:pcie-root-port,id=port0,chassis=1,addr=18"),
                             std::string("host1:edu,id=edu,dma_mask=0xffffffffffffffff,bus=port0"),
                             drive(lenders, "target"), drive(options.hosts, "local")})
    PCILEND_TRY(options.add_device(device));
  return options;
}

void PeerToPeer::start(const std::string& name, int lenders) {
  hosts_ = lenders + 1;
  const auto options = peer_to_peer_lab(name, lenders);
  ASSERT_OK(options);
  ASSERT_OK(start_lab(*options, lab_));
  ASSERT_OK(lender().run(fmt::format("pcilend connect {}", borrower().node())));
  if (lenders > 1) {
    ASSERT_OK(target_lender().run(fmt::format("pcilend connect {}", borrower().node())));
    ASSERT_OK(target_lender().run(fmt::format("pcilend connect {}", lender().node())));
  }
  // The drives are targets only: their driver would use the memory buffers itself. udevd looks for
  // new configuration every three seconds, unless it is told of it.
  for (int host = 1; host <= hosts_; ++host)
    ASSERT_OK(lab_->host(host).run(
        "mkdir -p /etc/modprobe.d && echo blacklist nvme >/etc/modprobe.d/p2p.conf && "
        "modprobe -r nvme && udevadm control --reload && udevadm control --ping"));
}

void PeerToPeer::SetUp() {
  ASSERT_TRUE(lab_) << "the lab did not start";
  start_ = std::chrono::steady_clock::now();
  for (int host = 1; host <= hosts(); ++host) ASSERT_OK(lab_->host(host).mark_log());
  ASSERT_NO_FATAL_FAILURE(lend(lender(), "edu", &edu_));
  ASSERT_NO_FATAL_FAILURE(lend(target_lender(), "target", &target_));
  ASSERT_NO_FATAL_FAILURE(borrow(edu_, &edu_address_));
  ASSERT_NO_FATAL_FAILURE(borrow(target_, &target_address_));
}

void PeerToPeer::TearDown() {
  if (!lab_) return;
  if (guest_) {
    const auto state = guest_->state();
    if (state && *state == "running") EXPECT_OK(guest_->destroy());
    EXPECT_OK(guest_->undefine());
  }
  for (const auto& [host, id] : {std::pair{&lender(), edu_}, {&target_lender(), target_}}) {
    if (id.empty()) continue;
    EXPECT_OK(borrower().exec("pcilend return --force " + id));
    EXPECT_OK(host->exec("pcilend unavailable --force " + id));
    EXPECT_OK(host->exec("pcilend remove " + id));
  }
  for (int number = 1; number <= hosts(); ++number) {
    const lab::Host& host = lab_->host(number);
    EXPECT_OK(host.check_log(expected_));
    // What was exposed to another lender goes when that has acknowledged it.
    EXPECT_OK(lab::eventually("nothing is exported by " + host.name(), lab::kPatience, [&] {
      const auto links = host.json("pcilend link --json");
      if (!links) return false;
      for (const auto& link : links->at("links"))
        if (link.at("export_bytes") != 0) return false;
      return true;
    }));
    const auto links = host.json("pcilend link --json");
    ASSERT_OK(links);
    for (const auto& link : links->at("links")) EXPECT_EQ(link.at("bad_messages"), 0) << link;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
  fmt::print(stderr, "-- {} took {:.1f} s\n",
             testing::UnitTest::GetInstance()->current_test_info()->name(), took.count());
}

void PeerToPeer::lend(const lab::Host& host, const std::string& device, std::string* id) {
  const auto address = host.address(device);
  ASSERT_OK(address);
  const auto offered = offer(host, *address);
  ASSERT_OK(offered);
  *id = offered->at("id");
}

void PeerToPeer::borrow(const std::string& id, std::string* address) {
  ASSERT_OK(await_state(borrower(), id, "available"));
  const auto answer = borrower().json("pcilend borrow --json " + id);
  ASSERT_OK(answer);
  *address = answer->at("functions").at(0).at("virtual_bdf");
}

json PeerToPeer::function(const lab::Host& host, const std::string& id) {
  const auto shown = host.json("pcilend show --json " + id);
  EXPECT_OK(shown);
  return shown ? shown->at("functions").at(0) : json::object();
}

void PeerToPeer::expect_copied(const std::string& peer, int repeat, const std::string& where,
                               lab::Counters* counters) {
  ASSERT_OK(lab_->fabric().counters(true));
  const auto copied = copy(peer, repeat);
  ASSERT_OK(copied);
  EXPECT_EQ(copied->code, 0) << copied->err << borrower().log();
  const auto now = lab_->fabric().counters();
  ASSERT_OK(now);
  *counters = *now;
  const std::string said = fmt::format("pcilend_edu: {} is reached at {}", peer, where);
  EXPECT_NE(borrower().log().find(said), std::string::npos) << borrower().log();
}

void PeerToPeer::start_guest(const std::vector<std::string>& ids) {
  for (const std::string& id : {edu_, target_}) ASSERT_OK(borrower().run("pcilend return " + id));
  auto spec = borrower().guest_spec("peers", ids);
  ASSERT_OK(spec);
  spec->free_slots = 1;
  // Its driver would use the memory buffer itself.
  spec->kernel_arguments = " module_blacklist=nvme";
  guest_.emplace(borrower().guest(*spec));
  ASSERT_OK(guest_->define());
  ASSERT_OK(guest_->start());
  ASSERT_OK(guest_->await_answer());
}

void PeerToPeer::plug_in_by_address(const std::string& id) {
  ASSERT_OK(await_state(borrower(), id, "available"));
  ASSERT_OK(borrower().run("pcilend borrow --frontend vfio " + id));
  ASSERT_OK(
      borrower().run(fmt::format("pcilend vm-xml {0} >/tmp/{0}.xml && "
                                 "virsh attach-device peers /tmp/{0}.xml --live",
                                 id)));
  const char* pci_id = id == edu_ ? "1234:11E8" : "1B36:0010";
  ASSERT_OK(guest_->run(
      fmt::format("i=0; until grep -q PCI_ID={} /sys/bus/pci/devices/*/uevent; do i=$((i+1)); "
                  "[ $i -lt 120 ] || exit 1; sleep 0.5; done",
                  pci_id)));
}

void PeerToPeer::unplug_by_address(const std::string& id) {
  ASSERT_OK(
      borrower().run(fmt::format("pcilend vm-xml {0} >/tmp/{0}.xml && "
                                 "virsh detach-device peers /tmp/{0}.xml --live",
                                 id)));
  // The hook has borrowed it, for the guest.
  ASSERT_OK(borrower().until("pcilend return --force " + id));
}

void PeerToPeer::await_both_reached() const {
  for (const auto& [from, to] : {std::pair{edu_, target_}, {target_, edu_}}) {
    ASSERT_OK(lab::eventually(from + " reaches " + to, lab::kPatience, [&, from = from, to = to] {
      return function(borrower(), from).at("p2p_targets") == json::array({to});
    }));
  }
}

void PeerToPeer::plug_in(const std::string& device) {
  const auto address = borrower().address(device);
  ASSERT_OK(address);
  ASSERT_OK(borrower().write("/tmp/local.xml", pci_hostdev(*address)));
  ASSERT_OK(borrower().run("virsh attach-device peers /tmp/local.xml --live"));
  ASSERT_OK(guest_->run(
      "i=0; until grep -q PCI_ID=1B36:0010 /sys/bus/pci/devices/*/uevent; do i=$((i+1)); "
      "[ $i -lt 120 ] || exit 1; sleep 0.5; done"));
}

Result<lab::Output> PeerToPeer::copy_in_guest(int repeat, uint64_t shift) const {
  return guest_->exec(
      fmt::format("at() {{ grep -l \"^PCI_ID=$1\" /sys/bus/pci/devices/*/uevent | cut -d/ -f6; }}; "
                  "peer $(at 1234:11E8) $(at 1B36:0010) 2 {} {}",
                  repeat, shift),
      {{}, std::chrono::minutes(5)});
}

void PeerToPeer::expect_copied_in_guest(int repeat, lab::Counters* counters, uint64_t shift) {
  ASSERT_OK(lab_->fabric().counters(true));
  const auto copied = copy_in_guest(repeat, shift);
  ASSERT_OK(copied);
  EXPECT_EQ(copied->code, 0) << copied->err;
  const auto now = lab_->fabric().counters();
  ASSERT_OK(now);
  *counters = *now;
}

void PeerToPeer::expect_guest_refused() {
  expect_in_log("DMAR: DRHD: handling fault status|DMAR: \\[DMA Read .*PTE Read access is not set");
  const auto copied = copy_in_guest(1, 0);
  ASSERT_OK(copied);
  EXPECT_NE(copied->code, 0);
  EXPECT_NE(copied->err.find("in memory is"), std::string::npos) << copied->err;
  EXPECT_NE(lender().log().find("PTE Read access is not set"), std::string::npos)
      << "the lender's IOMMU has stopped it";
}

void PeerToPeer::expect_refused() {
  const auto refused = copy(target_address_);
  ASSERT_OK(refused);
  EXPECT_NE(refused->code, 0);
  const std::string said = fmt::format("pcilend_edu: {} can't be mapped", target_address_);
  EXPECT_NE(borrower().log().find(said), std::string::npos) << borrower().log();
  ASSERT_OK(borrower().mark_log());
}

void PeerToPeer::expect_copied_directly() {
  lab::Counters once;
  lab::Counters often;
  ASSERT_NO_FATAL_FAILURE(expect_copied(target_address_, 1, kAsPeer, &once));
  ASSERT_NO_FATAL_FAILURE(expect_copied(target_address_, 1 + kMore, kAsPeer, &often));
  expect_direct(once, often);
}

void PeerToPeer::expect_copied_directly_in_guest() {
  lab::Counters once;
  lab::Counters often;
  ASSERT_NO_FATAL_FAILURE(expect_copied_in_guest(1, &once));
  ASSERT_NO_FATAL_FAILURE(expect_copied_in_guest(1 + kMore, &often));
  expect_direct(once, often);
  ASSERT_NO_FATAL_FAILURE(expect_copied_in_guest(1, &once, kMoved));
}

void PeerToPeer::expect_direct(const lab::Counters& once, const lab::Counters& often) const {
  expect_traffic_of_copies(once, often);
  const int target = target_lender().number();
  const lab::Traffic fewer = once.path(hosts(), target).bar;
  const lab::Traffic more = often.path(hosts(), target).bar;
  EXPECT_GE(fewer.write_bytes, kPage) << "the CPU fills the CMB";
  EXPECT_GE(fewer.read_bytes, kPage) << "the CPU compares the CMB";
  // Two ways: a page per copy would be 2 * kMore * kPage.
  EXPECT_LT(more.write_bytes, fewer.write_bytes + kMore * kPage / 4);
  EXPECT_LT(more.read_bytes, fewer.read_bytes + kMore * kPage / 4);
  fmt::print(stderr, "{} copies more: {} bytes more read by the CPU, {} written\n", 2 * kMore,
             more.read_bytes - fewer.read_bytes, more.write_bytes - fewer.write_bytes);
}

void PeerToPeer::expect_end_with_command_and_leases() {
  lab::Counters counters;
  ASSERT_OK(borrower().run(p2p()));
  ASSERT_NO_FATAL_FAILURE(expect_copied(target_address_, 1, kAsPeer, &counters));
  ASSERT_OK(borrower().run(p2p("--end")));
  ASSERT_OK(borrower().run(p2p("--end")));
  EXPECT_EQ(reached(), json::array());
  ASSERT_NO_FATAL_FAILURE(expect_refused());
  expect_nothing_exposed();

  // Ended and asked for again at once, as a script may do.
  for (int i = 0; i < 5; ++i) ASSERT_OK(borrower().run(p2p() + " && " + p2p("--end")));

  // The target's, by its return.
  ASSERT_OK(borrower().run(p2p()));
  ASSERT_NO_FATAL_FAILURE(expect_copied(target_address_, 1, kAsPeer, &counters));
  ASSERT_OK(borrower().run("pcilend return " + target_));
  EXPECT_EQ(reached(), json::array());
  expect_nothing_exposed();
  expect_failure(p2p(), "run 'pcilend borrow " + target_ + "'");
  ASSERT_NO_FATAL_FAILURE(borrow(target_, &target_address_));
  ASSERT_NO_FATAL_FAILURE(expect_refused());
  ASSERT_OK(borrower().run(p2p()));
  ASSERT_NO_FATAL_FAILURE(expect_copied(target_address_, 1, kAsPeer, &counters));

  // The source's, by its return.
  ASSERT_OK(borrower().run("pcilend return " + edu_));
  expect_nothing_exposed();
  ASSERT_NO_FATAL_FAILURE(borrow(edu_, &edu_address_));
  EXPECT_EQ(reached(), json::array());
  ASSERT_NO_FATAL_FAILURE(expect_refused());

  // The target's, by its lender's will.
  ASSERT_OK(borrower().run(p2p()));
  ASSERT_OK(target_lender().run("pcilend unavailable --force " + target_));
  ASSERT_OK(await_nothing_reached());
  expect_nothing_exposed();
  EXPECT_EQ(function(lender(), edu_).at("faults"), 0);
}

Result<> PeerToPeer::await_nothing_reached() const {
  return lab::eventually("nothing is reached", lab::kPatience,
                         [&] { return reached() == json::array(); });
}

void PeerToPeer::expect_failure(const std::string& command, const std::string& words) {
  const auto failed = borrower().exec(command);
  ASSERT_OK(failed);
  EXPECT_NE(failed->code, 0) << command;
  EXPECT_NE(failed->err.find(words), std::string::npos) << failed->err;
}

}  // namespace pcilend::scenarios
