// SPDX-License-Identifier: GPL-2.0-or-later
#include "control.h"

#include <fmt/format.h>

#include <string>

#include "pcilend/result.h"

namespace pcilend::fabric {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxFlapMs = 60000;

std::string host_name(size_t host) {
  return fmt::format("host{}", host + 1);
}

json refusal(std::string_view text) {
  return {{"ok", false}, {"error", text}};
}

Result<std::string> text_of(const json& request, const char* key) {
  const auto found = request.find(key);
  if (found == request.end() || !found->is_string())
    return fail(ErrorClass::Usage, "'{}' is missing or not a string", key);
  return found->get<std::string>();
}

// The unsigned number at `key`, `otherwise` if there is none.
Result<uint64_t> number_of(const json& request, const char* key, uint64_t otherwise) {
  const auto found = request.find(key);
  if (found == request.end()) return otherwise;
  if (!found->is_number_unsigned())
    return fail(ErrorClass::Usage, "'{}' is not a number of 0 or more", key);
  return found->get<uint64_t>();
}

struct Pair {
  size_t a;
  size_t b;
  std::optional<size_t> path;  // counts from 0
};

Result<Pair> pair_of(const Fabric& fabric, const json& request, const char* a, const char* b) {
  const auto first = text_of(request, a).and_then([&](const std::string& name) {
    return fabric.host_named(name);
  });
  if (!first) return tl::unexpected(first.error());
  const auto second = text_of(request, b).and_then([&](const std::string& name) {
    return fabric.host_named(name);
  });
  if (!second) return tl::unexpected(second.error());
  if (*first == *second) return fail(ErrorClass::Usage, "'{}' and '{}' are the same host", a, b);
  const auto path = number_of(request, "path", 0);
  if (!path) return tl::unexpected(path.error());
  if (*path > fabric.paths())
    return fail(ErrorClass::NotFound, "no path {}: each pair of hosts has {}", *path,
                fabric.paths());
  return Pair{*first, *second, *path == 0 ? std::nullopt : std::optional(*path - 1)};
}

// "01:00.0".
std::string function_name(uint16_t id) {
  return fmt::format("{:02x}:{:02x}.{:x}", id >> 8, id >> 3 & 0x1f, id & 7);
}

json adapter_status(const Fabric& fabric, const Adapter& adapter) {
  json windows = json::array();
  for (unsigned window = 0; window < kWindowCount; window++) {
    json openings = json::array();
    for (const Opening& opening : adapter.model().inbound(window)) {
      if (opening.length != 0)
        openings.push_back(
            {{"offset", opening.offset}, {"length", opening.length}, {"address", opening.address}});
    }
    windows.push_back({{"size", adapter.window_size(window)}, {"openings", openings}});
  }
  json requesters = json::array();
  for (const Requester& requester : adapter.model().requesters())
    requesters.push_back(
        {{"id", function_name(requester.id)},
         {"proxy", fmt::format("{:02x}.{:x}", requester.proxy >> 3, requester.proxy & 7)}});
  const Session* session = adapter.session();
  return {{"host", host_name(adapter.host())},
          {"peer", host_name(adapter.peer())},
          {"path", adapter.path() + 1},
          {"side", adapter.model().primary() ? "primary" : "secondary"},
          {"connected", adapter.present()},
          {"driver_ready", adapter.model().ready()},
          {"link_up", fabric.link(adapter.host(), adapter.peer(), adapter.path()).up},
          {"bus_master", adapter.bus_master()},
          {"inbound_windows", windows},
          {"requesters", requesters},
          {"dma_maps", adapter.memory().count()},
          {"dma_mapped_bytes", adapter.memory().mapped_bytes()},
          {"held", fabric.tampering(adapter).held.size()},
          {"trips", fabric.tampering(adapter).trip.has_value()},
          {"vectors_enabled", adapter.interrupts().enabled()},
          {"posted_depth", session != nullptr ? session->connection().queued_messages() : 0},
          {"posted_bytes", session != nullptr ? session->connection().queued_bytes() : 0}};
}

json status(const Fabric& fabric) {
  json hosts = json::array();
  for (size_t host = 0; host < fabric.hosts(); host++) hosts.push_back(host_name(host));
  json links = json::array();
  for (size_t a = 0; a < fabric.hosts(); a++) {
    for (size_t b = a + 1; b < fabric.hosts(); b++) {
      for (size_t path = 0; path < fabric.paths(); path++) {
        const Link& link = fabric.link(a, b, path);
        using std::chrono::milliseconds;
        links.push_back({{"a", host_name(a)},
                         {"b", host_name(b)},
                         {"path", path + 1},
                         {"enabled", link.enabled},
                         {"up", link.up},
                         {"delay_ms", std::chrono::duration_cast<milliseconds>(link.delay).count()},
                         {"in_flight", link.channels[0].depth() + link.channels[1].depth()}});
      }
    }
  }
  json adapters = json::array();
  for (const auto& adapter : fabric.adapters())
    adapters.push_back(adapter_status(fabric, *adapter));
  return {{"ok", true},
          {"hosts", hosts},
          {"links", links},
          {"adapters", adapters},
          {"pending_reads", fabric.pending_reads()}};
}

json losses(const std::array<uint64_t, kLossCount>& counts) {
  json out = json::object();
  for (size_t i = 0; i < kLossCount; i++) out[std::string(kLossNames[i])] = counts[i];
  return out;
}

json counters(const Fabric& fabric) {
  json paths = json::array();
  json adapters = json::array();
  for (const auto& adapter : fabric.adapters()) {
    const PathCounters& counts = fabric.traffic(*adapter);
    json path = {{"from", host_name(adapter->host())},
                 {"to", host_name(adapter->peer())},
                 {"path", adapter->path() + 1}};
    for (size_t target = 0; target < kTargetCount; target++) {
      const Traffic& traffic = counts.traffic[target];
      path[std::string(kTargetNames[target])] = {{"reads", traffic.reads},
                                                 {"writes", traffic.writes},
                                                 {"read_bytes", traffic.read_bytes},
                                                 {"write_bytes", traffic.write_bytes}};
    }
    path["all_ones_reads"] = losses(counts.lost_reads);
    path["dropped_writes"] = losses(counts.lost_writes);
    paths.push_back(path);

    const AdapterCounters& own = adapter->counters();
    const Session* session = adapter->session();
    adapters.push_back(
        {{"host", host_name(adapter->host())},
         {"peer", host_name(adapter->peer())},
         {"path", adapter->path() + 1},
         {"registers", own.registers},
         {"scratchpads", own.scratchpads},
         {"doorbells", own.doorbells},
         {"interrupts_raised", adapter->interrupts().raised()},
         {"dma_map_messages", own.maps},
         {"dma_unmap_messages", own.unmaps},
         {"posted_depth", session != nullptr ? session->connection().queued_messages() : 0},
         {"posted_peak", own.posted_peak}});
  }
  return {{"ok", true}, {"paths", paths}, {"adapters", adapters}};
}

Result<json> change_link(Fabric& fabric, const json& request) {
  const auto pair = pair_of(fabric, request, "a", "b");
  if (!pair) return tl::unexpected(pair.error());
  std::optional<bool> enable;
  if (request.contains("state")) {
    const auto state = text_of(request, "state");
    if (!state) return tl::unexpected(state.error());
    if (*state != "up" && *state != "down")
      return fail(ErrorClass::Usage, "'state' is '{}': use 'up' or 'down'", *state);
    enable = *state == "up";
  }
  const auto flap = number_of(request, "flap_ms", 0);
  if (!flap) return tl::unexpected(flap.error());
  if (*flap > kMaxFlapMs)
    return fail(ErrorClass::Usage, "'flap_ms' is {}: at most {}", *flap, kMaxFlapMs);
  const auto delay = number_of(request, "delay_ms", 0);
  if (!delay) return tl::unexpected(delay.error());
  if (*delay > kMaxDelayMs)
    return fail(ErrorClass::Usage,
                "'delay_ms' is {}: at most {}, or reads would time out on their way", *delay,
                kMaxDelayMs);
  if (!enable && !request.contains("delay_ms") && !request.contains("flap_ms"))
    return fail(ErrorClass::Usage, "nothing to change: give 'state', 'flap_ms' or 'delay_ms'");

  for (size_t path = 0; path < fabric.paths(); path++) {
    if (pair->path && *pair->path != path) continue;
    if (request.contains("delay_ms"))
      fabric.set_delay(pair->a, pair->b, std::chrono::milliseconds(*delay), path);
    if (enable) fabric.set_link(pair->a, pair->b, *enable, path);
    if (request.contains("flap_ms"))
      fabric.flap(pair->a, pair->b, std::chrono::milliseconds(*flap), path);
  }
  return json{{"ok", true}};
}

Result<bool> flag_of(const json& request, const char* key) {
  const auto found = request.find(key);
  if (found == request.end() || !found->is_boolean())
    return fail(ErrorClass::Usage, "'{}' is not true or false", key);
  return found->get<bool>();
}

Result<json> change_events(const Fabric& fabric, const json& request) {
  const auto pair = pair_of(fabric, request, "host", "peer");
  if (!pair) return tl::unexpected(pair.error());
  const auto told = flag_of(request, "told");
  if (!told) return tl::unexpected(told.error());
  for (size_t path = 0; path < fabric.paths(); path++) {
    if (!pair->path || *pair->path == path) fabric.adapter(pair->a, pair->b, path).set_told(*told);
  }
  return json{{"ok", true}};
}

Result<json> change_requesters(const Fabric& fabric, const json& request) {
  const auto pair = pair_of(fabric, request, "host", "peer");
  if (!pair) return tl::unexpected(pair.error());
  Adapter& adapter = fabric.adapter(pair->a, pair->b, pair->path.value_or(0));
  for (const char* key : {"strict", "full"}) {
    if (!request.contains(key)) continue;
    const auto flag = flag_of(request, key);
    if (!flag) return tl::unexpected(flag.error());
    if (std::string_view(key) == "strict")
      adapter.set_strict(*flag);
    else
      adapter.model().fill_requesters(*flag);
  }
  return json{{"ok", true}};
}

Result<json> deliver_message(const Fabric& fabric, const json& request) {
  const auto pair = pair_of(fabric, request, "from", "to");
  if (!pair) return tl::unexpected(pair.error());
  const auto value = number_of(request, "value", 0);
  if (!value) return tl::unexpected(value.error());
  if (*value > UINT32_MAX)
    return fail(ErrorClass::Usage, "'value' is {}: a message has 32 bits", *value);
  Adapter& to = fabric.adapter(pair->b, pair->a, pair->path.value_or(0));
  if (!to.model().takes_messages())
    return fail(ErrorClass::Usage, "{} has no message registers", to.name());
  to.model().arrive({Signal::Kind::Message, 0, *value});
  return json{{"ok", true}};
}

Result<json> change_hold(Fabric& fabric, const json& request) {
  const auto pair = pair_of(fabric, request, "from", "to");
  if (!pair) return tl::unexpected(pair.error());
  const auto held = flag_of(request, "held");
  if (!held) return tl::unexpected(held.error());
  Adapter& from = fabric.adapter(pair->a, pair->b, pair->path.value_or(0));
  return json{{"ok", true}, {"released", fabric.hold(from, *held)}};
}

Result<json> set_trip(Fabric& fabric, const json& request) {
  const auto pair = pair_of(fabric, request, "from", "to");
  if (!pair) return tl::unexpected(pair.error());
  const auto flap = number_of(request, "flap_ms", 0);
  if (!flap) return tl::unexpected(flap.error());
  if (*flap > kMaxFlapMs)
    return fail(ErrorClass::Usage, "'flap_ms' is {}: at most {}", *flap, kMaxFlapMs);
  Trip trip{.reads = {}, .writes = {}, .flap = std::chrono::milliseconds(*flap)};
  for (const auto& [key, what] : {std::pair("reads", &trip.reads), {"writes", &trip.writes}}) {
    if (!request.contains(key)) continue;
    const auto count = number_of(request, key, 0);
    if (!count) return tl::unexpected(count.error());
    *what = *count;
  }
  if (!trip.reads && !trip.writes)
    return fail(ErrorClass::Usage, "after what? Give 'reads' or 'writes'");
  fabric.set_trip(fabric.adapter(pair->a, pair->b, pair->path.value_or(0)), trip);
  return json{{"ok", true}};
}

Result<json> read_counters(Fabric& fabric, const json& request) {
  bool reset = false;
  if (request.contains("reset")) {
    const auto flag = flag_of(request, "reset");
    if (!flag) return tl::unexpected(flag.error());
    reset = *flag;
  }
  json answer = counters(fabric);
  if (reset) fabric.reset_counters();
  return answer;
}

Result<SweepRange> sweep_range(const Adapter& victim, const json& item) {
  if (!item.is_object()) return fail(ErrorClass::Usage, "a range is not an object");
  const auto window = number_of(item, "window", 0);
  if (!window) return tl::unexpected(window.error());
  if (*window >= kWindowCount)
    return fail(ErrorClass::Usage, "no window {}: there are 0 (BAR2) and 1 (BAR4)", *window);
  const uint64_t size = victim.window_size(static_cast<unsigned>(*window));
  const auto offset = number_of(item, "offset", 0);
  if (!offset) return tl::unexpected(offset.error());
  if (*offset % kSweepPage != 0 || *offset > size)
    return fail(ErrorClass::Usage, "offset {:#x}: a multiple of {} of at most {:#x}", *offset,
                kSweepPage, size);
  const auto length = number_of(item, "length", size - *offset);
  if (!length) return tl::unexpected(length.error());
  const auto stride = number_of(item, "stride", kSweepPage);
  if (!stride) return tl::unexpected(stride.error());
  if (*stride == 0 || *stride % kSweepPage != 0 || *stride > size)
    return fail(ErrorClass::Usage, "stride {}: a multiple of {}", *stride, kSweepPage);
  return SweepRange{static_cast<unsigned>(*window), *offset, std::min(*length, size - *offset),
                    *stride};
}

std::string_view probe_name(Fabric::Probe probe) {
  switch (probe) {
    case Fabric::Probe::Memory:
      return "memory";
    case Fabric::Probe::Bar:
      return "bar";
    case Fabric::Probe::Interrupt:
      return "interrupt";
    case Fabric::Probe::NoAnswer:
      break;
  }
  return "none";
}

json sweep_answer(const SweepResult& result) {
  if (result.stalled) return refusal("the victim's QEMU stopped answering during the sweep");
  json hits = json::array();
  for (const SweepHit& hit : result.hits) {
    hits.push_back({{"window", hit.window},
                    {"offset", hit.offset},
                    {"length", hit.length},
                    {"address", hit.address},
                    {"target", probe_name(hit.target)},
                    {"stride", hit.stride}});
  }
  return {{"ok", true},
          {"answered", hits},
          {"probes", result.probes},
          {"seconds", std::chrono::duration<double>(result.time).count()}};
}

class SweepWork final : public Work {
 public:
  SweepWork(Fabric& fabric, const Adapter& victim, std::vector<SweepRange> ranges, Respond respond)
      : sweep_(fabric, victim, std::move(ranges),
               [respond = std::move(respond)](const SweepResult& result) {
                 respond(sweep_answer(result));
               }) {}
  void start() { sweep_.start(); }

