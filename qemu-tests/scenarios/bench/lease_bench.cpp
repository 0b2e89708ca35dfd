// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-lease-bench: what segments, leased functions and their clients cost: messages,
// transactions of the NTB, times beside the adapter's own mappings, memory of the kernels.
#include <fmt/format.h>

#include <functional>

#include "lab/lab.h"
#include "main_job/admin_steps.h"
#include "scenarios/bench/bench_rows.h"
#include "testing/kernel_memory.h"
#include "testing/suite_lab.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using json = nlohmann::json;

constexpr const char* kLeaseUser = "/usr/lib/pcilend-lab/lease-user";
constexpr const char* kShareUser = "/usr/lib/pcilend-lab/share-user";
constexpr const char* kSegmentUser = "/usr/lib/pcilend-lab/segment-user";
constexpr const char* kGo = "/run/go";
constexpr int kClients = 60;
constexpr int kTurns = 7;
constexpr int kFew = 20;
constexpr int kMany = 60;

/*
 *   host1 (lender, node 4): edu ── NTB ═══ NTB ── host2 (node 8)
 */
Result<lab::Options> options() {
  lab::Options options;
  options.name = "lease-bench";
  PCILEND_TRY(options.add_device("host1:edu,id=edu,dma_mask=0xffffffffff,root-port=on"));
  return options;
}

// Until a program has said that word; the line with it.
Result<json> await_word(const lab::Host& host, const lab::Running& running, const char* key) {
  json said;
  const auto come = host.until("true", [&](const lab::Output&) {
    const std::string text = running.output_so_far();
    const size_t at = text.find(fmt::format("\"{}\"", key));
    const size_t end = at == std::string::npos ? at : text.find('\n', at);
    if (end == std::string::npos) return running.ended();
    const size_t start = text.rfind('\n', at);
    said = json::parse(text.substr(start == std::string::npos ? 0 : start, end - start), nullptr,
                       false);
    return true;
  });
  if (!come) return tl::unexpected(come.error());
  if (!said.is_object())
    return fail(ErrorClass::Failure, "it has ended: {}", running.output_so_far());
  return said;
}

// A program that goes on, and what it has said by then.
Result<std::pair<lab::Running, json>> begin(const lab::Host& host, const std::string& command,
                                            const char* key) {
  auto running = host.start("exec " + command);
  if (!running) return tl::unexpected(running.error());
  auto said = await_word(host, *running, key);
  if (!said) return tl::unexpected(std::move(said).error().in(command));
  return std::pair{std::move(*running), std::move(*said)};
}

Result<> end(lab::Running& running) {
  running.interrupt();
  const auto ended = running.wait();
  if (!ended) return tl::unexpected(ended.error());
  return {};
}

// By dma_map_page() for the adapter, as its driver would.
Result<std::pair<double, double>> adapter_times(const lab::Host& host, const std::string& adapter,
                                                uint64_t bytes, int rounds) {
  const auto line =
      host.run(fmt::format("modprobe pcilend_map_bench function={0} bytes={1} rounds={2} && "
                           "rmmod pcilend_map_bench && dmesg | grep '{0}: median of' | tail -n 1 | "
                           "sed 's/.*map \\([0-9]*\\) ns, unmap \\([0-9]*\\) ns/\\1 \\2/'",
                           adapter, bytes, rounds));
  if (!line) return tl::unexpected(line.error());
  std::pair<double, double> times;
  if (std::sscanf(line->c_str(), "%lf %lf", &times.first, &times.second) != 2)
    return fail(ErrorClass::Failure, "not two numbers: {}", *line);
  return times;
}

