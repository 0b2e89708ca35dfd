// SPDX-License-Identifier: GPL-2.0-or-later
#include "simulation.h"

#include <linux/pcilend.h>

#include <algorithm>
#include <set>

#include "../core/tests/ntb_rules.h"

namespace pcilend::sim {

namespace {

constexpr u32 kLeaseMs = 10000;
constexpr u64 kGiB = 1ULL << 30;

const std::vector<pcilend_layout>& Layouts() {
  static const std::vector<pcilend_layout> layouts = [] {
    std::vector<pcilend_layout> all;
    for (const ntb_rules::Link& link :
         {ntb_rules::Amd({64 * kGiB, 16 * kGiB}), ntb_rules::Amd({kGiB, kGiB / 4}),
          ntb_rules::Intel("intel", {512 * kGiB}), ntb_rules::Amd({kGiB / 512, kGiB / 512})}) {
      pcilend_layout layout;
      char why[PCILEND_LAYOUT_TEXT_BYTES];
      if (pcilend_layout_plan(&link.self, &link.peer, &layout, why, sizeof(why)) == 0) {
        all.push_back(layout);
      }
    }
    return all;
  }();
  return layouts;
}

}  // namespace

// One link; side s is at node[s].
struct Simulation::Link {
  struct Side {
    u64 peer_boot = 0;
    u32 sent = 0;   // messages ever put into the peer's ring, in this session
    u32 taken = 0;  // from the own ring
    bool up = false;
    Time arrives = 0;  // the last message on its way to this side
    Time free_at = 0;  // requests before it are done
    u32 index = 0;     // of this link, among the node's
    Slot former = {};  // a message of the peer's boot before
    Slot stale = {};   // what an earlier message left in the ring
    std::unique_ptr<Aperture> aperture;
  };
  u32 node[2] = {};
  bool up = true;
  u16 epoch = 0;  // changes whenever what is under way is lost
  Time changed = 0;
  Side side[2];
};

struct Simulation::Node : public LenderPort, public BorrowerPort {
  Node(Simulation& simulation, u32 number) : sim(simulation), index(number) {}

  Time Now() const override { return sim.now_; }
  void Send(u32 link, u16 type, bool answer, u16 status, u32 request,
            const void* payload) override {
    sim.Send(sides[link], type, answer, status, request, payload);
  }
  bool Ask(u32 link, u16 type, u32 request, const void* payload) override {
    return sim.Send(sides[link], type, false, 0, request, payload);
  }
  void Later(Time delay, Work work, u32 function, u32 lease) override {
    sim.At(delay, {Kind::kWork, static_cast<u8>(work), epoch, index, function, lease});
  }
  Time Duration(Work work) override {
    return work == Work::kFence ? 1 + sim.Random(50) : 50 + sim.Random(1000);
  }
  bool ResetFails() override { return sim.OneIn(400); }
  void React(u32 link, u32 function) override {
    sim.At(sim.Random(2000), {Kind::kReact, 0, epoch, index, link, function});
  }
  void SyncLater(u32 link) override { sim.At(1000, {Kind::kSync, 0, epoch, index, link}); }
  u32 Number(u32 link, u32 function) const override {
    return peers[link] * sim.options_.functions + function;
  }

