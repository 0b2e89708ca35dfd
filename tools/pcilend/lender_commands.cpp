// SPDX-License-Identifier: GPL-2.0-or-later
#include "commands.h"
#include "device_use.h"
#include "target.h"

namespace pcilend {
namespace {

Result<Answer> nothing(Result<> done) {
  if (!done) return tl::unexpected(std::move(done).error());
  return NothingAnswer{};
}

Result<Answer> one_function(Session& session, Result<Function> function) {
  if (!function) return tl::unexpected(std::move(function).error());
  const auto node = session.client.node();
  if (!node) return tl::unexpected(node.error());
  return FunctionsAnswer{{std::move(*function)}, node->id};
}

// Refuses to take storage that is in use; tells about networks that go.
Result<> check_unused(Session& session, const PciAddress& address, bool force) {
  const auto use = find_device_use(session.environment, address);
  if (!use) return tl::unexpected(use.error());
  if (!use->block.empty() && !force) {
    const size_t more = use->block.size() - 1;
    return fail(ErrorClass::State, "{}{}, or use --force and lose what is not written",
                use->block.front(), more ? fmt::format(" (and {} more uses)", more) : "");
  }
  for (const auto& reason : use->block) session.warn(fmt::format("taken by force: {}", reason));
  for (const auto& name : use->interfaces)
    session.warn(fmt::format("network interface {} was up and is gone", name));
  return {};
}

}  // namespace

Result<Answer> command_connect(Session& session, const Options& options) {
  const auto node = parse_node_id(options.targets.front());
  if (!node) return tl::unexpected(node.error());
  return nothing(session.client.connect(*node));
}

Result<Answer> command_disconnect(Session& session, const Options& options) {
  const auto node = parse_node_id(options.targets.front());
  if (!node) return tl::unexpected(node.error());
  return nothing(session.client.disconnect(*node));
}

Result<Answer> command_add(Session& session, const Options& options) {
  const auto address = find_local_address(session, options.targets.front());
  if (!address) return tl::unexpected(address.error());
  return one_function(session, session.client.add(*address));
}

Result<Answer> command_remove(Session& session, const Options& options) {
  const auto address = find_local_address(session, options.targets.front());
  if (!address) return tl::unexpected(address.error());
  return nothing(session.client.remove(*address));
}

Result<Answer> command_available(Session& session, const Options& options) {
  const auto function = find_local_function(session, options.targets.front());
  if (!function) return tl::unexpected(function.error());
  const auto address = parse_pci_address(function->bdf);
  if (!address) return tl::unexpected(address.error());
  if (function->state == PCILEND_FUNCTION_ADDED)
    PCILEND_TRY(check_unused(session, *address, options.force));
  return one_function(session, session.client.make_available(*address));
}

Result<Answer> command_unavailable(Session& session, const Options& options) {
  const auto function = find_local_function(session, options.targets.front());
  if (!function) return tl::unexpected(function.error());
  const auto address = parse_pci_address(function->bdf);
  if (!address) return tl::unexpected(address.error());
  PCILEND_TRY(session.client.make_unavailable(*address));
  return one_function(session, session.client.function(*address));
}

}  // namespace pcilend
