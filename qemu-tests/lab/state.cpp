// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/state.h"

#include "pcilend/environment.h"

namespace pcilend::lab {
namespace {

using nlohmann::json;

json optional_string(const std::optional<std::string>& text) {
  return text ? json(*text) : json(nullptr);
}

std::optional<std::string> string_or_null(const json& value) {
  if (value.is_null()) return std::nullopt;
  return value.get<std::string>();
}

// Throws nlohmann::json::exception.
State parse(const json& from) {
  State state;
  state.name = from.at("lab").get<std::string>();
  state.boot = from.at("boot").get<std::string>();
  if (const json& owner = from.at("owner"); !owner.is_null())
    state.owner = {{owner.at("pid").get<pid_t>(), owner.at("start").get<uint64_t>()},
                   owner.at("program").get<std::string>()};
  state.kernel = from.at("kernel").get<std::string>();
  state.bin = from.at("bin").get<std::string>();
  for (const json& entry : from.at("hosts")) {
    HostState host;
    host.memory = entry.at("memory_mib").get<int>();
    host.command = entry.at("command").get<std::vector<std::string>>();
    for (const json& device : entry.at("devices"))
      host.devices.push_back(
          {device.at("id").get<std::string>(), device.at("device").get<std::string>(),
           string_or_null(device.at("address")), string_or_null(device.at("drive"))});
    state.hosts.push_back(std::move(host));
  }
  return state;
}

}  // namespace

std::string boot_id() {
  std::string id = Environment().read("/proc/sys/kernel/random/boot_id").value_or(std::string());
  return id.substr(0, id.find('\n'));
}

json to_json(const State& state) {
  json hosts = json::array();
  for (const HostState& host : state.hosts) {
    json devices = json::array();
    for (const DeviceState& device : host.devices)
      devices.push_back({{"id", device.id},
                         {"device", device.device},
                         {"address", optional_string(device.address)},
                         {"drive", optional_string(device.drive)}});
    hosts.push_back({{"memory_mib", host.memory},
                     {"image", to_string(host.image)},
                     {"command", host.command},
                     {"devices", std::move(devices)}});
  }
  json owner;
  if (state.owner)
    owner = {{"pid", state.owner->process.pid},
             {"start", state.owner->process.start},
             {"program", state.owner->program}};
  return {{"lab", state.name},
          {"boot", state.boot},
          {"owner", std::move(owner)},
          {"kernel", state.kernel},
          {"iommu", to_string(state.iommu)},
          {"paths", state.paths},
          {"bin", state.bin},
          {"hosts", std::move(hosts)}};
}

Result<State> state_from_json(const json& from) {
  try {
    State state = parse(from);
    const auto iommu = parse_iommu(from.at("iommu").get<std::string>());
    if (!iommu) return tl::unexpected(iommu.error());
    state.iommu = *iommu;
    state.paths = from.at("paths").get<int>();
    for (size_t i = 0; i < state.hosts.size(); ++i) {
      const auto image = parse_image(from.at("hosts").at(i).at("image").get<std::string>());
      if (!image) return tl::unexpected(image.error());
      state.hosts[i].image = *image;
    }
    return state;
  } catch (const json::exception& error) {
    return fail(ErrorClass::Failure, "{}", error.what());
  }
}

Result<> save(const State& state, const Layout& layout) {
  return Environment().replace_file(layout.state(), to_json(state).dump(2) + "\n");
}

Result<State> load_state(const std::string& name, const Layout& layout) {
  const auto text = Environment().read(layout.state());
  if (!text && text.error().kind == ErrorClass::NotFound)
    return fail(ErrorClass::NotFound, "lab '{}' is not up: 'pcilend-lab up' starts it", name);
  if (!text) return tl::unexpected(text.error());
  auto state = state_from_json(json::parse(*text, nullptr, false));
  if (!state)
    return fail(ErrorClass::Failure,
                "{}: {}: it is not of this version; 'pcilend-lab down' clears it away",
                layout.state(), state.error().message);
  return state;
}

}  // namespace pcilend::lab
