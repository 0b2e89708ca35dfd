// SPDX-License-Identifier: GPL-2.0-or-later
// check: everything that will not work, before anyone is surprised.
#include "commands.h"
#include "dma_route.h"
#include "pcie_check.h"
#include "platform_check.h"
#include "target.h"
#include "text.h"

namespace pcilend {
namespace {

using Level = Finding::Level;

// BAR sizes of what people lend: an NVMe drive, a network card, a large accelerator.
constexpr uint64_t kTypicalBars[] = {16ull << 10, 16ull << 20, 32ull << 30};

Finding check_node(const Node& node) {
  if (node.id == 0)
    return {Level::Wrong, "node", "this host has no node id, so links are refused",
            "load the module with node=N, with a number from 1 to 65535 that no other host has"};
  return {Level::Ok, "node", fmt::format("node {}", node.id), ""};
}

Finding check_state(const Link& link) {
  const std::string subject = link_title(link);
  switch (link.state) {
    case PCILEND_LINK_UP:
      return {Level::Ok, subject, fmt::format("up, to node {}", link.peer.value_or(0)), ""};
    case PCILEND_LINK_REFUSED:
      return {Level::Wrong, subject, "refused: " + link.reason, ""};
    case PCILEND_LINK_HANDSHAKE:
      return {
          Level::Wrong, subject,
          "the peer's pcilend has not answered" + (link.reason.empty() ? "" : ": " + link.reason),
          "modprobe pcilend node=N on the peer"};
    default:
      return {Level::Wrong, subject, "the adapters see no link",
              "switch the peer on, check the cable, load the adapter's driver on the peer"};
  }
}

// "room for 64 functions with 16 MiB of BARs, ..."
std::string exports_room(uint64_t free) {
  std::vector<std::string> parts;
  for (const uint64_t bar : kTypicalBars)
    if (free >= bar) parts.push_back(fmt::format("{} with {}", free / bar, size_text(bar)));
  if (parts.empty()) return "no room for more BARs";
  return fmt::format("room for functions with BARs, either {}", fmt::join(parts, " or "));
}

std::vector<Finding> check_plan(const Link& link) {
  std::vector<Finding> findings;
  const std::string subject = link_title(link);
  for (const auto& region : link.regions) {
    const uint64_t used = region.used.value_or(0);
    const uint64_t free = region.size - std::min(used, region.size);
    if (region.kind == PCILEND_REGION_EXPORTS) {
      findings.push_back({Level::Ok, subject,
                          fmt::format("exports: {}, {} used: {}", size_text(region.size),
                                      size_text(used), exports_room(free)),
                          ""});
    } else if (region.kind == PCILEND_REGION_SLOTS) {
      findings.push_back(
          {Level::Ok, subject,
           fmt::format("guest memory: {}, {} used", size_text(region.size), size_text(used)), ""});
    }
  }
  for (const auto& sentence : link.degraded)
    findings.push_back({Level::Wrong, subject, sentence, ""});
  return findings;
}

// Adapters that let through who is in their table only.
std::vector<Finding> check_requesters(const Link& link) {
  if (!link.requesters) return {};
  const uint32_t used = link.requesters_used.value_or(0);
  const std::string text = fmt::format("requester IDs: {} of {} entries used, {} of lent functions",
                                       used, *link.requesters, link.requesters_lent.value_or(0));
  if (used < *link.requesters) return {{Level::Ok, link_title(link), text, ""}};
  return {{Level::Wrong, link_title(link), text + ": no further function can be lent over it",
           "take functions back, or take out what others entered"}};
}

void append(std::vector<Finding> more, std::vector<Finding>* findings) {
  std::move(more.begin(), more.end(), std::back_inserter(*findings));
}

Result<> check_functions(Session& session, const std::vector<PciAddress>& addresses,
                         const std::vector<std::string>& adapters, std::vector<Finding>* findings) {
  for (const auto& address : addresses) {
    const auto lendable = session.client.check(address);
    findings->push_back(
        lendable ? Finding{Level::Ok, to_string(address), "can be lent", ""}
                 : Finding{Level::Wrong, to_string(address), lendable.error().message, ""});
    append(check_dma_route(session.environment, address, adapters), findings);
    append(check_function_settings(session.environment, address, adapters), findings);
  }
  return {};
}

bool waits_for(const Member& member) {
  return member.state == PCILEND_FUNCTION_LOCAL || member.state == PCILEND_FUNCTION_ADDED;
}

// An available function that nobody can borrow, because it is lent with others only.
std::vector<Finding> check_set(const Function& f) {
  std::vector<Finding> findings;
  if (f.state != PCILEND_FUNCTION_AVAILABLE) return findings;
  for (const auto& member : f.members) {
    if (waits_for(member) && member.id)
      findings.push_back(
          {Level::Wrong, f.bdf,
           fmt::format("can't be borrowed before {} of its IOMMU group is available", member.bdf),
           fmt::format("pcilend available {}", member.bdf)});
  }
  return findings;
}

// Those named, else all that are added here.
Result<std::vector<PciAddress>> addresses_to_check(Session& session, const Options& options,
                                                   const std::vector<Function>& functions,
                                                   uint32_t this_node) {
  std::vector<PciAddress> addresses;
  for (const auto& target : options.targets) {
    const auto address = find_local_address(session, target);
    if (!address) return tl::unexpected(address.error());
    addresses.push_back(*address);
  }
  if (!addresses.empty()) return addresses;
  for (const auto& function : functions) {
    if (function.lender != this_node) continue;
    const auto address = parse_pci_address(function.bdf);
    if (!address) return tl::unexpected(address.error());
    addresses.push_back(*address);
  }
  return addresses;
}

Result<> check_with_module(Session& session, const Options& options,
                           std::vector<Finding>* findings) {
  const auto node = session.client.node();
  if (!node) return tl::unexpected(node.error());
  const auto links = session.client.links();
  if (!links) return tl::unexpected(links.error());
  const auto functions = session.client.functions();
  if (!functions) return tl::unexpected(functions.error());
  const auto addresses = addresses_to_check(session, options, *functions, node->id);
  if (!addresses) return tl::unexpected(addresses.error());

  findings->push_back(check_node(*node));
  bool offered = false;
  std::vector<std::string> adapters;
  for (const auto& link : *links) {
    findings->push_back(check_state(link));
    append(check_plan(link), findings);
    append(check_requesters(link), findings);
    adapters.push_back(link.adapter);
    offered = offered || link.peer_connected;
  }
  PCILEND_TRY(check_functions(session, *addresses, adapters, findings));
  for (const auto& f : *functions) {
    if (f.lender == node->id) append(check_set(f), findings);
    if (f.lender == node->id && f.state == PCILEND_FUNCTION_QUARANTINED)
      findings->push_back(
          {Level::Wrong, f.bdf, "quarantined: " + f.reason,
           fmt::format("pcilend {} {}", f.dirty ? "sanitize" : "release-quarantine", f.bdf)});
  }
  append(check_frontends(session.environment, offered), findings);
  return {};
}

}  // namespace

Result<Answer> command_check(Host& host, const Options& options) {
  CheckAnswer answer{check_platform(host.environment)};
  if (!host.environment.exists("/sys/module/pcilend")) {
    append(check_frontends(host.environment, false), &answer.findings);
    return answer;
  }
  auto client = host.open_client();
  if (!client) return tl::unexpected(std::move(client).error());
  Session session{host, **client};
  PCILEND_TRY(check_with_module(session, options, &answer.findings));
  return answer;
}

}  // namespace pcilend
