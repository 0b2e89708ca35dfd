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
  const auto function = find_function(session, options.targets.front());
  if (!function) return tl::unexpected(function.error());
  const std::string name = to_string(function->id);
  if (auto done = nothing(session.client.reserve(function->id, *reservation), name); !done)
    return done;
  return changed_function(session, function->id);
}

}  // namespace pcilend
