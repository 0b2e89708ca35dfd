// SPDX-License-Identifier: GPL-2.0-or-later
// Many hosts that lend and borrow at once, in virtual time: links that go down and lose what is
// under way, hosts that stall, die and come back, slow lenders, administrators with whims.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "borrower.h"
#include "lender.h"

namespace pcilend::sim {

struct Options {
  u32 nodes = 60;
  u32 functions = 32;  // of each node
  u32 degree = 59;     // links of each node, at least
  u64 events = 1000000;
  u32 pace = 40;  // ms from one action of a host's users to the next, at most
  u64 seed = 1;
  Sabotage sabotage = Sabotage::kNone;
};

struct Counts {
  u64 events = 0;
  u64 messages = 0;  // that passed the check
  u64 refused = 0;   // by the check: lost, replayed, of a former boot
  u64 granted = 0;
  u64 declined = 0;  // requests
  u64 lost = 0;      // leases that ended without their borrower's doing
  u64 expired = 0;
  u64 late = 0;  // answers
  u64 resets = 0;
  u64 recovered = 0;  // of them after a loss of the link, or a reset by others
  u64 flaps = 0;
  u64 stalls = 0;
  u64 deaths = 0;
  Time longest_error = 0;  // ms for which a borrower believed in a lease that was over
  Time virtual_ms = 0;
};

class Simulation {
 public:
  explicit Simulation(const Options& options);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // Runs until as many events have happened, then lets all come to rest. Empty, or which promise
  // was broken.
  std::string Run();
  Counts counts() const;
  // As many FUNCTION notices as there are functions, encoded, checked and printed; bytes of text.
  size_t ListAll() const;

 private:
  struct Node;
  struct Link;
  enum class Kind : u8 {
    kDeliver,
    kRequest,
    kTick,
    kUser,
    kAdmin,
    kWork,
    kReact,
    kSync,
    kLinkUp,
    kMeet,
    kWake,
    kBoot
  };
  struct Event {
    Kind kind;
    u8 work = 0;
    u16 epoch = 0;   // of the node or link
    u32 target = 0;  // node, or link * 2 + receiving side
    u32 a = 0;
    u32 b = 0;
  };

  static bool IsMessage(const Event& event) {
    return event.kind == Kind::kDeliver || event.kind == Kind::kRequest;
  }
  u64 Random(u64 end);
  bool OneIn(u64 n) { return Random(n) == 0; }
  void At(Time delay, const Event& event);
  void MakeLinks();
  void Handle(const Event& event);
  u32 NodeOf(const Event& event) const;
  void Deliver(u32 side, u32 slot);
  void Refuse(u32 side, const Slot& slot, const char* promise);
  void Take(u32 side, const Slot& slot);
  void Tick(u32 node);
  void User(u32 node);
  void Administrator(u32 node);
  void Chaos();
  void LinkDown(u32 link);
  void Meet(u32 link);
  void Die(u32 node);
  void CheckBeliefs();
  bool Quiet() const;
  void Finish();
  bool Send(u32 side, u16 type, bool answer, u16 status, u32 request, const void* payload);
  bool LinkUsable(u32 link) const;
  u32 NewSlot();

  static constexpr u32 kWheel = 1 << 17;  // ms; nothing is planned further ahead
  static constexpr Time kBound = 24000;   // ms in which a wrong belief must end

  Options options_;
  u64 random_;
  Hardware hardware_;
  Time now_ = 0;
  bool resting_ = false;
  std::vector<std::vector<Event>> wheel_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<Slot> slots_;
  std::vector<u32> free_slots_;
  Counts counts_;
};

}  // namespace pcilend::sim