 private:
  Sweep sweep_;
};

Result<std::unique_ptr<Work>> begin_sweep(Fabric& fabric, const json& request, Respond respond) {
  const auto pair = pair_of(fabric, request, "from", "victim");
  if (!pair) return tl::unexpected(pair.error());
  const Adapter& victim = fabric.adapter(pair->b, pair->a, pair->path.value_or(0));
  std::vector<SweepRange> ranges;
  if (const auto found = request.find("ranges"); found != request.end()) {
    if (!found->is_array()) return fail(ErrorClass::Usage, "'ranges' is not a list");
    for (const json& item : *found) {
      const auto range = sweep_range(victim, item);
      if (!range) return tl::unexpected(range.error());
      ranges.push_back(*range);
    }
  } else {
    ranges = Sweep::default_ranges(fabric, victim);
  }
  auto work = std::make_unique<SweepWork>(fabric, victim, std::move(ranges), std::move(respond));
  work->start();
  return work;
}

}  // namespace

std::unique_ptr<Work> carry_out(Fabric& fabric, std::string_view line, const Respond& respond) {
  const json request = json::parse(line, nullptr, false);
  if (!request.is_object()) {
    respond(refusal("the request is not a JSON object"));
    return nullptr;
  }
  const auto op = text_of(request, "op");
  if (!op) {
    respond(refusal(op.error().message));
    return nullptr;
  }

  Result<json> answer = json();
  if (*op == "status") {
    answer = status(fabric);
  } else if (*op == "link") {
    answer = change_link(fabric, request);
  } else if (*op == "events") {
    answer = change_events(fabric, request);
  } else if (*op == "message") {
    answer = deliver_message(fabric, request);
  } else if (*op == "requesters") {
    answer = change_requesters(fabric, request);
  } else if (*op == "hold") {
    answer = change_hold(fabric, request);
  } else if (*op == "trip") {
    answer = set_trip(fabric, request);
  } else if (*op == "counters") {
    answer = read_counters(fabric, request);
  } else if (*op == "sweep") {
    auto work = begin_sweep(fabric, request, respond);
    if (work) return std::move(*work);
    answer = tl::unexpected(work.error());
  } else {
    answer = fail(
        ErrorClass::Usage,
        "unknown op '{}': status, link, events, requesters, hold, trip, counters or sweep", *op);
  }
  respond(answer ? *answer : refusal(answer.error().message));
  return nullptr;
}

}  // namespace pcilend::fabric
