// SPDX-License-Identifier: GPL-2.0-or-later
// Answers of commands that change something; `thing` is what a refusal names.
#pragma once

#include "session.h"

namespace pcilend {

inline Result<Answer> nothing(Result<> done, std::string_view thing) {
  if (!done) return tl::unexpected(std::move(done).error().in(thing));
  return NothingAnswer{};
}

// `answer` with this host's node id.
inline Result<Answer> answer_of(Session& session, FunctionsAnswer answer) {
  const auto node = session.client.node();
  if (!node) return tl::unexpected(after_change(node.error()));
  answer.this_node = node->id;
  return answer;
}

inline Result<Function> named(Result<Function> function, std::string_view thing) {
  if (!function) return tl::unexpected(std::move(function).error().in(thing));
  return function;
}

// What `change` makes of each target, in their order. The first error ends it; what was done stays.
template <class Change>
Result<Answer> each_target(Session& session, const Options& options, const Change& change) {
  FunctionsAnswer answer;
  for (const auto& target : options.targets) {
    auto function = change(target);
    if (!function) return tl::unexpected(std::move(function).error());
    answer.functions.push_back(std::move(*function));
  }
  return answer_of(session, std::move(answer));
}

inline Result<Answer> one_function(Session& session, Result<Function> function,
                                   std::string_view thing) {
  if (!function) return tl::unexpected(std::move(function).error().in(thing));
  auto node = session.client.node();
  if (!node) return tl::unexpected(after_change(std::move(node).error()).in(thing));
  return FunctionsAnswer{{std::move(*function)}, node->id};
}

// `which` has been changed.
inline Result<Answer> changed_function(Session& session, const auto& which) {
  auto function = session.client.function(which);
  if (!function) function = tl::unexpected(after_change(std::move(function).error()));
  return one_function(session, std::move(function), to_string(which));
}

inline constexpr size_t kLabelBytes = 63;  // PCILEND_A_LABEL

inline Result<> check_label(std::string_view text) {
  if (text.size() <= kLabelBytes) return {};
  return fail(ErrorClass::Usage, "a label has at most {} bytes", kLabelBytes);
}

}  // namespace pcilend
