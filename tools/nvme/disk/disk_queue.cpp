// SPDX-License-Identifier: GPL-2.0-or-later
#include "disk/disk_queue.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

using namespace std::chrono_literals;

// What drives of flash take; who waits longer lets others have the processor.
constexpr auto kSpin = 50us;
// Of a command. Longer than any drive takes which is not lost, as kernels have it.
constexpr auto kPatience = 30s;
// An interrupt may be lost with a link; and with nothing under way, a look at the epoch.
constexpr auto kLook = 100ms;
constexpr auto kIdleLook = 1000ms;
// Without a path while somebody waits for the disk's end.
constexpr std::chrono::milliseconds kEndHold = 60s;

}  // namespace

Result<std::unique_ptr<QueueNews>> QueueNews::make() {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return fail_errno("eventfd");
  return std::unique_ptr<QueueNews>(new QueueNews(std::move(event)));
}

void QueueNews::report_loss(std::string reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!loss_) loss_ = std::move(reason);
  }
  const uint64_t one = 1;
  (void)!::write(event_.get(), &one, sizeof one);
}

std::optional<std::string> QueueNews::loss() const {
  const std::lock_guard lock(mutex_);
  return loss_;
}

Result<std::unique_ptr<DiskQueue>> DiskQueue::make(Paths& paths, const Translator& translator,
                                                   int device, const DiskQueueOptions& options,
                                                   QueueNews& news) {
  std::unique_ptr<DiskQueue> queue(new DiskQueue(translator, device, options, news));
  // What is larger than that has no room beside the drive, and is more than this process's stores
  // are good for.
  auto made = PathQueue::create(paths,
                                {.name_space = translator.traits().name_space,
                                 .depth = options.depth,
                                 .transfer = options.transfer,
                                 .staged = kStaged,
                                 .interrupt = options.interrupt,
                                 .patience = kPatience},
                                [self = queue.get()](uint32_t tag, std::span<std::byte> to) {
                                  return self->copy_in(tag, to);
                                });
  if (!made) return tl::unexpected(std::move(made).error());
  queue->queue_ = std::move(*made);
  const size_t table = options.depth * sizeof(ublksrv_io_desc);
  auto requests = Mapping::map(device, options.number * kUblkRequestsStride,
                               (table + kPage - 1) / kPage * kPage, false);
  if (!requests) return tl::unexpected(std::move(requests).error());
  queue->requests_ = std::move(*requests);
  auto ring = Uring::make(options.depth, 0);
  if (!ring) return tl::unexpected(std::move(ring).error());
  queue->ring_ = std::move(*ring);
  return queue;
}

// Gives a tag to the kernel, with the answer to its request if there was one.
void DiskQueue::give(uint32_t tag, uint32_t operation, int result) {
  io_uring_sqe* const entry = ring_->command(file_, operation, tag);
  ublksrv_io_cmd command{};
  command.q_id = options_.number;
  command.tag = static_cast<__u16>(tag);
  command.result = result;
  std::memcpy(static_cast<void*>(entry->cmd), &command, sizeof command);
  tags_[tag].given = false;
  ++waiting_;
}

void DiskQueue::answer(uint32_t tag, int result) {
  news_.count_answer(result >= 0);
  give(tag, ublk_io(UBLK_IO_COMMIT_AND_FETCH_REQ), result);
}

void DiskQueue::run() {
  for (uint32_t tag = 0; tag < options_.depth; ++tag) give(tag, ublk_io(UBLK_IO_FETCH_REQ), 0);
  (void)::io_uring_submit(ring_->get());
  auto last = Clock::now();
  path_seen_ = last;
  while (!ended_ && (waiting_ != 0 || is_busy())) {
    bool moved = take_requests();
    if (!failing_ && !ended_) {
      moved |= take_completions();
      queue_->ring();
      if (!ended_) look_for_paths();
    }
    (void)::io_uring_submit(ring_->get());
    if (moved)
      last = Clock::now();
    else
      rest(last);
  }
}

