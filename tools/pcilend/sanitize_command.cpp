// SPDX-License-Identifier: GPL-2.0-or-later
// sanitize: erases what a borrower left on a drive that is lent with --sanitize, and lends it
// again.
#include "commands.h"
#include "device_use.h"
#include "outcome.h"
#include "pcilend/directory.h"
#include "sanitize.h"
#include "target.h"

namespace pcilend {
namespace {

constexpr const char* kNvmeProgram = "/usr/sbin/nvme";
// For its driver to start it.
constexpr std::chrono::seconds kDriverLimit{60};
constexpr std::chrono::milliseconds kDriverPoll{100};

struct Drive {
  std::string controller;            // nvme0
  std::vector<uint32_t> namespaces;  // their ids
};

// What its driver has made of it; nothing until that has found the namespaces.
std::optional<Drive> find_drive(const Environment& environment, const std::string& bdf) {
  const std::string directory = fmt::format("/sys/bus/pci/devices/{}/nvme", bdf);
  const auto controllers = entries(environment.path(directory));
  if (controllers.empty()) return std::nullopt;
  Drive drive{controllers.front().filename(), {}};
  for (const auto& entry : entries(controllers.front())) {
    const std::string name = entry.filename();
    if (!name.starts_with("nvme")) continue;
    const auto text =
        environment.read(fmt::format("{}/{}/{}/nsid", directory, drive.controller, name));
    if (text)
      drive.namespaces.push_back(static_cast<uint32_t>(std::strtoul(text->c_str(), nullptr, 10)));
  }
  if (drive.namespaces.empty()) return std::nullopt;
  return drive;
}

Result<Drive> await_drive(const Session& session, const std::string& bdf) {
  const auto end = session.now() + kDriverLimit;
  for (;;) {
    if (auto drive = find_drive(session.environment, bdf)) return std::move(*drive);
    if (session.now() >= end)
      return fail(
          ErrorClass::State,
          "this host's nvme driver has found no namespace on it in {} s: see the kernel log",
          kDriverLimit.count());
    session.sleep(kDriverPoll);
  }
}

Result<> erase(Session& session, const PciAddress& address) {
  const auto drive = await_drive(session, to_string(address));
  if (!drive) return tl::unexpected(drive.error());
  PCILEND_TRY(check_unused(session, address, false));
  for (const uint32_t id : drive->namespaces) {
    session.progress(fmt::format("erasing namespace {} of {}", id, drive->controller));
    PCILEND_TRY(session.run_program({kNvmeProgram, "format", "/dev/" + drive->controller,
                                     fmt::format("--namespace-id={}", id), "--ses=1", "--force"}));
  }
  return {};
}

Result<Function> sanitize(Session& session, const LocalFunction& local) {
  const Function& function = local.function;
  if (!function.dirty)
    return fail(
        ErrorClass::State,
        "nothing of a lease is on it that is to be erased: only what is lent with --sanitize "
        "and was returned since, see 'pcilend show {}'",
        to_string(local.address));
  if (function.state == PCILEND_FUNCTION_QUARANTINED)
    PCILEND_TRY(session.client.make_unavailable(local.address, false));
  else if (function.state != PCILEND_FUNCTION_ADDED)
    return fail(ErrorClass::State, "it is {}: wait for its return",
                function_state_name(function.state));
  Lend how{.direct = function.direct, .sanitize = true, .near = function.near};
  if (auto erased = erase(session, local.address); !erased) {
    // Which quarantines it, and says so.
    (void)session.client.make_available(local.address, how);
    auto error = std::move(erased).error();
    error.message +=
        fmt::format("; it stays quarantined: mend that, then run 'pcilend sanitize {}'",
                    to_string(local.address));
    return tl::unexpected(std::move(error));
  }
  how.sanitized = true;
  return session.client.make_available(local.address, how);
}

}  // namespace

Result<> check_can_be_sanitized(const Session& session, const Function& function) {
  constexpr uint32_t kNvme = 0x010802;
  if (function.class_revision >> 8 != kNvme)
    return fail(
        ErrorClass::State,
        "--sanitize: only NVMe drives can be erased after a lease, and it is none: leave the "
        "option away, or erase it by hand");
  if (!session.environment.exists(kNvmeProgram))
    return fail(ErrorClass::State, "--sanitize: nvme-cli is not installed: apt install nvme-cli");
  return {};
}

Result<Answer> command_sanitize(Session& session, const Options& options) {
  return each_target(session, options, [&](const std::string& target) -> Result<Function> {
    const auto local = find_added(session, target);
    if (!local) return tl::unexpected(local.error());
    return named(sanitize(session, *local), to_string(local->address));
  });
}

}  // namespace pcilend
