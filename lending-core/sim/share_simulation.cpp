// SPDX-License-Identifier: GPL-2.0-or-later
#include "share_simulation.h"

#include <linux/pcilend.h>

#include <algorithm>

namespace pcilend::sim {

struct ShareSimulation::Host : public ShareLenderPort {
  Host(ShareSimulation& simulation, u32 number)
      : sim(simulation),
        index(number),
        lender(*this, (number + 1) << 16 | 1, simulation.options_.plant) {}

  Time Now() const override { return sim.now_; }
  u64 Random(u64 end) override { return sim.Random(end); }
  bool Send(u32 node, u64 to_boot, u16 type, bool answer, u16 status, u32 request,
            const void* payload) override {
    const u32 to = node - 1;
    return to < sim.hosts_.size() && sim.hosts_[to]->boot == to_boot &&
           sim.Send(index, to, type, answer, status, request, payload);
  }
  void Later(Time delay, ShareWork work, u32 stamp) override {
    Event event;
    event.kind = Kind::kWork;
    event.work = static_cast<u8>(work);
    event.host = index;
    event.a = stamp;
    sim.At(delay, event);
  }

  // What it has of another host's function.
  struct Held {
    u32 lease = 0;
    bool returning = false;
    u32 question = 0;  // number of that to the manager
    bool asking = false;
  };
  struct Role {
    u64 boot = 0;         // of that host, as it was met last
    u32 manager = 0;      // its lease, if it manages the function
    bool asking = false;  // BORROW or JOIN is under way
    bool shared = false;
    std::vector<Held> held = {};
  };

