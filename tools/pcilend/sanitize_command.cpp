// SPDX-License-Identifier: GPL-2.0-or-later
// sanitize: erases what a borrower left on a drive that is lent with --sanitize, and lends it
// again.
#include <algorithm>
#include <iterator>

#include "commands.h"
#include "device_use.h"
#include "outcome.h"
#include "pcilend/directory.h"
#include "pcilend/policy/json_value.h"
#include "sanitize.h"
#include "target.h"

namespace pcilend {
namespace {

constexpr const char* kNvmeProgram = "/usr/sbin/nvme";
// For its driver to start it.
constexpr std::chrono::seconds kDriverLimit{60};
constexpr std::chrono::milliseconds kDriverPoll{100};

using Ids = std::vector<uint32_t>;

// What a drive says of itself: its kernel driver adds namespaces one after another, and knows
// nothing of those that are not attached.
struct Namespaces {
  Ids active;     // attached to this controller: what can be erased, and read
  Ids allocated;  // all that have data

  bool operator==(const Namespaces&) const = default;
};

// Such as nvme0; nothing until its driver has started it.
std::optional<std::string> find_controller(const Environment& environment, const std::string& bdf) {
  const std::string directory = fmt::format("/sys/bus/pci/devices/{}/nvme", bdf);
  for (const auto& entry : entries(environment.path(directory))) {
    const std::string name = entry.filename();
    const auto state = environment.read(fmt::format("{}/{}/state", directory, name));
    if (state && (*state == "live" || *state == "live\n")) return name;
  }
  return std::nullopt;
}

Result<std::string> await_controller(const Session& session, const std::string& bdf) {
  const auto end = session.now() + kDriverLimit;
  for (;;) {
    if (auto controller = find_controller(session.environment, bdf)) return std::move(*controller);
    if (session.now() >= end)
      return fail(ErrorClass::State,
                  "this host's nvme driver has not started it in {} s: see the kernel log",
                  kDriverLimit.count());
    session.sleep(kDriverPoll);
  }
}

// Drives that have no namespace management have none that is not attached. Asked by an attribute
// and not by a failure to list them: that may have other reasons.
Result<bool> manages_namespaces(const Session& session, const std::string& controller) {
  constexpr size_t kIdentifyBytes = 4096;
  constexpr size_t kOacs = 256;  // NVM Express, Identify Controller
  constexpr uint8_t kManagement = 1 << 3;
  const auto bytes =
      session.read_program({kNvmeProgram, "id-ctrl", "/dev/" + controller, "--raw-binary"});
  if (!bytes) return tl::unexpected(bytes.error());
  if (bytes->size() != kIdentifyBytes)
    return fail(ErrorClass::Failure, "nvme id-ctrl has printed {} bytes of {}", bytes->size(),
                kIdentifyBytes);
  return (static_cast<uint8_t>((*bytes)[kOacs]) & kManagement) != 0;
}

// {"nsid_list":[{"nsid":1}]}, in order.
Result<Ids> namespace_ids(std::string_view text) {
  constexpr uint64_t kIdMax = 0xfffffffe;
  // As many as one Identify command lists.
  constexpr size_t kMost = 1024;
  const std::string name = "nvme list-ns";
  const auto json = policy::parse_json(name, text);
  if (!json) return tl::unexpected(json.error());
  const policy::JsonValue all(*json, name);
  const auto found = all.find("nsid_list");
  if (!found) return all.fail("there is no 'nsid_list'");
  const auto list = found->list("namespaces");
  if (!list) return tl::unexpected(list.error());
  Ids ids;
  for (const auto& entry : *list) {
    const auto id = entry.find("nsid");
    if (!id) return entry.fail("there is no 'nsid'");
    if (!id->json().is_number_unsigned() || id->json().get<uint64_t>() < 1 ||
        id->json().get<uint64_t>() > kIdMax)
      return id->fail(id->shown() + " is not the id of a namespace");
    ids.push_back(id->json().get<uint32_t>());
  }
  std::ranges::sort(ids);
  if (std::ranges::adjacent_find(ids) != ids.end())
    return found->fail("a namespace is there twice");
  if (ids.size() >= kMost)
    return fail(ErrorClass::Unsupported, "it has {} namespaces or more", kMost);
  return ids;
}

Result<Ids> list_namespaces(const Session& session, const std::string& controller, bool all) {
  std::vector<std::string> words{kNvmeProgram, "list-ns", "/dev/" + controller,
                                 "--output-format=json"};
  if (all) words.emplace_back("--all");
  const auto text = session.read_program(words);
  if (!text) return tl::unexpected(text.error());
  auto ids = namespace_ids(*text);
  // No usage error, as of files that people write.
  if (!ids) return fail(ErrorClass::Failure, "{}", ids.error().message);
  return ids;
}

Result<Namespaces> find_namespaces(const Session& session, const std::string& controller) {
  auto active = list_namespaces(session, controller, false);
  if (!active) return tl::unexpected(std::move(active).error());
  const auto more = manages_namespaces(session, controller);
  if (!more) return tl::unexpected(more.error());
  if (!*more) return Namespaces{*active, *active};
  auto allocated = list_namespaces(session, controller, true);
  if (!allocated) return tl::unexpected(std::move(allocated).error());
  return Namespaces{std::move(*active), std::move(*allocated)};
}

// What is not attached can't be formatted, and the next borrower could attach it.
Result<> check_all_active(const Namespaces& namespaces, const std::string& controller,
                          const std::string& bdf) {
  Ids hidden;
  std::ranges::set_difference(namespaces.allocated, namespaces.active, std::back_inserter(hidden));
  if (!hidden.empty())
    return fail(ErrorClass::State,
                "namespace {} of {} is allocated and not attached, so it can't be erased: run "
                "'pcilend unavailable {}', then attach it (nvme attach-ns) or delete it (nvme "
                "delete-ns)",
                fmt::join(hidden, ", "), controller, bdf);
  if (namespaces.active.empty())
    return fail(ErrorClass::State, "{} has no namespace: make one (nvme create-ns, attach-ns)",
                controller);
  return {};
}

Result<> erase(Session& session, const PciAddress& address) {
  const std::string bdf = to_string(address);
  const auto controller = await_controller(session, bdf);
  if (!controller) return tl::unexpected(controller.error());
  const auto namespaces = find_namespaces(session, *controller);
  if (!namespaces) return tl::unexpected(namespaces.error());
  PCILEND_TRY(check_all_active(*namespaces, *controller, bdf));
  for (const uint32_t id : namespaces->active) {
    // Each time, as its disks may still be appearing.
    PCILEND_TRY(check_unused(session, address, false));
    session.progress(fmt::format("erasing namespace {} of {}", id, *controller));
    PCILEND_TRY(session.run_program({kNvmeProgram, "format", "/dev/" + *controller,
                                     fmt::format("--namespace-id={}", id), "--ses=1", "--force"}));
  }
  const auto after = find_namespaces(session, *controller);
  if (!after) return tl::unexpected(after.error());
  if (*after != *namespaces)
    return fail(ErrorClass::State, "namespaces of {} have come or gone while it was erased",
                *controller);
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
