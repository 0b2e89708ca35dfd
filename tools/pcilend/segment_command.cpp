// SPDX-License-Identifier: GPL-2.0-or-later
// `pcilend segment`: what `create` and `connect` make is there for as long as they run.
#include <algorithm>

#include "bytes.h"
#include "commands.h"
#include "pcilend/segment.h"
#include "target.h"

namespace pcilend {
namespace {

constexpr size_t kNameBytes = 63;  // PCILEND_A_LABEL
constexpr uint64_t kBytesMax = uint64_t{1} << 40;
constexpr std::chrono::milliseconds kLookStep{200};

Result<uint64_t> parse_size(const std::string& text) {
  if (text.empty())
    return fail(ErrorClass::Usage, "say how large the segment shall be: --size 64M");
  const auto bytes = parse_bytes(text);
  if (!bytes || *bytes == 0 || *bytes > kBytesMax)
    return fail(ErrorClass::Usage, "--size {}: give bytes, up to 1024G, as 65536, 64K, 64M or 1G",
                text);
  return *bytes;
}

Result<std::vector<uint32_t>> parse_nodes(const std::vector<std::string>& words, size_t first) {
  std::vector<uint32_t> nodes;
  for (size_t i = first; i < words.size(); ++i) {
    const auto node = parse_node_id(words[i]);
    if (!node) return tl::unexpected(node.error());
    nodes.push_back(*node);
  }
  return nodes;
}

Result<FunctionId> segment_id(const Options& options) {
  if (options.words.empty())
    return fail(ErrorClass::Usage,
                "name the segment by its id: its owner's host has it in "
                "'pcilend segment list'");
  auto id = parse_function_id(options.words.front());
  if (!id)
    return fail(ErrorClass::Usage,
                "'{}' is no segment: give its id (40001), as in 'pcilend "
                "segment list'",
                options.words.front());
  return id;
}

Result<> offer_to(Session& session, const Options& options, FunctionId id,
                  const std::vector<uint32_t>& nodes) {
  const auto adapter = adapter_of(options);
  if (!adapter) return tl::unexpected(adapter.error());
  for (const uint32_t node : nodes) {
    auto offered = session.client.offer_segment(id, node, options.read_only, *adapter);
    if (!offered) return tl::unexpected(std::move(offered).error().in(to_string(id)));
  }
  return {};
}

// Until somebody ends this command, or `over` says why it is.
Result<> stay(EventStream& events, const std::function<Result<>()>& over) {
  for (;;) {
    PCILEND_TRY(over());
    const auto event = events.next(kLookStep);
    if (!event) return tl::unexpected(event.error());
    const auto* const wake = std::get_if<Wake>(&*event);
    if (wake && *wake == Wake::Stopped) return {};
  }
}

Result<Segment> find_segment(Session& session, FunctionId id) {
  const auto segments = session.client.segments();
  if (!segments) return tl::unexpected(segments.error());
  const auto found = std::find_if(segments->begin(), segments->end(),
                                  [&](const Segment& segment) { return segment.id == id; });
  if (found == segments->end())
    return fail(ErrorClass::NotFound, "{}: there is no such segment any more", to_string(id));
  return *found;
}

Result<Answer> create(Session& session, const Options& options) {
  const auto size = parse_size(options.size);
  if (!size) return tl::unexpected(size.error());
  if (options.name.size() > kNameBytes)
    return fail(ErrorClass::Usage, "--name: at most {} bytes", kNameBytes);
  const auto nodes = parse_nodes(options.words, 0);
  if (!nodes) return tl::unexpected(nodes.error());
  // Ctrl-C is waited for from here on: what was made is ended in order.
  const auto events = session.open_events();
  if (!events) return tl::unexpected(events.error());
  const auto segment = OwnedSegment::create(ThisHost(session.client), *size,
                                            {.name = options.name, .huge = options.huge});
  if (!segment) return tl::unexpected(segment.error());
  PCILEND_TRY(offer_to(session, options, segment->id(), *nodes));
  auto listed = find_segment(session, segment->id());
  if (!listed) return tl::unexpected(std::move(listed).error());
  PCILEND_TRY(session.emit(SegmentsAnswer{{std::move(*listed)}}));
  PCILEND_TRY(stay(**events, [] { return Result<>(); }));
  return EmittedAnswer{};
}

Result<Answer> connect(Session& session, const Options& options) {
  const auto id = segment_id(options);
  if (!id) return tl::unexpected(id.error());
  const auto adapter = adapter_of(options);
  if (!adapter) return tl::unexpected(adapter.error());
  const auto events = session.open_events();
  if (!events) return tl::unexpected(events.error());
  auto connection = Connection::open(ThisHost(session.client), *id,
                                     {options.read_only, options.write_combining, *adapter});
  if (!connection) return tl::unexpected(std::move(connection).error().in(to_string(*id)));
  PCILEND_TRY(session.emit(SegmentsAnswer{{connection->segment()}}));
  PCILEND_TRY(stay(**events, [&]() -> Result<> {
    if (!connection->lost()) return {};
    return fail(ErrorClass::State,
                "{} is lost: its link was, or its owner has withdrawn it; connect it again",
                to_string(*id));
  }));
  return EmittedAnswer{};
}

Result<Answer> offer(Session& session, const Options& options) {
  const auto id = segment_id(options);
  if (!id) return tl::unexpected(id.error());
  const auto nodes = parse_nodes(options.words, 1);
  if (!nodes) return tl::unexpected(nodes.error());
  if (nodes->empty())
    return fail(ErrorClass::Usage, "say to which nodes: 'pcilend segment offer {} NODE...'",
                to_string(*id));
  PCILEND_TRY(offer_to(session, options, *id, *nodes));
  auto segment = find_segment(session, *id);
  if (!segment) return tl::unexpected(std::move(segment).error());
  return SegmentsAnswer{{std::move(*segment)}};
}

Result<Answer> withdraw(Session& session, const Options& options) {
  const auto id = segment_id(options);
  if (!id) return tl::unexpected(id.error());
  const auto nodes = parse_nodes(options.words, 1);
  if (!nodes) return tl::unexpected(nodes.error());
  std::vector<std::optional<uint32_t>> from(nodes->begin(), nodes->end());
  if (from.empty()) from.emplace_back();
  Segment left;
  for (const auto& node : from) {
    auto withdrawn = session.client.withdraw_segment(*id, node);
    if (!withdrawn) return tl::unexpected(std::move(withdrawn).error().in(to_string(*id)));
    auto segment = find_segment(session, *id);
    // Memory beside a function ends with that.
    if (!segment && segment.error().kind == ErrorClass::NotFound) return SegmentsAnswer{};
    if (!segment) return tl::unexpected(std::move(segment).error());
    left = std::move(*segment);
  }
  return SegmentsAnswer{{std::move(left)}};
}

// What peers offer is asked of them by administrators only, and by a module that knows how; others
// see what is here.
Result<Answer> list(Session& session, const Options&) {
  auto segments = session.client.segments();
  if (!segments) return tl::unexpected(std::move(segments).error());
  auto offered = session.client.offered_segments();
  if (!offered && offered.error().kind != ErrorClass::Permission &&
      offered.error().kind != ErrorClass::Unsupported)
    return tl::unexpected(std::move(offered).error());
  if (offered) std::move(offered->begin(), offered->end(), std::back_inserter(*segments));
  return SegmentsAnswer{std::move(*segments)};
}

struct Action {
  std::string_view name;
  Result<Answer> (*run)(Session&, const Options&);
  bool takes_words;
};

constexpr Action kActions[] = {{"create", create, true},
                               {"offer", offer, true},
                               {"withdraw", withdraw, true},
                               {"connect", connect, true},
                               {"list", list, false}};

}  // namespace

Result<Answer> command_segment(Session& session, const Options& options) {
  const std::string& name = options.targets.front();
  const auto* const action = std::find_if(std::begin(kActions), std::end(kActions),
                                          [&](const Action& a) { return a.name == name; });
  if (action == std::end(kActions))
    return fail(ErrorClass::Usage,
                "segment {}: there are create, offer, withdraw, connect and list", name);
  if (!action->takes_words && !options.words.empty())
    return fail(ErrorClass::Usage, "segment {}: what is '{}'? It takes no words", name,
                options.words.front());
  return action->run(session, options);
}

}  // namespace pcilend