  ShareSimulation& sim;
  u32 index;
  u64 boot = 0;
  bool alive = false;
  u32 requests = 0;
  Time stalled_until = 0;  // as a manager
  std::vector<Role> roles;
  ShareLender lender;
};

ShareSimulation::ShareSimulation(const ShareOptions& options)
    : options_(options),
      random_(options.seed),
      links_(static_cast<size_t>(options.nodes) * options.nodes) {
  for (u32 n = 0; n < options_.nodes; ++n) {
    hosts_.push_back(std::make_unique<Host>(*this, n));
    hosts_[n]->roles.resize(options_.nodes);
    Event event;
    event.host = n;
    event.kind = Kind::kBoot;
    At(1 + Random(500), event);
    event.kind = Kind::kUser;
    At(600 + Random(100), event);
  }
  Event chaos;
  chaos.kind = Kind::kChaos;
  At(1000, chaos);
}

ShareSimulation::~ShareSimulation() = default;

u64 ShareSimulation::Random(u64 end) {
  u64 z = (random_ += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return (z ^ (z >> 31)) % end;
}

void ShareSimulation::At(Time delay, Event event) {
  event.at = now_ + std::max<Time>(delay, 1);
  event.order = order_++;
  events_.push(event);
}

bool ShareSimulation::Reaches(u32 a, u32 b) {
  return hosts_[a]->alive && hosts_[b]->alive && (a == b || LinkOf(a, b).up);
}

// Messages of one direction arrive in order; a flap loses what is under way.
bool ShareSimulation::Send(u32 from, u32 to, u16 type, bool answer, u16 status, u32 request,
                           const void* payload) {
  if (!Reaches(from, to)) return false;
  Link& link = LinkOf(from, to);
  u32 index = static_cast<u32>(slots_.size());
  if (free_slots_.empty()) {
    slots_.emplace_back();
  } else {
    index = free_slots_.back();
    free_slots_.pop_back();
  }
  Event event;
  event.kind = Kind::kDeliver;
  event.host = to;
  event.other = from;
  event.epoch = from == to ? hosts_[to]->boot : link.epoch;
  event.a = index;
  event.b = static_cast<u32>(order_);
  void* body = pcilend_wire_begin(slots_[index].data(), type, answer, status, request, event.b,
                                  hosts_[from]->boot);
  if (payload != nullptr) {
    std::memcpy(body, payload, static_cast<size_t>(pcilend_wire_length(type, answer)));
  }
  Time& arrives = link.arrives[from < to];
  arrives = std::max(arrives, now_ + 1 + Random(3));
  At(arrives - now_, event);
  return true;
}

void ShareSimulation::Ask(u32 from, u32 lender, u16 type, const void* payload) {
  Send(from, lender, type, false, 0, ++hosts_[from]->requests, payload);
}

void ShareSimulation::Deliver(const Event& event) {
  const Slot slot = slots_[event.a];
  free_slots_.push_back(event.a);
  Host& host = *hosts_[event.host];
  if (!Reaches(event.other, event.host)) return;
  const u64 boot = hosts_[event.other]->boot;
  const u64 epoch = event.host == event.other ? host.boot : LinkOf(event.host, event.other).epoch;
  if (epoch != event.epoch) return;
  const char* why = nullptr;
  if (pcilend_wire_check(slot.data(), boot, event.b, &why) != 0) {
    return host.lender.drive().Demand(false, why);
  }
  ++counts_.messages;
  const pcilend_msg_header header = Header(slot);
  if ((header.flags & PCILEND_MSG_FLAG_ANSWER) != 0) {
    Answer(event.host, event.other, slot);
  } else if (header.request == 0) {
    Notice(event.host, event.other, slot);
  } else {
    host.lender.Request(event.other + 1, boot, slot);
  }
}

// It asks its manager, or asks again what it has heard no answer to.
void ShareSimulation::AskForQueues(u32 host, u32 lender, u32 lease) {
  Host::Role& role = hosts_[host]->roles[lender];
  const auto held = std::find_if(role.held.begin(), role.held.end(),
                                 [lease](const Host::Held& h) { return h.lease == lease; });
  if (held == role.held.end()) return;
  if (!held->asking) ++held->question;
  held->asking = true;
  pcilend_msg_mail msg = {hosts_[lender]->lender.id(), lease, held->question, 12, {}};
  const u32 says[] = {host, lease, held->question};
  std::memcpy(msg.text, says, sizeof says);
  Ask(host, lender, PCILEND_MSG_MAIL, &msg);
  if (OneIn(8)) Ask(host, lender, PCILEND_MSG_MAIL, &msg);  // it is impatient
}

void ShareSimulation::Mailed(u32 host, u32 lender, const pcilend_msg_mail& mail) {
  Host::Role& role = hosts_[host]->roles[lender];
  const auto held = std::find_if(role.held.begin(), role.held.end(),
                                 [&](const Host::Held& h) { return h.lease == mail.lease; });
  if (held == role.held.end() || !held->asking || held->question != mail.number) return;
  held->asking = false;
  const u32 says[] = {host, mail.lease, mail.number};
  hosts_[lender]->lender.drive().Demand(std::memcmp(mail.text, says, sizeof says) == 0,
                                        "an answer is to what was asked");
}

void ShareSimulation::Free(u32 host, u32 lender, u32 lease) {
  Host::Role& role = hosts_[host]->roles[lender];
  std::erase_if(role.held, [lease](const Host::Held& held) { return held.lease == lease; });
  hosts_[lender]->lender.drive().MemoryFreed(lease, host + 1, hosts_[host]->boot);
}

void ShareSimulation::SendReturn(u32 host, u32 lender, u32 lease) {
  const pcilend_msg_lease msg = {hosts_[lender]->lender.id(), lease, 0};
  Ask(host, lender, PCILEND_MSG_RETURN, &msg);
}

void ShareSimulation::SendPolicy(u32 host, u32 lender, u32 lease, u32 clients) {
  pcilend_msg_policy msg = {};
  msg.id = hosts_[lender]->lender.id();
  msg.lease = lease;
  msg.clients = clients;
  msg.vectors = 4;
  msg.slice_bytes = 1 << 28;
  msg.near_bytes = 1 << 20;
  msg.range[0] = {0, PCILEND_SHARE_COMMON, 0, 1, 1};
  msg.range[1] = {2, PCILEND_SHARE_POOL, 0, 0, 16};
  Ask(host, lender, PCILEND_MSG_POLICY, &msg);
}

void ShareSimulation::Notice(u32 host, u32 lender, const Slot& slot) {
  Host::Role& role = hosts_[host]->roles[lender];
  const pcilend_msg_header header = Header(slot);
  const auto named = Body<pcilend_msg_lease>(slot);
  const auto held = std::find_if(role.held.begin(), role.held.end(),
                                 [&](const Host::Held& h) { return h.lease == named.lease; });
  switch (header.type) {
    case PCILEND_MSG_CLIENT_GONE:
    case PCILEND_MSG_QUARANTINE: {
      const auto clear = Body<pcilend_msg_clear>(slot);
      if (clear.lease != role.manager) return;
      // It deletes queues, which takes a while; some take too long, and some never do it.
      if (OneIn(2000)) return;
      Event event;
      event.kind = Kind::kManage;
      event.host = host;
      event.other = lender;
      event.epoch = hosts_[host]->boot;
      event.a = clear.client;
      event.b = clear.round;
      const Time stall =
          hosts_[host]->stalled_until > now_ ? hosts_[host]->stalled_until - now_ : 0;
      return At(stall + 1 + Random(OneIn(50) ? 4000 : 20), event);
    }
    case PCILEND_MSG_LOST:
      if (named.lease == role.manager) role.manager = 0;
      if (held != role.held.end()) Free(host, lender, named.lease);
      return;
    case PCILEND_MSG_MAILED:
      return Mailed(host, lender, Body<pcilend_msg_mail>(slot));
    case PCILEND_MSG_READMITTED:
    case PCILEND_MSG_WAS_RESET: {
      if (held == role.held.end()) return SendReturn(host, lender, named.lease);
      Event event;
      event.kind = Kind::kQueues;
      event.host = host;
      event.other = lender;
      event.epoch = hosts_[host]->boot;
      event.a = named.lease;
      return At(1 + Random(20), event);
    }
    case PCILEND_MSG_RECALL:
      // Some don't listen.
      if (!OneIn(4) && held != role.held.end()) {
        held->returning = true;
        SendReturn(host, lender, named.lease);
      } else if (named.lease == role.manager && OneIn(2)) {
        SendReturn(host, lender, named.lease);
      }
      return;
    default:
      return;
  }
}

// The manager has deleted the queues of a client. Or says so.
void ShareSimulation::Manage(const Event& event) {
  Host& host = *hosts_[event.host];
  Host::Role& role = host.roles[event.other];
  Drive& drive = hosts_[event.other]->lender.drive();
  if (host.boot != event.epoch || role.manager == 0 || !Reaches(event.host, event.other)) return;
  const auto it = drive.clients.find(event.a);
  const bool its_own = drive.manager == event.host + 1 && drive.manager_boot == host.boot;
  if (it != drive.clients.end() && its_own && !drive.lies) it->second.queues = false;
  const pcilend_msg_clear msg = {hosts_[event.other]->lender.id(), role.manager, event.a, event.b};
  Ask(event.host, event.other, PCILEND_MSG_CLEARED, &msg);
  if (OneIn(16)) Ask(event.host, event.other, PCILEND_MSG_CLEARED, &msg);  // twice
  if (drive.lies && OneIn(4)) {
    const pcilend_msg_clear lie = {msg.id, msg.lease, event.a + 1, event.b + 1};
    Ask(event.host, event.other, PCILEND_MSG_CLEARED, &lie);
  }
}

void ShareSimulation::Answer(u32 host, u32 lender, const Slot& slot) {
  Host::Role& role = hosts_[host]->roles[lender];
  const pcilend_msg_header header = Header(slot);
  const bool ok = header.status == PCILEND_STATUS_OK;
  switch (header.type) {
    case PCILEND_MSG_BORROW:
      role.asking = false;
      if (!ok) return;
      role.manager = Body<pcilend_msg_borrowed>(slot).lease;
      return SendPolicy(host, lender, role.manager, 1 + static_cast<u32>(Random(64)) / 16 * 21);
    case PCILEND_MSG_JOIN: {
      role.asking = false;
      if (!ok) return;
      const u32 lease = Body<pcilend_msg_joined>(slot).lease;
      role.held.push_back({lease});
      Event event;
      event.kind = Kind::kQueues;
      event.host = host;
      event.other = lender;
      event.epoch = hosts_[host]->boot;
      event.a = lease;
      return At(1 + Random(20), event);
    }
    case PCILEND_MSG_RETURN: {
      // Which one is not in the answer: those that its lender does not know any more.
      const ShareLender& share = hosts_[lender]->lender;
      if (share.share().lease != role.manager) role.manager = 0;
      std::vector<u32> over;
      for (const Host::Held& held : role.held) {
        if (held.returning && pcilend_share_find(&share.share(), held.lease) == nullptr) {
          over.push_back(held.lease);
        }
      }
      for (const u32 lease : over) Free(host, lender, lease);
      return;
    }
    default:
      return;
  }
}

void ShareSimulation::Join(u32 host, u32 lender) {
  pcilend_msg_join msg = {};
  msg.id = hosts_[lender]->lender.id();
  msg.lease_ms = PCILEND_LEASE_MS_MIN + static_cast<u32>(Random(8000));
  msg.slice_bytes = PCILEND_PAGE << Random(17);
  msg.slice_offset = 1 << 20;
  msg.vectors = static_cast<u32>(Random(5));
  hosts_[host]->roles[lender].asking = true;
  Ask(host, lender, PCILEND_MSG_JOIN, &msg);
}

// It would like to be somebody else.
void ShareSimulation::Forge(u32 host) {
  const u32 lender = static_cast<u32>(Random(options_.nodes));
  ShareLender& share = hosts_[lender]->lender;
  if (share.drive().manager == 0 || share.drive().manager == host + 1) return;
  const u32 lease = share.share().lease;
  if (OneIn(4)) return SendPolicy(host, lender, lease, OneIn(2) ? 0 : 64);
  if (OneIn(4)) {
    const pcilend_msg_lease msg = {share.id(), lease, 0};
    return Ask(host, lender, OneIn(2) ? PCILEND_MSG_RESET : PCILEND_MSG_RETURN, &msg);
  }
  for (const auto& [number, client] : share.drive().clients) {
    const pcilend_share_client* known = pcilend_share_find(&share.share(), number);
    if (known == nullptr || (known->round == 0 && !OneIn(8))) continue;
    const pcilend_msg_clear msg = {share.id(), lease, number, std::max(known->round, 1u)};
    return Ask(host, lender, PCILEND_MSG_CLEARED, &msg);
  }
}

// Half of what hosts do is about few functions, which so have many clients.
void ShareSimulation::User(u32 n) {
  Host& host = *hosts_[n];
  const u32 lender =
      static_cast<u32>(OneIn(2) ? Random(std::min(options_.nodes, 6u)) : Random(options_.nodes));
  Host::Role& role = host.roles[lender];
  if (OneIn(16)) Forge(n);
  if (OneIn(32)) Administrator(n);
  if (!Reaches(n, lender)) return;
  if (role.manager != 0) {
    const pcilend_msg_lease msg = {hosts_[lender]->lender.id(), role.manager, 0};
    if (OneIn(64)) Ask(n, lender, PCILEND_MSG_RESET, &msg);
    if (OneIn(256)) return SendReturn(n, lender, role.manager);
    if (OneIn(256)) return SendPolicy(n, lender, role.manager, 0);
    if (OneIn(8)) return SendPolicy(n, lender, role.manager, 64);
  }
  if (role.asking) return;
  if (hosts_[lender]->lender.available()) {
    pcilend_msg_borrow msg = {};
    msg.id = hosts_[lender]->lender.id();
    msg.lease_ms = PCILEND_LEASE_MS_DEFAULT;
    msg.interrupt_alias = 0xfe000000;
    role.asking = true;
    return Ask(n, lender, PCILEND_MSG_BORROW, &msg);
  }
  if (!role.held.empty() && OneIn(3)) {
    Host::Held& held = role.held[Random(role.held.size())];
    held.returning = true;
    return SendReturn(n, lender, held.lease);
  }
  Join(n, lender);
}

void ShareSimulation::Administrator(u32 n) {
  Host& host = *hosts_[n];
  switch (Random(64)) {
    case 0:
      return host.lender.Recall(static_cast<u32>(Random(4000)));
    case 1:
      return host.lender.Take(OneIn(4));
    case 2:
    case 3:
    case 4: {
      const auto& clients = host.lender.drive().clients;
      if (!clients.empty()) host.lender.RevokeClient(clients.begin()->first);
      return;
    }
    case 5:
    case 6:
    case 7:
    case 8: {
      pcilend_share_rules rules = {};
      rules.clients = OneIn(8) ? static_cast<u32>(Random(4)) : PCILEND_SHARE_CLIENTS;
      if (!OneIn(3)) {
        std::vector<u32> nodes;
        for (u32 node = 1; node <= options_.nodes && nodes.size() < PCILEND_ACCESS_NODES; ++node) {
          if (!OneIn(8)) nodes.push_back(node);
        }
        const char* why = nullptr;
        pcilend_access_set(&rules.nodes, nodes.data(), static_cast<u32>(nodes.size()), &why);
      }
      return host.lender.Allow(rules);
    }
    default:
      return;
  }
}

void ShareSimulation::LinkDown(u32 a, u32 b) {
  Link& link = LinkOf(a, b);
  if (a == b || !link.up) return;
  link.up = false;
  ++link.epoch;
  link.arrives[0] = link.arrives[1] = 0;
  for (const auto& [x, y] : {std::pair{a, b}, std::pair{b, a}}) {
    if (!hosts_[x]->alive) continue;
    hosts_[x]->roles[y].asking = false;
    hosts_[x]->lender.LinkLost(y + 1, hosts_[x]->roles[y].boot);
  }
}

// The handshake is through: a session goes on, or a new one begins.
void ShareSimulation::Meet(u32 a, u32 b) {
  Link& link = LinkOf(a, b);
  if (link.up || !hosts_[a]->alive || !hosts_[b]->alive) return;
  link.up = true;
  for (const auto& [x, y] : {std::pair{a, b}, std::pair{b, a}}) {
    Host& host = *hosts_[x];
    Host::Role& role = host.roles[y];
    const u64 boot = hosts_[y]->boot;
    if (role.boot == boot) continue;
    if (role.boot != 0) host.lender.PeerDead(y + 1, role.boot);
    role = {};
    role.boot = boot;
  }
  for (const auto& [x, y] : {std::pair{a, b}, std::pair{b, a}}) {
    Host::Role& role = hosts_[x]->roles[y];
    // Notices of its lender tell it what it has.
    const Drive& drive = hosts_[y]->lender.drive();
    const bool manages = drive.manager == x + 1 && drive.manager_boot == hosts_[x]->boot;
    role.manager = manages ? hosts_[y]->lender.share().lease : 0;
    hosts_[x]->lender.LinkUp(y + 1, role.boot);
    for (const Host::Held& held : role.held) {
      if (held.returning) SendReturn(x, y, held.lease);
    }
  }
}

void ShareSimulation::Die(u32 n) {
  Host& host = *hosts_[n];
  ++counts_.deaths;
  for (u32 other = 0; other < options_.nodes; ++other) LinkDown(n, other);
  host.alive = false;
  host.boot = 0;
  host.stalled_until = 0;
  for (Host::Role& role : host.roles) role = {};
  host.lender.Boot();
  Event event;
  event.kind = Kind::kBoot;
  event.host = n;
  At(200 + Random(OneIn(2) ? 500 : 20000), event);
}

void ShareSimulation::Rest() {
  for (u32 n = 0; n < options_.nodes; ++n) {
    if (!hosts_[n]->alive) continue;
    for (u32 lender = 0; lender < options_.nodes; ++lender) {
      Host::Role& role = hosts_[n]->roles[lender];
      for (Host::Held& held : role.held) {
        held.returning = true;
        SendReturn(n, lender, held.lease);
      }
      if (role.manager != 0 && hosts_[lender]->lender.share().lease != role.manager) {
        role.manager = 0;
      }
      if (role.manager != 0) SendReturn(n, lender, role.manager);
    }
  }
}

bool ShareSimulation::Quiet() const {
  for (const auto& host : hosts_) {
    if (!host->alive || !host->lender.quiet()) return false;
    for (const Host::Role& role : host->roles) {
      if (!role.held.empty()) return false;
    }
  }
  return true;
}

std::string ShareSimulation::Wrong() const {
  for (const auto& host : hosts_) {
    const std::string& wrong = host->lender.drive().wrong();
    if (!wrong.empty()) {
      return wrong + " (function of node " + std::to_string(host->index + 1) + "), at " +
             std::to_string(now_) + " ms, seed " + std::to_string(options_.seed);
    }
  }
  return "";
}

void ShareSimulation::Handle(const Event& event) {
  Host& host = *hosts_[event.host];
  switch (event.kind) {
    case Kind::kDeliver:
      return Deliver(event);
    case Kind::kWork:
      if (host.alive) host.lender.Do(static_cast<ShareWork>(event.work), event.a);
      return;
    case Kind::kManage:
      return Manage(event);
    case Kind::kQueues:
      if (host.boot == event.epoch && Reaches(event.host, event.other)) {
        AskForQueues(event.host, event.other, event.a);
      }
      return;
    case Kind::kUser:
      if (resting_) return;
      if (host.alive) User(event.host);
      return At(1 + Random(options_.pace), event);
    case Kind::kLinkUp:
      if (event.host != event.other) Meet(event.host, event.other);
      return;
    case Kind::kBoot:
      host.boot = static_cast<u64>(event.host + 1) << 32 | (Random(1 << 30) << 1 | 1);
      host.alive = true;
      host.roles[event.host].boot = host.boot;
      host.lender.Boot();
      for (u32 other = 0; other < options_.nodes; ++other) {
        Event up;
        up.kind = Kind::kLinkUp;
        up.host = event.host;
        up.other = other;
        At(10 + Random(100), up);
      }
      return;
    case Kind::kChaos:
      for (const auto& each : hosts_) {
        if (each->alive) each->lender.Check();
      }
      At(1000, event);
      if (resting_) return;
      for (u32 i = 0; i < 1 + options_.nodes / 8; ++i) {
        const u32 a = static_cast<u32>(Random(options_.nodes));
        const u32 b = static_cast<u32>(Random(options_.nodes));
        if (a == b || !LinkOf(a, b).up) continue;
        ++counts_.flaps;
        LinkDown(a, b);
        Event up;
        up.kind = Kind::kLinkUp;
        up.host = a;
        up.other = b;
        At(10 + Random(OneIn(4) ? 15000 : 300), up);
      }
      for (u32 n = 0; n < options_.nodes; ++n) {
        if (hosts_[n]->alive && OneIn(40)) Die(n);
        if (OneIn(100)) hosts_[n]->stalled_until = now_ + Random(OneIn(4) ? 8000 : 2000);
      }
      return;
  }
}

std::string ShareSimulation::Run() {
  Time rest_until = ~0ULL;
  Time check_at = 0;
  std::string wrong;
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    ++counts_.events;
    Handle(event);
    // The drive of whom it was about; all of them now and then.
    if (!hosts_[event.host]->lender.drive().wrong().empty() ||
        !hosts_[event.other]->lender.drive().wrong().empty() || now_ >= check_at) {
      check_at = now_ + 500;
      wrong = Wrong();
      if (!wrong.empty()) return wrong;
      if (!resting_ && counts_.events >= options_.events) {
        resting_ = true;
        rest_until = now_ + 120000;
      }
      if (!resting_) continue;
      if (Quiet()) break;
      Rest();
      if (now_ >= rest_until) return "all comes to rest, at " + std::to_string(now_) + " ms";
    }
  }
  for (const auto& host : hosts_) {
    const pcilend_share& share = host->lender.share();
    host->lender.drive().Demand(share.state == PCILEND_SHARE_OFF, "nobody manages it any more");
    host->lender.drive().Demand(share.slices.range.count == 0, "no slice is left");
    for (const auto& alias : share.slices.alias) {
      host->lender.drive().Demand(alias.users == 0, "no alias is left");
    }
  }
  return Wrong();
}

ShareCounts ShareSimulation::counts() const {
  ShareCounts counts = counts_;
  counts.virtual_ms = now_;
  for (const auto& host : hosts_) {
    const ShareLender& lender = host->lender;
    counts.joined += lender.joined;
    counts.refused += lender.refused;
    counts.ended += lender.ended;
    counts.fences += lender.fences;
    counts.audits += lender.audits;
    counts.quarantines += lender.quarantines;
    counts.readmitted += lender.readmitted;
    counts.answered += lender.answered;
    counts.most = std::max<u64>(counts.most, host->lender.drive().most);
  }
  return counts;
}

}  // namespace pcilend::sim
