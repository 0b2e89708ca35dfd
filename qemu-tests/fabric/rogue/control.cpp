// SPDX-License-Identifier: GPL-2.0-or-later
#include "rogue/control.h"

#include <algorithm>

#include "rogue/attacks.h"

namespace pcilend::rogue {

using nlohmann::json;
using std::chrono::milliseconds;

namespace {

constexpr uint64_t kLongest = 60'000;  // ms

Result<uint64_t> number_of(const json& request, const char* key, uint64_t otherwise,
                           uint64_t most) {
  const auto found = request.find(key);
  if (found == request.end()) return otherwise;
  if (!found->is_number_unsigned() || found->get<uint64_t>() > most)
    return fail(ErrorClass::Usage, "'{}' is not a number up to {}", key, most);
  return found->get<uint64_t>();
}

std::string text_of(const json& request, const char* key) {
  const auto found = request.find(key);
  return found != request.end() && found->is_string() ? found->get<std::string>() : std::string();
}

json to_json(const Report& report) {
  return {{"ok", true},
          {"sent", report.tally.sent},
          {"answers", report.tally.answers},
          {"unanswered", report.tally.unanswered},
          {"granted", report.granted},
          {"numbers", report.numbers}};
}

}  // namespace

Result<> Rogue::connect(const std::string& host, const std::string& socket, uint16_t number) {
  return add(host, Port::connect(socket, Node::memory()), number);
}

Result<> Rogue::adopt(const std::string& host, UniqueFd socket, uint16_t number) {
  return add(host, Port::open(std::move(socket), Node::memory()), number);
}

Result<> Rogue::add(const std::string& host, Result<std::unique_ptr<Port>> port, uint16_t number) {
  if (!port) return tl::unexpected(std::move(port).error().in(host));
  Link link{host, std::move(*port), nullptr};
  auto node = Node::make(*link.port, number);
  if (!node) return tl::unexpected(std::move(node).error().in(host));
  link.node = std::move(*node);
  link.node->pump = [this] { pump(); };
  links_.push_back(std::move(link));
  return {};
}

void Rogue::step() {
  const auto now = Clock::now();
  for (const Link& link : links_) link.node->step(now);
}

bool Rogue::alive() const {
  return std::all_of(links_.begin(), links_.end(),
                     [](const Link& link) { return link.port->alive(); });
}

std::vector<int> Rogue::fds() const {
  std::vector<int> fds;
  for (const Link& link : links_) fds.push_back(link.port->fd());
  return fds;
}

json Rogue::status() const {
  json links = json::array();
  for (const Link& link : links_) {
    const Node& node = *link.node;
    json functions = json::array();
    for (const auto& [id, function] : node.seen())
      functions.push_back({{"id", fmt::format("{:x}", id)},
                           {"state", function.state},
                           {"borrower", function.borrower},
                           {"lease", function.lease}});
    links.push_back({{"victim", link.host},
                     {"node", node.number()},
                     {"joined", node.joined()},
                     {"up", node.up()},
                     {"peer_node", node.peer_node()},
                     {"functions", functions},
                     {"notices", node.notices()},
                     {"malformed", node.malformed()},
                     {"interrupts", link.port->interrupts()}});
  }
  return {{"ok", true}, {"links", links}};
}

Result<json> Rogue::attack(const json& request) {
  const std::string op = text_of(request, "op");
  const std::string victim = text_of(request, "victim");
  const auto link = std::find_if(links_.begin(), links_.end(),
                                 [&](const Link& one) { return one.host == victim; });
  if (link == links_.end())
    return fail(ErrorClass::NotFound, "no link to '{}': 'victim' names a host of the lab", victim);
  const auto time = number_of(request, "ms", 1000, kLongest);
  if (!time) return tl::unexpected(time.error());
  const auto value = number_of(request, "value", 0, UINT32_MAX);
  if (!value) return tl::unexpected(value.error());
  if (const auto manner = manner_named(op)) {
    link->node->set_manner(*manner);
    return to_json({});
  }
  const Attack* attack = attack_named(op);
  if (attack == nullptr)
    return fail(ErrorClass::Usage, "unknown attack '{}': see qemu-tests/fabric/README.md", op);
  const auto report = attack->run(*link->node, milliseconds(*time), static_cast<uint32_t>(*value));
  if (!report) return tl::unexpected(report.error());
  return to_json(*report);
}

json Rogue::carry_out(std::string_view line) {
  const json request = json::parse(line, nullptr, false);
  if (!request.is_object()) return {{"ok", false}, {"error", "the request is not a JSON object"}};
  if (text_of(request, "op") == "status") return status();
  const auto answer = attack(request);
  if (!answer) return {{"ok", false}, {"error", answer.error().message}};
  return *answer;
}

}  // namespace pcilend::rogue
