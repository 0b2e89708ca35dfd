// SPDX-License-Identifier: GPL-2.0-or-later
#include "target.h"

#include <algorithm>

namespace pcilend {
namespace {

constexpr size_t kUuidLength = 36;

tl::unexpected<Error> not_offered(std::string_view text) {
  return fail(ErrorClass::NotFound,
              "no function {} is known here: 'pcilend list' shows those that are, 'pcilend link' "
              "the hosts they could come from",
              text);
}

Result<Function> find_by_uuid(Session& session, const Uuid& uuid) {
  auto functions = session.client.functions();
  if (!functions) return tl::unexpected(std::move(functions).error());
  const auto found = std::find_if(functions->begin(), functions->end(),
                                  [&](const Function& f) { return f.uuid == uuid; });
  if (found == functions->end()) return not_offered(to_string(uuid));
  return *found;
}

Result<> check_installed(Session& session, const PciAddress& address) {
  if (session.environment.exists("/sys/bus/pci/devices/" + to_string(address))) return {};
  return fail(ErrorClass::NotFound, "no PCI function {} on this host: 'lspci -D' lists them",
              to_string(address));
}

}  // namespace

Result<Target> parse_target(std::string_view text) {
  if (text.find(':') != std::string_view::npos || text.find('.') != std::string_view::npos) {
    auto address = parse_pci_address(text);
    if (!address) return tl::unexpected(std::move(address).error());
    return *address;
  }
  if (text.size() == kUuidLength) {
    auto uuid = parse_uuid(text);
    if (!uuid) return tl::unexpected(std::move(uuid).error());
    return *uuid;
  }
  auto id = parse_function_id(text);
  if (!id)
    return fail(ErrorClass::Usage,
                "'{}' names no function: give its id (40001), PCI address (0000:00:05.0) or UUID",
                text);
  return *id;
}

Result<Function> find_function(Session& session, std::string_view text) {
  auto target = parse_target(text);
  if (!target) return tl::unexpected(std::move(target).error());
  if (const auto* uuid = std::get_if<Uuid>(&*target)) return find_by_uuid(session, *uuid);
  if (const auto* id = std::get_if<FunctionId>(&*target)) {
    auto function = session.client.function(*id);
    if (!function && function.error().kind == ErrorClass::NotFound)
      return not_offered(to_string(*id));
    return function;
  }
  const auto& address = std::get<PciAddress>(*target);
  auto function = session.client.function(address);
  if (!function && function.error().kind == ErrorClass::NotFound) {
    PCILEND_TRY(check_installed(session, address));
    return fail(ErrorClass::NotFound, "{0} is not added: run 'pcilend add {0}' to offer it",
                to_string(address));
  }
  return function;
}

Result<Function> find_local_function(Session& session, std::string_view text) {
  auto function = find_function(session, text);
  if (!function) return function;
  const auto node = session.client.node();
  if (!node) return tl::unexpected(node.error());
  if (function->lender != node->id)
    return fail(ErrorClass::State,
                "{} is installed in node {}, not in this host (node {}): run this command there",
                to_string(function->id), function->lender, node->id);
  return function;
}

Result<LocalFunction> find_added(Session& session, std::string_view text) {
  auto function = find_local_function(session, text);
  if (!function) return tl::unexpected(std::move(function).error());
  const auto address = parse_pci_address(function->bdf);
  if (!address) return tl::unexpected(address.error());
  return LocalFunction{std::move(*function), *address};
}

Result<PciAddress> find_local_address(Session& session, std::string_view text) {
  auto target = parse_target(text);
  if (!target) return tl::unexpected(std::move(target).error());
  if (const auto* address = std::get_if<PciAddress>(&*target)) {
    PCILEND_TRY(check_installed(session, *address));
    return *address;
  }
  auto function = find_local_function(session, text);
  if (!function) return tl::unexpected(std::move(function).error());
  return parse_pci_address(function->bdf);
}

Result<std::string> adapter_of(const Options& options) {
  if (options.adapter.empty()) return std::string();
  const auto address = parse_pci_address(options.adapter);
  if (!address) {
    Error error = address.error();
    return tl::unexpected(std::move(error).in("--adapter"));
  }
  return to_string(*address);
}

}  // namespace pcilend
