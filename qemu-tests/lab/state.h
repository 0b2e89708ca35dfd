// SPDX-License-Identifier: GPL-2.0-or-later
// What is remembered of a lab between commands.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/layout.h"
#include "lab/options.h"
#include "lab/process.h"

namespace pcilend::lab {

struct DeviceState {
  std::string id;
  std::string device;                  // as the user gave it
  std::optional<std::string> address;  // 0000:00:10.0, if it does not depend on bridges
  std::optional<std::string> drive;    // its backing file

  bool operator==(const DeviceState&) const = default;
};

struct HostState {
  int memory = 0;  // MiB
  std::vector<std::string> command;
  std::vector<DeviceState> devices;
  Image image = Image::Usual;

  bool operator==(const HostState&) const = default;
};

// The process that a lab belongs to, and ends with.
struct Owner {
  ProcessId process;
  std::string program;

  bool operator==(const Owner&) const = default;
};

struct State {
  std::string name;
  std::string boot;            // of the machine that the lab runs on: boot_id()
  std::optional<Owner> owner;  // none: it stays until somebody ends it
  std::string kernel;
  Iommu iommu = Iommu::Intel;
  int paths = 1;                 // adapters of each host towards each other
  std::string bin;               // of the build that started it
  std::vector<HostState> hosts;  // host1 first

  bool operator==(const State&) const = default;
};

// Changes with each boot of this machine.
std::string boot_id();

nlohmann::json to_json(const State& state);
// Refuses what to_json() could not have made.
Result<State> state_from_json(const nlohmann::json& json);

Result<> save(const State& state, const Layout& layout);
// NotFound if no such lab is up.
Result<State> load_state(const std::string& name, const Layout& layout);

}  // namespace pcilend::lab
