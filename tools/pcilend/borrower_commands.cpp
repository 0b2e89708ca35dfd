// SPDX-License-Identifier: GPL-2.0-or-later
#include <pwd.h>
#include <unistd.h>

#include "commands.h"
#include "target.h"

namespace pcilend {
namespace {

constexpr size_t kOwnerBytes = 63;  // PCILEND_A_OWNER

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

}  // namespace

Result<Answer> command_borrow(Session& session, const Options& options) {
  FunctionsAnswer answer;
  const auto owner = owner_of(options);
  if (!owner) return tl::unexpected(owner.error());
  const auto function = find_remote_function(session, options.targets.front(), &answer.this_node);
  if (!function) return tl::unexpected(function.error());
  auto borrowed = session.client.borrow(function->id, options.frontend, *owner);
  if (!borrowed && borrowed.error().kind == ErrorClass::Unsupported &&
      !session.environment.exists("/sys/module/pcilend_" + options.frontend))
    return fail(
        ErrorClass::Unsupported,
        "{}: frontend '{}' is not loaded: run 'modprobe pcilend_{}', or choose another with "
        "--frontend",
        to_string(function->id), options.frontend, options.frontend);
  if (!borrowed) return tl::unexpected(std::move(borrowed).error().in(to_string(function->id)));
  answer.functions.push_back(std::move(*borrowed));
  return answer;
}

Result<Answer> command_return(Session& session, const Options& options) {
  const auto owner = owner_of(options);
  if (!owner) return tl::unexpected(owner.error());
  uint32_t this_node = 0;
  const auto function = find_remote_function(session, options.targets.front(), &this_node);
  if (!function) return tl::unexpected(function.error());
  if (function->borrower != this_node) return NothingAnswer{};
  if (function->owner != *owner && !options.force)
    return fail(ErrorClass::State,
                "{} is borrowed by '{}' ({}): end that use first, or use --force to take it away",
                to_string(function->id), function->owner, function->frontend);
  auto returned = session.client.give_back(function->id, function->owner);
  if (!returned) return tl::unexpected(std::move(returned).error().in(to_string(function->id)));
  return NothingAnswer{};
}

Result<Answer> command_vm_xml(Session& session, const Options& options) {
  HostdevsAnswer answer;
  for (const auto& target : options.targets) {
    uint32_t this_node = 0;
    auto function = find_remote_function(session, target, &this_node);
    if (!function) return tl::unexpected(std::move(function).error());
    answer.functions.push_back(std::move(*function));
  }
  return answer;
}

}  // namespace pcilend
