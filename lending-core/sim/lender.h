// SPDX-License-Identifier: GPL-2.0-or-later
// The lender's role on one host: the shipping state machines (lease, access, reservation, range
// allocator) put together as lending-core/kernel/lender/ does it, on simulated hardware.
#pragma once

#include <vector>

#include "model.h"
#include "pcilend/access.h"
#include "pcilend/lease.h"
#include "pcilend/mastering.h"
#include "pcilend/reservation.h"

namespace pcilend::sim {

// What takes time on a lender.
enum class Work : u8 { kFence, kReset, kExpiry, kRecall, kRecover };

class LenderPort {
 public:
  virtual ~LenderPort() = default;
  virtual Time Now() const = 0;
  // Into the ring of the peer behind a link, if it is up.
  virtual void Send(u32 link, u16 type, bool answer, u16 status, u32 request,
                    const void* payload) = 0;
  // Calls Lender::Do() with the same arguments in that time.
  virtual void Later(Time delay, Work work, u32 function, u32 lease) = 0;
  virtual Time Duration(Work work) = 0;
  virtual bool ResetFails() = 0;
};

class Lender {
 public:
  static constexpr u32 kBars = 2;
  static constexpr u32 kMaps = 64;

  struct Link {
    u32 node = 0;  // the peer's, as the handshake found it
    u64 boot = 0;
    u32 session = 0;
    bool up = false;
    pcilend_carrier carrier = PCILEND_CARRIER_LOST;
    bool connected = true;  // this host offers its functions to it
    pcilend_heartbeat beat = {};
    Aperture* own = nullptr;
    Aperture* peers = nullptr;
  };

  struct Function {
    pcilend_lease lease = {};
    pcilend_access access = {};
    pcilend_reservation reservation = {};
    pcilend_msg_function info = {};
    u32 todo = 0;
    pcilend_lease_result result = {};
    pcilend_lease_result lost = {};  // whom to tell after the fence
    int link = -1;                   // lent over
    pcilend_mastering mastering = {};
    pcilend_range_entry exported[kBars] = {};
    struct Map {
      u64 device, iova, size;
    };
    std::vector<Map> maps;
    struct Return {
      u32 link, session, request;
    };
    std::vector<Return> returns;
  };

  // Function @i of this host is number @first + @i of the hardware.
  Lender(LenderPort& port, Hardware& hardware, u32 node, u32 first, u32 functions,
         std::vector<Link> links, Sabotage sabotage);

  // The host comes up, for the first time or again: functions are added, nothing is lent.
  void Boot();

  // Links come and go; the caller keeps node, boot, session and heartbeat.
  Link& link(u32 index) { return links_[index]; }
  void LinkUp(u32 index);
  void LinkDown(u32 index);
  void PeerDead(u32 index, u32 node, u64 boot);

  // A request that has passed pcilend_wire_check().
  void Request(u32 index, const Slot& slot);
  // What an administrator asks for, or the machine's slots; 0 or a negative errno.
  int Admin(u32 function, const pcilend_lease_event& event);
  int Allow(u32 function, const u32* nodes, u32 count);
  int Reserve(u32 function, pcilend_reserve wish);
  void Connect(u32 index, bool connected);
  // An administrator resets a function, lent or not, behind this lender's back.
  void ResetByOthers(u32 function);
  void Do(Work work, u32 function, u32 lease);

  const Function& function(u32 i) const { return functions_[i]; }
  u32 functions() const { return static_cast<u32>(functions_.size()); }
  u32 number(u32 i) const { return first_ + i; }
  u64 resets() const { return resets_; }
  u64 granted() const { return granted_; }
  u64 refused() const { return refused_; }
  u64 expired() const { return expired_; }
  u64 recovered() const { return recovered_; }

 private:
  bool Sees(const Link& link, const Function& fn) const;
  void Notify(u32 f, u32 index);
  void Announce(u32 f);
  void Withdraw(u32 f);
  int Apply(u32 f, const pcilend_lease_event& event);
  void Carry(u32 f, bool now);
  u32 Happened(u32 f, pcilend_mastering_event event);
  void Recover(u32 f);
  void TellReset(u32 f);
  void Fence(u32 f);
  void Reset(u32 f);
  void TellLost(u32 f, const pcilend_lease_result& lost);
  void AnswerReturns(u32 f);
  int Lend(u32 f, u32 index, pcilend_msg_borrowed* out);
  int Borrow(u32 f, u32 index, const pcilend_msg_borrow& in, pcilend_msg_borrowed* out);
  int MapFor(u32 f, u32 index, const pcilend_msg_map& in);
  int UnmapFor(u32 f, const pcilend_msg_map& in);
  int Obey(u32 f, u32 index, u16 type, const Slot& slot);
  void DropMap(Function& fn, u32 f, size_t i);

  LenderPort& port_;
  Hardware& hardware_;
  u32 node_;
  u32 first_;
  std::vector<Function> functions_;
  std::vector<Link> links_;
  Sabotage sabotage_;
  pcilend_lease_numbers numbers_ = {};
  u64 resets_ = 0;
  u64 granted_ = 0;
  u64 refused_ = 0;
  u64 expired_ = 0;
  u64 recovered_ = 0;
};

}  // namespace pcilend::sim
