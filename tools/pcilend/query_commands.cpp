// SPDX-License-Identifier: GPL-2.0-or-later
#include "commands.h"
#include "target.h"

namespace pcilend {

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
  FunctionsAnswer answer{{}, node->id, FunctionsAnswer::Detail::Full};
  for (const auto& target : options.targets) {
    auto function = find_function(session, target);
    if (!function) return tl::unexpected(std::move(function).error());
    answer.functions.push_back(std::move(*function));
  }
  return answer;
}

Result<Answer> command_link(Session& session, const Options&) {
  auto links = session.client.links();
  if (!links) return tl::unexpected(std::move(links).error());
  return LinksAnswer{std::move(*links)};
}

Result<Answer> command_node(Session& session, const Options&) {
  const auto node = session.client.node();
  if (!node) return tl::unexpected(node.error());
  return *node;
}

}  // namespace pcilend
