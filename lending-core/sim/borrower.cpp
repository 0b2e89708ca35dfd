// SPDX-License-Identifier: GPL-2.0-or-later
#include "borrower.h"

#include <linux/pcilend.h>

#include <algorithm>
#include <cstdint>

namespace pcilend::sim {

namespace {

constexpr u8 kReturnTries = 4;
constexpr u64 kGuestAddress = 0x100000000;

}  // namespace

Borrower::Borrower(BorrowerPort& port, Hardware& hardware, u32 node, std::vector<Link> links,
                   Sabotage sabotage)
    : port_(port),
      hardware_(hardware),
      node_(node),
      links_(std::move(links)),
      sabotage_(sabotage) {}

void Borrower::Boot(u64 boot) {
  boot_ = boot;
  for (u32 l = 0; l < links_.size(); ++l) {
    Link& link = links_[l];
    for (u32 i = 0; i < link.remotes.size(); ++i) {
      hardware_.Forgets(port_.Number(l, i), node_, port_.Now());
    }
    const Link fresh = {link.node,
                        0,
                        false,
                        false,
                        link.own,
                        link.lease_ms,
                        0,
                        1,
                        false,
                        false,
                        std::vector<Remote>(link.remotes.size())};
    link = fresh;
  }
}

bool Borrower::Ask(u32 l, u16 type, u32 index, const void* payload, bool nobody) {
  Link& link = links_[l];
  const u32 request = link.next_request++;
  if (link.next_request == 0) link.next_request = 1;
  if (!link.up || !port_.Ask(l, type, request, payload)) return false;
  link.waiters.push_back({request, type, nobody, index, port_.Now() + PCILEND_REQUEST_MS});
  return true;
}

void Borrower::AskToReturn(u32 l, u32 index, u32 lease, bool nobody) {
  const pcilend_msg_lease msg = {Id(l, index), lease, 0};
  const bool asked = Ask(l, PCILEND_MSG_RETURN, index, &msg, nobody);
  if (!nobody) remote(l, index).asking = asked;
}

void Borrower::LinkUp(u32 l) {
  links_[l].up = true;
  Sync(l);
}

// Asks for all notices; what the peer does not name is not there any more.
void Borrower::Sync(u32 l) {
  Link& link = links_[l];
  if (link.syncing) {
    link.sync_again = true;
    return;
  }
  ++link.generation;
  link.sync_again = false;
  link.syncing = Ask(l, PCILEND_MSG_SYNC, 0, nullptr);
  if (!link.syncing && link.up) port_.SyncLater(l);
}

void Borrower::StopBelieving(u32 l, u32 index) {
  const Time wrong = hardware_.Forgets(port_.Number(l, index), node_, port_.Now());
  longest_error_ = std::max(longest_error_, wrong);
}

// The lease ended without our doing; its user reacts in its own time.
void Borrower::Lost(u32 l, u32 index, u32 reason, bool fenced) {
  Remote& r = remote(l, index);
  if (r.state != State::kHeld || sabotage_ == Sabotage::kDeafBorrower) return;
  (void)reason;
  r.state = State::kLost;
  r.fenced = fenced;
  ++lost_;
  StopBelieving(l, index);
  port_.React(l, index);
}

// The lender has stopped the function: its slot can be used for something else.
void Borrower::Forget(u32 l, u32 index) {
  Remote& r = remote(l, index);
  if (r.slot_size != 0) {
    hardware_.Untouched(port_.Number(l, index), *links_[l].own, r.slot, r.slot_size);
    hardware_.Demand(pcilend_range_free(&links_[l].own->slots(), r.slot, r.slot_size) == 0,
                     "a slot can be given back", port_.Number(l, index));
  }
  r.slot_size = 0;
  r.state = State::kIdle;
  if (r.lease != 0) r.former = r.lease;
  r.lease = 0;
  r.asking = false;
}

void Borrower::Settled(u32 l, u32 index) {
  Remote& r = remote(l, index);
  if (r.state == State::kReturning) Forget(l, index);
  if (r.state == State::kLost) r.fenced = true;
}

void Borrower::PeerDead(u32 l) {
  links_[l].waiters.clear();
  links_[l].syncing = false;
  for (u32 i = 0; i < links_[l].remotes.size(); ++i) {
    Remote& r = remote(l, i);
    if (r.state == State::kBorrowing) Forget(l, i);
    Lost(l, i, PCILEND_LOST_GONE, true);
    Settled(l, i);
    r.asking = false;
    r.absent = true;
  }
}

void Borrower::Silent(u32 l) {
  for (u32 i = 0; i < links_[l].remotes.size(); ++i) {
    Lost(l, i, PCILEND_LOST_EXPIRED, false);
    remote(l, i).absent = true;
  }
}

void Borrower::Tick(u32 l) {
  auto& waiters = links_[l].waiters;
  for (size_t i = 0; i < waiters.size();) {
    if (waiters[i].until > port_.Now()) {
      ++i;
      continue;
    }
    const Link::Waiter waiter = waiters[i];
    waiters.erase(waiters.begin() + static_cast<std::ptrdiff_t>(i));
    Finish(l, waiter, -ETIMEDOUT, nullptr);
  }
}

void Borrower::Borrow(u32 l, u32 index, u64 guest_bytes) {
  Remote& r = remote(l, index);
  if (r.state != State::kIdle || !r.known || r.absent || !links_[l].up) return;
  pcilend_msg_borrow msg = {};
  msg.id = Id(l, index);
  msg.lease_ms = links_[l].lease_ms;
  msg.interrupt_alias = 0xfe000000;
  r.lost_early = 0;
  if (!Ask(l, PCILEND_MSG_BORROW, index, &msg)) return;
  r.state = State::kBorrowing;
  r.slot = guest_bytes;  // wanted; slot_size is 0 until there is one
}

void Borrower::MapSlot(u32 l, u32 index) {
  Remote& r = remote(l, index);
  pcilend_range& slots = links_[l].own->slots();
  const u64 size = r.slot;
  u64 iova = 0;
  pcilend_msg_map msg = {};
  r.slot = 0;
  if (pcilend_range_alloc(&slots, size, PCILEND_PAGE, &iova) != 0) return GiveBack(l, index);
  hardware_.Alone(port_.Number(l, index), slots, iova, size);
  hardware_.Untouched(port_.Number(l, index), *links_[l].own, iova, size);
  r.slot = iova;
  r.slot_size = size;
  msg.id = Id(l, index);
  msg.lease = r.lease;
  msg.device_address = kGuestAddress;
  msg.size = size;
  u32 window = 0;
  u64 offset = 0;
  links_[l].own->Locate(iova, size, &window, &offset);
  msg.window = window;
  msg.offset = offset;
  Ask(l, PCILEND_MSG_MAP, index, &msg, true);
  const pcilend_msg_bus_master on = {msg.id, r.lease, 1};
  Ask(l, PCILEND_MSG_BUS_MASTER, index, &on, true);
}

void Borrower::Granted(u32 l, u32 index, const Slot& slot) {
  const auto granted = Body<pcilend_msg_borrowed>(slot);
  Remote& r = remote(l, index);
  if (r.state != State::kBorrowing) return;
  r.lease = granted.lease;
  r.granted = Header(slot).sequence;
  r.state = State::kHeld;
  hardware_.Believes(port_.Number(l, index), {node_, boot_, r.lease}, port_.Now());
  if (granted.id != Id(l, index) || r.lost_early == r.lease) {
    r.slot = 0;
    return GiveBack(l, index);
  }
  MapSlot(l, index);
}

// Lets go of a lease, held or lost.
void Borrower::GiveBack(u32 l, u32 index) {
  Remote& r = remote(l, index);
  if (r.state == State::kReturning) {
    if (!r.asking) AskToReturn(l, index, r.lease, false);
    return;
  }
  if (r.state != State::kHeld && r.state != State::kLost) return;
  const bool fenced = r.state == State::kLost && r.fenced;
  if (r.state == State::kHeld) StopBelieving(l, index);
  r.state = State::kReturning;
  r.tries = 0;
  if (fenced || sabotage_ == Sabotage::kEarlySlot) return Forget(l, index);
  AskToReturn(l, index, r.lease, false);
}

void Borrower::Returned(u32 l, u32 index, int error) {
  Remote& r = remote(l, index);
  r.asking = false;
  if (r.state != State::kReturning) return;
  // It knows of no such lease, or function: so it was stopped before.
  if (error == 0 || error == -ESTALE || error == -ENODEV) return Forget(l, index);
  if (error == -ETIMEDOUT && ++r.tries < kReturnTries) AskToReturn(l, index, r.lease, false);
}

void Borrower::Use(u32 l, u32 index, u16 type) {
  Misuse(l, index, type, remote(l, index).lease);
}

void Borrower::Misuse(u32 l, u32 index, u16 type, u32 lease) {
  if (lease == 0) return;
  if (type == PCILEND_MSG_MAP || type == PCILEND_MSG_UNMAP) {
    // A page of the slot that is there already, at another address of the device.
    const Remote& r = remote(l, index);
    if (r.slot_size == 0) return;
    pcilend_msg_map msg = {Id(l, index), lease, 0x8000000000, 0, PCILEND_PAGE, 0, 0};
    u32 window = 0;
    u64 offset = 0;
    links_[l].own->Locate(r.slot, PCILEND_PAGE, &window, &offset);
    msg.window = window;
    msg.offset = offset;
    Ask(l, type, index, &msg, true);
  } else if (type == PCILEND_MSG_CONFIG_READ || type == PCILEND_MSG_CONFIG_WRITE) {
    pcilend_msg_config msg = {};
    msg.id = Id(l, index);
    msg.lease = lease;
    msg.offset = 4;
    msg.length = 2;
    Ask(l, type, index, &msg, true);
  } else if (type == PCILEND_MSG_BUS_MASTER) {
    const pcilend_msg_bus_master msg = {Id(l, index), lease, 1};
    Ask(l, type, index, &msg, true);
  } else {
    const pcilend_msg_lease msg = {Id(l, index), lease, 0};
    Ask(l, type, index, &msg, true);
  }
}

void Borrower::Reserve(u32 l, u32 index, u32 ttl_ms) {
  pcilend_msg_reserve msg = {};
  msg.id = Id(l, index);
  msg.node = node_;
  msg.ttl_ms = ttl_ms;
  Ask(l, PCILEND_MSG_RESERVE, index, &msg, true);
}

// An answer, or -ETIMEDOUT without one.
void Borrower::Finish(u32 l, const Link::Waiter& waiter, int error, const Slot* slot) {
  Link& link = links_[l];
  if (waiter.nobody) return;
  switch (waiter.type) {
    case PCILEND_MSG_SYNC:
      link.syncing = false;
      if (error != 0) {
        if (link.up) port_.SyncLater(l);
        return;
      }
      for (u32 i = 0; i < link.remotes.size(); ++i) {
        if (link.remotes[i].generation == link.generation) continue;
        Lost(l, i, PCILEND_LOST_GONE, true);
        Settled(l, i);
        link.remotes[i].absent = true;
      }
      if (link.sync_again) Sync(l);
      return;
    case PCILEND_MSG_BORROW:
      if (error == 0) return Granted(l, waiter.index, *slot);
      if (remote(l, waiter.index).state == State::kBorrowing) {
        remote(l, waiter.index).slot = 0;
        Forget(l, waiter.index);
      }
      return;
    case PCILEND_MSG_RETURN:
      return Returned(l, waiter.index, error);
    default:
      return;
  }
}

void Borrower::Answer(u32 l, const Slot& slot) {
  const pcilend_msg_header header = Header(slot);
  auto& waiters = links_[l].waiters;
  for (size_t i = 0; i < waiters.size(); ++i) {
    if (waiters[i].request != header.request || waiters[i].type != header.type) continue;
    const Link::Waiter waiter = waiters[i];
    waiters.erase(waiters.begin() + static_cast<std::ptrdiff_t>(i));
    return Finish(l, waiter, pcilend_status_to_errno(header.status), &slot);
  }
  ++late_;
  // A lease that was granted after we stopped waiting for it.
  if (header.type == PCILEND_MSG_BORROW && header.status == PCILEND_STATUS_OK) {
    const auto granted = Body<pcilend_msg_borrowed>(slot);
    const u32 index = pcilend_id_index(granted.id) - 1;
    if (index < links_[l].remotes.size()) AskToReturn(l, index, granted.lease, true);
  }
}

// What a notice means for our lease; sequence numbers tell those from before the grant.
void Borrower::CompareLease(u32 l, u32 index, const pcilend_msg_function& info, u32 sequence) {
  Remote& r = remote(l, index);
  const u32 told = info.borrower == node_ ? info.lease : 0;
  const bool stopped = info.borrower != node_ || info.lease != r.lease;
  switch (r.state) {
    case State::kIdle:
      if (told != 0) AskToReturn(l, index, told, true);
      return;
    case State::kBorrowing:
      return;
    case State::kHeld:
      if (stopped && static_cast<std::int32_t>(sequence - r.granted) > 0) {
        Lost(l, index, PCILEND_LOST_REVOKED, true);
      }
      return;
    case State::kLost:
      r.fenced = r.fenced || stopped;
      return;
    case State::kReturning:
      if (stopped) {
        Forget(l, index);
      } else if (info.state == PCILEND_FUNCTION_BORROWED) {
        AskToReturn(l, index, r.lease, true);
      }
      return;
  }
}

void Borrower::Notice(u32 l, const Slot& slot) {
  const pcilend_msg_header header = Header(slot);
  Link& link = links_[l];
  if (header.type == PCILEND_MSG_CONNECTED) {
    link.peer_connected = Body<pcilend_msg_connected>(slot).connected != 0;
    if (link.peer_connected) return Sync(l);
    for (Remote& r : link.remotes) r.absent = true;
    return;
  }
  const u32 id = Body<pcilend_msg_id>(slot).id;  // all others begin with it
  const u32 index = pcilend_id_index(id) - 1;
  if (pcilend_id_node(id) != link.node || index >= link.remotes.size()) return;
  Remote& r = remote(l, index);
  switch (header.type) {
    case PCILEND_MSG_FUNCTION: {
      const auto info = Body<pcilend_msg_function>(slot);
      r.known = true;
      r.absent = false;
      r.generation = link.generation;
      r.told = info.state;
      return CompareLease(l, index, info, header.sequence);
    }
    case PCILEND_MSG_WITHDRAW:
      Lost(l, index, PCILEND_LOST_GONE, true);
      r.absent = true;
      return;
    case PCILEND_MSG_LOST: {
      const auto lost = Body<pcilend_msg_lease>(slot);
      if (r.state == State::kBorrowing) r.lost_early = lost.lease;
      if (r.lease == lost.lease) Lost(l, index, lost.reason, true);
      return;
    }
    case PCILEND_MSG_WAS_RESET: {
      const auto told = Body<pcilend_msg_lease>(slot);
      const pcilend_msg_bus_master on = {told.id, told.lease, 1};
      if (r.state == State::kHeld && r.lease == told.lease) {
        Ask(l, PCILEND_MSG_BUS_MASTER, index, &on, true);
      }
      return;
    }
    case PCILEND_MSG_RECALL:
      if (r.state == State::kHeld && r.lease == Body<pcilend_msg_recall>(slot).lease) {
        port_.React(l, index);
      }
      return;
    default:
      return;
  }
}

}  // namespace pcilend::sim
