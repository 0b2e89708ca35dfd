// SPDX-License-Identifier: GPL-2.0-or-later
// A shared function in the hands of a fuzzer: peers that come, go, die, lie and forge, in any order
// and at any time; the lender's own work is done one after the other, some time later. Whatever
// comes: nothing is unmapped that queues may still use, no place is given twice, there is one
// manager, and in the end nothing is left. Input: event by event.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>

#include "../tests/resolve_world.h"
#include "../tests/share_world.h"

namespace {

using resolve_world::Bytes;

constexpr u32 kNodes = 4;

void Demand(bool condition, const char* promise) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

class Fuzz : public share_world::World {
 public:
  explicit Fuzz(Bytes& bytes) : bytes_(bytes) {
    for (u32 n = 0; n <= kNodes; ++n) boot_[n] = 100 + n;
  }

  void Step() {
    const u32 node = 1 + Pick(kNodes);
    switch (Pick(20)) {
      case 0:
        Do(Event(PCILEND_SHARE_MANAGE, node, ++leases_ + 1000));
        break;
      case 1: {
        policy_ = share_world::Policy(Pick(4) != 0 ? 1 + Pick(PCILEND_SHARE_CLIENTS) : 0);
        if (Pick(8) == 0) policy_.range[0].page = Pick(5);
        pcilend_share_event event = FromManager(PCILEND_SHARE_POLICY, node);
        event.policy = &policy_;
        Do(event);
        break;
      }
      case 2:
      case 3:
      case 4: {
        pcilend_share_event event = Event(PCILEND_SHARE_JOIN, node, 0);
        event.wish = share_world::Wish();
        event.wish.slice_bytes = PCILEND_PAGE << Pick(16);
        Do(event);
        break;
      }
      case 5: {
        pcilend_share_event event = Event(PCILEND_SHARE_RETURN, node, SomeClient());
        Do(Pick(8) == 0 ? FromManager(PCILEND_SHARE_RETURN, node) : event);
        break;
      }
      case 6:
      case 7:
      case 8: {
        // Mostly what was asked; by the manager, or by somebody.
        pcilend_share_event event = FromManager(PCILEND_SHARE_CLEARED, node);
        event.client = SomeClient();
        const pcilend_share_client* client = Find(event.client);
        event.round = client != nullptr && Pick(4) != 0 ? client->round : Pick(16);
        Do(event);
        break;
      }
      case 9:
        Do(FromManager(PCILEND_SHARE_RESETTING, node));
        break;
      case 10:
        if (share().resetting) {
          Do(Event(Pick(8) == 0 ? PCILEND_SHARE_RESET_FAILED : PCILEND_SHARE_RESET_OK, 0, 0));
        }
        break;
      case 11:
        Work(1 + Pick(8));
        break;
      case 12: {
        pcilend_share_event event = {};
        event.type = Pick(2) != 0 ? PCILEND_SHARE_EXPIRE : PCILEND_SHARE_REVOKE_CLIENT;
        event.client = SomeClient();
        Do(event);
        break;
      }
      case 13: {
        pcilend_share_rules rules = {};
        rules.clients = Pick(8) == 0 ? 0 : 1 + Pick(PCILEND_SHARE_CLIENTS);
        const u32 nodes[2] = {1 + Pick(kNodes), 1 + Pick(kNodes)};
        const char* why = nullptr;
        if (Pick(2) != 0) pcilend_access_set(&rules.nodes, nodes, 2, &why);
        pcilend_share_event event = {};
        event.type = PCILEND_SHARE_ALLOW;
        event.rules = &rules;
        Do(event);
        break;
      }
      case 14: {
        Do(Event(PCILEND_SHARE_PEER_DEAD, node, 0));
        if (Pick(4) != 0) boot_[node] += 10;
        break;
      }
      case 15:
        Do(Event(Pick(2) != 0 ? PCILEND_SHARE_LINK_LOST : PCILEND_SHARE_LINK_UP, node, 0));
        break;
      case 16:
        Pass(Pick(8) * 1000);
        break;
      case 17:
        AskMail(node);
        break;
      case 18:
        Pick(2) != 0 ? TakeMail() : AnswerMail();
        break;
      default: {
        pcilend_share_event event = {};
        event.type = static_cast<pcilend_share_event_type>(PCILEND_SHARE_RECALL + Pick(3));
        event.grace_ms = Pick(8) * 1000;
        // Rare: they end it all.
        if (Pick(8) == 0) Do(event);
      }
    }
  }

