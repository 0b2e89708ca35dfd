// SPDX-License-Identifier: GPL-2.0-or-later
// The borrower's role on one host, as lending-core/kernel/borrower/ plays it: what peers say about
// their functions, leases, requests without an answer, and slots for guest memory.
#pragma once

#include <vector>

#include "model.h"

namespace pcilend::sim {

class BorrowerPort {
 public:
  virtual ~BorrowerPort() = default;
  virtual Time Now() const = 0;
  // As LenderPort::Send(), for requests; false if the link is down.
  virtual bool Ask(u32 link, u16 type, u32 request, const void* payload) = 0;
  // Lets the user of a lost function react: calls Borrower::GiveBack() some time later.
  virtual void React(u32 link, u32 index) = 0;
  // Calls Borrower::Sync() in a second.
  virtual void SyncLater(u32 link) = 0;
  // The number in the hardware of function @index of the peer behind a link.
  virtual u32 Number(u32 link, u32 index) const = 0;
};

class Borrower {
 public:
  enum class State : u8 { kIdle, kBorrowing, kHeld, kLost, kReturning };

  struct Remote {
    State state = State::kIdle;
    bool known = false;   // its lender has named it
    bool absent = false;  // no longer offered
    bool fenced = false;
    bool asking = false;  // a RETURN is under way
    u8 told = 0;          // enum pcilend_function_state
    u8 tries = 0;
    u32 lease = 0;
    u32 former = 0;  // the lease before
    u32 lost_early = 0;
    u32 granted = 0;  // place of the answer in the ring
    u32 generation = 0;
    u64 slot = 0;
    u64 slot_size = 0;
  };

  struct Link {
    u32 node = 0;
    u64 boot = 0;
    bool up = false;
    bool peer_connected = false;
    Aperture* own = nullptr;
    u32 lease_ms = 0;
    u32 generation = 0;
    u32 next_request = 1;
    bool syncing = false;
    bool sync_again = false;
    std::vector<Remote> remotes = {};  // by index - 1
    struct Waiter {
      u32 request;
      u16 type;
      bool nobody;  // waits for it
      u32 index;
      Time until;
    };
    std::vector<Waiter> waiters = {};
  };

  Borrower(BorrowerPort& port, Hardware& hardware, u32 node, std::vector<Link> links,
           Sabotage sabotage);

  // The host's module is loaded anew; @boot is its boot id.
  void Boot(u64 boot);

  Link& link(u32 index) { return links_[index]; }
  u32 links() const { return static_cast<u32>(links_.size()); }
  void LinkUp(u32 link);
  void LinkDown(u32 link) { links_[link].up = false; }
  // That boot of the lender is over; it does no DMA any more.
  void PeerDead(u32 link);
  // No heartbeat for as long as a lease lasts.
  void Silent(u32 link);
  // Requests whose time is over.
  void Tick(u32 link);

  // Messages that have passed pcilend_wire_check().
  void Notice(u32 link, const Slot& slot);
  void Answer(u32 link, const Slot& slot);

  // What users do.
  void Borrow(u32 link, u32 index, u64 guest_bytes);
  void GiveBack(u32 link, u32 index);
  void Use(u32 link, u32 index, u16 type);                // a request under the lease in force
  void Misuse(u32 link, u32 index, u16 type, u32 lease);  // under another one
  void Reserve(u32 link, u32 index, u32 ttl_ms);
  void Sync(u32 link);

  u64 lost() const { return lost_; }
  u64 late() const { return late_; }
  Time longest_error() const { return longest_error_; }

 private:
  Remote& remote(u32 link, u32 index) { return links_[link].remotes[index]; }
  u32 Id(u32 link, u32 index) const {
    return pcilend_id(static_cast<u16>(links_[link].node), static_cast<u16>(index + 1));
  }
  bool Ask(u32 link, u16 type, u32 index, const void* payload, bool nobody = false);
  void AskToReturn(u32 link, u32 index, u32 lease, bool nobody);
  void Lost(u32 link, u32 index, u32 reason, bool fenced);
  void StopBelieving(u32 link, u32 index);
  void Forget(u32 link, u32 index);
  void Settled(u32 link, u32 index);
  void CompareLease(u32 link, u32 index, const pcilend_msg_function& info, u32 sequence);
  void Granted(u32 link, u32 index, const Slot& slot);
  void Returned(u32 link, u32 index, int error);
  void Finish(u32 link, const Link::Waiter& waiter, int error, const Slot* slot);
  void MapSlot(u32 link, u32 index);

  BorrowerPort& port_;
  Hardware& hardware_;
  u32 node_;
  u64 boot_ = 0;
  std::vector<Link> links_;
  Sabotage sabotage_;
  u64 lost_ = 0;
  u64 late_ = 0;
  Time longest_error_ = 0;
};

}  // namespace pcilend::sim
