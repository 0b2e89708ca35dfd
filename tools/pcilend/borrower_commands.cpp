// SPDX-License-Identifier: GPL-2.0-or-later
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "commands.h"
#include "device_use.h"
#include "pcilend/policy/files.h"
#include "target.h"

namespace pcilend {
namespace {

constexpr size_t kOwnerBytes = 63;  // PCILEND_A_OWNER
constexpr std::string_view kShadow = "shadow";
constexpr std::string_view kDeviceOwner = "mdev:";  // and its UUID
constexpr uint32_t kWaitSeconds = 30;
constexpr uint32_t kWaitSecondsMax = 3600;
constexpr std::chrono::milliseconds kLookStep{100};

enum : uint32_t { kStorage = 0x01, kNetwork = 0x02 };  // base classes

// Who borrows when the command line does not say: who has logged in, also behind sudo.
std::string caller_name(const Environment& environment) {
  uid_t uid = ::geteuid();
  const auto login = environment.read("/proc/self/loginuid");
  uid_t logged_in = 0;
  if (login &&
      std::from_chars(login->data(), login->data() + login->size(), logged_in).ec == std::errc() &&
      logged_in != static_cast<uid_t>(-1))  // nobody: a service of the host
    uid = logged_in;
  const passwd* const user = ::getpwuid(uid);
  return user ? fmt::format("user {}", user->pw_name) : fmt::format("uid {}", uid);
}

Result<std::string> owner_of(const Session& session, const Options& options) {
  if (options.owner.empty()) return caller_name(session.environment);
  if (options.owner.size() > kOwnerBytes)
    return fail(ErrorClass::Usage, "--owner: at most {} bytes", kOwnerBytes);
  return options.owner;
}

std::string module_of(std::string_view frontend) {
  return frontend == kShadow ? "pcilend_shadow" : "pcilend_mdev";
}

// A function of another host: own ones are not borrowed.
Result<Function> find_remote_function(Session& session, std::string_view text,
                                      uint32_t* this_node) {
  const auto node = session.client.node();
  if (!node) return tl::unexpected(node.error());
  *this_node = node->id;
  auto function = find_function(session, text);
  if (function && function->lender == node->id)
    return fail(ErrorClass::State,
                "{} is installed in this host at {}: use it directly, or borrow it from another "
                "host",
                to_string(function->id), function->bdf);
  return function;
}

Result<> check_wait(const Options& options) {
  if (options.timeout && !options.wait)
    return fail(ErrorClass::Usage, "--timeout says how long to --wait: give both");
  if (options.timeout.value_or(1) < 1 || options.timeout.value_or(1) > kWaitSecondsMax)
    return fail(ErrorClass::Usage, "--timeout: 1 to {} seconds", kWaitSecondsMax);
  if (options.wait && options.frontend != kShadow)
    return fail(ErrorClass::Usage,
                "--wait is for drivers of this host: a VM's are waited for in the VM");
  if (options.wait && options.targets.size() > 1)
    return fail(ErrorClass::Usage, "--wait waits for one function: name no others beside it");
  return {};
}

// Is there what functions of its class are there for?
bool has_appeared(const Function& function, const MadeDevices& devices) {
  switch (function.class_revision >> 24) {
    case kStorage:
      return !devices.disks.empty();
    case kNetwork:
      return !devices.interfaces.empty();
    default:
      return true;
  }
}

// Waits until the driver is bound, and for the disk or the network interface that it makes.
Result<Answer> wait_for_driver(Session& session, EventStream& events, AppearedAnswer answer,
                               uint32_t seconds) {
  const auto end = session.now() + std::chrono::seconds(seconds);
  const FunctionId id = answer.function.id;
  for (bool look = false;;) {
    if (look) {
      auto function = session.client.function(id);
      if (!function) return tl::unexpected(std::move(function).error());
      answer.function = std::move(*function);
      look = false;
    }
    const Function& function = answer.function;
    if (function.frontend.empty())
      return fail(ErrorClass::State,
                  "{} was lost while its driver was waited for: 'dmesg' says why", to_string(id));
    const auto address = parse_pci_address(function.virtual_address);
    if (address) answer.devices = find_made_devices(session.environment, *address);
    if (!function.driver.empty() && has_appeared(function, answer.devices)) return answer;

    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - session.now());
    if (left.count() <= 0) break;
    session.progress(fmt::format("waiting for the driver of {}", function.virtual_address));
    auto event = events.next(std::min(left, kLookStep));
    if (!event) return tl::unexpected(std::move(event).error());
    if (const auto* const wake = std::get_if<Wake>(&*event)) {
      if (*wake == Wake::Stopped)
        return fail(ErrorClass::State, "not waited for: {} stays borrowed, at {}", to_string(id),
                    function.virtual_address);
      look = *wake == Wake::Lost;
    } else {
      const auto& changed = std::get<Event>(*event).function;
      look = changed && changed->id == id;
    }
  }
  if (answer.function.driver.empty())
    return fail(ErrorClass::State,
                "{} is borrowed, but no driver has bound to {} in {} s: load its driver, or see "
                "the kernel log",
                to_string(id), answer.function.virtual_address, seconds);
  session.warn(fmt::format("{}: driver {} is bound, but nothing has appeared in {} s",
                           to_string(id), answer.function.driver, seconds));
  return answer;
}

Result<Function> borrow(Session& session, const Options& options, FunctionId id,
                        const std::string& owner, const std::string& adapter) {
  auto borrowed = session.client.borrow(id, options.frontend, owner, adapter);
  const std::string module = module_of(options.frontend);
  if (!borrowed && borrowed.error().kind == ErrorClass::Unsupported &&
      !session.environment.exists("/sys/module/" + module))
    return fail(ErrorClass::Unsupported,
                "{}: frontend '{}' is not loaded: run 'modprobe {}', or choose another with "
                "--frontend",
                to_string(id), options.frontend, module);
  if (!borrowed) return tl::unexpected(std::move(borrowed).error().in(to_string(id)));
  return borrowed;
}

// Borrowed again whenever this host boots.
Result<> keep_for_boot(Session& session, const Options& options, const Function& function,
                       const std::string& owner, const std::string& adapter) {
  const auto lock = policy::lock_policy(session.environment, session.sleep);
  if (!lock) return tl::unexpected(lock.error());
  policy::BorrowEntry entry;
  entry.uuid = function.uuid;
  entry.frontend = options.frontend;
  entry.owner = owner;
  if (!adapter.empty()) entry.adapter = *parse_pci_address(adapter);
  auto kept = policy::put_borrow(session.environment, entry);
  if (!kept)
    return tl::unexpected(std::move(kept).error().in(
        fmt::format("{} is borrowed, but not kept for the next boot", to_string(function.id))));
  return {};
}

// Not borrowed any more when this host boots. Its lender need not be there: then it is named by
// UUID.
Result<> forget_for_boot(Session& session, const std::string& target) {
  const auto lock = policy::lock_policy(session.environment, session.sleep);
  if (!lock) return tl::unexpected(lock.error());
  auto uuid = parse_uuid(target);
  if (!uuid) {
    const auto function = find_function(session, target);
    if (!function) return tl::unexpected(function.error());
    uuid = function->uuid;
  }
  auto removed = policy::remove_borrow(session.environment, *uuid);
  if (!removed) return tl::unexpected(std::move(removed).error().in(target));
  return {};
}

Result<> give_back(Session& session, const Options& options, const std::string& target,
                   const std::string& owner) {
  uint32_t this_node = 0;
  const auto function = find_remote_function(session, target, &this_node);
  if (!function) return tl::unexpected(function.error());
  const std::string name = to_string(function->id);
  if (!function->borrower) return {};  // returned already
  if (function->borrower != this_node)
    return fail(ErrorClass::State, "{} is borrowed by node {}, not by this host: return it there",
                name, *function->borrower);
  if (function->owner.starts_with(kDeviceOwner) && function->owner != owner && !options.force)
    return fail(ErrorClass::State,
                "{0} is borrowed by mediated device {1}: stop it ('mdevctl stop -u {1}')", name,
                function->owner.substr(kDeviceOwner.size()));
  if (function->owner != owner && !options.force)
    return fail(ErrorClass::State,
                "{} is borrowed by '{}' ({}): end that use first, or use --force to take it away",
                name, function->owner, function->frontend);
  DeviceUse use;
  if (function->frontend == kShadow && !function->virtual_address.empty()) {
    const auto address = parse_pci_address(function->virtual_address);
    if (!address) return tl::unexpected(address.error());
    auto found = check_unused(session, *address, options.force);
    if (!found) return tl::unexpected(std::move(found).error());
    use = std::move(*found);
  }
  auto returned = session.client.give_back(function->id, function->owner);
  if (!returned) return tl::unexpected(std::move(returned).error().in(name));
  warn_of_loss(session, use);
  return {};
}

}  // namespace

