// SPDX-License-Identifier: GPL-2.0-or-later
// What the manager of a shared drive knows of its clients, and what they may ask. It touches
// neither drive nor lease.
//
// A client's queues and data are in its slice, and in the memory beside the drive that it was
// given, which the drive only reads. A queue that is anywhere else could be another client's, or
// nowhere: a drive that can't read a command, or can't write a completion, may stop for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "pcilend/error.h"
#include "pcilend/nvme/mail.h"
#include "pcilend/nvme/queues.h"
#include "pcilend/share.h"

namespace pcilend::nvme {

// Of each client.
struct ClientLimits {
  uint32_t pairs = 1;
  uint32_t entries = 1024;  // of a queue
};

class Book {
 public:
  explicit Book(const ClientLimits& limits) : limits_(limits) {}

  // As the lender tells. A client's device addresses are as in the notice.
  void join(const ClientNotice& notice) { clients_.try_emplace(notice.lease, notice); }
  // Its memory beside the drive: its commands must be there from now on.
  void give_near(uint32_t client, uint64_t address, uint64_t bytes);
  // Its link was lost, or it was cleared: it keeps what it has, but for its queues, and gets none
  // any more. Their ids stay with it, as what it still rings when the link is back must be nobody
  // else's.
  void quarantine(uint32_t client);
  void leave(uint32_t client) { clients_.erase(client); }
  // By which it is known to who clears it; 0: nobody may.
  void give_key(uint32_t client, uint64_t key);
  // Its queues may be deleted by who asks so; NotFound as mail::Clear.
  [[nodiscard]] Result<> allow_clear(const mail::Clear& clear) const;
  [[nodiscard]] bool quarantined(uint32_t client) const;

  [[nodiscard]] size_t clients() const { return clients_.size(); }
  [[nodiscard]] bool knows(uint32_t client) const { return clients_.contains(client); }
  // Ids of queues that are, or may be, the client's; nothing of one that is not known.
  [[nodiscard]] std::vector<uint16_t> pairs(uint32_t client) const;
  [[nodiscard]] const ClientLimits& limits() const { return limits_; }

  // What is asked for, with the drive's number of the interrupt. Usage if the client may not have
  // it; State if it has as many as it may.
  [[nodiscard]] Result<QueueRequest> allow_pair(uint32_t client, const QueueRequest& request) const;
  void add_pair(uint32_t client, uint16_t id);
  // NotFound if it is not that client's (any more).
  [[nodiscard]] Result<> allow_delete(uint32_t client, uint16_t id) const;
  void remove_pair(uint32_t client, uint16_t id);
  // Admin commands of clients: what only reads, for data in the client's slice. All else is
  // refused: it is the drive's, and so all clients'.
  [[nodiscard]] Result<> allow_identify(uint32_t client, const mail::AskIdentify& ask) const;
  [[nodiscard]] Result<> allow_log(uint32_t client, const mail::AskLog& ask) const;

 private:
  struct Entry {
    explicit Entry(const ClientNotice& given) : notice(given) {}
    ClientNotice notice;
    uint64_t near = 0;
    uint64_t near_bytes = 0;
    uint64_t key = 0;
    bool quarantined = false;
    std::vector<uint16_t> pairs;
  };

  [[nodiscard]] Result<const Entry*> find(uint32_t client) const;

  ClientLimits limits_;
  std::map<uint32_t, Entry> clients_;  // by lease
};

}  // namespace pcilend::nvme
