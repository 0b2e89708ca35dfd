// SPDX-License-Identifier: GPL-2.0-or-later
// Result<T>: how every function of the userspace programs reports failure.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace pcilend {

// The class of an error is the exit code of the program that prints it (pcilend(8), EXIT STATUS).
enum class ErrorClass : int {
  Failure = 1,      // the system refused: I/O, memory, a bug
  Usage = 2,        // the command line is wrong
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
    message = fmt::format("{}: {}", context, message);
    return std::move(*this);
  }
};

template <class T = void>
using Result = tl::expected<T, Error>;

template <class... Args>
[[nodiscard]] tl::unexpected<Error> fail(ErrorClass kind, fmt::format_string<Args...> text,
                                         Args&&... args) {
  return tl::unexpected(Error{kind, fmt::format(text, std::forward<Args>(args)...)});
}

// A failed system call: "WHAT: strerror". Reads errno unless one is given.
[[nodiscard]] inline tl::unexpected<Error> fail_errno(std::string_view what, int error = errno) {
  const ErrorClass kind =
      (error == EPERM || error == EACCES) ? ErrorClass::Permission : ErrorClass::Failure;
  return tl::unexpected(Error{kind, fmt::format("{}: {}", what, std::strerror(error))});
}

}  // namespace pcilend

// Evaluates a Result; returns its error from the enclosing function, else goes on.
#define PCILEND_TRY(expression) PCILEND_TRY_AS(PCILEND_TRY_NAME(__LINE__), expression)
#define PCILEND_TRY_NAME(line) PCILEND_TRY_JOIN(pcilend_try_, line)
#define PCILEND_TRY_JOIN(prefix, line) prefix##line
#define PCILEND_TRY_AS(result, expression)                                                     \
  do {                                                                                         \
    if (auto result = (expression); !result) return tl::unexpected(std::move(result).error()); \
  } while (0)
