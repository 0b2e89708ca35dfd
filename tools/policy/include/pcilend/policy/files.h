// SPDX-License-Identifier: GPL-2.0-or-later
// Changes to the configuration's files.
#pragma once

#include <chrono>
#include <functional>

#include "pcilend/fd.h"
#include "pcilend/policy/config.h"

namespace pcilend::policy {

inline constexpr std::chrono::seconds kLockLimit{60};

// Who holds this changes or restores the configuration; the others wait. State after kLockLimit.
Result<UniqueFd> lock_policy(const Environment& environment,
                             const std::function<void(std::chrono::milliseconds)>& sleep);

// Puts a filter into filters.json, in place of one of the same kind and pattern.
Result<> put_filter(const Environment& environment, const Filter& filter);

// Takes it out; NotFound, with the file it is in, if it is not in filters.json.
Result<> remove_filter(const Environment& environment, FilterKind kind, const Pattern& pattern);

// Puts a kind into kinds.json, in place of one of the same name. State, with the file it is in, if
// another one has it.
Result<> put_kind(const Environment& environment, const KindEntry& kind);

// Does kinds.json have it? NotFound, with the file it is in, if another one has.
Result<bool> has_kind(const Environment& environment, const std::string& name);

// Takes it out of kinds.json.
Result<> remove_kind(const Environment& environment, const std::string& name);

// Puts what this host borrows when it boots into borrow.json, in place of the same function. State,
// with the file it is in, if another one has it.
Result<> put_borrow(const Environment& environment, const BorrowEntry& entry);

// Takes it out of borrow.json; false if it is not there. State, with the file it is in, if another
// one has it.
Result<bool> remove_borrow(const Environment& environment, const Uuid& uuid);

}  // namespace pcilend::policy
