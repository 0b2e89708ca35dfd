// SPDX-License-Identifier: GPL-2.0-or-later
// Who may borrow a function, and whose it is.
#include "commands.h"
#include "outcome.h"
#include "target.h"

namespace pcilend {
namespace {

constexpr uint32_t kSecondsPerDay = 86400;  // the longest reservation

// "all", "none" or node ids.
Result<std::optional<std::vector<uint32_t>>> parse_nodes(const std::vector<std::string>& words) {
  std::vector<uint32_t> nodes;
  if (words.size() == 1 && words.front() == "all") return std::nullopt;
  if (words.size() == 1 && words.front() == "none") return nodes;
  for (const auto& word : words) {
    const auto node = parse_node_id(word);
    if (!node) return fail(ErrorClass::Usage, "{}, or 'all' or 'none' alone", node.error().message);
    nodes.push_back(*node);
  }
  return nodes;
}

Result<Reservation> parse_reservation(const Options& options) {
  Reservation reservation;
  if (options.cancel) {
    if (options.reserved_for || options.ttl)
      return fail(ErrorClass::Usage, "--cancel ends a reservation: give it alone");
    return reservation;
  }
  if (!options.reserved_for || !options.ttl)
    return fail(ErrorClass::Usage,
                "say for whom and for how long (--for NODE|UUID --ttl SECONDS), or --cancel");
  if (*options.ttl < 1 || *options.ttl > kSecondsPerDay)
    return fail(ErrorClass::Usage, "--ttl: 1 to {} seconds", kSecondsPerDay);
  reservation.ttl_ms = *options.ttl * 1000;
  if (const auto node = parse_node_id(*options.reserved_for)) {
    reservation.node = *node;
  } else if (const auto uuid = parse_uuid(*options.reserved_for)) {
    reservation.uuid = *uuid;
  } else {
    return fail(ErrorClass::Usage, "--for: '{}' is neither a node id nor the UUID of a domain",
                *options.reserved_for);
  }
  return reservation;
}

// What is named; else what this host has borrowed for the domain that they are reserved for.
Result<std::vector<FunctionId>> functions_to_reserve(Session& session, const Options& options,
                                                     const Reservation& reservation) {
  std::vector<FunctionId> ids;
  for (const std::string& target : options.targets) {
    const auto function = find_function(session, target);
    if (!function) return tl::unexpected(function.error());
    ids.push_back(function->id);
  }
  if (!ids.empty()) return ids;
  if (!reservation.uuid)
    return fail(ErrorClass::Usage,
                "name the functions; or, with --for and its UUID, a domain that has borrowed them "
                "on this host");
  const auto functions = session.client.functions();
  if (!functions) return tl::unexpected(functions.error());
  for (const Function& function : *functions)
    if (function.owner == to_string(*reservation.uuid)) ids.push_back(function.id);
  if (ids.empty())
    return fail(ErrorClass::NotFound,
                "this host has borrowed nothing for domain {}: start it, or name the functions",
                to_string(*reservation.uuid));
  return ids;
}

// All of them, or none.
Result<> reserve_all(Session& session, const std::vector<FunctionId>& ids,
                     const Reservation& reservation) {
  for (auto id = ids.begin(); id != ids.end(); ++id) {
    auto done = session.client.reserve(*id, reservation);
    if (done) continue;
    for (auto former = ids.begin(); former != id; ++former)
      (void)session.client.reserve(*former, {});
    return tl::unexpected(std::move(done).error().in(to_string(*id)));
  }
  return {};
}

}  // namespace

Result<Answer> command_allow(Session& session, const Options& options) {
  const auto nodes = parse_nodes(options.words);
  if (!nodes) return tl::unexpected(nodes.error());
  const auto local = find_added(session, options.targets.front());
  if (!local) return tl::unexpected(local.error());
  const std::string name = to_string(local->address);
  if (auto done = nothing(session.client.allow(local->address, *nodes), name); !done) return done;
  return changed_function(session, local->address);
}

Result<Answer> command_label(Session& session, const Options& options) {
  PCILEND_TRY(check_label(options.words.front()));
  const auto local = find_added(session, options.targets.front());
  if (!local) return tl::unexpected(local.error());
  const std::string name = to_string(local->address);
  if (auto done = nothing(session.client.label(local->address, options.words.front()), name); !done)
    return done;
  return changed_function(session, local->address);
}

Result<Answer> command_reserve(Session& session, const Options& options) {
  const auto reservation = parse_reservation(options);
  if (!reservation) return tl::unexpected(reservation.error());
  const auto ids = functions_to_reserve(session, options, *reservation);
  if (!ids) return tl::unexpected(ids.error());
  PCILEND_TRY(reserve_all(session, *ids, *reservation));
  FunctionsAnswer answer;
  for (const FunctionId id : *ids) {
    auto one = changed_function(session, id);
    if (!one) return one;
    auto& shown = std::get<FunctionsAnswer>(*one);
    answer.this_node = shown.this_node;
    answer.functions.push_back(std::move(shown.functions.front()));
  }
  return answer;
}

}  // namespace pcilend
