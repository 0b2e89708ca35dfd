// SPDX-License-Identifier: GPL-2.0-or-later
// Runs one case of the fault matrix after the other, on two hosts that stay up as far as the faults
// let them.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lab/lab.h"
#include "scenarios/faults/fault.h"
#include "scenarios/faults/ledger.h"

namespace pcilend::scenarios {

class FaultBench {
 public:
  // Two hosts with a drive of kSlots to lend. Their leases are long enough for a device model that
  // holds its CPU on a busy machine (decision 0004; commands are small here), and short enough to
  // wait for.
  static Result<lab::Options> options(const std::string& lab_name);
  // The lab must outlive it.
  explicit FaultBench(lab::Lab& lab) : lab_(lab) {}

  // Runs a case: the fault, what is to be seen of it, and that all is as before. Afterwards a guest
  // uses the function, and has read what was written: the one before, or a new one if that lost its
  // drive. What a failed case left is cleared first, and hosts that are not up are started.
  Result<> run(const FaultCase& one, const Timing& timing = {});
  // Ends the guest: nothing is left, and no kernel has complained since the last case.
  Result<> close();

  [[nodiscard]] const Ledger& ledger() const { return ledger_; }

 private:
  [[nodiscard]] lab::Host& lender() const { return lab_.host(1); }
  [[nodiscard]] lab::Host& borrower() const { return lab_.host(2); }

  // Up to the moment.
  Result<> prepare(const FaultCase& one);
  Result<> restart_hosts();
  Result<> offer();
  Result<> start_guest();
  Result<> define_guest();
  // Of a guest that has just begun: it writes, and reads what was written before.
  Result<> use_new_drive();
  Result<> reach(const FaultCase& one, const Timing& timing);
  Result<> begin_io();
  Result<> begin_step(const std::string& command, const Trigger& trigger);

  // The fault, and what is seen of it.
  Result<> inject(const FaultCase& one);
  // Whether the hosts' drivers hear of what becomes of the link.
  [[nodiscard]] Result<> tell_events(bool told) const;
  Result<> try_unload(const FaultCase& one);
  Result<> observe(const FaultCase& one);
  Result<> see_lender_gone(const FaultCase& one);
  Result<> see_flap(const FaultCase& one);
  Result<> see_nothing_happen(const FaultCase& one);
  Result<> see_function_come_back();
  Result<> see_link_up() const;
  Result<> see_guest_lose_its_drive();
  Result<> see_driver_take_drive();
  // Tries until `within` is over; errors before are the fault's.
  Result<> see_guest_use_its_drive(std::chrono::milliseconds within);
  // Of virsh; any exit code is an end.
  Result<int> see_step_end();
  Result<> note_io();
  Result<> end_io();

  // Everything as before.
  Result<> restore(const FaultCase& one);
  Result<> bring_back(const FaultCase& one);
  Result<> end_guest();
  [[nodiscard]] Result<> nothing_is_left() const;
  // Of the apertures: as much as for any guest of this kind.
  Result<> use_is_as_ever();
  [[nodiscard]] Result<nlohmann::json> bytes_in_use() const;
  [[nodiscard]] Result<> guest_is_clean() const;
  Result<> check_logs(const FaultCase& one);

  // On both hosts at the same time; the first error.
  Result<> on_both(const std::function<Result<>(lab::Host&)>& work) const;

  [[nodiscard]] Result<nlohmann::json> function_on(const lab::Host& host) const;
  [[nodiscard]] Result<> await_state(const lab::Host& host, const std::string& state) const;

  lab::Lab& lab_;
  std::string address_;              // of the function on the lender
  std::string id_;                   // of the function
  std::optional<lab::Guest> guest_;  // running with the function, or about to
  bool defined_ = false;             // libvirt knows the guest
  bool in_use_ = false;              // the guest uses the function
  bool sound_ = false;               // the last case, or the preparation, went well
  Ledger ledger_;
  std::optional<lab::Running> io_;    // in the guest
  size_t noted_ = 0;                  // bytes of its output
  std::optional<lab::Running> step_;  // virsh start or destroy
  nlohmann::json lease_;              // number of the lease before the fault
  nlohmann::json usual_bytes_;        // of the apertures while a guest uses the function
};

}  // namespace pcilend::scenarios
