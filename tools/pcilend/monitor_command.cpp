// SPDX-License-Identifier: GPL-2.0-or-later
#include "commands.h"

namespace pcilend {
namespace {

Result<> emit_snapshot(Session& session, uint32_t this_node, bool lost) {
  SnapshotAnswer snapshot{session.wall_time(), this_node, lost, {}, {}, {}};
  auto links = session.client.links();
  if (!links) return tl::unexpected(std::move(links).error());
  auto functions = session.client.functions();
  if (!functions) return tl::unexpected(std::move(functions).error());
  auto segments = session.client.segments();
  if (!segments) return tl::unexpected(std::move(segments).error());
  snapshot.links = std::move(*links);
  snapshot.functions = std::move(*functions);
  snapshot.segments = std::move(*segments);
  return session.emit(snapshot);
}

}  // namespace

Result<Answer> command_monitor(Session& session, const Options& options) {
  auto events = session.open_events();
  if (!events) return tl::unexpected(std::move(events).error());
  const auto node = session.client.node();
  if (!node) return tl::unexpected(node.error());
  // What the events change; who reads it misses none of them.
  if (options.json) PCILEND_TRY(emit_snapshot(session, node->id, false));

  const auto end = session.now() + std::chrono::seconds(options.timeout.value_or(0));
  for (uint32_t seen = 0; !options.count || seen < *options.count;) {
    std::optional<std::chrono::milliseconds> limit;
    if (options.timeout)
      limit = std::max(std::chrono::milliseconds(0),
                       std::chrono::ceil<std::chrono::milliseconds>(end - session.now()));
    auto event = (*events)->next(limit);
    if (!event) return tl::unexpected(std::move(event).error());
    if (const auto* const wake = std::get_if<Wake>(&*event)) {
      if (*wake != Wake::Lost) break;
      PCILEND_TRY(emit_snapshot(session, node->id, true));
      continue;
    }
    PCILEND_TRY(session.emit(
        EventAnswer{session.wall_time(), node->id, std::move(std::get<Event>(*event))}));
    ++seen;
  }
  return EmittedAnswer{};
}

}  // namespace pcilend
