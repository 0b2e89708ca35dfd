// SPDX-License-Identifier: GPL-2.0-or-later
#include "disk/record.h"

#include <nlohmann/json.hpp>

#include "pcilend/directory.h"

namespace pcilend::nvme {
namespace {

using Json = nlohmann::ordered_json;

// /proc/PID/comm has 15 letters of its name.
constexpr std::string_view kProgram = "pcilend-nvme-di";

std::string path_of(FunctionId function, std::string_view ending) {
  return fmt::format("{}/{}.{}", kDiskDirectory, to_string(function), ending);
}

Json to_json(const std::vector<ClientName>& clients) {
  Json all = Json::array();
  for (const ClientName& client : clients)
    all.push_back({{"lease", client.lease}, {"key", client.key}});
  return all;
}

std::vector<ClientName> parse_clients(const Json& json) {
  std::vector<ClientName> clients;
  for (const Json& client : json) clients.push_back({client.at("lease"), client.at("key")});
  return clients;
}

Result<DiskRecord> parse(FunctionId function, const std::string& text) {
  try {
    const Json json = Json::parse(text);
    DiskRecord record;
    record.function = function;
    record.name_space = json.at("namespace");
    record.state = json.at("state");
    record.error = json.at("error");
    record.error_kind = json.at("error_kind");
    if (!json.at("number").is_null()) record.number = json.at("number").get<uint32_t>();
    record.blocks = json.at("blocks");
    record.block_bytes = json.at("block_bytes");
    record.model = json.at("model");
    record.serial = json.at("serial");
    record.identity = json.at("identity");
    record.alone = json.at("alone");
    record.read_only = json.at("read_only");
    record.shared_fs = json.at("shared_fs");
    record.queues = json.at("queues");
    record.depth = json.at("depth");
    record.power_cycles = json.at("power_cycles");
    record.paths = json.at("paths").get<std::vector<std::string>>();
    record.clients = parse_clients(json.at("clients"));
    record.pid = json.at("pid");
    record.recoveries = json.at("recoveries");
    record.start = json.at("start");
    return record;
  } catch (const nlohmann::json::exception&) {
    return fail(ErrorClass::Failure,
                "{} is not what this pcilend-nvme-disk writes: 'pcilend nvme detach --force {}' "
                "removes it, and its disk",
                record_path(function), to_string(function));
  }
}

}  // namespace

Result<> check_writers(bool alone, bool read_only, bool shared_fs) {
  if (alone || read_only || shared_fs) return {};
  return fail(
      ErrorClass::Usage,
      "others may write to the drive, too, and file systems of one host don't survive "
      "that: say --alone (have all of it), --read-only, or --shared-fs (GFS2 and the like)");
}

std::string record_path(FunctionId function) {
  return path_of(function, "json");
}

std::string options_path(FunctionId function) {
  return path_of(function, "conf");
}

std::string lock_path(FunctionId function) {
  return path_of(function, "lock");
}

std::string properties_path(const DiskRecord& record) {
  return fmt::format("{}/{}.env", kDiskDirectory, record.disk());
}

Result<DiskRecord> read_record(const Environment& environment, FunctionId function) {
  const auto text = environment.read(record_path(function));
  if (!text) return tl::unexpected(text.error());
  return parse(function, *text);
}

Result<std::vector<DiskRecord>> read_records(const Environment& environment) {
  std::vector<DiskRecord> records;
  for (const auto& entry : entries(environment.path(kDiskDirectory))) {
    if (entry.extension() != ".json") continue;
    const auto function = parse_function_id(entry.stem().native());
    if (!function) continue;
    auto record = read_record(environment, *function);
    // One that was removed in between.
    if (!record && record.error().kind == ErrorClass::NotFound) continue;
    if (!record) return tl::unexpected(std::move(record).error());
    records.push_back(std::move(*record));
  }
  return records;
}

Result<> write_record(const Environment& environment, const DiskRecord& record) {
  const Json json{{"function", to_string(record.function)},
                  {"namespace", record.name_space},
                  {"state", record.state},
                  {"error", record.error},
                  {"error_kind", record.error_kind},
                  {"number", record.number ? Json(*record.number) : Json()},
                  {"blocks", record.blocks},
                  {"block_bytes", record.block_bytes},
                  {"model", record.model},
                  {"serial", record.serial},
                  {"identity", record.identity},
                  {"alone", record.alone},
                  {"read_only", record.read_only},
                  {"shared_fs", record.shared_fs},
                  {"queues", record.queues},
                  {"depth", record.depth},
                  {"power_cycles", record.power_cycles},
                  {"paths", record.paths},
                  {"clients", to_json(record.clients)},
                  {"pid", record.pid},
                  {"recoveries", record.recoveries},
                  {"start", record.start}};
  return environment.replace_file(record_path(record.function), json.dump(2) + "\n");
}

Result<> remove_record(const Environment& environment, const DiskRecord& record) {
  if (record.number) PCILEND_TRY(environment.remove_file(properties_path(record)));
  PCILEND_TRY(environment.remove_file(options_path(record.function)));
  return environment.remove_file(record_path(record.function));
}

bool is_served(const Environment& environment, const DiskRecord& record) {
  if (record.pid == 0) return false;
  const auto name = environment.read(fmt::format("/proc/{}/comm", record.pid));
  return name && name->starts_with(kProgram);
}

}  // namespace pcilend::nvme
