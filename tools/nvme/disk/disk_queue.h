// SPDX-License-Identifier: GPL-2.0-or-later
// One queue of a disk, with a thread that serves it: requests of the kernel become commands in a
// queue pair of the drive, and their completions its answers.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "disk/translator.h"
#include "disk/ublk.h"
#include "pcilend/nvme/drive.h"
#include "pcilend/nvme/queue_pair.h"

namespace pcilend::nvme {

// What the queues tell the thread that has made them, and the other way round.
class QueueNews {
 public:
  static Result<std::unique_ptr<QueueNews>> make();

  // Whether who loses the drive leaves its requests to those who come after this program. Else, as
  // before the disk is there and once it ends, they fail, as somebody waits for them.
  void leave_requests(bool leave) { leave_.store(leave); }
  [[nodiscard]] bool leaves_requests() const { return leave_.load(); }

  void report_loss(std::string reason);
  [[nodiscard]] std::optional<std::string> loss() const;
  // Polls POLLIN once there is a loss.
  [[nodiscard]] int fd() const { return event_.get(); }

  void count_answer() { answers_.fetch_add(1, std::memory_order_relaxed); }
  // Requests that were done.
  [[nodiscard]] uint64_t answers() const { return answers_.load(); }

 private:
  explicit QueueNews(UniqueFd event) : event_(std::move(event)) {}

  UniqueFd event_;
  std::atomic<bool> leave_{false};
  std::atomic<uint64_t> answers_{0};
  mutable std::mutex mutex_;
  std::optional<std::string> loss_;
};

// Writes of up to so many bytes go to memory beside the drive, if there is some.
inline constexpr size_t kStaged = 16384;

struct DiskQueueOptions {
  uint16_t number = 0;
  uint32_t depth = 1;
  size_t transfer = kPage;
  std::optional<uint16_t> vector;
};

// Made, and destroyed, by the thread that has the drive; run() by another one, which must not be
// the process's first: the kernel looks at whether that one lives (disk.cpp).
class DiskQueue {
 public:
  // `device`: /dev/ublkcN. All that is given must outlive it.
  static Result<std::unique_ptr<DiskQueue>> make(Drive& drive, const Translator& translator,
                                                 int device, const DiskQueueOptions& options,
                                                 QueueNews& news);

  // Until the disk is stopped, or the drive is lost and others shall go on.
  void run();

 private:
  using Clock = std::chrono::steady_clock;

  // A request's, which the kernel names it by.
  struct Tag {
    bool given = false;  // to this program; else the kernel has it
    uint32_t slot = 0;   // of its command
    Task task;
    Clock::time_point since;
  };

  // Of what the drive reads.
  struct Source {
    std::byte* bytes = nullptr;
    uint64_t address = 0;
    bool staged = false;
  };

  DiskQueue(Drive& drive, const Translator& translator, int device, const DiskQueueOptions& options,
            QueueNews& news)
      : device_(drive.device()),
        translator_(translator),
        file_(device),
        options_(options),
        news_(news),
        epoch_(drive.device().epoch()),
        tags_(options.depth),
        tag_of_slot_(options.depth),
        bounce_(kStaged) {}

  void give(uint32_t tag, uint32_t operation, int result);
  void answer(uint32_t tag, int result);
  bool take_requests();
  void begin(uint32_t tag);
  Result<std::optional<uint32_t>> submit(uint32_t tag);
  [[nodiscard]] Source source(uint32_t tag, size_t bytes);
  [[nodiscard]] int copy_in(const Source& to, uint32_t tag, size_t bytes);
  [[nodiscard]] int copy_out(uint32_t tag, size_t bytes) const;
  bool take_completions();
  void rest(Clock::time_point last);
  void lose(std::string reason);

  Device& device_;
  const Translator& translator_;
  int file_;
  DiskQueueOptions options_;
  QueueNews& news_;
  uint64_t epoch_;
  std::unique_ptr<Memory> staged_;  // of writes: a piece for each tag, as of the next two
  std::unique_ptr<Memory> writes_;  // that are larger
  std::unique_ptr<Memory> reads_;
  std::unique_ptr<QueuePair> pair_;  // deleted before its data's memory goes
  Mapping requests_;
  std::unique_ptr<Uring> ring_;
  std::vector<Tag> tags_;
  std::vector<uint32_t> tag_of_slot_;
  std::vector<std::byte> bounce_;
  bool bounces_ = false;
  uint32_t waiting_ = 0;  // tags that the kernel has
  uint32_t busy_ = 0;     // commands
  bool failing_ = false;  // the drive is lost: all requests fail
  bool ended_ = false;
};

}  // namespace pcilend::nvme
