// SPDX-License-Identifier: GPL-2.0-or-later
// Fixture: QEMU's edu and an NVMe drive with a controller memory buffer, lent by one host or by two
// to the last one, on bare metal or for its guest. The DMA engine of edu copies a page between its
// buffer and the controller memory buffer of a drive, and between its buffer and memory of the
// borrower.
#pragma once

#include "testing/two_hosts.h"

namespace pcilend::scenarios {

// `lenders` hosts, and one more that borrows. Of host1: "edu", behind a port.
Result<lab::Options> peer_to_peer_lab(const std::string& name, int lenders);

class PeerToPeer : public testing::Test {
 protected:
  static constexpr uint64_t kPage = 4096;      // what pcilend_edu copies
  static constexpr int kMore = 8;              // copies more, which must not be seen elsewhere
  static constexpr uint64_t kMoved = 1 << 20;  // a guest moves the BAR so far
  // From where reach.h has its addresses, and from below the DMA area's end.
  static constexpr const char* kAsPeer = "0x0000001";
  static constexpr const char* kAsMemory = "0x00000000";

  static void start(const std::string& name, int lenders);
  static void end() { EXPECT_OK(end_lab(lab_)); }

  void SetUp() override;
  void TearDown() override;

  // Of edu, and of the drive that it shall reach.
  static lab::Host& lender() { return lab_->host(1); }
  static lab::Host& target_lender() { return lab_->host(hosts() - 1); }
  static lab::Host& borrower() { return lab_->host(hosts()); }
  static int hosts() { return hosts_; }

  static void lend(const lab::Host& host, const std::string& device, std::string* id);
  // Its PCI address on the borrower.
  static void borrow(const std::string& id, std::string* address);
  static nlohmann::json function(const lab::Host& host, const std::string& id);
  [[nodiscard]] nlohmann::json reached() const {
    return function(borrower(), edu_).at("p2p_targets");
  }

  // edu copies a page of that function's BAR 2 into memory and back.
  [[nodiscard]] std::string copy_command(const std::string& peer, int repeat = 1) const {
    return fmt::format(
        "modprobe pcilend_edu function={} target={} bar=2 repeat={} && rmmod pcilend_edu",
        edu_address_, peer, repeat);
  }
  [[nodiscard]] Result<lab::Output> copy(const std::string& peer, int repeat = 1) const {
    return borrower().exec(copy_command(peer, repeat), {{}, std::chrono::minutes(5)});
  }
  // The data is right, and edu has used an address that begins so.
  void expect_copied(const std::string& peer, int repeat, const std::string& where,
                     lab::Counters* counters);
  void expect_refused();
  // A guest that has both takes the place of the host; then what edu copies there, by
  // guest-physical addresses, is right, also where the guest moves the BAR to.
  void start_guest(const std::vector<std::string>& ids);
  void plug_in_by_address(const std::string& id);
  void unplug_by_address(const std::string& id);
  // All that edu reaches is the drive, and the other way round.
  void await_both_reached() const;
  // It has a function of the borrower itself, too.
  void plug_in(const std::string& device);
  void expect_copied_in_guest(int repeat, lab::Counters* counters, uint64_t shift = 0);
  void expect_guest_refused();
  // However often edu copies, nothing more goes through the borrower: what crosses the fabric is
  // what its CPU does before and after.
  void expect_copied_directly();
  void expect_copied_directly_in_guest();
  // --end, and the end of either lease, end it: what is over is refused, and nothing is left of it.
  void expect_end_with_command_and_leases();
  Result<> await_nothing_reached() const;
  // The command fails on the borrower, with these words on stderr.
  static void expect_failure(const std::string& command, const std::string& words);
  [[nodiscard]] std::string p2p(const std::string& options = "") const {
    return fmt::format("pcilend p2p {} {} {}", options, edu_, target_);
  }
  void expect_in_log(const std::string& pattern) { expected_.emplace_back(pattern); }

  // What crosses the fabric for few copies and for many, but for the CPU's accesses to the target.
  virtual void expect_traffic_of_copies(const lab::Counters& once,
                                        const lab::Counters& often) const = 0;
  // No lender exposes anything to another one any more.
  virtual void expect_nothing_exposed() const {}

  static std::optional<lab::Lab> lab_;
  std::string edu_;
  std::string target_;
  std::string edu_address_;
  std::string target_address_;

 private:
  [[nodiscard]] Result<lab::Output> copy_in_guest(int repeat, uint64_t shift) const;
  void expect_direct(const lab::Counters& once, const lab::Counters& often) const;

  static int hosts_;
  std::optional<lab::Guest> guest_;
  lab::Expected expected_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace pcilend::scenarios
