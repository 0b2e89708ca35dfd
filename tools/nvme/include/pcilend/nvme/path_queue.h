// SPDX-License-Identifier: GPL-2.0-or-later
// Reads and writes of a drive over several paths: one pair of queues over each, one of which is
// used. What a lost path leaves open is done again over another one.
//
// Over which path a command is under way, and what that path has lost, decides when it may be
// issued again: reads and flushes at once, into other memory; what changes the medium only when the
// lost path's queue is confirmed to be deleted (Paths::cleared()), as it could still do it, after
// what has been written over the new path.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "pcilend/nvme/paths.h"
#include "pcilend/nvme/queue_pair.h"
#include "pcilend/nvme/task.h"

namespace pcilend::nvme {

struct PathQueueOptions {
  NamespaceInfo name_space;
  uint32_t depth = 1;
  size_t transfer = kPage;  // bytes of a command, at most
  size_t staged = 0;        // writes of up to so many bytes are beside the drive, if there is room
  std::optional<uint16_t> interrupt;  // Drive::vector(), or so many behind it, where there is one
  std::chrono::milliseconds patience{30000};  // a command that takes longer is a lost path
};

struct PathDone {
  uint32_t tag = 0;
  uint16_t status = 0;  // 0 is success
};

// For one thread at a time, from Paths::start() to Paths::stop().
class PathQueue final : private PathUser {
 public:
  // What a write has: to be copied each time that it is issued. False if it can't be had.
  using Fill = std::function<bool(uint32_t tag, std::span<std::byte> to)>;

  static Result<std::unique_ptr<PathQueue>> create(Paths& paths, const PathQueueOptions& options,
                                                   Fill fill);
  PathQueue(const PathQueue&) = delete;
  PathQueue& operator=(const PathQueue&) = delete;
  ~PathQueue() override;

  // The command's data has `tag`'s place, which is below the depth and not in use. It waits if
  // there is no path. Usage if the drive does not take it.
  Result<> submit(uint32_t tag, const Task& task);
  // The drive hears of what was submitted.
  void ring();
  // The next one that is done, if one is. Failure if the drive answers what it was not asked, or
  // what is to be written can't be had.
  Result<std::optional<PathDone>> take();
  // Waited for; Unreachable if none is in that time.
  Result<PathDone> wait(std::chrono::milliseconds patience);
  // What a read has brought, until the next call of what is above.
  [[nodiscard]] std::span<const std::byte> data(uint32_t tag) const;

  // Before a read is submitted: its memory, over whichever path, has nothing of before.
  void spoil(uint32_t tag);

  [[nodiscard]] uint32_t under_way() const { return under_way_; }
  // Of these, what no path has now.
  [[nodiscard]] uint32_t held() const { return held_; }
  // Over which path commands go now, as Paths counts; nothing if over none.
  [[nodiscard]] std::optional<size_t> path() const;
  // Commands that were issued again.
  [[nodiscard]] uint64_t repeated() const { return repeated_; }
  [[nodiscard]] uint64_t doorbells() const;
  [[nodiscard]] uint64_t interrupts();
  // Poll POLLIN until interrupts() is called: an interrupt of the path that is used (-1: none); and
  // what take() has to look at besides.
  [[nodiscard]] int event() const;
  [[nodiscard]] int news_event() const { return event_.get(); }
  // Polls POLLHUP when the lease of the path that is used ends; -1: none.
  [[nodiscard]] int lease_event() const;
  // Why a path was lost, the last time.
  [[nodiscard]] const std::string& loss() const { return loss_; }
  [[nodiscard]] std::string remark() const;

 private:
  using Clock = std::chrono::steady_clock;

  // Its commands, their doorbells and their data are all over one path.
  struct Lane final : PathLane {
    using PathLane::PathLane;
    std::unique_ptr<Memory> reads;  // of each tag, as the next two
    std::unique_ptr<Memory> writes;
    std::unique_ptr<Memory> staged;
    std::unique_ptr<QueuePair> pair;  // deleted before its data's memory goes
    std::vector<uint32_t> tag_of_slot;
  };

  enum class Stage { Free, Waiting, Held, Issued };
  struct Tag {
    Stage stage = Stage::Free;
    Task task;
    ClientName client;  // Held: until that client is cleared
    Clock::time_point since;
  };

  PathQueue(Paths& paths, const PathQueueOptions& options, Fill fill, UniqueFd event)
      : paths_(paths),
        options_(options),
        fill_(std::move(fill)),
        event_(std::move(event)),
        tags_(options.depth),
        read_(options.depth) {}

  [[nodiscard]] Result<std::unique_ptr<PathLane>> make_lane(const std::shared_ptr<Drive>& drive,
                                                            size_t path) const override;
  void give(std::unique_ptr<PathLane> lane) override;
  void wake() override;

  void heed_news();
  void retire_lost();
  void choose();
  void lose(const std::string& why);
  void abandon(std::unique_ptr<Lane> lane);
  Result<> issue_waiting();
  Result<bool> issue(uint32_t tag);
  Result<std::optional<uint32_t>> submit_to(Lane& lane, uint32_t tag);
  [[nodiscard]] bool is_late();
  [[nodiscard]] Result<> nap(Clock::time_point spin);
  [[nodiscard]] size_t stride() const { return (options_.transfer + kPage - 1) / kPage * kPage; }
  [[nodiscard]] size_t staged_stride() const {
    return (options_.staged + kPage - 1) / kPage * kPage;
  }

  Paths& paths_;
  PathQueueOptions options_;
  Fill fill_;
  UniqueFd event_;
  std::vector<Tag> tags_;
  std::vector<std::span<const std::byte>> read_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  Lane* active_ = nullptr;
  uint64_t seen_ = 0;  // of Paths::news()
  uint32_t under_way_ = 0;
  uint32_t held_ = 0;
  bool waiting_ = false;  // some are Waiting
  uint64_t repeated_ = 0;
  Clock::time_point looked_;  // for what is late
  std::string loss_;
  uint64_t doorbells_ = 0;  // of lanes that are gone
  uint64_t interrupts_ = 0;

  std::mutex offers_mutex_;
  std::vector<std::unique_ptr<PathLane>> offers_;
};

}  // namespace pcilend::nvme
