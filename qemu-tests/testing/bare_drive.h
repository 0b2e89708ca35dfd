// SPDX-License-Identifier: GPL-2.0-or-later
// Fixture: a drive that the borrower's own driver has, on bare metal with two processors.
#pragma once

#include <functional>

#include "testing/two_hosts.h"

namespace pcilend::scenarios {

class BareDrive : public TwoHosts {
 protected:
  // Borrows it, and knows then what appeared.
  Result<> borrow();
  // After somebody has unbound it, or worse: the disk is there again, whatever it is called.
  Result<> await_disk();
  // Of the lent function, so far.
  [[nodiscard]] uint64_t resets() const;

  // The data of a scenario: what is written to a disk of the borrower, and stays in its /tmp/data.
  Result<> write_data() const;
  Result<> compare_data() const;
  Result<> use_disk() const;  // both
  // `use` moves half a MiB each way, of which the lender sees nothing.
  void use_without_lender(const std::function<void()>& use) const;
  // The lender reads the same from its own disk.
  void expect_data_on(const std::string& lender_disk) const;
  // Its own driver has the drive again, with the data.
  void expect_back() const;
  // Both processors write so many KiB each, read and compare, behind the data.
  Result<> verify_on_both_processors(int kib) const;

  // The link is down for a moment when `command` has written so many bytes; it succeeds still.
  void flap_during(const std::string& command, uint64_t written);

  // The borrower's interrupts of the admin queue come to the processor where they shall, which
  // changes.
  void expect_interrupts_follow_affinity() const;
  // A count that a command prints.
  [[nodiscard]] static uint64_t count(const lab::Host& host, const std::string& command);
  // Sum of the lines of /proc/interrupts.
  [[nodiscard]] static uint64_t interrupts(const lab::Host& host, const std::string& pattern);

  std::string address_;  // on the borrower, as the next two
  std::string disk_;
  std::string controller_;

 private:
  Result<> use_admin_queue() const;
  // What both hosts know of an interrupt of the borrower that did not come.
  [[nodiscard]] std::string about_interrupt(uint64_t irq) const;
};

}  // namespace pcilend::scenarios
