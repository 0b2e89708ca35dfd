// SPDX-License-Identifier: GPL-2.0-or-later
// The fault matrix: what happens to whom, at which moment.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace pcilend::scenarios {

enum class Victim { Lender, Borrower, Link };
enum class Fault {
  PowerOff,
  Panic,
  Reset,
  QuietReset,     // and no event tells the other host of it
  FunctionReset,  // by the lender's administrator
  Flap,           // link down for a second
  QuietFlap,      // and no event tells either host of it
  Loss,           // link down until the lease is over on both sides
  Unload,         // of the modules: refused, and nothing happens
};
enum class Moment {
  Idle,       // borrowed, guest up, no I/O
  UnderIo,    // the guest writes and reads
  Borrowing,  // virsh start is under way
  Returning,  // virsh destroy is under way
};

struct FaultCase {
  Victim victim;  // Link for Flap, QuietFlap and Loss, and for nothing else
  Fault fault;
  Moment moment;

  bool operator==(const FaultCase&) const = default;
};

// "LenderPanicUnderIo", "LinkFlapIdle": also as names of tests.
std::string name_of(const FaultCase& one);
const std::vector<FaultCase>& all_fault_cases();

// A message or state change of the borrower at which Borrowing or Returning has come.
struct Trigger {
  const char* event;    // under /sys/kernel/tracing/events
  const char* pattern;  // of its line, for grep
  const char* text;     // for people
};
// The first is the one with most at stake; cases of Unload need that one.
const std::vector<Trigger>& triggers(Moment moment);

struct Timing {
  size_t trigger = 0;                  // of triggers(); nothing for Idle and UnderIo
  std::chrono::milliseconds delay{0};  // from the moment to the fault
};

}  // namespace pcilend::scenarios
