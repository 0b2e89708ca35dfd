// SPDX-License-Identifier: GPL-2.0-or-later
// Result<T>: what functions return that may fail.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace pcilend {

// The class of an error is the exit code of the program that prints it (pcilend(8), EXIT STATUS).
enum class ErrorClass : int {
  Failure = 1,      // the system refused: I/O, memory, a bug
  Usage = 2,        // the command line is wrong, or an argument of a function
  NotFound = 3,     // no such node, function, host or domain
  State = 4,        // it exists, but its state does not allow this now
  Permission = 5,   // the caller may not do this
  Unreachable = 6,  // the peer, the link or a service does not answer
  Unsupported = 7,  // this platform or device can't do it
};

// One line for a person: names the thing, says why, and what to do.
struct Error {
  ErrorClass kind = ErrorClass::Failure;
  std::string message;

  // The same error with the place it happened in front.
  Error in(std::string_view context) && {
    message.insert(0, ": ").insert(0, context);
    return std::move(*this);
  }
};

template <class T = void>
using Result = tl::expected<T, Error>;

}  // namespace pcilend