bool DiskQueue::take_requests() {
  bool any = false;
  io_uring_cqe* completion = nullptr;
  while (!ended_ && ::io_uring_peek_cqe(ring_->get(), &completion) == 0 && completion) {
    const auto tag = static_cast<uint32_t>(completion->user_data);
    const int result = completion->res;
    ::io_uring_cqe_seen(ring_->get(), completion);
    --waiting_;
    any = true;
    // Else the disk is being stopped, and the tag does not come back.
    if (result == UBLK_IO_RES_OK) begin(tag);
  }
  return any;
}

void DiskQueue::begin(uint32_t tag) {
  Tag& t = tags_[tag];
  t.given = true;
  news_.count_request();
  if (failing_) return answer(tag, -EIO);
  ublksrv_io_desc request;
  std::memcpy(&request, requests_.bytes().data() + tag * sizeof request, sizeof request);
  const auto task = translator_.translate(request);
  if (!task) return answer(tag, task.error());
  t.task = *task;
  if (!queue_->submit(tag, t.task)) answer(tag, -EIO);
}

// Kernels before 6.19 copy to memory that has pages only, which what is behind an NTB has not. The
// kernel has the data until the request is answered: it may be copied again, over another path.
bool DiskQueue::copy_in(uint32_t tag, std::span<std::byte> to) {
  const auto from = static_cast<off_t>(ublk_data_at(options_.number, tag));
  const auto wanted = static_cast<ssize_t>(to.size());
  const bool staged = to.size() <= bounce_.size();
  if (!staged || !bounces_) {
    if (::pread(file_, to.data(), to.size(), from) == wanted) return true;
    if (!staged) return false;
    bounces_ = true;
  }
  if (::pread(file_, bounce_.data(), to.size(), from) != wanted) return false;
  std::memcpy(to.data(), bounce_.data(), to.size());
  return true;
}

int DiskQueue::copy_out(uint32_t tag, size_t bytes) const {
  const std::byte* const from = queue_->data(tag).data();
  const auto to = static_cast<off_t>(ublk_data_at(options_.number, tag));
  return ::pwrite(file_, from, bytes, to) == static_cast<ssize_t>(bytes) ? 0 : -EIO;
}

bool DiskQueue::take_completions() {
  for (bool any = false;; any = true) {
    const auto done = queue_->take();
    if (!done) {
      lose(done.error().message);
      return true;
    }
    if (!*done) return any;
    const uint32_t tag = (*done)->tag;
    const Task& task = tags_[tag].task;
    int result = answer_to((*done)->status);
    if (result == 0 && task.work == Work::Read) result = copy_out(tag, task.bytes);
    answer(tag, result == 0 ? static_cast<int>(task.bytes) : result);
  }
}

// Requests wait for one; not for longer than it is told.
void DiskQueue::look_for_paths() {
  const auto hold = news_.leaves_requests() ? options_.hold : std::min(options_.hold, kEndHold);
  if (queue_->path())
    path_seen_ = Clock::now();
  else if (Clock::now() - path_seen_ >= hold)
    lose(queue_->loss());
}

// With nothing to do. What is under way is looked for a while without giving the processor up.
void DiskQueue::rest(Clock::time_point last) {
  const bool flying = is_busy() && queue_->path();
  if (flying && Clock::now() - last < kSpin) return;
  if (flying && queue_->event() < 0) return std::this_thread::yield();
  pollfd wait[] = {{ring_->fd(), POLLIN, 0},
                   {queue_->event(), POLLIN, 0},
                   {queue_->lease_event(), 0, 0},
                   {queue_->news_event(), POLLIN, 0}};
  // The end of the lease would be told again and again.
  if (failing_) wait[1].fd = wait[2].fd = wait[3].fd = -1;
  (void)::poll(wait, std::size(wait), static_cast<int>((is_busy() ? kLook : kIdleLook).count()));
  (void)queue_->interrupts();
}

void DiskQueue::lose(std::string reason) {
  news_.report_loss(std::move(reason));
  if (news_.leaves_requests()) {
    ended_ = true;
    return;
  }
  failing_ = true;
  for (uint32_t tag = 0; tag < options_.depth; ++tag)
    if (tags_[tag].given) answer(tag, -EIO);
}

}  // namespace pcilend::nvme