  // Nobody says anything any more. The manager does not answer.
  void End() {
    std::vector<u32> leases;
    for (const auto& client : share().client) {
      if (client.state != PCILEND_CLIENT_NONE) leases.push_back(client.lease);
    }
    for (const u32 lease : leases) {
      pcilend_share_event event = {};
      event.type = PCILEND_SHARE_EXPIRE;
      event.client = lease;
      Do(event);
    }
    for (int waits = 0; waits < 8; ++waits) {
      if (share().resetting) Do(Event(PCILEND_SHARE_RESET_OK, 0, 0));
      Work(~0u);
      const u64 due = DueIn();
      if (due != U64_MAX) Pass(due);
      Work(~0u);
    }
    Demand(DueIn() == U64_MAX, "every wait ends");
    Demand(truth_.empty(), "a client that has ended leaves nothing");
    Demand(share().slices.range.count == 0, "no slice is left");
    for (const auto& client : share().client) {
      Demand(client.state == PCILEND_CLIENT_NONE, "no client is left");
    }
    for (const auto& alias : share().slices.alias) Demand(alias.users == 0, "no alias is left");
  }

 private:
  // What is true of a client, whatever the machine believes.
  struct Truth {
    u32 node;
    u64 boot, slice, bytes;
    bool mapped = false;
    bool pages = false;
    bool queues = false;   // the manager may have made some
    u32 asked = 0;         // the round that the manager was told last
    bool cleared = false;  // that was CLIENT_GONE, and the manager has confirmed it
    bool gone = false;
  };
  struct Letter {
    u32 number;
    u32 text;  // of the question, then of the answer
    u64 order;
    bool taken = false;
    bool answered = false;
  };

  static pcilend_mail_text Text(u32 value) {
    pcilend_mail_text text = {};
    text.bytes = sizeof value;
    std::memcpy(text.text, &value, sizeof value);
    return text;
  }
  static bool Says(const pcilend_mail_text& text, u32 value) {
    return text.bytes == sizeof value && std::memcmp(text.text, &value, sizeof value) == 0;
  }

  void AskMail(u32 node) {
    const u32 lease = SomeClient();
    const u32 number = 1 + Pick(3);
    pcilend_mail_text question = Text(++texts_);
    if (Pick(16) == 0) question.bytes = Pick(2) * (PCILEND_MAIL_BYTES + 1);
    const auto known = letters_.find(lease);
    const int error =
        pcilend_mail_ask(&share(), node, boot_[node], lease, number, &question, nullptr);
    if (error == -EALREADY) {
      Demand(known != letters_.end() && known->second.number == number, "asked before");
      return;
    }
    if (error != 0) return;
    Demand(question.bytes == sizeof texts_, "mail has a size");
    Demand(Find(lease)->node == node && Find(lease)->state == PCILEND_CLIENT_ACTIVE,
           "a client asks for itself");
    Demand(known == letters_.end() || (known->second.answered && known->second.number != number),
           "one question is under way");
    letters_[lease] = {number, texts_, ++orders_};
  }

  void TakeMail() {
    pcilend_mail_text question = {};
    const bool waits = pcilend_mail_waits(&share());
    const u32 lease = pcilend_mail_next(&share(), &question);
    Demand(waits == (lease != 0), "the manager is told when there is something");
    if (lease == 0) return;
    const auto it = letters_.find(lease);
    Demand(it != letters_.end() && !it->second.taken, "each question is told once");
    Demand(Says(question, it->second.text), "as it was asked");
    for (const auto& [other, letter] : letters_)
      Demand(letter.taken || letter.order >= it->second.order, "who asked first is heard first");
    it->second.taken = true;
  }

  void AnswerMail() {
    const u32 lease = SomeClient();
    const pcilend_mail_text answer = Text(++texts_);
    const auto it = letters_.find(lease);
    if (pcilend_mail_answer(&share(), lease, &answer, nullptr) == 0) {
      Demand(it != letters_.end() && it->second.taken && !it->second.answered,
             "what is answered was taken, and is answered once");
      it->second.answered = true;
      it->second.text = texts_;
    }
    if (it == letters_.end()) return;
    const pcilend_mail_text* heard = pcilend_mail_answered(&share(), lease, it->second.number);
    Demand((heard != nullptr) == it->second.answered, "an answer is there when it was given");
    Demand(heard == nullptr || Says(*heard, it->second.text), "as it was given");
    Demand(!pcilend_mail_answered(&share(), lease, it->second.number + 1), "of this question");
  }

  u32 Pick(u32 end) { return static_cast<u32>(bytes_.Below(end)); }

  u32 SomeClient() {
    if (Pick(8) == 0) return Pick(64);
    return share().client[Pick(8)].lease;
  }

