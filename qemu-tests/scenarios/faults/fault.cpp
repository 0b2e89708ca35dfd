// SPDX-License-Identifier: GPL-2.0-or-later
#include "scenarios/faults/fault.h"

namespace pcilend::scenarios {
namespace {

std::string_view text(Victim victim) {
  switch (victim) {
    case Victim::Lender:
      return "Lender";
    case Victim::Borrower:
      return "Borrower";
    case Victim::Link:
      break;
  }
  return "Link";
}

std::string_view text(Fault fault) {
  switch (fault) {
    case Fault::PowerOff:
      return "PowerOff";
    case Fault::Panic:
      return "Panic";
    case Fault::Reset:
      return "Reset";
    case Fault::QuietReset:
      return "QuietReset";
    case Fault::FunctionReset:
      return "FunctionReset";
    case Fault::Flap:
      return "Flap";
    case Fault::QuietFlap:
      return "QuietFlap";
    case Fault::Loss:
      return "Loss";
    case Fault::Unload:
      break;
  }
  return "Unload";
}

std::string_view text(Moment moment) {
  switch (moment) {
    case Moment::Idle:
      return "Idle";
    case Moment::UnderIo:
      return "UnderIo";
    case Moment::Borrowing:
      return "Borrowing";
    case Moment::Returning:
      break;
  }
  return "Returning";
}

}  // namespace

std::string name_of(const FaultCase& one) {
  std::string name;
  for (const std::string_view part : {text(one.victim), text(one.fault), text(one.moment)})
    name += part;
  return name;
}

const std::vector<FaultCase>& all_fault_cases() {
  static const std::vector<FaultCase> cases = [] {
    std::vector<FaultCase> list;
    for (const Moment moment :
         {Moment::Idle, Moment::UnderIo, Moment::Borrowing, Moment::Returning}) {
      for (const Victim victim : {Victim::Lender, Victim::Borrower})
        for (const Fault fault :
             {Fault::PowerOff, Fault::Panic, Fault::Reset, Fault::QuietReset, Fault::Unload})
          list.push_back({victim, fault, moment});
      list.push_back({Victim::Lender, Fault::FunctionReset, moment});
      for (const Fault fault : {Fault::Flap, Fault::QuietFlap, Fault::Loss})
        list.push_back({Victim::Link, fault, moment});
    }
    return list;
  }();
  return cases;
}

// The numbers are enum pcilend_msg_type's.
const std::vector<Trigger>& triggers(Moment moment) {
  static const std::vector<Trigger> none;
  static const std::vector<Trigger> borrowing = {
      {"pcilend/pcilend_lease_begin", "lease_begin:", "the lease is granted"},
      {"pcilend/pcilend_message_tx", "type 16 ", "the lender is asked"},
      {"pcilend/pcilend_message_tx", "type 22 ", "the configuration space is fetched"},
      {"pcilend_mdev/pcilend_mdev_state", " open: 0", "QEMU has opened the device"},
      {"pcilend/pcilend_message_tx", "type 18 ", "guest memory is mapped"},
  };
  static const std::vector<Trigger> returning = {
      {"pcilend/pcilend_message_tx", "type 17 ", "the lender is told"},
      {"pcilend_mdev/pcilend_mdev_state", " close: ", "QEMU has closed the device"},
  };
  return moment == Moment::Borrowing ? borrowing : moment == Moment::Returning ? returning : none;
}

}  // namespace pcilend::scenarios
