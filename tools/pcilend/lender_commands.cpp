// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>

#include "bytes.h"
#include "commands.h"
#include "device_use.h"
#include "outcome.h"
#include "pcie_check.h"
#include "sanitize.h"
#include "target.h"
#include "text.h"

namespace pcilend {
namespace {

constexpr uint64_t kNearMax = uint64_t{1} << 30;  // pcilend.ko's

// Nothing: as pcilend.ko has it.
Result<std::optional<uint64_t>> parse_near(const std::string& text) {
  if (text.empty()) return std::optional<uint64_t>();
  const auto bytes = parse_bytes(text);
  if (!bytes || *bytes % 4096 != 0 || *bytes > kNearMax)
    return fail(ErrorClass::Usage,
                "--near {}: give whole pages of 4 KiB, up to 1G, as 65536, 64K or 16M; 0: none",
                text);
  return bytes;
}

// A link that is still coming up is given this long to say who its peer is.
constexpr std::chrono::milliseconds kLinkLimit{15000};
constexpr std::chrono::milliseconds kLinkPoll{100};

// Refuses a node that no link leads to. Every host is its own, and is left to the kernel.
Result<> check_peer(Session& session, uint32_t node) {
  const auto self = session.client.node();
  if (!self) return tl::unexpected(self.error());
  if (self->id == node) return {};
  std::string troubles;
  for (auto waited = kLinkLimit.zero();; waited += kLinkPoll) {
    const auto links = session.client.links();
    if (!links) return tl::unexpected(links.error());
    if (std::any_of(links->begin(), links->end(), [&](const Link& l) { return l.peer == node; }))
      return {};
    const bool settled = std::none_of(links->begin(), links->end(), [](const Link& l) {
      return l.state == PCILEND_LINK_DOWN || l.state == PCILEND_LINK_HANDSHAKE;
    });
    if (settled || waited >= kLinkLimit) {
      for (const auto& link : *links)
        if (link.state != PCILEND_LINK_UP) troubles += fmt::format("{}; ", link_trouble(link));
      break;
    }
    session.sleep(kLinkPoll);
  }
  return fail(ErrorClass::NotFound,
              "no link leads to node {}: {}'pcilend link' lists the peers; use --force to connect "
              "it for when it appears",
              node, troubles);
}

// A pin ends links that do not agree with it, and with them all that goes over them.
Result<> check_pin(Session& session, uint32_t node, const std::string& adapter) {
  const auto links = session.client.links();
  if (!links) return tl::unexpected(links.error());
  for (const auto& link : *links) {
    const bool agrees =
        link.adapter == adapter ? link.peer == node : link.peer != node || link.pinned == node;
    if (!agrees && link.leases.value_or(0) > 0)
      return fail(ErrorClass::State,
                  "functions go over adapter {}, whose link to node {} this pin ends: "
                  "return them first, or use --force",
                  link.adapter, link.peer.value_or(0));
  }
  return {};
}

// What is available may be lent over any link: what keeps it from working over one is said.
void warn_of_links(Session& session, const std::vector<PciAddress>& functions) {
  const auto links = session.client.links();
  if (!links) return;
  std::vector<std::string> adapters;
  std::vector<Finding> findings;
  const auto add = [&](std::vector<Finding> more) {
    std::move(more.begin(), more.end(), std::back_inserter(findings));
  };
  for (const auto& link : *links) {
    adapters.push_back(link.adapter);
    add(check_adapter_path(session.environment, link.adapter));
    if (link.requesters && link.requesters_used.value_or(0) >= *link.requesters)
      session.warn(fmt::format(
          "adapter {}: all {} entries of its table of requesters are used: nothing more can be "
          "lent over it before others are returned",
          link.adapter, *link.requesters));
  }
  for (const auto& function : functions)
    add(check_function_settings(session.environment, function, adapters));
  for (const auto& finding : findings)
    if (finding.level == Finding::Level::Wrong)
      session.warn(fmt::format("{}: {}: {}", finding.subject, finding.text, finding.cure));
}

}  // namespace

Result<Answer> command_connect(Session& session, const Options& options) {
  const auto node = parse_node_id(options.targets.front());
  if (!node) return tl::unexpected(node.error());
  const auto adapter = adapter_of(options);
  if (!adapter) return tl::unexpected(adapter.error());
  // One that is pinned may be kept out by somebody else in its place.
  if (!options.force && adapter->empty()) PCILEND_TRY(check_peer(session, *node));
  if (!options.force && !adapter->empty()) PCILEND_TRY(check_pin(session, *node, *adapter));
  return nothing(session.client.connect(*node, *adapter), fmt::format("node {}", *node));
}

Result<Answer> command_disconnect(Session& session, const Options& options) {
  const auto node = parse_node_id(options.targets.front());
  if (!node) return tl::unexpected(node.error());
  return nothing(session.client.disconnect(*node), fmt::format("node {}", *node));
}

Result<Answer> command_add(Session& session, const Options& options) {
  PCILEND_TRY(check_label(options.label));
  return each_target(session, options, [&](const std::string& target) -> Result<Function> {
    const auto address = find_local_address(session, target);
    if (!address) return tl::unexpected(address.error());
    return named(session.client.add(*address, {{}, options.label, {}}), to_string(*address));
  });
}

Result<Answer> command_remove(Session& session, const Options& options) {
  for (const auto& target : options.targets) {
    const auto address = find_local_address(session, target);
    if (!address) return tl::unexpected(address.error());
    if (auto done = nothing(session.client.remove(*address), to_string(*address)); !done)
      return done;
  }
  return NothingAnswer{};
}

Result<Answer> command_available(Session& session, const Options& options) {
  struct Taken {
    LocalFunction local;
    DeviceUse use;
  };
  // All are looked at before one is taken.
  const auto near = parse_near(options.near);
  if (!near) return tl::unexpected(near.error());
  std::vector<Taken> all;
  for (const auto& target : options.targets) {
    auto local = find_added(session, target);
    if (!local) return tl::unexpected(local.error());
    DeviceUse use;
    if (local->function.state == PCILEND_FUNCTION_ADDED) {
      auto found = check_unused(session, local->address, options.force);
      if (!found)
        return tl::unexpected(all.empty() && options.targets.size() == 1
                                  ? std::move(found).error()
                                  : std::move(found).error().in(to_string(local->address)));
      use = std::move(*found);
    }
    if (options.sanitize) {
      auto can = check_can_be_sanitized(session, local->function);
      if (!can) return tl::unexpected(std::move(can).error().in(to_string(local->address)));
    }
    all.push_back({std::move(*local), std::move(use)});
  }
  FunctionsAnswer answer;
  for (const auto& [local, use] : all) {
    const std::string name = to_string(local.address);
    auto done = session.client.make_available(
        local.address, {.direct = options.direct, .sanitize = options.sanitize, .near = *near});
    if (!done) return tl::unexpected(std::move(done).error().in(name));
    warn_of_loss(session, use);
    if (options.direct)
      session.warn(fmt::format(
          "{}: lent without an IOMMU: whoever borrows it reaches, by its DMA, all memory and all "
          "interrupts of this host",
          name));
    answer.functions.push_back(std::move(*done));
  }
  std::vector<PciAddress> addresses;
  for (const auto& [local, use] : all) addresses.push_back(local.address);
  warn_of_links(session, addresses);
  return answer_of(session, std::move(answer));
}

Result<Answer> command_release_quarantine(Session& session, const Options& options) {
  const auto local = find_added(session, options.targets.front());
  if (!local) return tl::unexpected(local.error());
  return one_function(session, session.client.release_quarantine(local->address),
                      to_string(local->address));
}

}  // namespace pcilend
