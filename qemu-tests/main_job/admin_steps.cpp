// SPDX-License-Identifier: GPL-2.0-or-later
#include "main_job/admin_steps.h"

#include <algorithm>

#include "lab/lab.h"

namespace pcilend::scenarios {

using lab::Host;
using lab::Output;
using nlohmann::json;

Result<json> offer(const Host& lender, const std::string& address, const std::string& options) {
  PCILEND_TRY(lender.run("pcilend add " + address));
  PCILEND_TRY(lender.run(fmt::format("pcilend available {} {}", options, address)));
  return function_at(lender, lender, address);
}

Result<json> function_on(const Host& host, const std::string& id) {
  const auto list = host.json("pcilend list --json");
  if (!list) return tl::unexpected(list.error());
  for (const json& function : list->at("functions"))
    if (function.at("id") == id) return function;
  return fail(ErrorClass::NotFound, "{} does not list function {}", host.name(), id);
}

Result<json> function_at(const Host& host, const Host& lender, const std::string& address) {
  const auto list = host.json("pcilend list --json");
  if (!list) return tl::unexpected(list.error());
  for (const json& function : list->at("functions"))
    if (function.at("bdf") == address && function.at("lender") == lender.node()) return function;
  return fail(ErrorClass::NotFound, "{} does not list {} of {}", host.name(), address,
              lender.name());
}

Result<> await_state(const Host& host, const std::string& id, const std::string& state,
                     std::chrono::milliseconds within) {
  const auto listed = host.until(
      "pcilend list --json",
      [&](const Output& output) {
        const json list = json::parse(output.out, nullptr, false);
        if (!list.is_object()) return false;
        for (const json& function : list.at("functions"))
          if (function.at("id") == id && function.at("state") == state) return true;
        return false;
      },
      within);
  if (!listed)
    return fail(ErrorClass::State, "function {} is not '{}' on {}: {}", id, state, host.name(),
                listed.error().message);
  return {};
}

Result<json> await_clients(const Host& lender, const std::string& id, size_t count) {
  json clients;
  PCILEND_TRY(lab::eventually(fmt::format("{} has {} clients", id, count), lab::kPatience, [&] {
    const auto function = function_on(lender, id);
    if (!function) return false;
    clients = function->at("clients");
    return clients.size() == count;
  }));
  return clients;
}

Result<std::string> await_disk(const Host& host, const std::string& address) {
  const auto name =
      host.until(fmt::format("for disk in /sys/block/*; do case $(readlink -f $disk/device) in "
                             "*/{}/*) basename $disk ;; esac; done | grep . && udevadm settle",
                             address));
  if (!name) return tl::unexpected(name.error());
  return "/dev/" + name->text();
}

Result<> await_links_up(const Host& host) {
  PCILEND_TRY(host.until("pcilend link --json", [](const Output& output) {
    const auto said = json::parse(output.out, nullptr, false);
    return said.is_object() && !said.at("links").empty() &&
           std::ranges::all_of(said.at("links"),
                               [](const auto& link) { return link.at("state") == "up"; });
  }));
  return {};
}

Result<> await_links_down(const Host& host) {
  PCILEND_TRY(host.until("pcilend link --json", [](const Output& output) {
    return output.out.find("\"up\"") == std::string::npos;
  }));
  return {};
}

}  // namespace pcilend::scenarios
