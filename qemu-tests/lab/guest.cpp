// SPDX-License-Identifier: GPL-2.0-or-later
#include <fmt/ranges.h>

#include "lab/lab.h"

namespace pcilend::lab {
namespace {

// Used for virsh calls: the hook's own limits end before.
const ExecOptions kVirsh{{}, 2min};
constexpr auto kBoot = 5min;  // seconds; minutes on a busy machine

std::string trimmed(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text;
}

}  // namespace

std::vector<std::string> guest_call(const std::string& guest, bool input, bool terminal) {
  std::vector<std::string> call = {kAgentInHost, "call"};
  if (!input) call.emplace_back("-n");
  if (terminal) call.emplace_back("-t");
  if (patience > 1) call.insert(call.end(), {"-w", fmt::format("{}", patience.load())});
  call.push_back(guest_agent_socket(guest));
  call.emplace_back("--");
  return call;
}

Result<std::vector<std::string>> column_of(const nlohmann::json& list, const std::string& column,
                                           const std::vector<std::string>& ids) {
  std::vector<std::string> texts;
  for (const std::string& id : ids) {
    std::string text;
    std::vector<std::string> known;
    const nlohmann::json functions = list.is_object()
                                         ? list.value("functions", nlohmann::json::array())
                                         : nlohmann::json::array();
    for (const nlohmann::json& function : functions) {
      if (!function.is_object() || !function.contains("id") || !function["id"].is_string())
        continue;
      const std::string name = function["id"];
      known.push_back(name);
      if (name == id && function.contains(column) && function[column].is_string())
        text = function[column];
    }
    if (text.empty())
      return fail(ErrorClass::NotFound, "no function {}: 'pcilend list' shows {}", id,
                  known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
    texts.push_back(std::move(text));
  }
  return texts;
}

std::string Guest::who() const {
  return host_.name() + "/" + spec_.name;
}

Command Guest::inside(const Command& command) const {
  return command.behind(guest_call(spec_.name, true, false));
}

Result<> Guest::define() const {
  PCILEND_TRY(spec_.check());
  const std::string path = fmt::format("/run/pcilend-lab/{}.xml", spec_.name);
  PCILEND_TRY(host_.write(path, xml()));
  PCILEND_TRY(host_.run({"virsh", "define", path}, kVirsh));
  return {};
}

Result<> Guest::undefine() const {
  PCILEND_TRY(host_.run({"virsh", "undefine", spec_.name}, kVirsh));
  return {};
}

Result<> Guest::start() const {
  PCILEND_TRY(host_.run({"virsh", "start", spec_.name}, kVirsh));
  return {};
}

Result<> Guest::boot() const {
  PCILEND_TRY(start());
  return await_answer();
}

Result<> Guest::await_answer() const {
  // The agent's own patience for one call is shorter than a boot on a busy machine.
  const auto up = eventually("it answers", kBoot, [&] {
    const auto answered = exec("true");
    return answered && answered->code == 0;
  });
  if (up) return {};
  const auto log = console();
  return fail(ErrorClass::Unreachable, "{} does not answer: {}; its console ends:{}", who(),
              up.error().message, log ? last_lines(*log, 8) : log.error().message);
}

Result<> Guest::await_off(std::chrono::milliseconds within) const {
  const auto off = host_.until(
      {"virsh", "domstate", spec_.name},
      [](const Output& output) { return output.out.starts_with("shut off"); }, within);
  if (!off) return tl::unexpected(off.error());
  return {};
}

Result<> Guest::destroy() const {
  const auto ended = host_.run({"virsh", "destroy", spec_.name}, kVirsh);
  if (ended) return {};
  // libvirt waits for less than a debug kernel takes to unmap a guest. It has been killed, though.
  const bool outlasts =
      ended.error().message.find("Failed to terminate process") != std::string::npos;
  if (patience > 1 && outlasts) return await_off(kBoot);
  return tl::unexpected(ended.error());
}

Result<> Guest::shut_down(std::chrono::milliseconds within) const {
  // The command's end is not told: the guest is gone before.
  const auto asked = exec("poweroff -f", {{}, within});
  if (!asked) return tl::unexpected(asked.error());
  return await_off(within);
}

Result<> Guest::press_power_button(std::chrono::milliseconds within) const {
  // Before that nobody would heed it.
  PCILEND_TRY(eventually("its acpid runs", kBoot, [&] {
    const auto runs = exec("pidof acpid");
    return runs && runs->code == 0;
  }));
  PCILEND_TRY(host_.run({"virsh", "shutdown", spec_.name}, kVirsh));
  const auto off = await_off(within);
  if (off) return {};
  const auto log = console();
  return fail(ErrorClass::State, "{} does not heed its power button: {}; its console ends:{}",
              who(), off.error().message, log ? last_lines(*log, 8) : log.error().message);
}

Result<std::string> Guest::state() const {
  return host_.run({"virsh", "domstate", spec_.name}, kVirsh).map(trimmed);
}

Result<Output> Guest::exec(const Command& command, const ExecOptions& options) const {
  return host_.exec_as(who(), inside(command), options);
}

Result<std::string> Guest::run(const Command& command, const ExecOptions& options) const {
  const auto output = exec(command, options);
  if (!output) return tl::unexpected(output.error());
  if (output->code != 0)
    return fail(ErrorClass::Failure, "{}: '{}' ended with {}: {}", who(), command.text(),
                output->code, trimmed(output->err.empty() ? output->out : output->err));
  return output->out;
}

Result<Running> Guest::start(const Command& command, const ExecOptions& options) const {
  return host_.start_as(who(), inside(command), options);
}

Result<std::string> Guest::console() const {
  return host_.read(guest_console(spec_.name));
}

}  // namespace pcilend::lab
