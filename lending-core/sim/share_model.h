// SPDX-License-Identifier: GPL-2.0-or-later
// A shared function as it really is, whatever lender, manager and clients believe: what is mapped,
// which queues the drive has, who may ring. It holds them to their promises.
#pragma once

#include <map>
#include <set>
#include <string>

#include "model.h"
#include "pcilend/share.h"

namespace pcilend::sim {

// Bugs to put in on purpose, to see that they are found.
enum class Plant {
  kNone,
  kUnmapBeforeCleared,
  kReuseSlice,
  kSecondManager,
  kClearedByAnybody,
  kMasterOffForAll,
  kNoTimeout,
  kNoRights,
  kEarlyReboot,
  kToldTooEarly,
  kPagesStayOpen,
  kRecallOfTheManagerOnly,
  kMailOutlivesTheLink,
};

class Drive {
 public:
  struct Client {
    u32 node = 0;
    u64 boot = 0;
    u64 slice = 0, bytes = 0;
    bool mapped = false;
    bool pages = false;
    bool queues = false;
    bool told = false;       // the manager knows of it
    bool confirmed = false;  // the manager has said, when asked, that it is gone
    bool recalled = false;
    u32 round = 0;
    Time asked = 0;  // 0: nothing is asked
  };

  const std::string& wrong() const { return wrong_; }
  void Demand(bool condition, const char* promise) {
    if (!condition && wrong_.empty()) wrong_ = promise;
  }

  // A lease begins or ends.
  void Managed(u32 node, u64 boot, bool liar) {
    Demand(manager == 0, "there are never two managers");
    Demand(clients.empty(), "nothing is left of former clients");
    manager = node;
    manager_boot = boot;
    lies = liar;
    master = true;
  }
  void PolicyOf(u32 node, u64 boot) {
    Demand(manager == node && manager_boot == boot, "only the manager makes the policy");
  }
  void Joined(u32 lease, const Client& client, bool right) {
    Demand(right, "nobody is admitted without a right");
    for (const auto& [number, other] : clients) {
      Demand(other.node != client.node || other.boot == client.boot,
             "no new boot is admitted before the old one is over");
    }
    clients[lease] = client;
    if (clients.size() > most) most = clients.size();
  }
  void Map(u32 lease) {
    Client& client = clients[lease];
    for (const auto& [number, other] : clients) {
      if (number == lease || (!other.mapped && !other.queues)) continue;
      Demand(
          client.slice + client.bytes <= other.slice || other.slice + other.bytes <= client.slice,
          "no slice is given twice");
    }
    client.mapped = client.pages = true;
  }
  void Unmap(u32 lease) {
    Client& client = clients[lease];
    Demand(client.confirmed || !client.told, "nothing is unmapped before it is cleared");
    Demand(lies || !client.queues, "no queue uses what is unmapped");
    client.mapped = false;
    if (lies) client.queues = false;
  }
  void Released(u32 lease) {
    const auto it = clients.find(lease);
    if (it == clients.end()) return Demand(false, "who is released was there");
    Demand(!it->second.pages, "who is over rings no doorbell");
    Demand(!it->second.mapped, "of who is over nothing is mapped");
    clients.erase(it);
  }
  void Fence() {
    for (auto& [lease, client] : clients) client.mapped = client.pages = client.queues = false;
    master = false;
  }
  void Over() { manager = 0; }
  void PoweredUp() {
    clients.clear();
    manager = 0;
    master = false;
  }
  // Its host uses the memory for something else.
  void MemoryFreed(u32 lease, u32 node, u64 boot) {
    const auto it = clients.find(lease);
    if (it == clients.end() || it->second.node != node || it->second.boot != boot) return;
    Demand(!it->second.mapped, "memory is not freed while the function may reach it");
  }

  std::map<u32, Client> clients;  // by lease, until they are over
  size_t most = 0;
  u32 manager = 0;
  u64 manager_boot = 0;
  bool lies = false;  // the manager, at the cost of its own clients
  bool master = false;

 private:
  std::string wrong_;
};

}  // namespace pcilend::sim
