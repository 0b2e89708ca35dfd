// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/fabric_client.h"

#include "lab/json_lines.h"
#include "lab/options.h"
#include "lab/unix_socket.h"

namespace pcilend::lab {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr auto kAnswer = 60s;
constexpr auto kSweep = 10min;

Traffic parse_traffic(const json& from) {
  return {from.at("reads").get<uint64_t>(), from.at("writes").get<uint64_t>(),
          from.at("read_bytes").get<uint64_t>(), from.at("write_bytes").get<uint64_t>()};
}

uint64_t sum(const json& counts) {
  uint64_t total = 0;
  for (const json& count : counts) total += count.get<uint64_t>();
  return total;
}

int host_number(const json& name) {
  // A name that is none gives 0, which no host has.
  return parse_host(name.get<std::string>(), kMaxHosts).value_or(0);
}

template <class Parsed, class Parse>
Result<Parsed> parse(json from, Parse fill) {
  Parsed parsed;
  try {
    fill(from, parsed);
  } catch (const json::exception& error) {
    return fail(ErrorClass::Failure, "the fabric's answer is not understood: {}", error.what());
  }
  from.erase("ok");
  parsed.json = std::move(from);
  return parsed;
}

}  // namespace

PathCounters Counters::path(int from, int to, int path) const {
  for (const PathCounters& one : paths)
    if (one.from == from && one.to == to && one.path == path) return one;
  return {from, to, path, {}, {}, {}, 0, 0};
}

Result<Counters> parse_counters(json from) {
  return parse<Counters>(std::move(from), [](const json& answer, Counters& counters) {
    for (const json& path : answer.at("paths"))
      counters.paths.push_back({host_number(path.at("from")), host_number(path.at("to")),
                                path.at("path").get<int>(), parse_traffic(path.at("memory")),
                                parse_traffic(path.at("bar")), parse_traffic(path.at("interrupt")),
                                sum(path.at("all_ones_reads")), sum(path.at("dropped_writes"))});
  });
}

Result<SweepReport> parse_sweep(json from) {
  return parse<SweepReport>(std::move(from), [](const json& answer, SweepReport& report) {
    for (const json& hit : answer.at("answered"))
      report.answered.push_back({hit.at("window").get<unsigned>(), hit.at("offset").get<uint64_t>(),
                                 hit.at("length").get<uint64_t>(),
                                 hit.at("address").get<uint64_t>(),
                                 hit.at("target").get<std::string>()});
  });
}

Result<json> Fabric::request(const json& request, const Deadline& deadline) const {
  auto stream = connect_unix(control_);
  if (!stream)
    return fail(ErrorClass::Unreachable,
                "the fabric is not running ({}): 'pcilend-lab down' and 'up' start it again",
                stream.error().message);
  JsonLines lines(std::move(*stream));
  PCILEND_TRY(lines.send(request, deadline));
  auto answer = lines.receive(deadline);
  if (!answer) return tl::unexpected(std::move(answer).error().in("fabric"));
  if (!answer->value("ok", false))
    return fail(ErrorClass::Failure, "fabric: {}", answer->value("error", answer->dump()));
  return *answer;
}

Result<> Fabric::change(int a, int b, int path, json change) const {
  change.update({{"op", "link"}, {"a", host_name(a)}, {"b", host_name(b)}});
  if (path != 0) change["path"] = path;
  PCILEND_TRY(request(change, Deadline(kAnswer)));
  return {};
}

Result<> Fabric::link_up(int a, int b, int path) const {
  return change(a, b, path, {{"state", "up"}});
}

Result<> Fabric::link_down(int a, int b, int path) const {
  return change(a, b, path, {{"state", "down"}});
}

Result<> Fabric::flap(int a, int b, std::chrono::milliseconds time, int path) const {
  return change(a, b, path, {{"flap_ms", time.count()}});
}

Result<> Fabric::tell_events(int host, int peer, bool told, int path) const {
  PCILEND_TRY(request({{"op", "events"},
                       {"host", host_name(host)},
                       {"peer", host_name(peer)},
                       {"path", path},
                       {"told", told}},
                      Deadline(kAnswer)));
  return {};
}

