// SPDX-License-Identifier: GPL-2.0-or-later
// The controller in the hands of the one who has all of it: an exclusive lease.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "pcilend/nvme/controller_memory.h"
#include "pcilend/nvme/device.h"
#include "pcilend/nvme/drive_event.h"
#include "pcilend/nvme/identify.h"
#include "pcilend/nvme/queues.h"
#include "pcilend/nvme/ring.h"

namespace pcilend::nvme {

// Stopped when it goes, with all of its queues. Not for several threads at once. Its Device must
// outlive it.
class Controller final : public Queues {
 public:
  // Resets, enables and identifies it (Base 3.5.1). `patience`: for each answer; else as long as it
  // says of itself that it takes to start, and 30 s for a command. Unreachable if it does not
  // answer; Unsupported if it has not what this needs (pages of 4 KiB, doorbells close together).
  static Result<std::unique_ptr<Controller>> start(
      Device& device, std::optional<std::chrono::milliseconds> patience = {});
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;
  ~Controller() override { stop(); }

  [[nodiscard]] const ControllerInfo& info() const { return info_; }
  // The first 1,024 of them.
  [[nodiscard]] Result<std::vector<uint32_t>> namespaces();
  [[nodiscard]] Result<NamespaceInfo> name_space(uint32_t id);
  [[nodiscard]] Result<Health> health();

  // Its own memory, which it knows from now on by that address. Unsupported if it has none, or none
  // that is of use.
  [[nodiscard]] Result<ControllerMemory> open_memory();

  [[nodiscard]] QueueLimits limits() const override;
  [[nodiscard]] uint32_t queues() const { return static_cast<uint32_t>(pairs_.size()); }
  Result<QueueGrant> create(const QueueRequest& request) override;
  void remove(uint16_t id) override;

  // For the manager of a shared drive, which answers for others.
  // The next thing that the drive has told since it was first asked here, if there is one. Nothing
  // ever from a drive that refuses to tell. Errors are those of any command.
  [[nodiscard]] Result<std::optional<DriveEvent>> next_event();
  // The page of Identify, until the next call.
  [[nodiscard]] Result<IdentifyPage> controller_page();
  // To a device address of somebody's.
  [[nodiscard]] Result<> identify_to(uint8_t what, uint32_t name_space, uint64_t page);
  [[nodiscard]] Result<> log_to(uint8_t log, uint32_t name_space, uint32_t bytes, uint64_t data);
  // Deletes a pair of queues, and keeps its id from being given again until release(). On failure
  // the drive was stopped; if it is silent, it may use the pair's memory still.
  [[nodiscard]] Result<> drop(uint16_t id);
  void release(uint16_t id) { pairs_[id - 1U] = false; }
  // It was reset by others, taken away, or stopped as it did not answer.
  [[nodiscard]] bool failed() const { return !running_ || device_.epoch() != epoch_; }

 private:
  // Of the capabilities (Base 3.1.3.1).
  struct Capabilities {
    uint32_t entries = 0;
    size_t doorbell_stride = 0;
    std::chrono::milliseconds timeout{};
    bool memory = false;  // whose registers can be asked for
  };

  explicit Controller(Device& device, std::optional<std::chrono::milliseconds> patience)
      : device_(device), patience_(patience) {}

  [[nodiscard]] Result<> read_capabilities();
  [[nodiscard]] Result<> enable();
  [[nodiscard]] Result<> await_status(uint32_t mask, uint32_t wanted, const char* what) const;
  [[nodiscard]] Result<uint32_t> execute(const Command& command, const char* what);
  [[nodiscard]] Result<IdentifyPage> identify(Identify what, uint32_t name_space);
  [[nodiscard]] Result<> count_queues();
  [[nodiscard]] Result<> begin_events();
  [[nodiscard]] Result<> ask_for_event();
  // Takes what has ended: an event, or the command.
  [[nodiscard]] Result<std::optional<Done>> take();
  [[nodiscard]] size_t doorbell(uint32_t queue, bool completion) const;
  [[nodiscard]] bool has_failed_fatally() const;
  void stop();

  Device& device_;
  std::optional<std::chrono::milliseconds> patience_;
  Capabilities capabilities_;
  ControllerInfo info_;
  std::optional<Ring> admin_;
  std::unique_ptr<Memory> page_;  // that Identify writes to
  std::vector<bool> pairs_;       // of I/O queues, from id 1 on: is it made?
  bool running_ = false;
  uint64_t epoch_ = 0;  // when it was enabled
  enum class Events { NotAsked, Asked, Told, Refused } events_ = Events::NotAsked;
  DriveEvent event_;  // that is Told
};

}  // namespace pcilend::nvme
