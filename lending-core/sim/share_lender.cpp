// SPDX-License-Identifier: GPL-2.0-or-later
#include "share_lender.h"

#include <algorithm>

namespace pcilend::sim {

namespace {

pcilend_share_function Describe() {
  pcilend_share_function drive = {};
  drive.bar_bytes[0] = 0x4000;
  drive.bar_bytes[2] = 1 << 24;
  drive.msix_page = 2;
  drive.msix_pages = 1;
  drive.last_address = (1ULL << 48) - 1;
  drive.alone = true;
  return drive;
}

}  // namespace

ShareLender::ShareLender(ShareLenderPort& port, u32 id, Plant plant)
    : port_(port),
      id_(id),
      plant_(plant),
      share_(std::make_unique<pcilend_share>()),
      result_(std::make_unique<pcilend_share_result>()) {
  rules_.clients = PCILEND_SHARE_CLIENTS;
}

void ShareLender::Boot() {
  const pcilend_share_function function = Describe();
  ++stamp_;
  jobs_.clear();
  returns_.clear();
  joins_.clear();
  untold_.clear();
  taken_mail_.clear();
  tick_at_ = recall_at_ = ~0ULL;
  taken_ = manager_died_ = false;
  manager_lost_ = 0;
  drive_.PoweredUp();
  lease_ = {};
  numbers_ = {};
  pcilend_share_init(share_.get(), &function, PCILEND_SHARE_CLEAR_MS);
  Allow(rules_);
  LeaseEvent(PCILEND_LEASE_ADD);
  LeaseEvent(PCILEND_LEASE_MAKE_AVAILABLE);
  LeaseEvent(PCILEND_LEASE_RESET_OK);
}

pcilend_share_event ShareLender::Event(pcilend_share_event_type type, u32 node, u64 boot,
                                       u32 lease) const {
  pcilend_share_event event = {};
  event.type = type;
  event.node = node;
  event.boot = boot;
  event.lease = lease;
  event.now = port_.Now();
  return event;
}

// The list is taken before it is carried out: some of it leads to further events.
int ShareLender::Apply(pcilend_share_event event) {
  const int error = pcilend_share_apply(share_.get(), &event, &numbers_, result_.get());
  const std::vector<pcilend_share_action> actions(result_->action,
                                                  result_->action + result_->count);
  for (const auto& action : actions) Carry(action);
  const u64 due = pcilend_share_due_in(share_.get(), port_.Now());
  if (due != ~0ULL && port_.Now() + due < tick_at_) {
    tick_at_ = port_.Now() + due;
    port_.Later(due, ShareWork::kTick, stamp_);
  }
  return error;
}

void ShareLender::Tell(u16 type, const pcilend_share_action& action) {
  const pcilend_msg_lease msg = {id_, action.lease,
                                 type == PCILEND_MSG_LOST ? static_cast<u32>(action.reason) : 0};
  if (!port_.Send(action.node, action.boot, type, false, 0, 0, &msg) && type == PCILEND_MSG_LOST) {
    untold_.push_back({action.node, action.boot, msg});
  }
}

void ShareLender::TellManager(u16 type, const pcilend_share_action& action) {
  const pcilend_share_client* client = pcilend_share_find(share_.get(), action.lease);
  const auto it = drive_.clients.find(action.lease);
  if (it == drive_.clients.end()) return;
  it->second.told = true;
  if (type == PCILEND_MSG_CLIENT) {
    const pcilend_msg_client msg = {
        id_,           share_->lease,        action.lease,
        action.node,   client->slice,        client->wish.slice_bytes,
        client->alias, client->wish.vectors, pcilend_share_piece(share_.get(), client)};
    port_.Send(share_->node, share_->boot, type, false, 0, 0, &msg);
    return;
  }
  if (it->second.round != action.round) it->second.asked = port_.Now();
  it->second.round = action.round;
  const pcilend_msg_clear msg = {id_, share_->lease, action.lease, action.round};
  port_.Send(share_->node, share_->boot, type, false, 0, 0, &msg);
}

void ShareLender::AnswerReturns(u32 lease) {
  for (const Asker& asker : returns_) {
    if (asker.lease != lease) continue;
    port_.Send(asker.node, asker.boot, PCILEND_MSG_RETURN, true, PCILEND_STATUS_OK, asker.request,
               nullptr);
  }
  std::erase_if(returns_, [lease](const Asker& asker) { return asker.lease == lease; });
}

void ShareLender::Release(const pcilend_share_action& action) {
  const auto join = joins_.find(action.lease);
  ++ended;
  drive_.Released(action.lease);
  if (join != joins_.end()) {
    const pcilend_msg_joined none = {};
    port_.Send(action.node, action.boot, PCILEND_MSG_JOIN, true, PCILEND_STATUS_BUSY,
               join->second.request, &none);
    joins_.erase(join);
  } else if (action.reason != 0) {
    Tell(PCILEND_MSG_LOST, action);
  }
  AnswerReturns(action.lease);
}

// Somebody must have earned it.
void ShareLender::DemandCause(enum pcilend_lost_reason reason) {
  const Time now = port_.Now();
  bool cause = manager_died_ || taken_ || now >= recall_at_ || reset_fails_;
  cause = cause || (manager_lost_ != 0 && now - manager_lost_ >= PCILEND_SHARE_CLEAR_MS);
  for (const auto& [lease, client] : drive_.clients) {
    cause = cause || (client.asked != 0 && now - client.asked >= PCILEND_SHARE_CLEAR_MS);
  }
  drive_.Demand(cause && reason != 0, "the function is taken from nobody without a cause");
}

void ShareLender::Carry(const pcilend_share_action& action) {
  switch (action.type) {
    case PCILEND_SHARE_DO_FENCE:
      DemandCause(action.reason);
      ++fences;
      [[fallthrough]];
    case PCILEND_SHARE_DO_MAP:
    case PCILEND_SHARE_DO_CLOSE:
    case PCILEND_SHARE_DO_UNMAP:
      jobs_.push_back(action);
      if (jobs_.size() == 1) port_.Later(1 + port_.Random(10), ShareWork::kJob, stamp_);
      return;
    case PCILEND_SHARE_DO_TELL:
      return TellManager(PCILEND_MSG_CLIENT, action);
    case PCILEND_SHARE_DO_ANSWER: {
      const pcilend_share_client* client = pcilend_share_find(share_.get(), action.lease);
      pcilend_msg_joined msg = {};
      msg.id = id_;
      msg.lease = action.lease;
      msg.slice = client->slice;
      msg.alias = client->alias;
      port_.Send(action.node, action.boot, PCILEND_MSG_JOIN, true, PCILEND_STATUS_OK,
                 joins_[action.lease].request, &msg);
      joins_.erase(action.lease);
      return;
    }
    case PCILEND_SHARE_DO_GONE:
      TellManager(PCILEND_MSG_CLIENT_GONE, action);
      if (plant_ == Plant::kUnmapBeforeCleared) {
        pcilend_share_event event =
            Event(PCILEND_SHARE_CLEARED, share_->node, share_->boot, share_->lease);
        event.client = action.lease;
        event.round = action.round;
        Apply(event);
      }
      return;
    case PCILEND_SHARE_DO_QUARANTINE:
      ++quarantines;
      return TellManager(PCILEND_MSG_QUARANTINE, action);
    case PCILEND_SHARE_DO_READMIT:
      ++readmitted;
      drive_.Demand(drive_.lies || !drive_.clients[action.lease].queues,
                    "who is readmitted has no queues of before");
      return Tell(PCILEND_MSG_READMITTED, action);
    case PCILEND_SHARE_DO_WAS_RESET:
      return Tell(PCILEND_MSG_WAS_RESET, action);
    case PCILEND_SHARE_DO_RECALL: {
      const auto it = drive_.clients.find(action.lease);
      const pcilend_msg_recall msg = {id_, action.lease, 1000};
      if (it != drive_.clients.end()) {
        if (plant_ == Plant::kRecallOfTheManagerOnly) return;
        it->second.recalled = true;
      }
      port_.Send(action.node, action.boot, PCILEND_MSG_RECALL, false, 0, 0, &msg);
      return;
    }
    case PCILEND_SHARE_DO_RELEASE:
      return Release(action);
    case PCILEND_SHARE_DO_MANAGER_OVER:
      drive_.Demand(drive_.clients.empty(), "the manager goes last");
      return FenceLease(PCILEND_LEASE_RETURN);
    case PCILEND_SHARE_DO_AUDIT:
      ++audits;
      return;
  }
}

void ShareLender::LeaseEvent(pcilend_lease_event_type type) {
  pcilend_lease_event event = {};
  pcilend_lease_result result;
  event.type = type;
  event.node = lease_.node;
  event.boot = lease_.boot;
  event.lease = lease_.number;
  event.now = port_.Now();
  drive_.Demand(pcilend_lease_apply(&lease_, &event, &numbers_, &result) == 0,
                "the manager's lease goes its way");
}

// The manager's lease is over: fenced, and then reset.
void ShareLender::FenceLease(pcilend_lease_event_type end) {
  LeaseEvent(end);
  drive_.Fence();
  drive_.Over();
  LeaseEvent(PCILEND_LEASE_FENCED);
  taken_ = manager_died_ = reset_fails_ = false;
  manager_lost_ = 0;
  recall_at_ = ~0ULL;
  port_.Later(50 + port_.Random(500), ShareWork::kLeaseReset, stamp_);
}

void ShareLender::Job() {
  const pcilend_share_action action = jobs_.front();
  pcilend_share_event event = Event(PCILEND_SHARE_FENCED);
  event.client = action.lease;
  jobs_.pop_front();
  if (!jobs_.empty()) port_.Later(1 + port_.Random(10), ShareWork::kJob, stamp_);
  switch (action.type) {
    case PCILEND_SHARE_DO_MAP:
      event.type = PCILEND_SHARE_MAP_FAILED;
      if (port_.Random(200) != 0) {
        drive_.Map(action.lease);
        event.type = PCILEND_SHARE_MAPPED;
      }
      break;
    case PCILEND_SHARE_DO_CLOSE:
      if (plant_ != Plant::kPagesStayOpen) drive_.clients[action.lease].pages = false;
      if (plant_ == Plant::kToldTooEarly) {
        const pcilend_msg_lease msg = {id_, action.lease, PCILEND_LOST_REVOKED};
        port_.Send(action.node, action.boot, PCILEND_MSG_LOST, false, 0, 0, &msg);
      }
      if (plant_ == Plant::kReuseSlice) {
        const pcilend_share_client* client = pcilend_share_find(share_.get(), action.lease);
        if (client != nullptr) {
          pcilend_slice_release(&share_->slices, client->slice, client->wish.slice_bytes);
        }
      }
      event.type = PCILEND_SHARE_CLOSED;
      break;
    case PCILEND_SHARE_DO_UNMAP:
      drive_.Unmap(action.lease);
      event.type = PCILEND_SHARE_UNMAPPED;
      break;
    default:
      FenceLease(PCILEND_LEASE_EXPIRE);
      Tell(PCILEND_MSG_LOST, action);
      break;
  }
  Apply(event);
}

// A client asks for queues. What it says is sent back to it with the answer.
int ShareLender::Mail(u32 node, u64 boot, const pcilend_msg_mail& in) {
  pcilend_mail_text question = {};
  question.bytes = in.bytes;
  std::memcpy(question.text, in.text, sizeof question.text);
  const int error =
      pcilend_mail_ask(share_.get(), node, boot, in.lease, in.number, &question, nullptr);
  if (error == 0) port_.Later(1 + port_.Random(10), ShareWork::kMail, stamp_);
  const pcilend_mail_text* answer = pcilend_mail_answered(share_.get(), in.lease, in.number);
  if (error == -EALREADY && answer != nullptr) SendMailed(in.lease, *answer);
  return error == -EALREADY ? 0 : error;
}

void ShareLender::TakeMail() {
  Taken taken = {};
  taken.lease = pcilend_mail_next(share_.get(), &taken.text);
  if (taken.lease == 0) return;
  taken_mail_.push_back(taken);
  port_.Later(1 + port_.Random(port_.Random(20) == 0 ? 3000 : 20), ShareWork::kAnswer, stamp_);
}

// The manager makes queues; it keeps none that nobody hears of.
void ShareLender::AnswerMail() {
  const Taken taken = taken_mail_.front();
  taken_mail_.pop_front();
  if (pcilend_mail_answer(share_.get(), taken.lease, &taken.text, nullptr) != 0) return;
  const auto it = drive_.clients.find(taken.lease);
  if (it == drive_.clients.end()) return drive_.Demand(false, "who is answered is a client");
  it->second.queues = true;
  ++answered;
  SendMailed(taken.lease, taken.text);
}

void ShareLender::SendMailed(u32 lease, const pcilend_mail_text& text) {
  const pcilend_share_client* client = pcilend_share_find(share_.get(), lease);
  pcilend_msg_mail msg = {id_, lease, client->mail.number, text.bytes, {}};
  std::memcpy(msg.text, text.text, sizeof msg.text);
  port_.Send(client->node, client->boot, PCILEND_MSG_MAILED, false, 0, 0, &msg);
}

void ShareLender::Do(ShareWork work, u32 stamp) {
  if (stamp != stamp_) return;
  switch (work) {
    case ShareWork::kMail:
      return TakeMail();
    case ShareWork::kAnswer:
      return AnswerMail();
    case ShareWork::kJob:
      return Job();
    case ShareWork::kTick:
      tick_at_ = ~0ULL;
      if (plant_ != Plant::kNoTimeout) Apply(Event(PCILEND_SHARE_TICK));
      return;
    case ShareWork::kLeaseReset: {
      const u32 lease = lease_.number;
      LeaseEvent(PCILEND_LEASE_RESET_OK);
      return AnswerReturns(lease);
    }
    case ShareWork::kManagersReset:
      if (!share_->resetting) return;
      reset_fails_ = port_.Random(50) == 0;
      if (!reset_fails_) {
        for (auto& [lease, client] : drive_.clients) {
          client.queues = false;
          client.asked = 0;
        }
      }
      Apply(Event(reset_fails_ ? PCILEND_SHARE_RESET_FAILED : PCILEND_SHARE_RESET_OK));
      port_.Send(resetter_.node, resetter_.boot, PCILEND_MSG_RESET, true,
                 reset_fails_ ? PCILEND_STATUS_FAILED : PCILEND_STATUS_OK, resetter_.request,
                 nullptr);
      return;
  }
}

int ShareLender::Borrow(u32 node, u64 boot, const pcilend_msg_borrow& in,
                        pcilend_msg_borrowed* out) {
  pcilend_lease_event event = {};
  pcilend_lease_result result;
  event.type = PCILEND_LEASE_BORROW;
  event.node = node;
  event.boot = boot;
  event.lease_ms = in.lease_ms;
  event.now = port_.Now();
  const int error = pcilend_lease_apply(&lease_, &event, &numbers_, &result);
  if (error != 0) return error;
  drive_.Managed(node, boot, port_.Random(8) == 0);
  drive_.Demand(Apply(Event(PCILEND_SHARE_MANAGE, node, boot, lease_.number)) == 0,
                "who has the lease is the manager");
  out->id = id_;
  out->lease = lease_.number;
  out->last_address = (1ULL << 48) - 1;
  return 0;
}

int ShareLender::Policy(u32 node, u64 boot, const pcilend_msg_policy& in) {
  pcilend_share_policy policy = {};
  policy.clients = in.clients;
  policy.vectors = in.vectors;
  policy.slice_bytes = in.slice_bytes;
  policy.near_bytes = in.near_bytes;
  for (const pcilend_msg_share_range& range : in.range) {
    if (range.pages == 0) continue;
    policy.range[policy.ranges++] = {range.bar, range.page, range.pages,
                                     static_cast<pcilend_share_pages>(range.kind)};
  }
  pcilend_share_event event = Event(PCILEND_SHARE_POLICY, node, boot, in.lease);
  event.policy = &policy;
  if (plant_ == Plant::kSecondManager) {
    event.node = share_->node;
    event.boot = share_->boot;
  }
  const int error = Apply(event);
  if (error == 0) drive_.PolicyOf(node, boot);
  return error;
}

int ShareLender::Join(u32 node, u64 boot, u32 request, const pcilend_msg_join& in) {
  pcilend_share_event event = Event(PCILEND_SHARE_JOIN, node, boot);
  event.wish = {in.slice_bytes, in.near_bytes, in.vectors, in.lease_ms};
  if (plant_ == Plant::kEarlyReboot) {
    for (const auto& [lease, client] : drive_.clients) {
      if (client.node == node) event.boot = client.boot;
    }
  }
  // Applied first, told to the drive next: what is to be mapped is mapped later.
  const int error = Apply(event);
  if (error != 0) return error;
  const u32 lease = numbers_.last;
  const pcilend_share_client* client = pcilend_share_find(share_.get(), lease);
  drive_.Joined(lease, {node, boot, client->slice, in.slice_bytes},
                rules_.clients != 0 && pcilend_access_allows(&rules_.nodes, node));
  joins_[lease] = {node, boot, request, lease};
  ++joined;
  return 0;
}

int ShareLender::Cleared(u32 node, u64 boot, const pcilend_msg_clear& in) {
  pcilend_share_event event = Event(PCILEND_SHARE_CLEARED, node, boot, in.lease);
  const bool manager = node == drive_.manager && boot == drive_.manager_boot;
  event.client = in.client;
  event.round = in.round;
  if (plant_ == Plant::kClearedByAnybody) {
    event.node = share_->node;
    event.boot = share_->boot;
  }
  const auto it = drive_.clients.find(in.client);
  const pcilend_share_client* client = pcilend_share_find(share_.get(), in.client);
  if (manager && it != drive_.clients.end() && client != nullptr && client->round == in.round) {
    if (client->state == PCILEND_CLIENT_CLEARING) it->second.confirmed = true;
    it->second.asked = 0;
  }
  return Apply(event);
}

void ShareLender::Request(u32 node, u64 boot, const Slot& slot) {
  const pcilend_msg_header header = Header(slot);
  const auto named = Body<pcilend_msg_lease>(slot);
  const auto answer = [&](int error, const void* payload = nullptr) {
    if (error != 0) ++refused;
    port_.Send(node, boot, header.type, true, pcilend_status_from_errno(error), header.request,
               payload);
  };
  switch (header.type) {
    case PCILEND_MSG_BORROW: {
      pcilend_msg_borrowed out = {};
      const int error = Borrow(node, boot, Body<pcilend_msg_borrow>(slot), &out);
      return answer(error, &out);
    }
    case PCILEND_MSG_POLICY:
      return answer(Policy(node, boot, Body<pcilend_msg_policy>(slot)));
    case PCILEND_MSG_JOIN: {
      const pcilend_msg_joined none = {};
      const int error = Join(node, boot, header.request, Body<pcilend_msg_join>(slot));
      if (error != 0) answer(error, &none);
      return;
    }
    case PCILEND_MSG_CLEARED:
      return answer(Cleared(node, boot, Body<pcilend_msg_clear>(slot)));
    case PCILEND_MSG_MAIL:
      return answer(Mail(node, boot, Body<pcilend_msg_mail>(slot)));
    case PCILEND_MSG_RETURN: {
      returns_.push_back({node, boot, header.request, named.lease});
      const int error = Apply(Event(PCILEND_SHARE_RETURN, node, boot, named.lease));
      if (error == 0) return;
      std::erase_if(returns_, [&](const Asker& a) {
        return a.node == node && a.boot == boot && a.request == header.request;
      });
      return answer(error);
    }
    case PCILEND_MSG_RESET: {
      const int error = Apply(Event(PCILEND_SHARE_RESETTING, node, boot, named.lease));
      if (error != 0) return answer(error);
      resetter_ = {node, boot, header.request, named.lease};
      port_.Later(20 + port_.Random(port_.Random(8) == 0 ? 9000 : 500), ShareWork::kManagersReset,
                  stamp_);
      return;
    }
    default:
      return answer(-EPROTO);
  }
}

void ShareLender::LinkLost(u32 node, u64 boot) {
  if (node == drive_.manager && boot == drive_.manager_boot && manager_lost_ == 0) {
    manager_lost_ = port_.Now();
  }
  if (plant_ == Plant::kMasterOffForAll) {
    for (const auto& [lease, client] : drive_.clients) {
      if (client.node == node) drive_.master = false;
    }
  }
  std::map<u32, pcilend_mail> kept;
  if (plant_ == Plant::kMailOutlivesTheLink) {
    for (const pcilend_share_client& client : share_->client) kept[client.lease] = client.mail;
  }
  Apply(Event(PCILEND_SHARE_LINK_LOST, node, boot));
  for (pcilend_share_client& client : share_->client) {
    if (client.state != PCILEND_CLIENT_NONE && kept.contains(client.lease)) {
      client.mail = kept[client.lease];
    }
  }
  drive_.Demand(drive_.master || drive_.manager == 0, "one client's loss stops nobody else");
}

void ShareLender::LinkUp(u32 node, u64 boot) {
  if (node == drive_.manager && boot == drive_.manager_boot) manager_lost_ = 0;
  std::vector<Untold> untold;
  untold.swap(untold_);
  for (const Untold& u : untold) {
    if (u.node != node) {
      untold_.push_back(u);
    } else if (u.boot == boot) {
      port_.Send(node, boot, PCILEND_MSG_LOST, false, 0, 0, &u.msg);
    }
  }
  Apply(Event(PCILEND_SHARE_LINK_UP, node, boot));
}

void ShareLender::PeerDead(u32 node, u64 boot) {
  const auto of_it = [&](const auto& u) { return u.node == node && u.boot == boot; };
  if (node == drive_.manager && boot == drive_.manager_boot) manager_died_ = true;
  std::erase_if(untold_, of_it);
  std::erase_if(returns_, of_it);
  Apply(Event(PCILEND_SHARE_PEER_DEAD, node, boot));
}

void ShareLender::Allow(const pcilend_share_rules& rules) {
  const pcilend_share_rules all = {PCILEND_SHARE_CLIENTS, {}};
  pcilend_share_event event = Event(PCILEND_SHARE_ALLOW);
  rules_ = rules;
  event.rules = plant_ == Plant::kNoRights ? &all : &rules_;
  Apply(event);
}

void ShareLender::Recall(u32 grace_ms) {
  pcilend_share_event event = Event(PCILEND_SHARE_RECALL);
  event.grace_ms = grace_ms;
  if (Apply(event) != 0 || share_->state == PCILEND_SHARE_FENCING) return;
  recall_at_ = port_.Now() + grace_ms;
  for (const pcilend_share_client& client : share_->client) {
    if (client.state != PCILEND_CLIENT_ACTIVE) continue;
    drive_.Demand(drive_.clients[client.lease].recalled, "a recall reaches every client");
  }
}

void ShareLender::Take(bool unplugged) {
  taken_ = true;
  if (Apply(Event(unplugged ? PCILEND_SHARE_UNPLUGGED : PCILEND_SHARE_REVOKE)) != 0) {
    taken_ = false;
  }
  if (share_->state == PCILEND_SHARE_OFF) taken_ = false;
}

void ShareLender::RevokeClient(u32 lease) {
  pcilend_share_event event = Event(PCILEND_SHARE_REVOKE_CLIENT);
  event.client = lease;
  Apply(event);
}

void ShareLender::Check() {
  if (share_->state == PCILEND_SHARE_FENCING || share_->resetting) return;
  for (const auto& [lease, client] : drive_.clients) {
    drive_.Demand(client.asked == 0 || port_.Now() < client.asked + PCILEND_SHARE_CLEAR_MS + 1000,
                  "a manager that says nothing costs the function in time");
  }
  drive_.Demand(manager_lost_ == 0 || port_.Now() < manager_lost_ + PCILEND_SHARE_CLEAR_MS + 1000,
                "a manager that says nothing costs the function in time");
}

}  // namespace pcilend::sim