Result<> measure_maps(const lab::Host& host, const std::string& id) {
  const auto function = function_on(host, id);
  if (!function) return tl::unexpected(function.error());
  const std::string adapter = function->at("paths").at(0);
  PCILEND_TRY(host.run("echo 4 >/proc/sys/vm/nr_hugepages"));
  fmt::print(
      "| on another host, medians | segment-map, -unmap | beside | | ratio | messages |\n"
      "| --- | --- | --- | --- | --- | --- |\n");
  const std::pair<uint64_t, const char*> sizes[] = {{4096, "4 KiB"},
                                                    {2 << 20, "2 MiB, one huge page"}};
  for (const auto& [bytes, name] : sizes) {
    std::array<std::vector<double>, 4> times;
    uint64_t messages = 0;
    // By turns, as the machine may be busier at one time than at another.
    for (int turn = 0; turn < kTurns; ++turn) {
      const auto said = host.run(fmt::format("{} {} time {}", kLeaseUser, id, bytes), {{}, 10min});
      if (!said) return tl::unexpected(said.error());
      const json time = json::parse(*said);
      messages += time.at("messages").get<uint64_t>();
      PCILEND_TRY(await_state(host, id, "available"));
      const auto its = adapter_times(host, adapter, bytes, time.at("times"));
      if (!its) return tl::unexpected(its.error());
      const double all[] = {time.at("map_ns"), its->first, time.at("unmap_ns"), its->second};
      for (size_t i = 0; i < times.size(); ++i) times[i].push_back(all[i] / 1000);
    }
    for (const size_t at : {0U, 2U}) {
      const double ours = median(times[at]);
      const double theirs = median(times[at + 1]);
      const char* what = at == 0 ? "map" : "unmap";
      fmt::print(
          "| to {} {} | {:.1f} µs | dma_{}_page() of the adapter | {:.1f} µs | {:.2f} | {} |\n",
          what, name, ours, what, theirs, ours / theirs, messages);
    }
  }
  PCILEND_TRY(host.run("echo 0 >/proc/sys/vm/nr_hugepages"));
  return {};
}

// What crosses the NTB between the two.
struct Crossed {
  double writes = 0;  // to memory of the other host
  double bytes = 0;
  double reads = 0;
  double interrupts = 0;
  double doorbells = 0;
};

Result<std::array<Crossed, 2>> crossed(lab::Lab& lab) {
  const auto counters = lab.fabric().counters();
  if (!counters) return tl::unexpected(counters.error());
  std::array<Crossed, 2> both;
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  for (const int from : {1, 2}) {
    const auto path = counters->path(from, 3 - from);
    both[from - 1] = {number(path.memory.writes), number(path.memory.write_bytes),
                      number(path.memory.reads), number(path.interrupt.writes), 0};
  }
  for (const auto& adapter : counters->json.at("adapters"))
    both[adapter.at("host") == lab.host(1).name() ? 0 : 1].doorbells +=
        adapter.at("doorbells").get<double>();
  return both;
}

// Until no segment of it is connected.
Result<> await_idle(const lab::Host& owner) {
  const auto idle = owner.until("pcilend segment list --json", [](const lab::Output& output) {
    const auto list = json::parse(output.out, nullptr, false);
    return list.contains("segments") &&
           std::ranges::all_of(list.at("segments"), [](const json& segment) {
             return std::ranges::all_of(segment.at("offers"), [](const json& offer) {
               return offer.at("connections") == 0;
             });
           });
  });
  if (!idle) return tl::unexpected(idle.error());
  return {};
}

// The more of a run that does something `kMany` times than of one that does it `kFew` times, each.
Result<> measure_transactions(lab::Lab& lab, const char* what,
                              const std::function<Result<std::optional<lab::Running>>(int)>& act) {
  std::array<Crossed, 2> runs[2];
  for (const int run : {0, 1}) {
    PCILEND_TRY(lab.fabric().counters(true));
    auto running = act(run == 0 ? kFew : kMany);
    if (!running) return tl::unexpected(running.error());
    const auto seen = crossed(lab);
    if (!seen) return tl::unexpected(seen.error());
    runs[run] = *seen;
    if (*running) PCILEND_TRY(end(**running));
    // What they say when they end is of no later run.
    PCILEND_TRY(await_idle(lab.host(1)));
  }
  for (const int from : {2, 1}) {
    const auto each = [&](double Crossed::*count) {
      return (runs[1][from - 1].*count - runs[0][from - 1].*count) / (kMany - kFew);
    };
    fmt::print("| {} | host{} to host{} | {:.1f} | {:.0f} | {:.1f} | {:.1f} | {:.1f} |\n", what,
               from, 3 - from, each(&Crossed::writes), each(&Crossed::bytes),
               each(&Crossed::doorbells), each(&Crossed::interrupts), each(&Crossed::reads));
  }
  return {};
}

