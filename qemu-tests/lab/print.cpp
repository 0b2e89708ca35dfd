// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/print.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <future>

#include "lab/qemu_command.h"

namespace pcilend::lab {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

bool is_number(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string number(uint64_t value) {
  return fmt::format("{}", value);
}

std::vector<std::string> row(const std::string& from, const std::string& to,
                             const std::string& target, const Traffic& traffic) {
  return {from,
          to,
          target,
          number(traffic.reads),
          number(traffic.writes),
          number(traffic.read_bytes),
          number(traffic.write_bytes)};
}

// "3 unmapped, 1 link_down"
std::string reasons(const json& counts) {
  std::vector<std::string> parts;
  for (const auto& [reason, count] : counts.items())
    if (count.get<uint64_t>() > 0) parts.push_back(fmt::format("{} {}", count.dump(), reason));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// "host2", or "host2.3" by the third path.
std::string by_path(const json& from, const char* peer) {
  const int path = from.value("path", 1);
  return from.value(peer, "") + (path == 1 ? "" : fmt::format(".{}", path));
}

json optional_text(const std::optional<std::string>& text) {
  return text ? json(*text) : json(nullptr);
}

json host_status(Host& host, int hosts, int paths) {
  const Machine& machine = host.machine();
  const Condition condition = machine.condition();
  std::map<std::string, std::string> addresses;
  if (condition != Condition::Off) addresses = machine.pci_addresses().value_or(addresses);

  json devices = json::array();
  for (const DeviceState& device : machine.state().devices) {
    const auto at = addresses.find(device.id);
    devices.push_back(
        {{"id", device.id},
         {"device", device.device},
         {"address", at != addresses.end() ? json(at->second) : optional_text(device.address)},
         {"drive", optional_text(device.drive)}});
  }
  const auto address_of = [&](int peer, int path) {
    const int slot = adapter_slot(host.number(), peer, path, paths);
    const auto at = addresses.find(adapter_id(slot));
    return at != addresses.end() ? at->second : fmt::format("0000:00:{:02x}.0", slot);
  };
  json adapters = json::array();
  for (int peer = 1; peer <= hosts; ++peer)
    for (int path = 1; peer != host.number() && path <= paths; ++path)
      adapters.push_back(
          {{"peer", host_name(peer)}, {"path", path}, {"address", address_of(peer, path)}});
  const auto process = machine.process();
  return {{"name", host.name()},
          {"node", host.node()},
          {"state", to_string(condition)},
          {"pid", process ? json(process->pid) : json(nullptr)},
          {"memory_mib", machine.state().memory},
          {"image", to_string(machine.state().image)},
          {"console", machine.console_path()},
          {"adapters", std::move(adapters)},
          {"devices", std::move(devices)}};
}

}  // namespace

std::string Table::text() const {
  std::vector<size_t> widths;
  for (const auto& cells : rows_) {
    widths.resize(std::max(widths.size(), cells.size()));
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  }
  std::vector<bool> numbers(widths.size(), rows_.size() > 1);
  for (size_t r = 1; r < rows_.size(); ++r)
    for (size_t i = 0; i < rows_[r].size(); ++i)
      numbers[i] = numbers[i] && (rows_[r][i].empty() || is_number(rows_[r][i]));
  std::string out;
  for (const auto& cells : rows_) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) line += "  ";
      line += numbers[i] ? fmt::format("{:>{}}", cells[i], widths[i])
                         : fmt::format("{:<{}}", cells[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string counters_text(const Counters& counters) {
  Table paths({"FROM", "TO", "TARGET", "READS", "WRITES", "READ BYTES", "WRITE BYTES"});
  std::string lost;
  for (size_t i = 0; i < counters.paths.size(); ++i) {
    const PathCounters& path = counters.paths[i];
    const std::string from = host_name(path.from);
    const std::string to = path_name(path.to, path.path);
    paths.add(row(from, to, "memory", path.memory));
    paths.add(row(from, to, "bar", path.bar));
    paths.add(row(from, to, "interrupt", path.interrupt));
    const json& raw = counters.json.at("paths").at(i);
    if (path.all_ones_reads > 0)
      lost += fmt::format("{} to {}: reads answered by all-ones: {}\n", from, to,
                          reasons(raw.at("all_ones_reads")));
    if (path.dropped_writes > 0)
      lost += fmt::format("{} to {}: writes dropped: {}\n", from, to,
                          reasons(raw.at("dropped_writes")));
  }
  Table adapters({"ADAPTER OF", "TOWARDS", "REGISTER ACCESSES", "SCRATCHPADS", "DOORBELLS",
                  "INTERRUPTS", "DMA MAPS", "DMA UNMAPS"});
  for (const json& adapter : counters.json.value("adapters", json::array())) {
    const auto count = [&](const char* key) { return number(adapter.value(key, uint64_t{0})); };
    adapters.add({adapter.value("host", ""), by_path(adapter, "peer"), count("registers"),
                  count("scratchpads"), count("doorbells"), count("interrupts_raised"),
                  count("dma_map_messages"), count("dma_unmap_messages")});
  }
  return paths.text() + lost + "\n" + adapters.text();
}

std::string sweep_text(const SweepReport& report, const std::string& victim,
                       const std::string& from) {
  const auto probes = report.json.value("probes", uint64_t{0});
  const auto seconds = report.json.value("seconds", 0.0);
  if (report.answered.empty())
    return fmt::format("nothing of {} answers {} ({} probes in {:.1f} s)\n", victim, from, probes,
                       seconds);
  Table table({"WINDOW", "OFFSET", "BYTES", "ADDRESS", "TARGET"});
  for (const SweepHit& hit : report.answered)
    table.add({number(hit.window), fmt::format("{:#x}", hit.offset), number(hit.length),
               fmt::format("{:#x}", hit.address), hit.target});
  return table.text() + fmt::format("{} ranges of {} answer {} ({} probes in {:.1f} s)\n",
                                    report.answered.size(), victim, from, probes, seconds);
}

json status_json(Lab& lab) {
  std::vector<std::future<json>> asked;
  for (int host = 1; host <= lab.hosts(); ++host)
    asked.push_back(std::async(std::launch::async, [&lab, host] {
      return host_status(lab.host(host), lab.hosts(), lab.state().paths);
    }));
  json hosts = json::array();
  for (auto& one : asked) hosts.push_back(one.get());

  json links = json::array();
  std::string fabric = lab.hosts() == 1 ? "none" : lab.fabric_runs() ? "running" : "off";
  if (fabric == "running") {
    auto answer = lab.fabric().request({{"op", "status"}}, Deadline(60s));
    if (answer)
      for (const json& link : answer->value("links", json::array()))
        links.push_back({{"a", link.value("a", "")},
                         {"b", link.value("b", "")},
                         {"path", link.value("path", 1)},
                         {"enabled", link.value("enabled", false)},
                         {"up", link.value("up", false)},
                         {"delay_ms", link.value("delay_ms", 0)}});
    else
      fabric = "not answering";
  }
  return {{"lab", lab.name()},
          {"kernel", lab.state().kernel},
          {"iommu", to_string(lab.state().iommu)},
          {"dir", lab.layout().dir()},
          {"fabric", fabric},
          {"hosts", std::move(hosts)},
          {"links", std::move(links)}};
}

std::string status_text(const json& status) {
  const auto text = [](const json& value) {
    return value.is_string() ? value.get<std::string>() : value.is_null() ? "-" : value.dump();
  };
  std::string out =
      fmt::format("lab {}: kernel {}, IOMMU {}, fabric {}, files in {}\n\n", text(status.at("lab")),
                  text(status.at("kernel")), text(status.at("iommu")), text(status.at("fabric")),
                  text(status.at("dir")));
  Table hosts({"HOST", "NODE", "STATE", "MIB", "PID"});
  Table functions({"HOST", "ADDRESS", "DEVICE", "ID"});
  for (const json& host : status.at("hosts")) {
    hosts.add({text(host.at("name")), text(host.at("node")), text(host.at("state")),
               text(host.at("memory_mib")), text(host.at("pid"))});
    for (const json& adapter : host.at("adapters"))
      functions.add({text(host.at("name")), text(adapter.at("address")),
                     "NTB adapter towards " + by_path(adapter, "peer"), ""});
    for (const json& device : host.at("devices"))
      functions.add({text(host.at("name")), text(device.at("address")), text(device.at("device")),
                     text(device.at("id"))});
  }
  out += hosts.text() + "\n" + functions.text();
  if (!status.at("links").empty()) {
    Table links({"LINK", "", "STATE", "DELAY MS"});
    for (const json& link : status.at("links"))
      links.add({text(link.at("a")), by_path(link, "b"),
                 link.at("up").get<bool>()        ? "up"
                 : link.at("enabled").get<bool>() ? "waits for drivers"
                                                  : "down",
                 text(link.at("delay_ms"))});
    out += "\n" + links.text();
  }
  return out;
}

}  // namespace pcilend::lab