  pcilend_share_event Event(pcilend_share_event_type type, u32 node, u32 lease) {
    pcilend_share_event event = {};
    event.type = type;
    event.node = node;
    event.boot = node <= kNodes ? boot_[node] : 0;
    event.lease = lease;
    return event;
  }

  // Mostly; else a peer that would like to be it.
  pcilend_share_event FromManager(pcilend_share_event_type type, u32 node) {
    pcilend_share_event event = Event(type, node, share().lease);
    if (Pick(4) == 0) return event;
    event.node = share().node;
    event.boot = share().boot;
    return event;
  }

  void Do(pcilend_share_event event) {
    const pcilend_share_state before = share().state;
    const u32 manager = share().node;
    const u64 manager_boot = share().boot;
    const bool by_manager =
        before != PCILEND_SHARE_OFF && event.node == manager && event.boot == manager_boot;
    if (event.type == PCILEND_SHARE_CLEARED && by_manager && event.lease == share().lease) {
      const auto it = truth_.find(event.client);
      if (it != truth_.end() && event.round != 0 && event.round == it->second.asked) {
        it->second.queues = false;
        it->second.cleared = it->second.gone;
      }
    }
    if (event.type == PCILEND_SHARE_RESET_OK) {
      for (auto& [lease, truth] : truth_) truth.queues = false;
    }
    const int error = Apply(event);
    Demand(result().count <= PCILEND_SHARE_ACTIONS, "the actions fit");
    if (error != 0) {
      Demand(result().why != nullptr, "a refusal says why");
      for (u32 i = 0; i < result().count; ++i) {
        Demand(result().action[i].type == PCILEND_SHARE_DO_AUDIT, "a refusal does nothing");
      }
      return;
    }
    if (share().node != manager || share().boot != manager_boot) {
      Demand(share().state == PCILEND_SHARE_OFF ||
                 (before == PCILEND_SHARE_OFF && event.type == PCILEND_SHARE_MANAGE),
             "there are never two managers");
    }
    if (event.type == PCILEND_SHARE_POLICY) Demand(by_manager, "the manager's policy only");
    if (event.type == PCILEND_SHARE_JOIN) Joined(event);
    const bool fenced = event.type == PCILEND_SHARE_FENCED;
    for (u32 i = 0; i < result().count; ++i) Carry(result().action[i], fenced);
    if (before == PCILEND_SHARE_FENCING && !fenced) {
      Demand(share().state == PCILEND_SHARE_FENCING, "nothing ends a fence but its end");
    }
    CheckStates();
  }

  void Joined(const pcilend_share_event& event) {
    const pcilend_share_client* client = Find(result().lease);
    Demand(client != nullptr && client->node == event.node && client->boot == event.boot,
           "a client is who asked");
    Demand(share().state == PCILEND_SHARE_SHARED, "only while it is shared");
    Demand(share().rules.clients != 0 && pcilend_access_allows(&share().rules.nodes, event.node),
           "only with a right");
    for (const auto& [lease, other] : truth_) {
      Demand(other.node != event.node || other.boot == event.boot,
             "no new boot before the old one is over");
      Demand(client->slice + client->wish.slice_bytes <= other.slice ||
                 other.slice + other.bytes <= client->slice,
             "no place is given twice");
    }
    Demand(truth_.size() < share().policy.clients, "no more than the policy allows");
    truth_[client->lease] = {client->node, client->boot, client->slice, client->wish.slice_bytes};
  }

  void Carry(const pcilend_share_action& action, bool fenced) {
    const auto it = truth_.find(action.lease);
    const bool client = it != truth_.end();
    switch (action.type) {
      case PCILEND_SHARE_DO_MAP:
      case PCILEND_SHARE_DO_CLOSE:
      case PCILEND_SHARE_DO_UNMAP:
        Demand(client, "work is done for clients that there are");
        work_.push_back(action);
        break;
      case PCILEND_SHARE_DO_FENCE:
        Demand(action.lease == share().lease, "the manager's lease ends");
        work_.push_back(action);
        break;
      case PCILEND_SHARE_DO_ANSWER:
        Demand(client && it->second.mapped, "who is told to begin is mapped");
        it->second.queues = true;
        break;
      case PCILEND_SHARE_DO_READMIT:
        Demand(client && !it->second.queues, "no former queues when it is readmitted");
        it->second.queues = true;
        break;
      case PCILEND_SHARE_DO_WAS_RESET:
        Demand(client, "who is told of a reset is there");
        it->second.queues = true;
        break;
      case PCILEND_SHARE_DO_GONE:
      case PCILEND_SHARE_DO_QUARANTINE:
        Demand(client && action.round != 0, "the manager is asked about a client");
        it->second.asked = action.round;
        it->second.gone = action.type == PCILEND_SHARE_DO_GONE;
        if (it->second.gone) Demand(!it->second.pages, "closed before the manager is told");
        break;
      case PCILEND_SHARE_DO_RELEASE:
        Demand(client, "who is released was there");
        Demand(fenced || (!it->second.mapped && !it->second.pages), "nothing is left of it");
        truth_.erase(it);
        break;
      case PCILEND_SHARE_DO_MANAGER_OVER:
        Demand(truth_.empty(), "the manager goes last");
        break;
      default:
        break;
    }
  }

