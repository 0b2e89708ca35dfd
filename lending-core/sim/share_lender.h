// SPDX-License-Identifier: GPL-2.0-or-later
// The lender of one shared function: the shipping machines (share, slice, lease) behind messages,
// with work that is done one after the other and takes its time.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "share_model.h"

namespace pcilend::sim {

enum class ShareWork : u8 { kJob, kTick, kLeaseReset, kManagersReset, kMail, kAnswer };

class ShareLenderPort {
 public:
  virtual ~ShareLenderPort() = default;
  virtual Time Now() const = 0;
  virtual u64 Random(u64 end) = 0;
  // To that boot of that node; nothing happens if it can't be reached. Returns whether it can.
  virtual bool Send(u32 node, u64 boot, u16 type, bool answer, u16 status, u32 request,
                    const void* payload) = 0;
  // Calls Do() in that time.
  virtual void Later(Time delay, ShareWork work, u32 stamp) = 0;
};

class ShareLender {
 public:
  ShareLender(ShareLenderPort& port, u32 id, Plant plant);

  void Boot();
  void Do(ShareWork work, u32 stamp);
  // A request that has passed pcilend_wire_check(), of a peer as the handshake found it.
  void Request(u32 node, u64 boot, const Slot& slot);
  void LinkLost(u32 node, u64 boot);
  void LinkUp(u32 node, u64 boot);
  void PeerDead(u32 node, u64 boot);
  // The administrator.
  void Allow(const pcilend_share_rules& rules);
  void Recall(u32 grace_ms);
  void Take(bool unplugged);
  void RevokeClient(u32 lease);
  // Once a second: waits that are over must have ended.
  void Check();

  Drive& drive() { return drive_; }
  const pcilend_share& share() const { return *share_; }
  bool available() const { return lease_.state == PCILEND_FUNCTION_AVAILABLE; }
  u32 id() const { return id_; }
  bool quiet() const { return available() && jobs_.empty() && drive_.clients.empty(); }

  u64 joined = 0, refused = 0, ended = 0, fences = 0, audits = 0, quarantines = 0, readmitted = 0,
      answered = 0;

 private:
  struct Asker {
    u32 node;
    u64 boot;
    u32 request;
    u32 lease;
  };
  struct Untold {
    u32 node;
    u64 boot;
    pcilend_msg_lease msg;
  };

  int Apply(pcilend_share_event event);
  pcilend_share_event Event(pcilend_share_event_type type, u32 node = 0, u64 boot = 0,
                            u32 lease = 0) const;
  void Carry(const pcilend_share_action& action);
  void Tell(u16 type, const pcilend_share_action& action);
  void TellManager(u16 type, const pcilend_share_action& action);
  void Release(const pcilend_share_action& action);
  void AnswerReturns(u32 lease);
  void Job();
  void LeaseEvent(pcilend_lease_event_type type);
  void FenceLease(pcilend_lease_event_type end);
  void DemandCause(enum pcilend_lost_reason reason);
  int Borrow(u32 node, u64 boot, const pcilend_msg_borrow& in, pcilend_msg_borrowed* out);
  int Policy(u32 node, u64 boot, const pcilend_msg_policy& in);
  int Join(u32 node, u64 boot, u32 request, const pcilend_msg_join& in);
  int Cleared(u32 node, u64 boot, const pcilend_msg_clear& in);
  int Mail(u32 node, u64 boot, const pcilend_msg_mail& in);
  void TakeMail();
  void AnswerMail();
  void SendMailed(u32 lease, const pcilend_mail_text& text);

  ShareLenderPort& port_;
  u32 id_;
  Plant plant_;
  Drive drive_;
  pcilend_lease lease_ = {};
  pcilend_lease_numbers numbers_ = {};
  pcilend_share_rules rules_ = {};
  std::unique_ptr<pcilend_share> share_;
  std::unique_ptr<pcilend_share_result> result_;
  std::deque<pcilend_share_action> jobs_;
  struct Taken {
    u32 lease;
    pcilend_mail_text text;
  };
  std::deque<Taken> taken_mail_;  // which the manager works on
  std::vector<Asker> returns_;
  std::map<u32, Asker> joins_;  // that are not answered, by lease
  std::vector<Untold> untold_;
  Asker resetter_ = {};
  Time tick_at_ = ~0ULL;
  u32 stamp_ = 0;  // of this boot
  bool reset_fails_ = false;
  bool taken_ = false;  // by the administrator
  bool manager_died_ = false;
  Time manager_lost_ = 0;  // since when its link is; 0: it is not
  Time recall_at_ = ~0ULL;
};

}  // namespace pcilend::sim
