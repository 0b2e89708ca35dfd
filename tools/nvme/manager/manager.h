// SPDX-License-Identifier: GPL-2.0-or-later
// The manager of a shared drive: it has the admin queue, makes queues for clients and deletes them
// again, and confirms their end.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "manager/change_log.h"
#include "manager/shared_drive.h"
#include "pcilend/nvme/book.h"
#include "pcilend/nvme/controller.h"

namespace pcilend::nvme {

struct ManagerOptions {
  uint32_t clients = 0;  // at most; 0: as many as there are queues for, up to 16
  ClientLimits each;
  uint32_t vectors = 1;                               // interrupts of each
  uint64_t slice = Lease::kSlice;                     // of each, at most
  uint64_t near_bytes = uint64_t{2} << 20;            // beside the drive, of each on another host
  uint64_t own_bytes = 0;                             // of the drive's own memory, of each client;
                                                      // then there is none beside it
  std::optional<std::vector<uint32_t>> nodes;         // whose processes may join; else all
  std::optional<std::chrono::milliseconds> patience;  // with the drive (Controller::start())
};

// Of the manager's own slice, with so many clients.
uint64_t manager_slice(const ManagerOptions& options);

class Manager {
 public:
  using Tell = std::function<void(const std::string&)>;

  // The drive is started, and shared. Device and lease must outlive this. `tell`: what happens,
  // for the journal.
  static Result<std::unique_ptr<Manager>> open(Device& device, ManagerLease& lease,
                                               const ManagerOptions& options, Tell tell);

  // All that there is to do now: ends of clients first, as whoever asks may count on them. An error
  // is the end: nothing is confirmed any more, and when the lease goes all have lost the drive.
  Result<> serve();
  // No more clients; those that there are have ended when clients() is 0, with serve().
  Result<> close();
  [[nodiscard]] size_t clients() const { return book_.clients(); }
  [[nodiscard]] const Controller& controller() const { return *controller_; }
  [[nodiscard]] uint32_t admits() const { return admits_; }

 private:
  Manager(ManagerLease& lease, std::unique_ptr<Controller> controller,
          const ManagerOptions& options, Tell tell)
      : lease_(lease),
        controller_(std::move(controller)),
        options_(options),
        tell_(std::move(tell)),
        book_(options.each) {}

  [[nodiscard]] Result<> begin();
  [[nodiscard]] Result<> open_memory();
  [[nodiscard]] SharePolicy policy(uint32_t clients) const;
  [[nodiscard]] Result<> hear_of_clients();
  void heed(const DriveEvent& event);
  [[nodiscard]] Result<> heed(const ClientNotice& notice);
  [[nodiscard]] Result<> end(const ClientNotice& notice);
  [[nodiscard]] mail::Answer reply(uint32_t client, const mail::Question& question);
  [[nodiscard]] Result<mail::Answer> answer(uint32_t client, const mail::Hello& hello);
  [[nodiscard]] Result<mail::Answer> answer(uint32_t client, const mail::CreatePair& create);
  [[nodiscard]] Result<mail::Answer> answer(uint32_t client, const mail::DeletePair& remove);
  [[nodiscard]] Result<mail::Answer> answer(uint32_t client, const mail::Fence& fence);
  [[nodiscard]] Result<> check_admitted(uint32_t client) const;
  // The drive does nothing any more of what that client has told it.
  [[nodiscard]] Result<> cut(uint32_t client, std::string_view why);
  [[nodiscard]] Result<mail::Answer> answer(uint32_t client, const mail::AskIdentify& identify);
  [[nodiscard]] Result<mail::Answer> answer(uint32_t client, const mail::AskController& ask) const;
  [[nodiscard]] Result<mail::Answer> answer(uint32_t client, const mail::AskLog& log);
  [[nodiscard]] Result<mail::Answer> answer(uint32_t client, const mail::Clear& clear);
  [[nodiscard]] Result<mail::Answer> answer(uint32_t client, const mail::AskChanges& ask) const;

  ManagerLease& lease_;
  std::map<uint32_t, std::unique_ptr<NearMemory>> near_;  // by client; outlives the queues there
  std::unique_ptr<Controller> controller_;
  ManagerOptions options_;
  Tell tell_;
  Book book_;
  ChangeLog changes_;  // of namespaces
  uint32_t admits_ = 0;
  uint32_t node_ = 0;
  std::map<uint32_t, uint32_t> nodes_;   // of clients
  std::map<uint32_t, uint32_t> pieces_;  // which of the drive's own memory is whose
  std::set<uint32_t> fenced_;            // nodes
  ControllerMemory memory_;              // of the drive's own
  std::array<std::byte, kPage> page_{};  // Identify's, as clients see it
};

}  // namespace pcilend::nvme