Result<Answer> command_borrow(Session& session, const Options& options) {
  uint32_t this_node = 0;
  const auto owner = owner_of(session, options);
  if (!owner) return tl::unexpected(owner.error());
  const auto adapter = adapter_of(options);
  if (!adapter) return tl::unexpected(adapter.error());
  PCILEND_TRY(check_wait(options));
  std::vector<Function> all;
  for (const auto& target : options.targets) {
    auto function = find_remote_function(session, target, &this_node);
    if (!function) return tl::unexpected(function.error());
    all.push_back(std::move(*function));
  }
  if (!options.wait) {
    FunctionsAnswer answer{{}, this_node};
    for (const auto& function : all) {
      auto borrowed = borrow(session, options, function.id, *owner, *adapter);
      if (!borrowed) return tl::unexpected(std::move(borrowed).error());
      if (options.boot) PCILEND_TRY(keep_for_boot(session, options, *borrowed, *owner, *adapter));
      answer.functions.push_back(std::move(*borrowed));
    }
    return answer;
  }
  // From before the borrow, so that no change is missed.
  auto events = session.open_events();
  if (!events) return tl::unexpected(std::move(events).error());
  auto borrowed = borrow(session, options, all.front().id, *owner, *adapter);
  if (!borrowed) return tl::unexpected(std::move(borrowed).error());
  if (options.boot) PCILEND_TRY(keep_for_boot(session, options, *borrowed, *owner, *adapter));
  return wait_for_driver(session, **events, {std::move(*borrowed), this_node, {}},
                         options.timeout.value_or(kWaitSeconds));
}

