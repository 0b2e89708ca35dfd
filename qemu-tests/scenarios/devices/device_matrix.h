// SPDX-License-Identifier: GPL-2.0-or-later
// The functions that are lent to see which work: each has an id on host1, and a root port of its
// own, so that it has an IOMMU group of its own and can be reset.
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "lab/options.h"

namespace pcilend::scenarios {

enum class Workload {
  Disk,       // data written, and read again
  Network,    // data sent to a server on the lender, which sends it back
  Registers,  // of `edu`: written and read by the CPU
  Watchdog,   // started, fed and stopped
  Binding,    // its driver finds what it expects
};

struct MatrixFunction {
  std::string name;    // its id
  std::string device;  // for QEMU, without id and bus
  Workload workload = Workload::Binding;
  std::string driver;                // that binds on both hosts; empty: it has none
  std::vector<std::string> further;  // what is attached to it
  std::string refusal;               // part of what `pcilend available` says; empty: it is lent
  bool port = true;                  // false: on bus 0
  std::vector<std::string> log;      // patterns of what the borrower's kernel may say
  bool sleeps = false;               // its driver lets it sleep (D3hot) when it is not in use
};

// For GoogleTest.
inline void PrintTo(const MatrixFunction& function, std::ostream* out) {
  *out << function.name;
}

const std::vector<MatrixFunction>& matrix_functions();
// One of them.
const MatrixFunction& matrix_function(std::string_view name);

// What GoogleTest calls its scenario: names there have no '-'.
std::string test_name(const MatrixFunction& function);

// host1 has all of them, and `wire`: a network adapter of its own where theirs are.
Result<lab::Options> matrix_options();
// The same with those that this run's scenarios lend: each costs a host seconds of its boot.
Result<lab::Options> matrix_options_of_this_run();

// What `lspci -v` says of a function, for the table.
struct FunctionTraits {
  std::string interrupts;  // "MSI-X", "MSI", "INTx", "none": the best it has
  std::string bars;        // "128K, 4G 64-bit, I/O 32"
};
FunctionTraits parse_traits(const std::string& lspci);

struct MatrixRow {
  std::string name;
  std::string kernel;
  FunctionTraits traits;
  std::string result;  // "works", "refused", "fails"
  std::string why;     // what was done; the refusal; what went wrong
};
// As a table of Markdown.
std::string table_of(const std::vector<MatrixRow>& rows);

}  // namespace pcilend::scenarios