  Simulation& sim;
  u32 index;
  u64 boot = 0;
  bool alive = false;
  u16 epoch = 0;
  bool stalled = false;
  Time stall_end = 0;
  u64 beats = 0;
  std::vector<u32> sides;   // link * 2 + side
  std::vector<u32> peers;   // node index behind it
  std::deque<Event> inbox;  // what came while it was stalled
  std::unique_ptr<Lender> lender;
  std::unique_ptr<Borrower> borrower;
};

Simulation::Simulation(const Options& options)
    : options_(options),
      random_(options.seed),
      hardware_(static_cast<size_t>(options.nodes) * options.functions),
      wheel_(kWheel) {
  for (u32 n = 0; n < options_.nodes; ++n) nodes_.push_back(std::make_unique<Node>(*this, n));
  MakeLinks();
  for (u32 n = 0; n < options_.nodes; ++n) {
    Node& node = *nodes_[n];
    std::vector<Lender::Link> lends;
    std::vector<Borrower::Link> borrows;
    for (size_t l = 0; l < node.sides.size(); ++l) {
      Link& link = *links_[node.sides[l] / 2];
      const u32 s = node.sides[l] % 2;
      Lender::Link lend;
      lend.own = link.side[s].aperture.get();
      lend.peers = link.side[1 - s].aperture.get();
      lends.push_back(lend);
      Borrower::Link borrow;
      borrow.node = node.peers[l] + 1;
      borrow.own = lend.own;
      borrow.lease_ms = kLeaseMs;
      borrow.remotes.resize(options_.functions);
      borrows.push_back(borrow);
    }
    node.lender = std::make_unique<Lender>(node, hardware_, n + 1, n * options_.functions,
                                           options_.functions, std::move(lends), options_.sabotage);
    node.borrower =
        std::make_unique<Borrower>(node, hardware_, n + 1, std::move(borrows), options_.sabotage);
    At(Random(500), {Kind::kBoot, 0, 0, n});
    At(Random(500), {Kind::kTick, 0, 0, n});
    At(Random(100), {Kind::kUser, 0, 0, n});
    At(Random(1000), {Kind::kAdmin, 0, 0, n});
  }
}

Simulation::~Simulation() = default;

u64 Simulation::Random(u64 end) {
  u64 z = (random_ += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return (z ^ (z >> 31)) % end;
}

void Simulation::At(Time delay, const Event& event) {
  const Time at = now_ + std::clamp<Time>(delay, 1, kWheel - 1);
  wheel_[at % kWheel].push_back(event);
}

// A ring, and then chords at random.
void Simulation::MakeLinks() {
  std::set<std::pair<u32, u32>> joined;
  std::vector<u32> degree(options_.nodes, 0);
  const auto join = [&](u32 a, u32 b) {
    if (a == b || !joined.insert({std::min(a, b), std::max(a, b)}).second) return;
    auto link = std::make_unique<Link>();
    const u32 ends[2] = {a, b};
    for (u32 s = 0; s < 2; ++s) {
      Node& node = *nodes_[ends[s]];
      link->node[s] = ends[s];
      link->side[s].index = static_cast<u32>(node.sides.size());
      link->side[s].aperture = std::make_unique<Aperture>(Layouts()[Random(Layouts().size())]);
      node.sides.push_back(static_cast<u32>(links_.size()) * 2 + s);
      node.peers.push_back(ends[1 - s]);
      ++degree[ends[s]];
    }
    links_.push_back(std::move(link));
  };
  if (options_.degree + 1 >= options_.nodes) {
    for (u32 a = 0; a < options_.nodes; ++a) {
      for (u32 b = a + 1; b < options_.nodes; ++b) join(a, b);
    }
    return;
  }
  for (u32 a = 0; a < options_.nodes; ++a) join(a, (a + 1) % options_.nodes);
  for (u32 a = 0; a < options_.nodes; ++a) {
    for (int tries = 0; degree[a] < options_.degree && tries < 100; ++tries) {
      join(a, static_cast<u32>(Random(options_.nodes)));
    }
  }
}

bool Simulation::LinkUsable(u32 l) const {
  const Link& link = *links_[l];
  return link.up && nodes_[link.node[0]]->alive && nodes_[link.node[1]]->alive;
}

u32 Simulation::NewSlot() {
  if (free_slots_.empty()) {
    slots_.emplace_back();
    return static_cast<u32>(slots_.size() - 1);
  }
  const u32 index = free_slots_.back();
  free_slots_.pop_back();
  return index;
}

bool Simulation::Send(u32 from, u16 type, bool answer, u16 status, u32 request,
                      const void* payload) {
  Link& link = *links_[from / 2];
  Link::Side& sender = link.side[from % 2];
  Link::Side& receiver = link.side[1 - from % 2];
  if (!sender.up || !LinkUsable(from / 2)) return false;
  const u32 index = NewSlot();
  Slot& slot = slots_[index];
  void* body = pcilend_wire_begin(slot.data(), type, answer, status, request, sender.sent++,
                                  nodes_[link.node[from % 2]]->boot);
  if (payload != nullptr) {
    std::memcpy(body, payload, static_cast<size_t>(pcilend_wire_length(type, answer)));
  }
  receiver.arrives = std::max(receiver.arrives, now_ + 1 + Random(3));
  At(receiver.arrives - now_, {Kind::kDeliver, 0, link.epoch, from ^ 1, index});
  return true;
}

// A message that must not pass the check.
void Simulation::Refuse(u32 to, const Slot& slot, const char* promise) {
  const Link::Side& side = links_[to / 2]->side[to % 2];
  const char* why = nullptr;
  hardware_.Demand(pcilend_wire_check(slot.data(), side.peer_boot, side.taken, &why) != 0, promise,
                   0);
  ++counts_.refused;
}

void Simulation::Deliver(u32 to, u32 index) {
  Link& link = *links_[to / 2];
  Link::Side& side = link.side[to % 2];
  const Slot slot = slots_[index];
  free_slots_.push_back(index);
  const char* why = nullptr;
  const u32 sequence = side.taken++;
  if (pcilend_wire_check(slot.data(), side.peer_boot, sequence, &why) != 0) {
    return hardware_.Demand(false, why, 0);
  }
  ++counts_.messages;
  if (OneIn(64)) Refuse(to, slot, "a message taken twice is refused");
  if (OneIn(64)) Refuse(to, side.stale, "what stood in the ring before is refused");
  if (OneIn(16)) Refuse(to, side.former, "a message of a former boot is refused");
  if (OneIn(8)) side.stale = slot;
  const pcilend_msg_header header = Header(slot);
  Node& node = *nodes_[link.node[to % 2]];
  if ((header.flags & PCILEND_MSG_FLAG_ANSWER) != 0) {
    node.borrower->Answer(side.index, slot);
  } else if (header.request == 0) {
    node.borrower->Notice(side.index, slot);
  } else {
    // Requests are worked off one after the other; some take longer than anybody waits.
    const u32 copy = NewSlot();
    const Time takes = OneIn(3000) ? 3000 + Random(4000) : Random(2);
    side.free_at = std::max(side.free_at, now_) + takes;
    slots_[copy] = slot;
    At(side.free_at - now_, {Kind::kRequest, 0, link.epoch, to, copy});
  }
}

void Simulation::Take(u32 to, const Slot& slot) {
  const Link& link = *links_[to / 2];
  nodes_[link.node[to % 2]]->lender->Request(link.side[to % 2].index, slot);
}

void Simulation::LinkDown(u32 l) {
  Link& link = *links_[l];
  ++link.epoch;
  link.changed = now_;
  for (u32 s = 0; s < 2; ++s) {
    Link::Side& side = link.side[s];
    side.arrives = side.free_at = 0;
    if (!side.up) continue;
    side.up = false;
    nodes_[link.node[s]]->lender->LinkDown(side.index);
    nodes_[link.node[s]]->borrower->LinkDown(side.index);
  }
}

// The handshake is through: a session goes on, or a new one begins.
void Simulation::Meet(u32 l) {
  Link& link = *links_[l];
  if (!LinkUsable(l) || link.side[0].up) return;
  const bool anew = link.side[0].peer_boot != nodes_[link.node[1]]->boot ||
                    link.side[1].peer_boot != nodes_[link.node[0]]->boot;
  link.changed = now_;
  for (u32 s = 0; s < 2; ++s) {
    Link::Side& side = link.side[s];
    Node& node = *nodes_[link.node[s]];
    Lender::Link& lends = node.lender->link(side.index);
    const u64 boot = nodes_[link.node[1 - s]]->boot;
    if (anew && side.peer_boot != 0) {
      if (side.peer_boot != boot) side.former = side.stale;
      node.lender->PeerDead(side.index, lends.node, side.peer_boot);
      node.borrower->PeerDead(side.index);
    }
    if (anew) {
      side.sent = 0;
      side.stale = {};
      ++lends.session;
    }
    side.peer_boot = boot;
    lends.node = link.node[1 - s] + 1;
    lends.boot = boot;
    node.borrower->link(side.index).boot = boot;
    pcilend_heartbeat_start(&lends.beat, boot, nodes_[link.node[1 - s]]->beats, now_);
  }
  for (u32 s = 0; s < 2; ++s) {
    // What the link lost is skipped: none of it passes the check.
    counts_.refused += link.side[1 - s].sent - (anew ? 0 : link.side[s].taken);
    link.side[s].taken = link.side[1 - s].sent;
    link.side[s].up = true;
  }
  for (u32 s = 0; s < 2; ++s) {
    nodes_[link.node[s]]->lender->LinkUp(link.side[s].index);
    nodes_[link.node[s]]->borrower->LinkUp(link.side[s].index);
  }
}

void Simulation::Die(u32 n) {
  Node& node = *nodes_[n];
  node.alive = false;
  node.stalled = false;
  for (const Event& event : node.inbox) {
    if (IsMessage(event)) free_slots_.push_back(event.a);
  }
  node.inbox.clear();
  ++node.epoch;
  ++counts_.deaths;
  for (const u32 side : node.sides) LinkDown(side / 2);
  // Memory and devices forget now; they are used again when it boots.
  node.lender->Boot();
  node.borrower->Boot(0);
  for (const u32 side : node.sides) {
    Link::Side& own = links_[side / 2]->side[side % 2];
    own.aperture->Clear();
    own.peer_boot = 0;
    own.former = {};
  }
  At(1000 + Random(60000), {Kind::kBoot, 0, node.epoch, n});
}

void Simulation::Tick(u32 n) {
  Node& node = *nodes_[n];
  ++node.beats;
  for (const u32 to : node.sides) {
    Link& link = *links_[to / 2];
    Link::Side& side = link.side[to % 2];
    if (side.peer_boot == 0) continue;
    pcilend_heartbeat& beat = node.lender->link(side.index).beat;
    const Node& peer = *nodes_[link.node[1 - to % 2]];
    if (side.up) pcilend_heartbeat_note(&beat, peer.boot, peer.beats, now_);
    if (pcilend_heartbeat_silence(&beat, now_) >= kLeaseMs) node.borrower->Silent(side.index);
    node.borrower->Tick(side.index);
  }
}

// Somebody borrows, returns or uses something.
void Simulation::User(u32 n) {
  Borrower& borrower = *nodes_[n]->borrower;
  const u32 l = static_cast<u32>(Random(borrower.links()));
  const u32 index = static_cast<u32>(Random(options_.functions));
  Borrower::Remote& r = borrower.link(l).remotes[index];
  static constexpr u16 kUses[] = {
      PCILEND_MSG_MAP,         PCILEND_MSG_UNMAP,        PCILEND_MSG_BUS_MASTER, PCILEND_MSG_RESET,
      PCILEND_MSG_CONFIG_READ, PCILEND_MSG_CONFIG_WRITE, PCILEND_MSG_INTX};
  if (r.state == Borrower::State::kIdle) {
    if (r.told == PCILEND_FUNCTION_AVAILABLE || OneIn(8)) {
      borrower.Borrow(l, index, PCILEND_PAGE << Random(14));
    }
    // Under a lease that is over.
    borrower.Misuse(l, index, kUses[2 + Random(5)], r.former);
    if (OneIn(16)) borrower.Reserve(l, index, static_cast<u32>(1000 + Random(10000)));
  } else if (r.state == Borrower::State::kHeld && !OneIn(3)) {
    borrower.Use(l, index, kUses[Random(7)]);
    if (OneIn(4)) borrower.Misuse(l, index, kUses[Random(7)], r.lease + 1);
  } else {
    borrower.GiveBack(l, index);
  }
}

void Simulation::Administrator(u32 n) {
  Lender& lender = *nodes_[n]->lender;
  const u32 f = static_cast<u32>(Random(options_.functions));
  pcilend_lease_event event = {};
  event.now = now_;
  switch (lender.function(f).lease.state) {
    case PCILEND_FUNCTION_LOCAL:
      event.type = PCILEND_LEASE_ADD;
      break;
    case PCILEND_FUNCTION_ADDED:
      event.type = OneIn(64) ? PCILEND_LEASE_REMOVE : PCILEND_LEASE_MAKE_AVAILABLE;
      break;
    case PCILEND_FUNCTION_QUARANTINED:
      event.type = OneIn(4) ? PCILEND_LEASE_MAKE_UNAVAILABLE : PCILEND_LEASE_RELEASE_QUARANTINE;
      break;
    case PCILEND_FUNCTION_BORROWED:
      event.type = OneIn(2) ? PCILEND_LEASE_REVOKE : PCILEND_LEASE_RECALL;
      event.grace_ms = static_cast<u32>(Random(5000));
      if (OneIn(8)) event.type = PCILEND_LEASE_UNPLUGGED;
      break;
    default:
      event.type = OneIn(4) ? PCILEND_LEASE_RECALL : PCILEND_LEASE_UNPLUGGED;
      if (!OneIn(8)) event.type = PCILEND_LEASE_ADD;  // refused
      break;
  }
  if (!resting_ || event.type != PCILEND_LEASE_UNPLUGGED) lender.Admin(f, event);
  if (resting_) return;
  if (OneIn(64)) lender.ResetByOthers(f);
  if (OneIn(64)) {
    std::vector<u32> nodes;
    for (const u32 peer : nodes_[n]->peers) {
      if (OneIn(2) && nodes.size() < PCILEND_ACCESS_NODES) nodes.push_back(peer + 1);
    }
    lender.Allow(f, OneIn(2) ? nullptr : nodes.data(), static_cast<u32>(nodes.size()));
  }
  if (OneIn(64)) {
    const u32 l = static_cast<u32>(Random(nodes_[n]->sides.size()));
    lender.Connect(l, !lender.link(l).connected);
  }
}

// Accidents, once a virtual second; at each node about every minute.
void Simulation::Chaos() {
  for (u32 i = 0; i < 1 + links_.size() / 100; ++i) {
    const u32 l = static_cast<u32>(Random(links_.size()));
    if (!links_[l]->up) continue;
    ++counts_.flaps;
    links_[l]->up = false;
    LinkDown(l);
    const Time lasts = OneIn(4) ? Random(30000) : Random(300);
    At(lasts, {Kind::kLinkUp, 0, 0, l * 2});
  }
  for (u32 i = 0; i < options_.nodes; ++i) {
    Node& node = *nodes_[i];
    if (!node.alive || !OneIn(60)) continue;
    if (OneIn(4)) {
      Die(i);
    } else if (!node.stalled) {
      node.stalled = true;
      node.stall_end = now_ + 1 + Random(OneIn(4) ? 30000 : 2000);
      ++counts_.stalls;
      At(node.stall_end - now_, {Kind::kWake, 0, node.epoch, i});
    }
  }
}

// Borrowers that believe in a lease that is over must not do so for long.
void Simulation::CheckBeliefs() {
  for (u32 f = 0; f < hardware_.functions(); ++f) {
    for (const Hardware::Belief& belief : hardware_.beliefs(f)) {
      if (belief.stale_since == 0) continue;
      const Node& node = *nodes_[belief.lessee.node - 1];
      const u32 lender = f / options_.functions;
      Time since = std::max(belief.stale_since, node.stall_end);
      since = std::max(since, nodes_[lender]->stall_end);
      for (size_t l = 0; l < node.peers.size(); ++l) {
        if (node.peers[l] == lender) since = std::max(since, links_[node.sides[l] / 2]->changed);
      }
      hardware_.Demand(now_ < since + kBound, "a borrower learns in time that its lease is over",
                       f);
    }
  }
}

u32 Simulation::NodeOf(const Event& event) const {
  switch (event.kind) {
    case Kind::kDeliver:
    case Kind::kRequest:
      return links_[event.target / 2]->node[event.target % 2];
    default:
      return event.target;
  }
}

void Simulation::Handle(const Event& event) {
  if (event.kind == Kind::kLinkUp || event.kind == Kind::kMeet) {
    const u32 l = event.target / 2;
    if (event.kind == Kind::kMeet) {
      if (!nodes_[links_[l]->node[0]]->stalled && !nodes_[links_[l]->node[1]]->stalled) {
        return Meet(l);
      }
      return At(100, event);
    }
    links_[l]->up = true;
    return At(10 + Random(100), {Kind::kMeet, 0, 0, event.target});
  }
  Node& node = *nodes_[NodeOf(event)];
  if (IsMessage(event) && event.epoch != links_[event.target / 2]->epoch) {
    free_slots_.push_back(event.a);
    return;
  }
  if (event.kind == Kind::kWake && node.epoch == event.epoch && node.stalled) {
    node.stalled = false;
    std::deque<Event> inbox;
    inbox.swap(node.inbox);
    for (const Event& late : inbox) Handle(late);
    return;
  }
  if (node.stalled && event.kind != Kind::kUser && event.kind != Kind::kAdmin) {
    if (event.kind == Kind::kTick) return At(500, event);
    node.inbox.push_back(event);
    return;
  }
  const bool works = node.alive && node.epoch == event.epoch && !node.stalled;
  switch (event.kind) {
    case Kind::kDeliver:
      return Deliver(event.target, event.a);
    case Kind::kRequest: {
      const Slot slot = slots_[event.a];
      free_slots_.push_back(event.a);
      return Take(event.target, slot);
    }
    case Kind::kTick:
      if (node.alive) Tick(event.target);
      return At(500, event);
    case Kind::kUser:
      if (resting_) return;
      if (node.alive && !node.stalled) User(event.target);
      return At(1 + Random(options_.pace), event);
    case Kind::kAdmin:
      if (resting_) return;
      if (node.alive && !node.stalled) Administrator(event.target);
      return At(1 + Random(200), event);
    case Kind::kWork:
      if (works) node.lender->Do(static_cast<Work>(event.work), event.a, event.b);
      return;
    case Kind::kReact:
      if (works) node.borrower->GiveBack(event.a, event.b);
      return;
    case Kind::kSync:
      if (works) node.borrower->Sync(event.a);
      return;
    case Kind::kBoot:
      node.alive = true;
      node.boot = static_cast<u64>(event.target + 1) << 32 | (Random(1 << 30) << 1 | 1);
      node.lender->Boot();
      node.borrower->Boot(node.boot);
      for (const u32 side : node.sides) At(10 + Random(500), {Kind::kMeet, 0, 0, side});
      return;
    default:
      return;
  }
}

bool Simulation::Quiet() const {
  for (const auto& node : nodes_) {
    if (!node->alive || node->stalled) return false;
    for (u32 l = 0; l < node->borrower->links(); ++l) {
      if (!node->borrower->link(l).up || !node->borrower->link(l).waiters.empty()) return false;
      for (const Borrower::Remote& r : node->borrower->link(l).remotes) {
        if (r.state != Borrower::State::kIdle) return false;
      }
    }
    for (u32 f = 0; f < node->lender->functions(); ++f) {
      const auto state = node->lender->function(f).lease.state;
      if (state == PCILEND_FUNCTION_BORROWED || state == PCILEND_FUNCTION_FENCING ||
          state == PCILEND_FUNCTION_RESETTING) {
        return false;
      }
    }
  }
  return true;
}

// Nobody wants anything any more: all that is held is given back, and nothing is left.
void Simulation::Finish() {
  for (const auto& node : nodes_) {
    for (u32 l = 0; l < node->borrower->links(); ++l) {
      for (u32 i = 0; i < options_.functions; ++i) {
        const auto state = node->borrower->link(l).remotes[i].state;
        if (state == Borrower::State::kHeld || state == Borrower::State::kReturning) {
          node->borrower->GiveBack(l, i);
        }
      }
    }
  }
}

std::string Simulation::Run() {
  Time rest_until = ~0ULL;
  while (hardware_.wrong().empty()) {
    ++now_;
    std::vector<Event> due;
    due.swap(wheel_[now_ % kWheel]);
    for (const Event& event : due) {
      ++counts_.events;
      Handle(event);
    }
    due.clear();
    if (wheel_[now_ % kWheel].empty()) wheel_[now_ % kWheel].swap(due);  // keeps its room
    if (now_ % 1000 != 0) continue;
    CheckBeliefs();
    if (!resting_ && counts_.events < options_.events) {
      Chaos();
      continue;
    }
    if (!resting_) {
      resting_ = true;
      rest_until = now_ + 200000;
    }
    Finish();
    if (Quiet()) break;
    hardware_.Demand(now_ < rest_until, "all comes to rest", 0);
  }
  for (const auto& link : links_) {
    for (const Link::Side& side : link->side) {
      if (!hardware_.wrong().empty()) break;
      hardware_.Demand(side.aperture->used() == 0, "no bytes of an aperture are leaked", 0);
      hardware_.Demand(side.aperture->reached.empty(), "no DMA is left", 0);
    }
  }
  for (u32 f = 0; f < hardware_.functions() && hardware_.wrong().empty(); ++f) {
    hardware_.Demand(hardware_.beliefs(f).empty() && hardware_.lessee(f).lease == 0,
                     "no lease is left", f);
  }
  if (hardware_.wrong().empty()) return "";
  return hardware_.wrong() + ", at " + std::to_string(now_) + " ms, seed " +
         std::to_string(options_.seed);
}

Counts Simulation::counts() const {
  Counts counts = counts_;
  counts.virtual_ms = now_;
  for (const auto& node : nodes_) {
    counts.granted += node->lender->granted();
    counts.declined += node->lender->refused();
    counts.resets += node->lender->resets();
    counts.recovered += node->lender->recovered();
    counts.expired += node->lender->expired();
    counts.lost += node->borrower->lost();
    counts.late += node->borrower->late();
    counts.longest_error = std::max(counts.longest_error, node->borrower->longest_error());
  }
  return counts;
}

size_t Simulation::ListAll() const {
  std::string text;
  u32 sequence = 0;
  for (const auto& node : nodes_) {
    for (u32 f = 0; f < node->lender->functions(); ++f) {
      alignas(8) Slot slot;
      const Lender::Function& fn = node->lender->function(f);
      pcilend_msg_function out = fn.info;
      out.state = static_cast<u8>(std::max<u32>(fn.lease.state, PCILEND_FUNCTION_ADDED));
      out.borrower = fn.lease.node;
      std::memcpy(
          pcilend_wire_begin(slot.data(), PCILEND_MSG_FUNCTION, 0, 0, 0, sequence, node->boot),
          &out, sizeof(out));
      const char* why = nullptr;
      if (pcilend_wire_check(slot.data(), node->boot, sequence++, &why) != 0) return 0;
      const auto in = Body<pcilend_msg_function>(slot);
      char id[PCILEND_ID_TEXT_BYTES];
      char uuid[PCILEND_UUID_TEXT_BYTES];
      text += pcilend_id_format(in.id, id);
      text += ' ';
      text += pcilend_uuid_format(in.uuid, uuid);
      text += ' ';
      text += pcilend_function_state_name(static_cast<pcilend_function_state>(in.state));
      text += '\n';
    }
  }
  return text.size();
}

}  // namespace pcilend::sim
