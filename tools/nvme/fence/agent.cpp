// SPDX-License-Identifier: GPL-2.0-or-later
#include "fence/agent.h"

#include <charconv>

#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

constexpr int kIsFenced = 2;

// The node has to say at its next start that it is there again, as what it had in mind to write is
// void: provides=unfencing, on_target.
constexpr std::string_view kMetadata = R"(<?xml version="1.0" ?>
<resource-agent name="fence_pcilend" shortdesc="Fence agent for NVMe drives that are shared by pcilend">
  <longdesc>Cuts a node off from a shared NVMe drive: pcilend-nvme-manager deletes the queues of its processes, and gives it no others. When this succeeds, nothing that the node has written before can reach the drive any more.</longdesc>
  <vendor-url></vendor-url>
  <parameters>
    <parameter name="action" unique="0" required="1">
      <getopt mixed="-o, --action=[action]"/>
      <content type="string" default="off"/>
      <shortdesc lang="en">Fencing action</shortdesc>
    </parameter>
    <parameter name="function" unique="0" required="1">
      <getopt mixed="-f, --function=[id]"/>
      <content type="string"/>
      <shortdesc lang="en">Function id of the drive, as 'pcilend list' has it (40001)</shortdesc>
    </parameter>
    <parameter name="plug" unique="0" required="1" obsoletes="port">
      <getopt mixed="-n, --plug=[node]"/>
      <content type="string"/>
      <shortdesc lang="en">Node id of the host to be fenced, as 'pcilend link' has it (8)</shortdesc>
    </parameter>
    <parameter name="port" unique="0" required="0" deprecated="1">
      <content type="string"/>
      <shortdesc lang="en">As plug</shortdesc>
    </parameter>
  </parameters>
  <actions>
    <action name="on" on_target="1" automatic="1"/>
    <action name="off"/>
    <action name="status"/>
    <action name="monitor"/>
    <action name="metadata"/>
    <action name="validate-all"/>
  </actions>
</resource-agent>
)";

Result<uint32_t> parse_node(const std::string& text) {
  uint32_t node = 0;
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, node);
  if (error != std::errc() || after != end || node == 0)
    return fail(ErrorClass::Usage,
                "plug '{}' is no node: give its id (8), as 'pcilend link' has it", text);
  return node;
}

}  // namespace

void read_options(std::string_view lines, FenceOptions& options) {
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view key = line.substr(0, equals);
    const std::string value(line.substr(equals + 1));
    if (key == "action" || key == "option") options.action = value;
    if (key == "function") options.function = value;
    if (key == "plug" || key == "port") options.plug = value;
  }
}

Result<FenceResult> run_fence(const FenceOptions& options, const AskManager& ask) {
  const std::string& action = options.action;
  if (action == "metadata") return FenceResult{0, std::string(kMetadata)};
  const bool changes = action == "on" || action == "off";
  if (!changes && action != "status" && action != "monitor" && action != "validate-all")
    return fail(
        ErrorClass::Usage,
        "a drive's manager can't do '{}' to a node: say off, on, status, monitor, metadata or "
        "validate-all",
        action);
  const auto drive = parse_function_id(options.function);
  if (!drive) return tl::unexpected(drive.error());
  // To look after the agent needs no node.
  uint32_t node = 0;
  if (action != "monitor" || !options.plug.empty()) {
    const auto parsed = parse_node(options.plug);
    if (!parsed) return tl::unexpected(parsed.error());
    node = *parsed;
  }
  if (action == "validate-all") return FenceResult{};
  const auto what = action == "off"  ? mail::Fencing::Off
                    : action == "on" ? mail::Fencing::On
                                     : mail::Fencing::Ask;
  const auto fenced = ask(*drive, {what, node});
  if (!fenced) return tl::unexpected(fenced.error());
  if (changes && *fenced != (action == "off"))
    return fail(ErrorClass::Failure, "the manager of {} has not done it", options.function);
  if (changes) return FenceResult{0, fmt::format("Success: {} is {}\n", node, action)};
  if (action == "monitor") return FenceResult{};
  return FenceResult{*fenced ? kIsFenced : 0, fmt::format("Status: {}\n", *fenced ? "OFF" : "ON")};
}

}  // namespace pcilend::nvme