Result<Answer> command_return(Session& session, const Options& options) {
  const auto owner = owner_of(session, options);
  if (!owner) return tl::unexpected(owner.error());
  for (const auto& target : options.targets) {
    if (options.boot) PCILEND_TRY(forget_for_boot(session, target));
    auto returned = give_back(session, options, target, *owner);
    const bool gone = options.boot && !returned && returned.error().kind == ErrorClass::NotFound;
    if (!returned && !gone) return tl::unexpected(std::move(returned).error());
  }
  return NothingAnswer{};
}

Result<Answer> command_p2p(Session& session, const Options& options) {
  uint32_t this_node = 0;
  const auto from = find_remote_function(session, options.targets.front(), &this_node);
  if (!from) return tl::unexpected(from.error());
  const auto to = find_function(session, options.words.front());
  if (!to) return tl::unexpected(to.error());
  auto changed = session.client.reach(from->id, to->id, !options.end);
  if (!changed) return tl::unexpected(std::move(changed).error().in(to_string(from->id)));
  return FunctionsAnswer{{std::move(*changed)}, this_node};
}

Result<Answer> command_vm_xml(Session& session, const Options& options) {
  HostdevsAnswer answer{{}, options.mdev};
  for (const auto& target : options.targets) {
    uint32_t this_node = 0;
    auto function = find_remote_function(session, target, &this_node);
    if (!function) return tl::unexpected(std::move(function).error());
    if (!options.mdev && !place_of(function->id))
      return fail(ErrorClass::State,
                  "{} has no PCI address of 16 bits: add it with an index up to ff on its lender, "
                  "and give that a node id up to 32767; or use --mdev",
                  to_string(function->id));
    answer.functions.push_back(std::move(*function));
  }
  return answer;
}

}  // namespace pcilend