Result<> Fabric::hold(int from, int to, int path) const {
  PCILEND_TRY(request({{"op", "hold"},
                       {"from", host_name(from)},
                       {"to", host_name(to)},
                       {"path", path},
                       {"held", true}},
                      Deadline(kAnswer)));
  return {};
}

Result<uint64_t> Fabric::release(int from, int to, int path) const {
  return request({{"op", "hold"},
                  {"from", host_name(from)},
                  {"to", host_name(to)},
                  {"path", path},
                  {"held", false}},
                 Deadline(kAnswer))
      .map([](const json& answer) { return answer.value("released", uint64_t{0}); });
}

Result<json> Fabric::adapter(int host, int peer, int path) const {
  const auto status = request({{"op", "status"}}, Deadline(kAnswer));
  if (!status) return tl::unexpected(status.error());
  for (const json& one : status->value("adapters", json::array()))
    if (one.value("host", "") == host_name(host) && one.value("peer", "") == host_name(peer) &&
        one.value("path", 0) == path)
      return one;
  return fail(ErrorClass::NotFound, "no adapter {} of {} towards {}", path, host_name(host),
              host_name(peer));
}

Result<uint64_t> Fabric::held(int from, int to, int path) const {
  return adapter(from, to, path).map([](const json& one) {
    return one.value("held", uint64_t{0});
  });
}

Result<> Fabric::trip(int from, int to, int path, const Trip& trip) const {
  json order = {{"op", "trip"},
                {"from", host_name(from)},
                {"to", host_name(to)},
                {"path", path},
                {"flap_ms", trip.flap.count()}};
  if (trip.reads) order["reads"] = *trip.reads;
  if (trip.writes) order["writes"] = *trip.writes;
  PCILEND_TRY(request(order, Deadline(kAnswer)));
  return {};
}

Result<bool> Fabric::trips(int from, int to, int path) const {
  return adapter(from, to, path).map([](const json& one) { return one.value("trips", false); });
}

Result<> Fabric::set_delay(int a, int b, std::chrono::milliseconds delay, int path) const {
  return change(a, b, path, {{"delay_ms", delay.count()}});
}

Result<Counters> Fabric::counters(bool reset) const {
  return request({{"op", "counters"}, {"reset", reset}}, Deadline(kAnswer))
      .and_then([](json answer) { return parse_counters(std::move(answer)); });
}

Result<std::vector<std::string>> Fabric::requesters(int host, int peer) const {
  return request({{"op", "status"}}, Deadline(kAnswer))
      .and_then([&](const json& answer) -> Result<std::vector<std::string>> {
        std::vector<std::string> ids;
        for (const json& adapter : answer.value("adapters", json::array())) {
          if (adapter.value("host", "") != host_name(host) ||
              adapter.value("peer", "") != host_name(peer))
            continue;
          for (const json& requester : adapter.value("requesters", json::array()))
            ids.push_back(requester.value("id", ""));
        }
        return ids;
      });
}

Result<> Fabric::check_requesters(int host, int peer, bool strict) const {
  PCILEND_TRY(request({{"op", "requesters"},
                       {"host", host_name(host)},
                       {"peer", host_name(peer)},
                       {"strict", strict}},
                      Deadline(kAnswer)));
  return {};
}

Result<> Fabric::fill_requesters(int host, int peer, bool full) const {
  PCILEND_TRY(request(
      {{"op", "requesters"}, {"host", host_name(host)}, {"peer", host_name(peer)}, {"full", full}},
      Deadline(kAnswer)));
  return {};
}

Result<> Fabric::send_message(int from, int to, uint32_t value) const {
  PCILEND_TRY(request(
      {{"op", "message"}, {"from", host_name(from)}, {"to", host_name(to)}, {"value", value}},
      Deadline(kAnswer)));
  return {};
}

Result<SweepReport> Fabric::sweep(int victim, int from,
                                  const std::vector<SweepRange>& ranges) const {
  json order = {{"op", "sweep"}, {"victim", host_name(victim)}, {"from", host_name(from)}};
  for (const SweepRange& range : ranges)
    order["ranges"].push_back({{"window", range.window},
                               {"offset", range.offset},
                               {"length", range.length},
                               {"stride", range.stride}});
  return request(order, Deadline(kSweep)).and_then([](json answer) {
    return parse_sweep(std::move(answer));
  });
}

}  // namespace pcilend::lab
