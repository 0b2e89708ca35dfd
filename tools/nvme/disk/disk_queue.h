// SPDX-License-Identifier: GPL-2.0-or-later
// One queue of a disk, with a thread that serves it: requests of the kernel become commands in a
// queue of the drive, over one of its paths, and their completions its answers.
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
#include "pcilend/nvme/path_queue.h"

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

  void count_request() { ++under_way_; }
  void count_answer(bool done) {
    --under_way_;
    done_ += done ? 1 : 0;
  }
  // Requests that were done; and that wait for an answer.
  [[nodiscard]] uint64_t done() const { return done_.load(); }
  [[nodiscard]] uint32_t under_way() const { return under_way_.load(); }

 private:
  explicit QueueNews(UniqueFd event) : event_(std::move(event)) {}

  UniqueFd event_;
  std::atomic<bool> leave_{false};
  std::atomic<uint64_t> done_{0};
  std::atomic<uint32_t> under_way_{0};
  mutable std::mutex mutex_;
  std::optional<std::string> loss_;
};

// Writes of up to so many bytes go to memory beside the drive, if there is some.
inline constexpr size_t kStaged = 16384;

struct DiskQueueOptions {
  uint16_t number = 0;
  uint32_t depth = 1;
  size_t transfer = kPage;
  std::optional<uint16_t> interrupt;  // as PathQueueOptions
  // Without a path, before the drive is lost; less once the disk ends.
  std::chrono::milliseconds hold{0};
};

// Made, and destroyed, by the thread that has the drive; run() by another one, which must not be
// the process's first: the kernel looks at whether that one lives (disk.cpp).
class DiskQueue {
 public:
  // `device`: /dev/ublkcN. All that is given must outlive it.
  static Result<std::unique_ptr<DiskQueue>> make(Paths& paths, const Translator& translator,
                                                 int device, const DiskQueueOptions& options,
                                                 QueueNews& news);

  // Until the disk is stopped, or the drive is lost and others shall go on.
  void run();

 private:
  using Clock = std::chrono::steady_clock;

  // A request's, which the kernel names it by.
  struct Tag {
    bool given = false;  // to this program; else the kernel has it
    Task task;
  };

  DiskQueue(const Translator& translator, int device, const DiskQueueOptions& options,
            QueueNews& news)
      : translator_(translator),
        file_(device),
        options_(options),
        news_(news),
        tags_(options.depth),
        bounce_(kStaged) {}

  void give(uint32_t tag, uint32_t operation, int result);
  void answer(uint32_t tag, int result);
  bool take_requests();
  void begin(uint32_t tag);
  [[nodiscard]] bool copy_in(uint32_t tag, std::span<std::byte> to);
  [[nodiscard]] int copy_out(uint32_t tag, size_t bytes) const;
  bool take_completions();
  void look_for_paths();
  // Commands are under way that are waited for.
  [[nodiscard]] bool is_busy() const { return !failing_ && queue_->under_way() != 0; }
  void rest(Clock::time_point last);
  void lose(std::string reason);

  const Translator& translator_;
  int file_;
  DiskQueueOptions options_;
  QueueNews& news_;
  std::unique_ptr<PathQueue> queue_;
  Mapping requests_;
  std::unique_ptr<Uring> ring_;
  std::vector<Tag> tags_;
  std::vector<std::byte> bounce_;
  bool bounces_ = false;
  uint32_t waiting_ = 0;  // tags that the kernel has
  Clock::time_point path_seen_;
  bool failing_ = false;  // the drive is lost: all requests fail
  bool ended_ = false;
};

}  // namespace pcilend::nvme