Result<> measure_segments(lab::Lab& lab) {
  const lab::Host& owner = lab.host(1);
  const lab::Host& other = lab.host(2);
  auto own = begin(owner, fmt::format("{} create {} stay", kSegmentUser, other.node()), "id");
  if (!own) return tl::unexpected(own.error());
  const std::string id = own->second.at("id");
  fmt::print(
      "\n| each of {}, beside a run of {} | | writes | bytes | doorbells | interrupts | reads |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n",
      kMany, kFew);
  PCILEND_TRY(measure_transactions(
      lab, "to connect a segment", [&](int times) -> Result<std::optional<lab::Running>> {
        auto crowd = begin(other, fmt::format("{} crowd {} {}", kSegmentUser, id, times), "made");
        if (!crowd) return tl::unexpected(crowd.error());
        return std::move(crowd->first);
      }));
  PCILEND_TRY(measure_transactions(
      lab, "to notify its owner", [&](int times) -> Result<std::optional<lab::Running>> {
        std::string steps;
        for (int i = 0; i < times; ++i) steps += " notify";
        const auto done = other.run(fmt::format("{} connect {}{}", kSegmentUser, id, steps));
        if (!done) return tl::unexpected(done.error());
        return std::optional<lab::Running>();
      }));
  return end(own->first);
}

// What each of `count` takes on these hosts, that `program` makes once kGo is there.
Result<lab::Running> measure_memory(const char* what, int count, const lab::Host& where,
                                    const std::string& program, const char* key,
                                    std::initializer_list<const lab::Host*> hosts) {
  PCILEND_TRY(where.run(fmt::format("rm -f {}", kGo)));
  auto running = begin(where, program, "waiting");
  if (!running) return tl::unexpected(running.error());
  std::vector<int64_t> before;
  for (const lab::Host* host : hosts) {
    const auto bytes = kernel_memory(*host);
    if (!bytes) return tl::unexpected(bytes.error());
    before.push_back(*bytes);
  }
  PCILEND_TRY(where.run(fmt::format("touch {}", kGo)));
  PCILEND_TRY(await_word(where, running->first, key));
  for (size_t i = 0; i < hosts.size(); ++i) {
    const lab::Host& host = **(hosts.begin() + i);
    const auto bytes = kernel_memory(host);
    if (!bytes) return tl::unexpected(bytes.error());
    fmt::print("| {} | {} | {} |\n", what, host.name(), (*bytes - before[i]) / count);
  }
  return std::move(running->first);
}

Result<> measure_memory(lab::Lab& lab, const std::string& id) {
  const lab::Host& lender = lab.host(1);
  const lab::Host& other = lab.host(2);
  fmt::print("\n| kernel memory of each | on | bytes |\n| --- | --- | --- |\n");
  auto manager = measure_memory(
      "function that is shared", 1, lender,
      fmt::format("{} manage {} wait {} share {} serve", kShareUser, id, kGo, kClients), "serving",
      {&lender});
  if (!manager) return tl::unexpected(manager.error());
  PCILEND_TRY(await_state(other, id, "borrowed"));
  const std::pair<const char*, const lab::Host*> kinds[] = {
      {"client, a process of the lender", &lender}, {"client, a process of another host", &other}};
  for (const auto& [what, host] : kinds) {
    const std::string command = fmt::format("{} crowd {} {} {}", kShareUser, id, kClients, kGo);
    auto clients = host == &lender
                       ? measure_memory(what, kClients, *host, command, "made", {&lender})
                       : measure_memory(what, kClients, *host, command, "made", {&other, &lender});
    if (!clients) return tl::unexpected(clients.error());
    PCILEND_TRY(end(*clients));
    const auto gone = lender.until("pcilend list --json", [&](const lab::Output&) {
      const auto function = function_on(lender, id);
      return function && function->at("clients").empty();
    });
    if (!gone) return tl::unexpected(gone.error());
  }
  return end(*manager);
}

Result<> bench() {
  const auto wanted = options();
  if (!wanted) return tl::unexpected(wanted.error());
  std::optional<lab::Lab> lab;
  PCILEND_TRY(start_lab(*wanted, lab));
  PCILEND_TRY(lab->host(1).run(fmt::format("pcilend connect {}", lab->host(2).node())));
  const auto address = lab->host(1).address("edu");
  if (!address) return tl::unexpected(address.error());
  const auto offered = offer(lab->host(1), *address);
  if (!offered) return tl::unexpected(offered.error());
  const std::string id = offered->at("id");
  PCILEND_TRY(await_state(lab->host(2), id, "available"));
  PCILEND_TRY(measure_maps(lab->host(2), id));
  PCILEND_TRY(await_state(lab->host(1), id, "available"));
  PCILEND_TRY(measure_segments(*lab));
  return measure_memory(*lab, id);
}

}  // namespace
}  // namespace pcilend::scenarios

int main() {
  return pcilend::scenarios::run_bench("pcilend-lease-bench", pcilend::scenarios::bench);
}
