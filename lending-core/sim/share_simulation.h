// SPDX-License-Identifier: GPL-2.0-or-later
// Many hosts that share functions, in virtual time: each lends one, is manager of some and client
// of others. Hosts die and boot again, links flap and lose what is under way, managers are slow,
// silent or lie, clients forge.
#pragma once

#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "share_lender.h"

namespace pcilend::sim {

struct ShareOptions {
  u32 nodes = 60;
  u64 events = 1000000;
  u32 pace = 20;  // ms from one action of a host's users to the next, at most
  u64 seed = 1;
  Plant plant = Plant::kNone;
};

struct ShareCounts {
  u64 events = 0;
  u64 messages = 0;
  u64 joined = 0;
  u64 refused = 0;
  u64 ended = 0;
  u64 fences = 0;
  u64 audits = 0;
  u64 quarantines = 0;
  u64 readmitted = 0;
  u64 answered = 0;  // mails
  u64 flaps = 0;
  u64 deaths = 0;
  u64 most = 0;  // clients of one function at once
  Time virtual_ms = 0;
};

class ShareSimulation {
 public:
  explicit ShareSimulation(const ShareOptions& options);
  ~ShareSimulation();
  ShareSimulation(const ShareSimulation&) = delete;
  ShareSimulation& operator=(const ShareSimulation&) = delete;

  // Runs until as many events have happened, then lets all come to rest. Empty, or which promise
  // was broken.
  std::string Run();
  ShareCounts counts() const;

 private:
  struct Host;
  enum class Kind : u8 { kDeliver, kWork, kUser, kChaos, kLinkUp, kBoot, kManage, kQueues };
  struct Event {
    Time at = 0;
    u64 order = 0;
    Kind kind = Kind::kUser;
    u8 work = 0;
    u32 host = 0;   // where it happens
    u32 other = 0;  // the function's lender, or the sender
    u64 epoch = 0;  // of the link, of the host
    u32 a = 0;
    u32 b = 0;
    bool operator>(const Event& o) const { return at != o.at ? at > o.at : order > o.order; }
  };
  struct Link {
    bool up = false;
    u64 epoch = 0;  // changes whenever what is under way is lost
    Time arrives[2] = {0, 0};
  };

  u64 Random(u64 end);
  bool OneIn(u64 n) { return Random(n) == 0; }
  void At(Time delay, Event event);
  Link& LinkOf(u32 a, u32 b) { return links_[std::min(a, b) * options_.nodes + std::max(a, b)]; }
  bool Reaches(u32 a, u32 b);
  bool Send(u32 from, u32 to, u16 type, bool answer, u16 status, u32 request, const void* payload);
  void Ask(u32 from, u32 lender, u16 type, const void* payload);
  void Handle(const Event& event);
  void Deliver(const Event& event);
  void Notice(u32 host, u32 lender, const Slot& slot);
  void Answer(u32 host, u32 lender, const Slot& slot);
  void Manage(const Event& event);
  void AskForQueues(u32 host, u32 lender, u32 lease);
  void Mailed(u32 host, u32 lender, const pcilend_msg_mail& mail);
  void User(u32 host);
  void Administrator(u32 host);
  void Forge(u32 host);
  void Join(u32 host, u32 lender);
  void SendPolicy(u32 host, u32 lender, u32 lease, u32 clients);
  void SendReturn(u32 host, u32 lender, u32 lease);
  void Free(u32 host, u32 lender, u32 lease);
  void LinkDown(u32 a, u32 b);
  void Meet(u32 a, u32 b);
  void Die(u32 host);
  void Rest();
  bool Quiet() const;
  std::string Wrong() const;

  ShareOptions options_;
  u64 random_;
  Time now_ = 0;
  u64 order_ = 0;
  bool resting_ = false;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<Link> links_;
  std::vector<Slot> slots_;
  std::vector<u32> free_slots_;
  ShareCounts counts_;
};

}  // namespace pcilend::sim