  void Work(u32 count) {
    for (; count > 0 && !work_.empty(); --count) {
      const pcilend_share_action action = work_.front();
      work_.pop_front();
      pcilend_share_event event = {};
      event.client = action.lease;
      if (action.type == PCILEND_SHARE_DO_FENCE) {
        for (auto& [lease, truth] : truth_) truth.mapped = truth.pages = truth.queues = false;
        event.type = PCILEND_SHARE_FENCED;
        Do(event);
        Demand(share().state == PCILEND_SHARE_OFF && truth_.empty(), "a fence ends it all");
        continue;
      }
      const auto it = truth_.find(action.lease);
      Demand(it != truth_.end(), "no work is left of who is over");
      Truth& truth = it->second;
      if (action.type == PCILEND_SHARE_DO_MAP) {
        Demand(!truth.mapped, "mapped once");
        truth.mapped = truth.pages = Pick(8) != 0;
        event.type = truth.mapped ? PCILEND_SHARE_MAPPED : PCILEND_SHARE_MAP_FAILED;
      } else if (action.type == PCILEND_SHARE_DO_CLOSE) {
        Demand(truth.pages, "what is closed was open");
        truth.pages = false;
        event.type = PCILEND_SHARE_CLOSED;
      } else {
        Demand(truth.mapped, "what is unmapped was mapped");
        Demand(truth.cleared || truth.asked == 0, "never unmapped before it is cleared");
        Demand(!truth.queues, "no queue uses what is unmapped");
        truth.mapped = false;
        event.type = PCILEND_SHARE_UNMAPPED;
      }
      Do(event);
    }
  }

  void Pass(u64 time) {
    const u64 until = now + time;
    for (int ticks = 0; DueIn() <= until - now; ++ticks) {
      Demand(ticks < 200, "a tick that is due changes something");
      now += DueIn();
      pcilend_share_event event = {};
      event.type = PCILEND_SHARE_TICK;
      Do(event);
    }
    now = until;
  }

  void CheckStates() {
    u32 clients = 0;
    for (const auto& client : share().client) {
      if (client.state == PCILEND_CLIENT_NONE) continue;
      ++clients;
      const auto it = truth_.find(client.lease);
      Demand(it != truth_.end(), "the machine knows who is there");
      if (client.state != PCILEND_CLIENT_ACTIVE && share().state != PCILEND_SHARE_FENCING) {
        Demand(client.mail.state == PCILEND_MAIL_NONE, "its mail goes with its link, or with it");
        letters_.erase(client.lease);
      }
      if (share().state == PCILEND_SHARE_FENCING) continue;
      if (client.state == PCILEND_CLIENT_ACTIVE) Demand(it->second.pages, "open while active");
      Demand(client.state != PCILEND_CLIENT_REQUESTED || share().resetting, "waits for a reset");
      Demand(client.alias <= PCILEND_ALIAS_FIRST && client.alias >= 0x80000000, "an alias");
    }
    Demand(clients == truth_.size(), "no more and no fewer");
    std::erase_if(letters_, [this](const auto& letter) { return !truth_.contains(letter.first); });
    Demand(share().state != PCILEND_SHARE_OFF || clients == 0, "no client without a manager");
    Demand(share().slices.range.count == clients, "a slice for each");
  }

  Bytes& bytes_;
  u64 boot_[kNodes + 1];
  u32 leases_ = 0;
  pcilend_share_policy policy_ = {};
  std::map<u32, Truth> truth_;
  std::map<u32, Letter> letters_;  // by lease of the client, as long as they hold
  u32 texts_ = 0;
  u64 orders_ = 0;
  std::deque<pcilend_share_action> work_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const u8* data, size_t size) {
  Bytes bytes(data, std::min<size_t>(size, 4096));
  Fuzz fuzz(bytes);
  // So that short inputs get somewhere.
  fuzz.Manage();
  fuzz.SetPolicy(share_world::Policy());
  for (int i = 0; i < 512 && !bytes.Empty(); ++i) fuzz.Step();
  fuzz.End();
  return 0;
}
