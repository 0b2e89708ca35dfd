// SPDX-License-Identifier: GPL-2.0-or-later
// How failures are made and passed on, in the userspace programs.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "pcilend/error.h"

namespace pcilend {

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
// NOLINTBEGIN(bugprone-macro-parentheses): the name of what is declared.
#define PCILEND_TRY_AS(result, expression)                                                     \
  do {                                                                                         \
    if (auto result = (expression); !result) return tl::unexpected(std::move(result).error()); \
  } while (0)
// NOLINTEND(bugprone-macro-parentheses)
