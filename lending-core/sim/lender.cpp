// SPDX-License-Identifier: GPL-2.0-or-later
#include "lender.h"

#include <bit>

namespace pcilend::sim {

namespace {

pcilend_msg_function Describe(u32 node, u32 index) {
  pcilend_identity identity = {};
  identity.vendor = 0x1b36;
  identity.device = 0x0010;
  identity.class_code = 0x010802;
  identity.lender = node;
  identity.serial = static_cast<u64>(node) << 32 | (index + 1);
  pcilend_msg_function info = {};
  info.id = pcilend_id(static_cast<u16>(node), static_cast<u16>(index + 1));
  pcilend_uuid_make(info.uuid, &identity);
  info.vendor = identity.vendor;
  info.device = identity.device;
  info.class_revision = identity.class_code << 8 | 2;
  info.bus = 1;
  info.devfn = static_cast<u8>(index);
  info.serial = identity.serial;
  info.bar[0] = {0x4000ULL << (index % 4), PCILEND_BAR_MEM64};
  info.bar[2] = {0x1000ULL << (index % 10), PCILEND_BAR_MEM64 | PCILEND_BAR_PREFETCH};
  return info;
}

bool Overlap(u64 a, u64 a_size, u64 b, u64 b_size) {
  return a < b + b_size && b < a + a_size;
}

}  // namespace

Lender::Lender(LenderPort& port, Hardware& hardware, u32 node, u32 first, u32 functions,
               std::vector<Link> links, Sabotage sabotage)
    : port_(port),
      hardware_(hardware),
      node_(node),
      first_(first),
      functions_(functions),
      links_(std::move(links)),
      sabotage_(sabotage) {}

void Lender::Boot() {
  numbers_ = {};
  for (u32 f = 0; f < functions_.size(); ++f) {
    Function& fn = functions_[f];
    while (!fn.maps.empty()) DropMap(fn, f, fn.maps.size() - 1);
    fn = Function();
    fn.info = Describe(node_, f);
    hardware_.PoweredUp(number(f), port_.Now());
    pcilend_lease_event event = {};
    event.type = PCILEND_LEASE_ADD;
    Apply(f, event);
    fn.todo = 0;
  }
}

bool Lender::Sees(const Link& link, const Function& fn) const {
  return link.connected && pcilend_access_allows(&fn.access, link.node);
}

void Lender::Notify(u32 f, u32 index) {
  const Function& fn = functions_[f];
  const Link& link = links_[index];
  pcilend_msg_function msg = fn.info;
  msg.state = static_cast<u8>(fn.lease.state);
  msg.borrower = fn.lease.node;
  if (fn.lease.number != 0 && link.node == fn.lease.node && link.boot == fn.lease.boot) {
    msg.lease = fn.lease.number;
  }
  if (pcilend_reservation_left(&fn.reservation, port_.Now()) != 0) {
    msg.reserved_node = fn.reservation.node;
  }
  port_.Send(index, PCILEND_MSG_FUNCTION, false, 0, 0, &msg);
}

void Lender::Announce(u32 f) {
  if (functions_[f].lease.state == PCILEND_FUNCTION_LOCAL) return;
  for (u32 i = 0; i < links_.size(); ++i) {
    if (links_[i].up && Sees(links_[i], functions_[f])) Notify(f, i);
  }
}

void Lender::Withdraw(u32 f) {
  const pcilend_msg_id msg = {functions_[f].info.id};
  for (u32 i = 0; i < links_.size(); ++i) {
    if (links_[i].up && Sees(links_[i], functions_[f])) {
      port_.Send(i, PCILEND_MSG_WITHDRAW, false, 0, 0, &msg);
    }
  }
}

void Lender::LinkUp(u32 index) {
  links_[index].up = true;
  pcilend_carrier_take_lost(&links_[index].carrier);
  hardware_.Demand(pcilend_carrier_met(&links_[index].carrier), "a link that is met carries", 0);
  const pcilend_msg_connected msg = {links_[index].connected ? 1u : 0u};
  port_.Send(index, PCILEND_MSG_CONNECTED, false, 0, 0, &msg);
  for (u32 f = 0; f < functions_.size(); ++f) {
    const Function& fn = functions_[f];
    if (fn.link != static_cast<int>(index)) continue;
    hardware_.LinkBack(number(f));
    if (fn.lease.state != PCILEND_FUNCTION_BORROWED) continue;
    const u32 todo = Happened(f, PCILEND_MASTERING_RESUME);
    if ((todo & PCILEND_MASTERING_RECOVER) != 0) Recover(f);
    if ((todo & PCILEND_MASTERING_TELL) != 0) TellReset(f);
  }
}

void Lender::LinkDown(u32 index) {
  links_[index].up = false;
  pcilend_carrier_lose(&links_[index].carrier);
  for (u32 f = 0; f < functions_.size(); ++f) {
    if (functions_[f].link != static_cast<int>(index)) continue;
    const bool did_dma = hardware_.master(number(f));
    if (sabotage_ != Sabotage::kDmaThroughLoss) Happened(f, PCILEND_MASTERING_LOST);
    hardware_.LinkLost(number(f), did_dma);
  }
}

// Something happened to a lent function; returns what is left to do.
u32 Lender::Happened(u32 f, pcilend_mastering_event event) {
  Function& fn = functions_[f];
  const bool carries = fn.link >= 0 && links_[fn.link].carrier == PCILEND_CARRIER_CARRIES;
  const u32 todo = pcilend_mastering_step(&fn.mastering, event, carries);
  if ((todo & PCILEND_MASTERING_SWITCH_OFF) != 0) hardware_.Master(number(f), false);
  if ((todo & PCILEND_MASTERING_SWITCH_ON) != 0) hardware_.Master(number(f), true);
  return todo;
}

void Lender::Recover(u32 f) {
  port_.Later(port_.Duration(Work::kReset), Work::kRecover, f, functions_[f].lease.number);
}

void Lender::TellReset(u32 f) {
  const pcilend_msg_lease msg = {functions_[f].info.id, functions_[f].lease.number, 0};
  port_.Send(functions_[f].link, PCILEND_MSG_WAS_RESET, false, 0, 0, &msg);
}

void Lender::ResetByOthers(u32 f) {
  if (functions_[f].link < 0 || functions_[f].lease.state != PCILEND_FUNCTION_BORROWED) return;
  Happened(f, PCILEND_MASTERING_FOREIGN);
  hardware_.ResetByOthers(number(f));
  Recover(f);
}

void Lender::PeerDead(u32 index, u32 node, u64 boot) {
  pcilend_lease_event event = {};
  event.type = PCILEND_LEASE_PEER_DEAD;
  event.node = node;
  event.boot = boot;
  for (u32 f = 0; f < functions_.size(); ++f) {
    Apply(f, event);
    // All that this boot had, also what is being fenced already, before another boot is met.
    if (functions_[f].link != static_cast<int>(index)) continue;
    Carry(f, true);
    if (functions_[f].lease.state == PCILEND_FUNCTION_FENCING) {
      Fence(f);
      Carry(f, true);
    }
  }
}

int Lender::Apply(u32 f, const pcilend_lease_event& event) {
  Function& fn = functions_[f];
  const auto before = fn.lease.state;
  pcilend_lease_result result;
  const int error = pcilend_lease_apply(&fn.lease, &event, &numbers_, &result);
  if (error != 0) return error;
  if (result.todo != 0) {
    fn.todo |= result.todo;
    fn.result = result;
  }
  if (before == PCILEND_FUNCTION_BORROWED && fn.lease.state != before) {
    hardware_.Ended(number(f), port_.Now());
  }
  return 0;
}

// Does what the state machine asks for; what takes time is done later, unless it is to be @now.
void Lender::Carry(u32 f, bool now) {
  Function& fn = functions_[f];
  while (fn.todo != 0) {
    const u32 todo = fn.todo;
    const pcilend_lease_result result = fn.result;
    fn.todo = 0;
    if ((todo & PCILEND_DO_ANNOUNCE) != 0) Announce(f);
    if ((todo & PCILEND_DO_RECALL) != 0 && fn.link >= 0 && links_[fn.link].up) {
      const u64 left = pcilend_lease_recall_in(&fn.lease, port_.Now());
      const pcilend_msg_recall msg = {fn.info.id, result.lease, static_cast<u32>(left)};
      port_.Send(fn.link, PCILEND_MSG_RECALL, false, 0, 0, &msg);
      port_.Later(left, Work::kRecall, f, result.lease);
    }
    if ((todo & PCILEND_DO_FENCE) != 0) {
      fn.lost = (todo & PCILEND_DO_LOST) != 0 ? result : pcilend_lease_result{};
      if (now) {
        Fence(f);
      } else {
        port_.Later(port_.Duration(Work::kFence), Work::kFence, f, fn.lease.number);
      }
    }
    if ((todo & PCILEND_DO_RESET) != 0) {
      if (now) {
        Reset(f);
      } else {
        port_.Later(port_.Duration(Work::kReset), Work::kReset, f, fn.lease.number);
      }
    }
    if ((todo & PCILEND_DO_ANSWER) != 0) AnswerReturns(f);
    if ((todo & PCILEND_DO_WITHDRAW) != 0) Withdraw(f);
  }
}

void Lender::DropMap(Function& fn, u32 f, size_t i) {
  const Function::Map map = fn.maps[i];
  hardware_.Unmapped(number(f), *links_[fn.link].peers, map.iova, map.size);
  fn.maps[i] = fn.maps.back();
  fn.maps.pop_back();
}

void Lender::Fence(u32 f) {
  Function& fn = functions_[f];
  if (fn.link >= 0 && sabotage_ != Sabotage::kNoFence) {
    Happened(f, PCILEND_MASTERING_DONT_WANT);
    while (!fn.maps.empty()) DropMap(fn, f, fn.maps.size() - 1);
    for (pcilend_range_entry& e : fn.exported) {
      if (e.size != 0 && sabotage_ != Sabotage::kLeakExports) {
        hardware_.Demand(pcilend_range_free(&links_[fn.link].own->exports(), e.start, e.size) == 0,
                         "what was exported can be given back", number(f));
      }
      e = {};
    }
    Happened(f, PCILEND_MASTERING_ENDED);
    fn.link = -1;
    hardware_.Fenced(number(f));
  }
  if (fn.lost.lease != 0) TellLost(f, fn.lost);
  fn.lost = {};
  pcilend_lease_event event = {};
  event.type = PCILEND_LEASE_FENCED;
  hardware_.Demand(Apply(f, event) == 0, "a fence can end", number(f));
}

void Lender::Reset(u32 f) {
  pcilend_lease_event event = {};
  event.type = PCILEND_LEASE_RESET_OK;
  if (port_.ResetFails()) {
    event.type = PCILEND_LEASE_RESET_FAILED;
    event.reason = "it does not answer";
  } else if (sabotage_ != Sabotage::kNoReset) {
    hardware_.WasReset(number(f));
  }
  ++resets_;
  hardware_.Demand(Apply(f, event) == 0, "a reset can end", number(f));
}

void Lender::TellLost(u32 f, const pcilend_lease_result& lost) {
  const pcilend_msg_lease msg = {functions_[f].info.id, lost.lease, static_cast<u32>(lost.lost)};
  for (u32 i = 0; i < links_.size(); ++i) {
    if (links_[i].up && links_[i].node == lost.node && links_[i].boot == lost.boot) {
      port_.Send(i, PCILEND_MSG_LOST, false, 0, 0, &msg);
    }
  }
}

void Lender::AnswerReturns(u32 f) {
  for (const Function::Return& r : functions_[f].returns) {
    if (links_[r.link].session == r.session && links_[r.link].up) {
      port_.Send(r.link, PCILEND_MSG_RETURN, true, PCILEND_STATUS_OK, r.request, nullptr);
    }
  }
  functions_[f].returns.clear();
}

void Lender::Do(Work work, u32 f, u32 lease) {
  Function& fn = functions_[f];
  const bool same = fn.lease.number == lease;
  pcilend_lease_event event = {};
  event.now = port_.Now();
  if (work == Work::kFence && same && fn.lease.state == PCILEND_FUNCTION_FENCING) {
    Fence(f);
  } else if (work == Work::kReset && same && fn.lease.state == PCILEND_FUNCTION_RESETTING) {
    Reset(f);
  } else if (work == Work::kRecover && same && fn.link >= 0 &&
             fn.lease.state == PCILEND_FUNCTION_BORROWED) {
    Happened(f, PCILEND_MASTERING_UNMAP);
    if ((Happened(f, PCILEND_MASTERING_RETRY) & PCILEND_MASTERING_RECOVER) != 0) {
      ++resets_;
      ++recovered_;
      if (port_.ResetFails()) {
        event.type = PCILEND_LEASE_EXPIRE;
        Apply(f, event);
      } else {
        if (sabotage_ != Sabotage::kNoRecovery) hardware_.WasResetLent(number(f));
        if ((Happened(f, PCILEND_MASTERING_RECOVERED) & PCILEND_MASTERING_TELL) != 0) TellReset(f);
      }
    }
  } else if (work == Work::kExpiry && same && fn.link >= 0) {
    const u64 left = pcilend_lease_expires_in(&fn.lease, &links_[fn.link].beat, port_.Now());
    event.type = PCILEND_LEASE_EXPIRE;
    if (left == 0) {
      ++expired_;
      Apply(f, event);
    } else if (left != ~0ULL) {
      port_.Later(left + 1, Work::kExpiry, f, lease);
    }
  } else if (work == Work::kRecall && same) {
    const u64 left = pcilend_lease_recall_in(&fn.lease, port_.Now());
    event.type = PCILEND_LEASE_REVOKE;
    if (left == 0) Apply(f, event);
    if (left != 0 && left != ~0ULL) port_.Later(left, Work::kRecall, f, lease);
  }
  Carry(f, false);
}

int Lender::Lend(u32 f, u32 index, pcilend_msg_borrowed* out) {
  Function& fn = functions_[f];
  pcilend_range& exports = links_[index].own->exports();
  u32 exported = 0;
  fn.link = static_cast<int>(index);
  fn.mastering = {};
  out->last_address = (1ULL << 48) - 1;
  for (u32 bar = 0; bar < 6; ++bar) {
    if (fn.info.bar[bar].size == 0) continue;
    const u64 size = std::max<u64>(fn.info.bar[bar].size, PCILEND_PAGE);
    u64 iova = 0;
    u32 window = 0;
    u64 offset = 0;
    const int error = pcilend_range_alloc(&exports, size, std::bit_ceil(size), &iova);
    if (error != 0) return error;
    hardware_.Alone(number(f), exports, iova, size);
    fn.exported[exported++] = {iova, size};
    if (!links_[index].own->Locate(iova, size, &window, &offset)) return -ERANGE;
    out->bar[bar] = {offset, size, window, 0};
  }
  return 0;
}

int Lender::Borrow(u32 f, u32 index, const pcilend_msg_borrow& in, pcilend_msg_borrowed* out) {
  Function& fn = functions_[f];
  const Link& link = links_[index];
  if (!pcilend_reservation_admits(&fn.reservation, link.node, in.owner, port_.Now())) {
    return -EACCES;
  }
  pcilend_lease_event event = {};
  event.type = PCILEND_LEASE_BORROW;
  event.node = link.node;
  event.boot = link.boot;
  event.lease_ms = in.lease_ms;
  event.now = port_.Now();
  int error = Apply(f, event);
  if (error != 0) return error;
  hardware_.Granted(number(f), {link.node, link.boot, fn.lease.number});
  pcilend_reservation_used(&fn.reservation);
  error = Lend(f, index, out);
  if (error != 0) {
    event.type = PCILEND_LEASE_RETURN;
    event.lease = fn.lease.number;
    Apply(f, event);
    Carry(f, false);
    return error;
  }
  ++granted_;
  out->id = fn.info.id;
  out->lease = fn.lease.number;
  port_.Later(fn.lease.lease_ms + 1, Work::kExpiry, f, fn.lease.number);
  Carry(f, false);
  return 0;
}

int Lender::MapFor(u32 f, u32 index, const pcilend_msg_map& in) {
  Function& fn = functions_[f];
  Aperture& far = *links_[index].peers;
  if (in.window >= far.layout().windows || in.size > far.layout().window[in.window].size ||
      in.offset > far.layout().window[in.window].size - in.size) {
    return -ERANGE;
  }
  if (in.device_address >> 62 != 0 || in.size >> 62 != 0 ||
      Overlap(in.device_address, in.size, PCILEND_MSI_IOVA, PCILEND_MSI_BYTES)) {
    return -ERANGE;
  }
  for (const Function::Map& map : fn.maps) {
    if (Overlap(in.device_address, in.size, map.device, map.size)) return -ERANGE;
  }
  if (fn.maps.size() == kMaps) return -ENOSPC;
  const u64 iova = far.layout().window[in.window].translation + in.offset;
  fn.maps.push_back({in.device_address, iova, in.size});
  hardware_.Mapped(number(f), far, iova, in.size);
  return 0;
}

int Lender::UnmapFor(u32 f, const pcilend_msg_map& in) {
  Function& fn = functions_[f];
  for (size_t i = 0; i < fn.maps.size(); ++i) {
    if (fn.maps[i].device != in.device_address || fn.maps[i].size != in.size) continue;
    DropMap(fn, f, i);
    return 0;
  }
  return -ERANGE;
}

// Requests that need the lease.
int Lender::Obey(u32 f, u32 index, u16 type, const Slot& slot) {
  Function& fn = functions_[f];
  const Link& link = links_[index];
  const auto named = Body<pcilend_msg_lease>(slot);  // all of them begin like this
  if (sabotage_ != Sabotage::kStaleLease) {
    const int error = pcilend_lease_check(&fn.lease, link.node, link.boot, named.lease, nullptr);
    if (error != 0) return error;
  }
  hardware_.Obeyed(number(f), {link.node, link.boot, named.lease});
  if (fn.link != static_cast<int>(index)) return -ESTALE;
  switch (type) {
    case PCILEND_MSG_MAP:
      return MapFor(f, index, Body<pcilend_msg_map>(slot));
    case PCILEND_MSG_UNMAP:
      return UnmapFor(f, Body<pcilend_msg_map>(slot));
    case PCILEND_MSG_BUS_MASTER:
      Happened(f, Body<pcilend_msg_bus_master>(slot).on != 0 ? PCILEND_MASTERING_WANT
                                                             : PCILEND_MASTERING_DONT_WANT);
      return 0;
    case PCILEND_MSG_RESET:
      Happened(f, PCILEND_MASTERING_DONT_WANT);
      hardware_.WasResetLent(number(f));
      Happened(f, PCILEND_MASTERING_ENDED);
      ++resets_;
      return 0;
    default:  // the configuration space is not simulated
      return 0;
  }
}

void Lender::Request(u32 index, const Slot& slot) {
  const pcilend_msg_header header = Header(slot);
  const Link& link = links_[index];
  const auto answer = [&](int error, const void* payload = nullptr) {
    if (error != 0) ++refused_;
    port_.Send(index, header.type, true, pcilend_status_from_errno(error), header.request, payload);
  };
  if (header.type == PCILEND_MSG_SYNC) {
    for (u32 f = 0; f < functions_.size(); ++f) {
      if (functions_[f].lease.state != PCILEND_FUNCTION_LOCAL && Sees(link, functions_[f])) {
        Notify(f, index);
      }
    }
    return answer(0);
  }
  const u32 id = Body<pcilend_msg_id>(slot).id;  // all others begin with it
  const u32 f = pcilend_id_index(id) - 1;
  const bool known = pcilend_id_node(id) == node_ && f < functions_.size() &&
                     functions_[f].lease.state != PCILEND_FUNCTION_LOCAL;
  // Who holds a lease is not asked what he sees.
  const bool names_lease = header.type != PCILEND_MSG_BORROW && header.type != PCILEND_MSG_RESERVE;
  if (!known && names_lease) return answer(-ESTALE);
  if (!known || (!names_lease && !Sees(link, functions_[f]))) {
    if (header.type == PCILEND_MSG_BORROW) {
      const pcilend_msg_borrowed none = {};
      return answer(-ENODEV, &none);
    }
    return answer(-ENODEV);
  }
  Function& fn = functions_[f];
  switch (header.type) {
    case PCILEND_MSG_BORROW: {
      pcilend_msg_borrowed out = {};
      const int error = Borrow(f, index, Body<pcilend_msg_borrow>(slot), &out);
      return answer(error, &out);
    }
    case PCILEND_MSG_RETURN: {
      pcilend_lease_event event = {};
      event.type = PCILEND_LEASE_RETURN;
      event.node = link.node;
      event.boot = link.boot;
      event.lease = Body<pcilend_msg_lease>(slot).lease;
      int error = Apply(f, event);
      if (error == 0 && fn.returns.size() == 8) error = -EBUSY;
      if (error != 0) {
        answer(error);
      } else {
        fn.returns.push_back({index, link.session, header.request});
      }
      return Carry(f, false);
    }
    case PCILEND_MSG_RESERVE: {
      const auto in = Body<pcilend_msg_reserve>(slot);
      pcilend_reserve wish = {};
      wish.node = in.node;
      std::memcpy(wish.uuid, in.uuid, sizeof(wish.uuid));
      wish.ttl_ms = in.ttl_ms;
      wish.asker = link.node;
      wish.holds_lease = fn.lease.state == PCILEND_FUNCTION_BORROWED && fn.lease.node == link.node;
      return answer(Reserve(f, wish));
    }
    case PCILEND_MSG_CONFIG_READ: {
      const int error = Obey(f, index, header.type, slot);
      const auto out = Body<pcilend_msg_config>(slot);
      return answer(error, &out);
    }
    default:
      // Of segments and shared functions: what they are answered with is not simulated.
      if (pcilend_wire_length(header.type, true) > 0) return answer(-ENOENT);
      return answer(Obey(f, index, header.type, slot));
  }
}

int Lender::Admin(u32 f, const pcilend_lease_event& event) {
  const int error = Apply(f, event);
  Carry(f, false);
  return error;
}

int Lender::Allow(u32 f, const u32* nodes, u32 count) {
  Function& fn = functions_[f];
  pcilend_access access = fn.access;
  if (nodes == nullptr) {
    pcilend_access_all(&access);
  } else {
    const char* why = nullptr;
    const int error = pcilend_access_set(&access, nodes, count, &why);
    if (error != 0) return error;
  }
  // Who holds the lease goes on seeing it.
  if (fn.lease.number != 0 && !pcilend_access_allows(&access, fn.lease.node)) return -EBUSY;
  const pcilend_access former = fn.access;
  fn.access = access;
  if (fn.lease.state == PCILEND_FUNCTION_LOCAL) return 0;
  const pcilend_msg_id gone = {fn.info.id};
  for (u32 i = 0; i < links_.size(); ++i) {
    if (!links_[i].up || !links_[i].connected) continue;
    if (pcilend_access_allows(&access, links_[i].node)) {
      Notify(f, i);
    } else if (pcilend_access_allows(&former, links_[i].node)) {
      port_.Send(i, PCILEND_MSG_WITHDRAW, false, 0, 0, &gone);
    }
  }
  return 0;
}

int Lender::Reserve(u32 f, pcilend_reserve wish) {
  Function& fn = functions_[f];
  const char* why = nullptr;
  wish.available = fn.lease.state == PCILEND_FUNCTION_AVAILABLE;
  wish.now = port_.Now();
  const int error = pcilend_reservation_set(&fn.reservation, &wish, &why);
  if (error == 0) Announce(f);
  return error;
}

void Lender::Connect(u32 index, bool connected) {
  Link& link = links_[index];
  for (const Function& fn : functions_) {
    if (!connected && fn.lease.number != 0 && fn.lease.node == link.node) return;
  }
  link.connected = connected;
  const pcilend_msg_connected msg = {connected ? 1u : 0u};
  if (link.up) port_.Send(index, PCILEND_MSG_CONNECTED, false, 0, 0, &msg);
}

}  // namespace pcilend::sim
