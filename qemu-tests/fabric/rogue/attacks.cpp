// SPDX-License-Identifier: GPL-2.0-or-later
#include "rogue/attacks.h"

#include <linux/pci_regs.h>
#include <poll.h>

#include <algorithm>
#include <random>

#include "pcilend/identity.h"

namespace pcilend::rogue {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr uint64_t kPage = PCILEND_PAGE;
constexpr uint64_t kInterrupts = 0xfee00000;
constexpr uint64_t kReach = uint64_t{1} << 36;  // where honest borrowers reach other functions
constexpr uint64_t kWindow0 = 64ull << 30;

std::mt19937_64& dice() {
  static std::mt19937_64 generator(1);
  return generator;
}

void fill(std::span<u8> bytes) {
  for (u8& byte : bytes) byte = static_cast<u8>(dice()());
}

void rest(Node& node, milliseconds time) {
  const auto end = Clock::now() + time;
  do {
    node.pump();
    ::poll(nullptr, 0, 1);
  } while (Clock::now() < end);
}

// Does `act` again and again. Heart and ring go on meanwhile.
template <class Act>
uint64_t repeat(Node& node, milliseconds time, Act act) {
  const auto end = Clock::now() + time;
  uint64_t times = 0;
  for (; Clock::now() < end && node.alive(); times++) {
    act(times);
    if (times % 16 == 0) node.pump();
  }
  rest(node, 50ms);
  return times;
}

Report finish(Node& node, Report report = {}) {
  report.tally = node.take_tally();
  return report;
}

// The link is up, and the victim has told of its functions.
Result<> need_up(Node& node) {
  const auto end = Clock::now() + 15s;
  while (!node.up() && Clock::now() < end) rest(node, 20ms);
  if (!node.up())
    return fail(ErrorClass::State,
                "the link is not up: 'join' first, and see 'pcilend link' there");
  // The victim answers so until it has let this node in, if it does.
  while (Clock::now() < end) {
    const auto answer = node.ask(PCILEND_MSG_SYNC, nullptr, 2s);
    if (!answer || answer->status != PCILEND_STATUS_UNAVAILABLE) break;
    rest(node, 20ms);
  }
  node.take_tally();
  return {};
}

// A function of the victim in that state.
Result<uint32_t> find(const Node& node, uint8_t state) {
  for (const auto& [id, function] : node.seen())
    if (function.state == state) return id;
  return fail(ErrorClass::NotFound, "the victim offers no such function: connect, add, available");
}

// Asks, and notes what was not refused.
void expect_refusal(Node& node, Report& report, uint16_t type, const void* payload,
                    const std::string& what) {
  const auto answer = node.ask(type, payload, 30s);
  if (!answer)
    report.numbers["no-answer"]++;
  else if (answer->status == PCILEND_STATUS_OK)
    report.granted.push_back(what);
}

// Every request that needs a lease, for that one.
void try_all(Node& node, Report& report, uint32_t id, uint32_t lease) {
  const auto named = [&](const char* what) { return fmt::format("{} {:x}/{}", what, id, lease); };
  const pcilend_msg_map map{id, lease, kPage, 0, kPage, 0, 0};
  expect_refusal(node, report, PCILEND_MSG_MAP, &map, named("map"));
  expect_refusal(node, report, PCILEND_MSG_UNMAP, &map, named("unmap"));
  const pcilend_msg_bus_master master{id, lease, 1};
  expect_refusal(node, report, PCILEND_MSG_BUS_MASTER, &master, named("bus-master"));
  const pcilend_msg_intx intx{id, lease, PCILEND_INTX_OPEN};
  expect_refusal(node, report, PCILEND_MSG_INTX, &intx, named("intx"));
  const pcilend_msg_reach reach{id, lease, id + 1, lease, kReach, 0, 1, 0};
  expect_refusal(node, report, PCILEND_MSG_REACH, &reach, named("reach"));
  for (const uint32_t other : {4u, 8u, 65535u}) {
    const pcilend_msg_expose expose{id, lease, other, 1};
    expect_refusal(node, report, PCILEND_MSG_EXPOSE, &expose, named("expose"));
  }
  const pcilend_msg_target target{id, lease, id, PCILEND_TARGET_ON, kReach, kPage};
  expect_refusal(node, report, PCILEND_MSG_TARGET, &target, named("target"));
  const pcilend_msg_near near{id, lease, kPage};
  expect_refusal(node, report, PCILEND_MSG_NEAR, &near, named("near"));
  const pcilend_msg_lease only{id, lease, 0};
  expect_refusal(node, report, PCILEND_MSG_RESET, &only, named("reset"));
  expect_refusal(node, report, PCILEND_MSG_RETURN, &only, named("return"));
  pcilend_msg_config config{id, lease, 0, 4, {}};
  expect_refusal(node, report, PCILEND_MSG_CONFIG_READ, &config, named("config-read"));
  config.offset = PCI_COMMAND;
  expect_refusal(node, report, PCILEND_MSG_CONFIG_WRITE, &config, named("config-write"));
}

Result<Report> join(Node& node, milliseconds, uint32_t value) {
  node.join(value != 0 ? static_cast<uint16_t>(value) : node.number());
  Report report;
  report.numbers["up"] = need_up(node) ? 1 : 0;
  return finish(node, report);
}

Result<Report> leave(Node& node, milliseconds, uint32_t) {
  node.leave();
  return Report{};
}

Result<Report> calm(Node& node, milliseconds, uint32_t) {
  node.set_manner(Manner::Honest);
  node.set_beating(true);
  node.set_taking(true);
  rest(node, 100ms);
  return finish(node);
}

Result<Report> borrow(Node& node, milliseconds, uint32_t value) {
  PCILEND_TRY(need_up(node));
  const auto id = value != 0 ? Result<uint32_t>(value) : find(node, PCILEND_FUNCTION_AVAILABLE);
  if (!id) return tl::unexpected(id.error());
  Report report;
  report.numbers["id"] = *id;
  report.numbers["lease"] = node.borrow(*id);
  return finish(node, report);
}

// The function that this node holds.
Result<pcilend_msg_function> held(Node& node) {
  for (const auto& [id, function] : node.seen())
    if (function.lease != 0 && function.borrower == node.number()) return function;
  return fail(ErrorClass::State, "nothing is borrowed: 'borrow' first");
}

Result<Report> give_back(Node& node, milliseconds, uint32_t) {
  PCILEND_TRY(need_up(node));
  const auto function = held(node);
  if (!function) return tl::unexpected(function.error());
  Report report;
  report.numbers["status"] = node.give_back(function->id, function->lease);
  return finish(node, report);
}

Result<Report> offer(Node& node, milliseconds, uint32_t value) {
  PCILEND_TRY(need_up(node));
  node.offer(value);
  rest(node, 500ms);
  return finish(node);
}

// (a) requests in a wrong state

Result<Report> no_lease(Node& node, milliseconds, uint32_t) {
  PCILEND_TRY(need_up(node));
  Report report;
  std::vector<uint32_t> ids{pcilend_id(static_cast<u16>(node.peer_node()), 1),
                            pcilend_id(static_cast<u16>(node.peer_node()), 0xffff),
                            pcilend_id(node.number(), 1),
                            pcilend_id(8, 1),
                            0,
                            0xffffffff,
                            1};
  for (const auto& [id, function] : node.seen()) ids.push_back(id);
  for (const uint32_t id : ids)
    for (const uint32_t lease : {0u, 1u, 0xffffffffu}) try_all(node, report, id, lease);
  return finish(node, report);
}

Result<Report> stale_lease(Node& node, milliseconds, uint32_t) {
  PCILEND_TRY(need_up(node));
  const auto id = find(node, PCILEND_FUNCTION_AVAILABLE);
  if (!id) return tl::unexpected(id.error());
  const uint32_t lease = node.borrow(*id);
  if (lease == 0) return fail(ErrorClass::State, "function {:x} can't be borrowed", *id);
  node.give_back(*id, lease);
  Report report;
  try_all(node, report, *id, lease);
  return finish(node, report);
}

// Leases of others: their numbers are easy to guess.
Result<Report> foreign_lease(Node& node, milliseconds, uint32_t value) {
  PCILEND_TRY(need_up(node));
  Report report;
  for (const auto& [id, function] : std::map(node.seen())) {
    if (function.state != PCILEND_FUNCTION_BORROWED || function.borrower == node.number()) continue;
    report.numbers["functions"]++;
    for (uint32_t lease = 1; lease <= std::max(value, 16u); lease++)
      try_all(node, report, id, lease);
  }
  return finish(node, report);
}

// (b) replays, and the names of others

Result<Report> replay(Node& node, milliseconds, uint32_t) {
  PCILEND_TRY(need_up(node));
  const pcilend_msg_lease message{pcilend_id(static_cast<u16>(node.peer_node()), 1), 1, 0};
  const Slot old = node.make(PCILEND_MSG_RETURN, false, 0, 1, &message);
  auto other_boot = old;
  reinterpret_cast<pcilend_msg_header*>(other_boot.data())->boot ^= 0x100;
  for (int i = 0; i < 16; i++) {
    node.put(node.make(PCILEND_MSG_SYNC, false, 0, 1, nullptr));
    node.force(old);
    node.force(other_boot);
    rest(node, 20ms);
  }
  // Answers to nothing.
  std::array<u8, PCILEND_PAYLOAD_BYTES> payload{};
  for (uint32_t number = 1; number < 32; number++) {
    for (const uint16_t type : {PCILEND_MSG_BORROW, PCILEND_MSG_SYNC, PCILEND_MSG_CONFIG_READ}) {
      auto& borrowed = *reinterpret_cast<pcilend_msg_borrowed*>(payload.data());
      borrowed.id = message.id;
      borrowed.lease = number;
      borrowed.last_address = (1ull << 48) - 1;
      node.put(node.make(type, true, 0, number, payload.data()));
    }
  }
  rest(node, 100ms);
  return finish(node);
}

Result<Report> foreign_notices(Node& node, milliseconds, uint32_t) {
  PCILEND_TRY(need_up(node));
  const auto peer = static_cast<u16>(node.peer_node());
  for (const uint32_t id : {pcilend_id(peer, 1), pcilend_id(4, 1), pcilend_id(8, 1),
                            pcilend_id(4, 2), pcilend_id(0xffff, 0xffff), 0u, 0xffffffffu}) {
    auto function = node.function(id);
    node.notice(PCILEND_MSG_FUNCTION, &function);
    const pcilend_msg_id withdrawn{id};
    node.notice(PCILEND_MSG_WITHDRAW, &withdrawn);
    for (uint32_t lease = 1; lease < 5; lease++) {
      const pcilend_msg_lease lost{id, lease, PCILEND_LOST_REVOKED};
      node.notice(PCILEND_MSG_LOST, &lost);
    }
  }
  rest(node, 100ms);
  return finish(node);
}

pcilend_msg_exposed exposed(uint32_t id, uint32_t borrower) {
  pcilend_msg_exposed message{};
  message.id = id;
  message.lease = 1;
  message.borrower = borrower;
  message.on = 1;
  message.bar[0] = {0, kPage, 1, 0};
  message.bar[2] = {kWindow0, kPage, PCILEND_WIRE_WINDOWS - 1, 0};
  return message;
}

// As another lender: it exposes functions of others, and more of its own than there are; and lets a
// function that it holds reach these.
Result<Report> foreign_exposures(Node& node, milliseconds, uint32_t) {
  PCILEND_TRY(need_up(node));
  const auto peer = static_cast<u16>(node.peer_node());
  const u16 self = node.number();
  const auto mine = held(node);
  Report report;
  for (const uint32_t id : {pcilend_id(peer, 1), pcilend_id(4, 1), pcilend_id(8, 1),
                            pcilend_id(0xffff, 0xffff), 0u, 0xffffffffu}) {
    const auto message = exposed(id, 8);
    expect_refusal(node, report, PCILEND_MSG_EXPOSED, &message, fmt::format("exposed {:x}", id));
  }
  for (const uint32_t borrower : {uint32_t{peer}, uint32_t{self}, 0u, 65536u}) {
    const auto message = exposed(pcilend_id(self, 1), borrower);
    expect_refusal(node, report, PCILEND_MSG_EXPOSED, &message,
                   fmt::format("exposed for {}", borrower));
  }
  for (u16 index = 1; index <= 200; index++) {
    auto message = exposed(pcilend_id(self, index), 8);
    const auto answer = node.ask(PCILEND_MSG_EXPOSED, &message, 30s);
    report.numbers["told"] += answer && answer->status == PCILEND_STATUS_OK ? 1 : 0;
  }
  for (uint32_t bar = 0; mine && bar < 6; bar++) {
    const pcilend_msg_reach reach{mine->id, mine->lease, pcilend_id(self, 1), 1, kReach, bar, 1, 0};
    expect_refusal(node, report, PCILEND_MSG_REACH, &reach, fmt::format("reach BAR {}", bar));
  }
  for (u16 index = 1; index <= 200; index++) {
    auto message = exposed(pcilend_id(self, index), 8);
    message.on = 0;
    node.ask(PCILEND_MSG_EXPOSED, &message, 30s);
  }
  return finish(node, report);
}

// Two functions with one UUID, and one with the UUID of a function of the victim.
Result<Report> twins(Node& node, milliseconds, uint32_t) {
  PCILEND_TRY(need_up(node));
  auto function = node.function(pcilend_id(node.number(), 0x101));
  node.notice(PCILEND_MSG_FUNCTION, &function);
  function.id = pcilend_id(node.number(), 0x102);
  node.notice(PCILEND_MSG_FUNCTION, &function);
  if (!node.seen().empty()) {
    function = node.seen().begin()->second;
    function.id = pcilend_id(node.number(), 0x103);
    function.state = PCILEND_FUNCTION_AVAILABLE;
    function.borrower = function.lease = 0;
    node.notice(PCILEND_MSG_FUNCTION, &function);
  }
  rest(node, 100ms);
  return finish(node);
}

// The same ids as other functions, again and again: each comes and goes.
Result<Report> reborn(Node& node, milliseconds time, uint32_t) {
  PCILEND_TRY(need_up(node));
  Report report;
  report.numbers["notices"] = repeat(node, time, [&](uint64_t i) {
    auto function = node.function(pcilend_id(node.number(), static_cast<u16>(1 + i % 8)));
    function.uuid[15] = static_cast<u8>(i);
    node.notice(PCILEND_MSG_FUNCTION, &function);
    if (i % 3 == 0) {
      const pcilend_msg_id gone{function.id};
      node.notice(PCILEND_MSG_WITHDRAW, &gone);
    }
  });
  return finish(node, report);
}

// (c) ranges; needs a lease

Result<Report> bad_ranges(Node& node, milliseconds, uint32_t) {
  PCILEND_TRY(need_up(node));
  const auto function = held(node);
  if (!function) return tl::unexpected(function.error());
  struct Range {
    uint64_t address, offset, size;
    uint32_t window;
  };
  const Range bad[] = {
      {kPage, kPage, 0, 0},
      {kPage + 1, 0, kPage, 0},
      {kPage, 0x800, kPage, 0},
      {kPage, 0, kPage + 1, 0},
      {0 - kPage, 0, 2 * kPage, 0},
      {0 - kPage, 0, kPage, 0},
      {kPage, 0 - kPage, 2 * kPage, 0},
      {kPage, 0, 1ull << 63, 0},
      {kPage, 0, 0 - kPage, 0},
      {1ull << 62, 0, kPage, 0},
      {1ull << 61, 0, kPage, 0},
      {1ull << 57, 0, kPage, 0},
      {kInterrupts, 0, kPage, 0},
      {kInterrupts + 0xff000, 0, kPage, 0},
      {kInterrupts - kPage, 0, 2 * kPage, 0},
      {0xc0000000, 0, 0x40000000, 0},
      {Node::kInterruptAlias, 0, kPage, 0},
      {Node::kInterruptAlias - kPage, 0, 2 * kPage, 0},
      {Node::kInterruptAlias + 0xff000, 0, 2 * kPage, 0},
      {kPage, kWindow0 - kPage, 2 * kPage, 0},
      {kPage, kWindow0, kPage, 0},
      {kPage, 0, kWindow0 + kPage, 0},
      {kPage, 0, kPage, 2},
      {kPage, 0, kPage, 15},
      {kPage, 0, kPage, 16},
      {kPage, 0, kPage, 0xffffffff},
  };
  Report report;
  const auto try_map = [&](uint16_t type, const Range& range) {
    const pcilend_msg_map map{
        function->id, function->lease, range.address, range.offset, range.size, range.window, 0};
    expect_refusal(node, report, type, &map,
                   fmt::format("{} {:#x}+{:#x} to window {} {:#x}", pcilend_msg_name(type),
                               range.address, range.size, range.window, range.offset));
  };
  for (const Range& range : bad) try_map(PCILEND_MSG_MAP, range);
  for (const uint32_t state : {PCILEND_INTX_OPEN + 1u, 0xffffffffu}) {
    const pcilend_msg_intx intx{function->id, function->lease, state};
    expect_refusal(node, report, PCILEND_MSG_INTX, &intx, fmt::format("intx state {:#x}", state));
  }
  // BARs of functions that are somebody else's, its own or nobody's.
  for (uint16_t index = 1; index <= 4; ++index) {
    for (const uint32_t lease : {1u, 2u, function->lease, 0xffffffffu}) {
      const uint32_t target = pcilend_id(pcilend_id_node(function->id), index);
      const pcilend_msg_reach reach{function->id, function->lease, target, lease, kReach, 0, 1, 0};
      expect_refusal(node, report, PCILEND_MSG_REACH, &reach,
                     fmt::format("reach {:x}/{}", target, lease));
    }
  }

  // Over one that is there, and parts of it.
  const pcilend_msg_map good{function->id, function->lease, 16 * kPage, 0, 4 * kPage, 0, 0};
  const auto mapped = node.ask(PCILEND_MSG_MAP, &good);
  if (!mapped || mapped->status != PCILEND_STATUS_OK)
    return fail(ErrorClass::State, "a good range can't be mapped: the lease is over");
  for (const uint64_t first : {14, 15, 16, 17, 19})
    try_map(PCILEND_MSG_MAP, {first * kPage, 64 * kPage, (first < 16 ? 17 - first : 1) * kPage, 0});
  try_map(PCILEND_MSG_MAP, {8 * kPage, 0, 64 * kPage, 0});
  try_map(PCILEND_MSG_UNMAP, {16 * kPage, 0, kPage, 0});
  try_map(PCILEND_MSG_UNMAP, {17 * kPage, 0, 3 * kPage, 0});
  try_map(PCILEND_MSG_UNMAP, {16 * kPage, 0, 5 * kPage, 0});
  try_map(PCILEND_MSG_UNMAP, {0, 0, 64 * kPage, 0});
  try_map(PCILEND_MSG_UNMAP, {Node::kInterruptAlias, 0, 256 * kPage, 0});
  node.ask(PCILEND_MSG_UNMAP, &good);
  try_map(PCILEND_MSG_UNMAP, {16 * kPage, 0, 4 * kPage, 0});
  return finish(node, report);
}

// Pages in, and over the ends of, what AMD's IOMMU does not translate.
Result<Report> hyper_transport(Node& node, milliseconds, uint32_t) {
  constexpr uint64_t kStart = 0xfd00000000;
  constexpr uint64_t kEnd = 0x10000000000;
  PCILEND_TRY(need_up(node));
  const auto function = held(node);
  if (!function) return tl::unexpected(function.error());
  Report report;
  const auto map_of = [&](uint64_t address, uint64_t size) {
    return pcilend_msg_map{function->id, function->lease, address, 0, size, 0, 0};
  };
  for (const uint64_t address : {kStart - kPage, kStart, kEnd - 2 * kPage, kEnd - kPage}) {
    const auto map = map_of(address, 2 * kPage);
    expect_refusal(node, report, PCILEND_MSG_MAP, &map, fmt::format("map {:#x}", address));
  }
  for (const uint64_t address : {kStart - kPage, kEnd}) {
    const auto map = map_of(address, kPage);
    const auto mapped = node.ask(PCILEND_MSG_MAP, &map);
    report.numbers["mapped"] += mapped && mapped->status == PCILEND_STATUS_OK ? 1 : 0;
    node.ask(PCILEND_MSG_UNMAP, &map);
  }
  return finish(node, report);
}

// As many ranges as a lease may have, and more; then gives all back.
Result<Report> exhaust_maps(Node& node, milliseconds, uint32_t) {
  PCILEND_TRY(need_up(node));
  const auto function = held(node);
  if (!function) return tl::unexpected(function.error());
  constexpr uint32_t kTries = 400;
  Report report;
  std::vector<pcilend_msg_map> done;
  for (uint32_t i = 0; i < kTries; i++) {
    const pcilend_msg_map map{function->id, function->lease, (16 + 2 * i) * kPage, 0, kPage, 0, 0};
    const auto answer = node.ask(PCILEND_MSG_MAP, &map);
    if (answer && answer->status == PCILEND_STATUS_OK) done.push_back(map);
  }
  report.numbers["mapped"] = done.size();
  for (const auto& map : done) node.ask(PCILEND_MSG_UNMAP, &map);
  return finish(node, report);
}

// As many ranges as there may be, of each function that is available; then gives all back.
Result<Report> exhaust_tables(Node& node, milliseconds, uint32_t) {
  PCILEND_TRY(need_up(node));
  constexpr uint32_t kMaps = 256;
  constexpr uint64_t kApart = 2UL << 20;
  Report report;
  std::vector<std::pair<uint32_t, uint32_t>> leases;
  for (auto id = find(node, PCILEND_FUNCTION_AVAILABLE); id;
       id = find(node, PCILEND_FUNCTION_AVAILABLE)) {
    const uint32_t lease = node.borrow(*id);
    if (lease == 0) return fail(ErrorClass::State, "function {:x} can't be borrowed", *id);
    leases.emplace_back(*id, lease);
    for (uint32_t i = 1; i <= kMaps; i++) {
      const pcilend_msg_map map{*id, lease, i * kApart, 0, kPage, 0, 0};
      const auto answer = node.ask(PCILEND_MSG_MAP, &map);
      report.numbers["mapped"] += answer && answer->status == PCILEND_STATUS_OK ? 1 : 0;
    }
  }
  report.numbers["leases"] = leases.size();
  for (const auto& [id, lease] : leases) node.give_back(id, lease);
  return finish(node, report);
}

// Large ranges that fit no large page: the lender's page tables grow by 2 MiB a GiB.
Result<Report> small_pages(Node& node, milliseconds, uint32_t value) {
  PCILEND_TRY(need_up(node));
  const auto function = held(node);
  if (!function) return tl::unexpected(function.error());
  const uint64_t size = uint64_t{value != 0 ? value : 16} << 30;
  const pcilend_msg_map map{function->id, function->lease, 0x100001000, 0, size, 0, 0};
  const auto start = Clock::now();
  const auto answer = node.ask(PCILEND_MSG_MAP, &map, 60s);
  Report report;
  report.numbers["status"] = answer ? answer->status : 0xffff;
  report.numbers["map-ms"] =
      static_cast<uint64_t>(std::chrono::duration_cast<milliseconds>(Clock::now() - start).count());
  if (answer && answer->status == PCILEND_STATUS_OK) node.ask(PCILEND_MSG_UNMAP, &map, 60s);
  return finish(node, report);
}

// (d) floods

void good_request(Node& node, uint64_t i) {
  const uint32_t id = node.seen().empty() ? pcilend_id(static_cast<u16>(node.peer_node()), 1)
                                          : node.seen().begin()->first;
  const pcilend_msg_lease lease{id, static_cast<uint32_t>(i) | 1, 0};
  const pcilend_msg_config config{id, 1, 0, PCILEND_CONFIG_CHUNK, {}};
  const pcilend_msg_borrow borrow{id | 0xff00, PCILEND_LEASE_MS_MIN, {}, 0};
  switch (i % 4) {
    case 0:
      node.request(PCILEND_MSG_SYNC, nullptr);
      break;
    case 1:
      node.request(PCILEND_MSG_CONFIG_READ, &config);
      break;
    case 2:
      node.request(PCILEND_MSG_RESET, &lease);
      break;
    default:
      node.request(PCILEND_MSG_BORROW, &borrow);
  }
}

Result<Report> flood_requests(Node& node, milliseconds time, uint32_t) {
  PCILEND_TRY(need_up(node));
  Report report;
  report.numbers["requests"] = repeat(node, time, [&](uint64_t i) { good_request(node, i); });
  return finish(node, report);
}

// Takes no answer, so that they pile up at the victim.
Result<Report> flood_deaf(Node& node, milliseconds time, uint32_t) {
  PCILEND_TRY(need_up(node));
  node.set_taking(false);
  Report report;
  report.numbers["requests"] = repeat(node, time, [&](uint64_t i) { good_request(node, i); });
  node.set_taking(true);
  return finish(node, report);
}

Result<Report> flood_garbage(Node& node, milliseconds time, uint32_t) {
  PCILEND_TRY(need_up(node));
  Report report;
  report.numbers["messages"] = repeat(node, time, [&](uint64_t i) {
    Slot slot = node.make(static_cast<uint16_t>(1 + dice()() % (PCILEND_MSG_EXPOSED + 1)),
                          (i & 1) != 0, 0, static_cast<uint32_t>(i & 2), nullptr);
    // Every other one has a head that is believed.
    fill(std::span(slot).subspan((i & 4) != 0 ? 0 : sizeof(pcilend_msg_header)));
    node.force(slot);
  });
  return finish(node, report);
}

// Requests that are polled for: random ones, and such as would be right with a lease; whatever head
// of the ring they come after, and as fast as they go.
Result<Report> polled(Node& node, milliseconds time, uint32_t) {
  PCILEND_TRY(need_up(node));
  Report report;
  const pcilend_msg_bus_master master{pcilend_id(static_cast<u16>(node.peer_node()), 1), 1, 1};
  const Slot plausible = node.make(PCILEND_MSG_BUS_MASTER, false, 0, 1, &master);
  report.numbers["requests"] = repeat(node, time, [&](uint64_t i) {
    Slot slot = plausible;
    if ((i & 1) != 0) fill(std::span(slot).subspan((i & 2) != 0 ? 0 : sizeof(pcilend_msg_header)));
    node.poll(slot, (i & 4) != 0 ? 0 : static_cast<uint32_t>(dice()()));
  });
  node.poll(plausible, 0);
  for (const auto end = Clock::now() + 5s; !node.polled() && Clock::now() < end;) rest(node, 10ms);
  if (!node.polled())
    report.numbers["no-answer"]++;
  else if (*node.polled() == PCILEND_STATUS_OK)
    report.granted.push_back("polled bus-master");
  return finish(node, report);
}

// More functions than a lender has.
Result<Report> flood_notices(Node& node, milliseconds time, uint32_t value) {
  PCILEND_TRY(need_up(node));
  const uint32_t different = value != 0 ? value : 4096;
  Report report;
  report.numbers["notices"] = repeat(node, time, [&](uint64_t i) {
    const auto index = static_cast<u16>(1 + i % different);
    const auto function = node.function(pcilend_id(node.number(), index));
    node.notice(PCILEND_MSG_FUNCTION, &function);
  });
  return finish(node, report);
}

// All states there are, of functions it has no lease on and of one it has; and interrupts that
// nobody has opened, of its own functions and of others'.
Result<Report> flood_intx(Node& node, milliseconds time, uint32_t) {
  PCILEND_TRY(need_up(node));
  const auto peer = static_cast<u16>(node.peer_node());
  const auto mine = held(node);
  Report report;
  report.numbers["messages"] = repeat(node, time, [&](uint64_t i) {
    const auto state = static_cast<uint32_t>(i / 4 % 3);
    const pcilend_msg_intx other{pcilend_id(peer, static_cast<u16>(1 + i % 8)),
                                 static_cast<uint32_t>(1 + i % 5), state};
    const pcilend_msg_intx own{mine ? mine->id : other.id, mine ? mine->lease : other.lease, state};
    const pcilend_msg_lease raised{
        pcilend_id(i % 8 == 0 ? peer : node.number(), static_cast<u16>(1 + i % 8)),
        static_cast<uint32_t>(1 + i % 5), 0};
    switch (i % 4) {
      case 0:
        node.request(PCILEND_MSG_INTX, &other);
        break;
      case 1:
        node.notice(PCILEND_MSG_INTX_RAISED, &raised);
        break;
      default:
        node.request(PCILEND_MSG_INTX, &own);
    }
  });
  return finish(node, report);
}

// What it holds is exposed to node `value` and to some that are not there, and no longer; and as
// another lender, the same with its own.
Result<Report> flood_expose(Node& node, milliseconds time, uint32_t value) {
  PCILEND_TRY(need_up(node));
  const auto mine = held(node);
  if (!mine) return tl::unexpected(mine.error());
  Report report;
  report.numbers["requests"] = repeat(node, time, [&](uint64_t i) {
    const auto on = static_cast<uint32_t>(i / 8 & 1);
    const uint32_t towards = i % 8 != 0 ? value != 0 ? value : 8 : static_cast<uint32_t>(i % 999);
    const pcilend_msg_expose expose{mine->id, mine->lease, towards, on};
    auto told = exposed(pcilend_id(node.number(), static_cast<u16>(1 + i % 100)), 8);
    told.on = on;
    if (i % 4 == 0)
      node.request(PCILEND_MSG_EXPOSED, &told);
    else
      node.request(PCILEND_MSG_EXPOSE, &expose);
  });
  return finish(node, report);
}

Result<Report> flip_connected(Node& node, milliseconds time, uint32_t) {
  PCILEND_TRY(need_up(node));
  Report report;
  report.numbers["notices"] = repeat(node, time, [&](uint64_t i) {
    const pcilend_msg_connected connected{static_cast<uint32_t>(i & 1)};
    node.notice(PCILEND_MSG_CONNECTED, &connected);
  });
  return finish(node, report);
}

Result<Report> storm(Node& node, milliseconds time, uint32_t) {
  PCILEND_TRY(need_up(node));
  Report report;
  report.numbers["doorbells"] = repeat(node, time, [&](uint64_t) { node.driver().ring(0x7fff); });
  return finish(node, report);
}

Result<Report> jump_head(Node& node, milliseconds time, uint32_t) {
  PCILEND_TRY(need_up(node));
  Report report;
  report.numbers["jumps"] = repeat(node, time, [&](uint64_t) {
    node.poke(offsetof(pcilend_wire_area, head), static_cast<uint32_t>(dice()()));
    node.driver().ring(1);
  });
  return finish(node, report);
}

Result<Report> jump_tail(Node& node, milliseconds time, uint32_t) {
  PCILEND_TRY(need_up(node));
  Report report;
  report.numbers["jumps"] = repeat(node, time, [&](uint64_t i) {
    node.poke(offsetof(pcilend_wire_area, tail), static_cast<uint32_t>(dice()()));
    if (i % 64 == 0 && !node.full()) node.force(node.make(PCILEND_MSG_SYNC, false, 0, 1, nullptr));
  });
  return finish(node, report);
}

Result<Report> wild_heart(Node& node, milliseconds time, uint32_t) {
  PCILEND_TRY(need_up(node));
  Report report;
  report.numbers["beats"] = repeat(node, time, [&](uint64_t i) {
    const uint64_t value = (i & 1) != 0 ? dice()() : UINT64_MAX - i;
    node.poke(offsetof(pcilend_wire_area, heartbeat), value);
    if (i % 7 == 0) node.poke(offsetof(pcilend_wire_area, writer_boot), dice()());
  });
  return finish(node, report);
}

// All of the control area, what its owner wrote too.
Result<Report> scribble_area(Node& node, milliseconds time, uint32_t) {
  PCILEND_TRY(need_up(node));
  Report report;
  report.numbers["writes"] = repeat(node, time, [&](uint64_t) {
    std::array<u8, 64> bytes;
    fill(bytes);
    node.poke(dice()() % (PCILEND_AREA_BYTES / 64) * 64, std::as_bytes(std::span(bytes)));
    node.driver().ring(1);
  });
  return finish(node, report);
}

Result<Report> scribble_scratchpads(Node& node, milliseconds time, uint32_t) {
  PCILEND_TRY(need_up(node));
  Report report;
  report.numbers["writes"] = repeat(node, time, [&](uint64_t i) {
    const auto value = static_cast<uint32_t>(dice()());
    const unsigned index = i % PCILEND_SPADS;
    node.scratchpad(index,
                    index == PCILEND_SPAD_MAGIC ? PCILEND_WIRE_MAGIC + (value & 0xff) : value);
    node.driver().ring(1);
  });
  node.greet();
  return finish(node, report);
}

// Another boot id each 10 ms, as far as the victim looks.
Result<Report> reboots(Node& node, milliseconds time, uint32_t) {
  PCILEND_TRY(need_up(node));
  Report report;
  report.numbers["reboots"] = repeat(node, time, [&](uint64_t) {
    node.join(node.number());
    rest(node, 10ms);
  });
  return finish(node, report);
}

// Another life, with a memory window of so many GiB.
Result<Report> shrink(Node& node, milliseconds, uint32_t value) {
  node.set_window(uint64_t{value != 0 ? value : 4} << 30);
  node.join(node.number());
  rest(node, 500ms);
  return finish(node);
}

Result<Report> bounce(Node& node, milliseconds time, uint32_t) {
  PCILEND_TRY(need_up(node));
  Report report;
  report.numbers["bounces"] = repeat(node, time, [&](uint64_t i) {
    node.driver().set_ready((i & 1) != 0);
    rest(node, milliseconds(5));
  });
  node.driver().set_ready(true);
  node.greet();
  return finish(node, report);
}

// (f) leases held for ever

Result<Report> die(Node& node, milliseconds, uint32_t) {
  node.set_beating(false);
  node.set_taking(false);
  return Report{};
}

// (g) registers; needs a lease

std::vector<u8> read_config(Node& node, const pcilend_msg_function& function) {
  std::vector<u8> space;
  while (space.size() < 4096) {
    const auto length = static_cast<uint16_t>(std::min<size_t>(128, 4096 - space.size()));
    const pcilend_msg_config config{
        function.id, function.lease, static_cast<uint16_t>(space.size()), length, {}};
    const auto answer = node.ask(PCILEND_MSG_CONFIG_READ, &config);
    if (!answer || answer->status != PCILEND_STATUS_OK) break;
    const auto& out = *reinterpret_cast<const pcilend_msg_config*>(answer->payload.data());
    space.insert(space.end(), out.data, out.data + length);
  }
  return space;
}

Result<Report> config_writes(Node& node, milliseconds, uint32_t) {
  PCILEND_TRY(need_up(node));
  const auto function = held(node);
  if (!function) return tl::unexpected(function.error());
  const auto before = read_config(node, *function);
  Report report;
  report.numbers["config-bytes"] = before.size();
  for (size_t at = 0; at < std::min<size_t>(before.size(), 0x400); at += 4) {
    for (const uint16_t length : {4, 2, 1}) {
      for (const uint8_t value : {0xff, 0x00}) {
        pcilend_msg_config config{
            function->id, function->lease, static_cast<uint16_t>(at), length, {}};
        std::memset(config.data, value, length);
        const auto answer = node.ask(PCILEND_MSG_CONFIG_WRITE, &config);
        if (!answer || answer->status != PCILEND_STATUS_OK) continue;
        report.numbers[fmt::format("accepted-{:03x}", at)]++;
        if (at < PCI_STD_HEADER_SIZEOF)
          report.granted.push_back(fmt::format("config-write of {} bytes at {:#x}", length, at));
      }
    }
  }
  const auto after = read_config(node, *function);
  for (size_t at = 0; at < std::min(before.size(), after.size()); at++)
    if (before[at] != after[at] && at < PCI_STD_HEADER_SIZEOF)
      report.granted.push_back(
          fmt::format("register {:#x} changed from {:02x} to {:02x}", at, before[at], after[at]));
  return finish(node, report);
}

constexpr Attack kAttacks[] = {
    {"join", "comes up as an honest node; as node VALUE if given", join},
    {"leave", "goes, as a host whose module is unloaded", leave},
    {"calm", "is honest again", calm},
    {"borrow", "borrows a function of the victim: the first, or VALUE", borrow},
    {"return", "gives back what it borrowed", give_back},
    {"offer", "lends VALUE functions of its own", offer},
    {"no-lease", "every request, for functions it has no lease on", no_lease},
    {"stale-lease", "every request, with a lease it has returned", stale_lease},
    {"foreign-lease", "every request, with the leases of others", foreign_lease},
    {"replay", "old messages, other boot ids, answers to nothing", replay},
    {"foreign-notices", "notices about functions of others", foreign_notices},
    {"foreign-exposures", "as another lender: BARs of others, and more than there are",
     foreign_exposures},
    {"twins", "functions with UUIDs of others", twins},
    {"reborn", "ids that become other functions all the time", reborn},
    {"bad-ranges", "overlapping, huge, unaligned, wrapping ranges; states that there are not",
     bad_ranges},
    {"hyper-transport", "ranges that AMD's IOMMU does not translate", hyper_transport},
    {"exhaust-maps", "more ranges than a lease may have", exhaust_maps},
    {"exhaust-tables", "the same of each function", exhaust_tables},
    {"small-pages", "VALUE GiB that fit no large page", small_pages},
    {"flood-requests", "requests, as fast as they are taken", flood_requests},
    {"flood-deaf", "requests whose answers it does not take", flood_deaf},
    {"flood-garbage", "random messages, room or not", flood_garbage},
    {"flood-polled", "polled requests, room or not", polled},
    {"flood-notices", "more functions than a lender has", flood_notices},
    {"flood-intx", "legacy interrupts: of what it borrows, and of what it does not", flood_intx},
    {"flood-expose", "what it borrows is exposed to node VALUE and no longer", flood_expose},
    {"flip-connected", "connected, not connected, connected", flip_connected},
    {"storm", "doorbells", storm},
    {"jump-head", "random heads", jump_head},
    {"jump-tail", "random tails", jump_tail},
    {"wild-heart", "heartbeats that jump and go backwards", wild_heart},
    {"scribble-area", "writes all over the control area", scribble_area},
    {"scribble-scratchpads", "random scratchpads", scribble_scratchpads},
    {"reboots", "another boot id each 10 ms", reboots},
    {"shrink", "another life, with a smaller memory window", shrink},
    {"bounce", "the link goes down and up each 5 ms", bounce},
    {"die", "stops beating and answering", die},
    {"config-writes", "writes to every register", config_writes},
};

}  // namespace

std::span<const Attack> attacks() {
  return kAttacks;
}

const Attack* attack_named(std::string_view name) {
  for (const Attack& attack : kAttacks)
    if (attack.name == name) return &attack;
  return nullptr;
}

}  // namespace pcilend::rogue
