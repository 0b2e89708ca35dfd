// SPDX-License-Identifier: GPL-2.0-or-later
#include <pwd.h>
#include <unistd.h>

#include <algorithm>

#include "commands.h"
#include "device_use.h"
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

// Who borrows when the command line does not say.
std::string caller_name() {
  const passwd* const user = ::getpwuid(::geteuid());
  return user ? fmt::format("user {}", user->pw_name) : fmt::format("uid {}", ::geteuid());
}

Result<std::string> owner_of(const Options& options) {
  if (options.owner.empty()) return caller_name();
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

}  // namespace

Result<Answer> command_borrow(Session& session, const Options& options) {
  uint32_t this_node = 0;
  const auto owner = owner_of(options);
  if (!owner) return tl::unexpected(owner.error());
  const auto adapter = adapter_of(options);
  if (!adapter) return tl::unexpected(adapter.error());
  PCILEND_TRY(check_wait(options));
  const auto function = find_remote_function(session, options.targets.front(), &this_node);
  if (!function) return tl::unexpected(function.error());
  // From before the borrow, so that no change is missed.
  std::unique_ptr<EventStream> events;
  if (options.wait) {
    auto opened = session.open_events();
    if (!opened) return tl::unexpected(std::move(opened).error());
    events = std::move(*opened);
  }
  auto borrowed = session.client.borrow(function->id, options.frontend, *owner, *adapter);
  const std::string module = module_of(options.frontend);
  if (!borrowed && borrowed.error().kind == ErrorClass::Unsupported &&
      !session.environment.exists("/sys/module/" + module))
    return fail(ErrorClass::Unsupported,
                "{}: frontend '{}' is not loaded: run 'modprobe {}', or choose another with "
                "--frontend",
                to_string(function->id), options.frontend, module);
  if (!borrowed) return tl::unexpected(std::move(borrowed).error().in(to_string(function->id)));
  if (options.wait)
    return wait_for_driver(session, *events, {std::move(*borrowed), this_node, {}},
                           options.timeout.value_or(kWaitSeconds));
  return FunctionsAnswer{{std::move(*borrowed)}, this_node};
}

Result<Answer> command_return(Session& session, const Options& options) {
  const auto owner = owner_of(options);
  if (!owner) return tl::unexpected(owner.error());
  uint32_t this_node = 0;
  const auto function = find_remote_function(session, options.targets.front(), &this_node);
  if (!function) return tl::unexpected(function.error());
  if (function->borrower != this_node) return NothingAnswer{};
  if (function->owner.starts_with(kDeviceOwner) && function->owner != *owner && !options.force)
    return fail(ErrorClass::State,
                "{0} is borrowed by mediated device {1}: stop it ('mdevctl stop -u {1}')",
                to_string(function->id), function->owner.substr(kDeviceOwner.size()));
  if (function->owner != *owner && !options.force)
    return fail(ErrorClass::State,
                "{} is borrowed by '{}' ({}): end that use first, or use --force to take it away",
                to_string(function->id), function->owner, function->frontend);
  if (function->frontend == kShadow && !function->virtual_address.empty()) {
    const auto address = parse_pci_address(function->virtual_address);
    if (!address) return tl::unexpected(address.error());
    PCILEND_TRY(check_unused(session, *address, options.force));
  }
  auto returned = session.client.give_back(function->id, function->owner);
  if (!returned) return tl::unexpected(std::move(returned).error().in(to_string(function->id)));
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
