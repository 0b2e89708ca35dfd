// SPDX-License-Identifier: GPL-2.0-or-later
#include "commands.h"
#include "disks.h"
#include "target.h"

namespace pcilend {
namespace {

// All that a host knows.
template <class T>
Result<T> whole_state(Session& session) {
  T state;
  const auto node = session.client.node();
  if (!node) return tl::unexpected(node.error());
  auto links = session.client.links();
  if (!links) return tl::unexpected(std::move(links).error());
  auto functions = session.client.functions();
  if (!functions) return tl::unexpected(std::move(functions).error());
  state.node = *node;
  state.links = std::move(*links);
  state.functions = std::move(*functions);
  return state;
}

// Those whose configuration space this host can read.
bool readable(const Function& function, uint32_t this_node) {
  return function.lender == this_node || function.borrower == this_node;
}

// Can't be without the command: what this host borrows, and what others still have of it.
bool is_in_use(const Function& f, uint32_t this_node) {
  if (f.lender != this_node) return f.borrower == this_node;
  return f.state == PCILEND_FUNCTION_BORROWED || f.state == PCILEND_FUNCTION_FENCING ||
         f.state == PCILEND_FUNCTION_RESETTING;
}

}  // namespace

Result<Answer> command_list(Session& session, const Options&) {
  const auto node = session.client.node();
  if (!node) return tl::unexpected(node.error());
  auto functions = session.client.functions();
  if (!functions) return tl::unexpected(std::move(functions).error());
  return FunctionsAnswer{std::move(*functions), node->id};
}

Result<Answer> command_show(Session& session, const Options& options) {
  const auto node = session.client.node();
  if (!node) return tl::unexpected(node.error());
  FunctionsAnswer answer{{}, node->id, Detail::Full};
  for (const auto& target : options.targets) {
    auto function = find_function(session, target);
    if (!function) return tl::unexpected(std::move(function).error());
    answer.functions.push_back(std::move(*function));
  }
  return answer;
}

Result<Answer> command_link(Session& session, const Options& options) {
  auto links = session.client.links();
  if (!links) return tl::unexpected(std::move(links).error());
  return LinksAnswer{std::move(*links), options.verbose ? Detail::Full : Detail::Line};
}

Result<Answer> command_node(Session& session, const Options&) {
  const auto node = session.client.node();
  if (!node) return tl::unexpected(node.error());
  return *node;
}

Result<Answer> command_lspci(Session& session, const Options& options) {
  std::vector<Function> functions;
  for (const auto& target : options.targets) {
    auto function = find_function(session, target);
    if (!function) return tl::unexpected(std::move(function).error());
    functions.push_back(std::move(*function));
  }
  if (options.targets.empty()) {
    const auto node = session.client.node();
    if (!node) return tl::unexpected(node.error());
    auto all = session.client.functions();
    if (!all) return tl::unexpected(std::move(all).error());
    std::erase_if(*all, [&](const Function& f) { return !readable(f, node->id); });
    functions = std::move(*all);
  }
  ConfigAnswer answer{{}, options.emulated, options.hex};
  for (auto& function : functions) {
    auto bytes = session.client.config(function.id, options.emulated);
    if (!bytes) return tl::unexpected(std::move(bytes).error().in(to_string(function.id)));
    answer.entries.push_back({std::move(function), std::move(*bytes)});
  }
  return answer;
}

Result<Answer> command_status(Session& session, const Options& options) {
  auto state = whole_state<StatusAnswer>(session);
  if (!state) return tl::unexpected(std::move(state).error());
  if (options.in_use && !options.ignored.empty())
    return fail(ErrorClass::Usage, "--ignore is about links, --in-use about functions: give one");
  if (options.in_use) {
    std::erase_if(state->functions,
                  [&](const Function& f) { return !is_in_use(f, state->node.id); });
    auto disks = find_disks(session.environment);
    if (!disks) return tl::unexpected(std::move(disks).error());
    std::erase_if(*disks, [](const nvme::DiskRecord& disk) { return !disk.number; });
    return InUseAnswer{std::move(state->functions), std::move(*disks), state->node.id};
  }
  for (const auto& text : options.ignored) {
    const auto address = parse_pci_address(text);
    if (!address) {
      Error error = address.error();
      return tl::unexpected(std::move(error).in("--ignore"));
    }
    state->ignored.push_back(to_string(*address));
  }
  return std::move(*state);
}

Result<Answer> command_metrics(Session& session, const Options&) {
  auto state = whole_state<MetricsAnswer>(session);
  if (!state) return tl::unexpected(std::move(state).error());
  auto segments = session.client.segments();
  if (!segments) return tl::unexpected(std::move(segments).error());
  state->segments = std::move(*segments);
  const auto counters = session.client.counters();
  if (!counters) return tl::unexpected(counters.error());
  state->counters = *counters;
  return std::move(*state);
}

}  // namespace pcilend
