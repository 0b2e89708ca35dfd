// SPDX-License-Identifier: GPL-2.0-or-later
// A shared function and what its tests, and its fuzzer, say to it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pcilend/share.h"

namespace share_world {

constexpr u32 kManager = 1;
constexpr u64 kManagerBoot = 1001;
constexpr u32 kManagerLease = 7;

// A drive with registers and doorbells in BAR 0, its MSI-X table on page 2, and a CMB in BAR 2.
inline pcilend_share_function Drive() {
  pcilend_share_function drive = {};
  drive.bar_bytes[0] = 0x4000;
  drive.bar_bytes[2] = 1 << 24;
  drive.msix_page = 2;
  drive.msix_pages = 1;
  drive.last_address = (1ULL << 48) - 1;
  drive.alone = true;
  return drive;
}

inline pcilend_share_policy Policy(u32 clients = PCILEND_SHARE_CLIENTS) {
  pcilend_share_policy policy = {};
  policy.clients = clients;
  policy.vectors = 4;
  policy.slice_bytes = 1 << 26;
  policy.near_bytes = 1 << 20;
  policy.ranges = 2;
  policy.range[0] = {0, 1, 1, PCILEND_SHARE_COMMON};
  policy.range[1] = {2, 0, 16, PCILEND_SHARE_POOL};
  return policy;
}

inline pcilend_share_wish Wish() {
  return {1 << 24, 4096, 2, PCILEND_LEASE_MS_DEFAULT};
}

class World {
 public:
  explicit World(const pcilend_share_function& function = Drive())
      : share_(std::make_unique<pcilend_share>()),
        result_(std::make_unique<pcilend_share_result>()) {
    pcilend_share_init(share_.get(), &function, PCILEND_SHARE_CLEAR_MS);
    rules_.clients = PCILEND_SHARE_CLIENTS;
    Allow(rules_);
  }

  int Apply(pcilend_share_event event) {
    event.now = now;
    return pcilend_share_apply(share_.get(), &event, &numbers_, result_.get());
  }

  int Allow(const pcilend_share_rules& rules) {
    pcilend_share_event event = {};
    event.type = PCILEND_SHARE_ALLOW;
    event.rules = &rules;
    return Apply(event);
  }
  int Manage(u32 node = kManager, u64 boot = kManagerBoot, u32 lease = kManagerLease,
             u64 slice_bytes = 0) {
    pcilend_share_event event = {};
    event.type = PCILEND_SHARE_MANAGE;
    event.node = node;
    event.boot = boot;
    event.lease = lease;
    event.slice_bytes = slice_bytes;
    return Apply(event);
  }
  int SetPolicy(const pcilend_share_policy& policy, u32 node = kManager, u64 boot = kManagerBoot,
                u32 lease = kManagerLease) {
    pcilend_share_event event = {};
    event.type = PCILEND_SHARE_POLICY;
    event.node = node;
    event.boot = boot;
    event.lease = lease;
    event.policy = &policy;
    return Apply(event);
  }
  int Join(u32 node, u64 boot, const pcilend_share_wish& wish = Wish()) {
    pcilend_share_event event = {};
    event.type = PCILEND_SHARE_JOIN;
    event.node = node;
    event.boot = boot;
    event.wish = wish;
    return Apply(event);
  }
  int Peer(pcilend_share_event_type type, u32 node, u64 boot, u32 lease = 0) {
    pcilend_share_event event = {};
    event.type = type;
    event.node = node;
    event.boot = boot;
    event.lease = lease;
    return Apply(event);
  }
  int Of(pcilend_share_event_type type, u32 client) {
    pcilend_share_event event = {};
    event.type = type;
    event.client = client;
    return Apply(event);
  }
  int Cleared(u32 client, u32 round, u32 node = kManager, u64 boot = kManagerBoot,
              u32 lease = kManagerLease) {
    pcilend_share_event event = {};
    event.type = PCILEND_SHARE_CLEARED;
    event.node = node;
    event.boot = boot;
    event.lease = lease;
    event.client = client;
    event.round = round;
    return Apply(event);
  }
  int Recall(u32 grace_ms) {
    pcilend_share_event event = {};
    event.type = PCILEND_SHARE_RECALL;
    event.grace_ms = grace_ms;
    return Apply(event);
  }

  // "map 8; tell 8": what is to be done, with the leases.
  std::string Todo() const {
    static const char* const kNames[] = {
        "?",     "map",     "tell",      "answer", "close", "gone",         "quarantine", "readmit",
        "unmap", "release", "was-reset", "recall", "fence", "manager-over", "audit"};
    std::string text;
    for (u32 i = 0; i < result_->count; ++i) {
      const pcilend_share_action& a = result_->action[i];
      if (!text.empty()) text += "; ";
      text += kNames[a.type];
      text += ' ' + std::to_string(a.type == PCILEND_SHARE_DO_AUDIT ? a.node : a.lease);
      if (a.last) text += " last";
      if (a.reason != 0) text += " reason" + std::to_string(a.reason);
    }
    return text;
  }

  const pcilend_share_result& result() const { return *result_; }
  const pcilend_share& share() const { return *share_; }
  pcilend_share& share() { return *share_; }
  const pcilend_share_client* Find(u32 lease) const {
    return pcilend_share_find(share_.get(), lease);
  }
  u64 DueIn() const { return pcilend_share_due_in(share_.get(), now); }

  u64 now = 100000;

 private:
  pcilend_share_rules rules_ = {};
  std::unique_ptr<pcilend_share> share_;
  std::unique_ptr<pcilend_share_result> result_;
  pcilend_lease_numbers numbers_ = {10};
};

}  // namespace share_world
