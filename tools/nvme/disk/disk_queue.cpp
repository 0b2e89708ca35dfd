// SPDX-License-Identifier: GPL-2.0-or-later
#include "disk/disk_queue.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

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

Result<std::unique_ptr<DiskQueue>> DiskQueue::make(Drive& drive, const Translator& translator,
                                                   int device, const DiskQueueOptions& options,
                                                   QueueNews& news) {
  std::unique_ptr<DiskQueue> queue(new DiskQueue(drive, translator, device, options, news));
  const size_t bytes = options.depth * options.transfer;
  // Beside the drive, where there is such memory: then it never reads over the NTB.
  auto staged = drive.device().allocate(options.depth * kStaged,
                                        {.device_writes = false, .host_reads = false});
  if (!staged) return tl::unexpected(std::move(staged).error());
  queue->staged_ = std::move(*staged);
  // That would be more than there is room for, and than this process's stores are good for.
  auto writes = drive.device().allocate(bytes, {.device_writes = false});
  if (!writes) return tl::unexpected(std::move(writes).error());
  queue->writes_ = std::move(*writes);
  auto reads = drive.device().allocate(bytes, {.device_reads = false, .host_writes = false});
  if (!reads) return tl::unexpected(std::move(reads).error());
  queue->reads_ = std::move(*reads);
  auto pair = QueuePair::create(drive.device(), drive.queues(),
                                {options.depth, options.transfer, options.vector});
  if (!pair) return tl::unexpected(std::move(pair).error());
  queue->pair_ = std::move(*pair);
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
  if (result >= 0) news_.count_answer();
  give(tag, ublk_io(UBLK_IO_COMMIT_AND_FETCH_REQ), result);
}

void DiskQueue::run() {
  for (uint32_t tag = 0; tag < options_.depth; ++tag) give(tag, ublk_io(UBLK_IO_FETCH_REQ), 0);
  (void)::io_uring_submit(ring_->get());
  auto last = Clock::now();
  while (!ended_ && (waiting_ != 0 || busy_ != 0)) {
    bool moved = take_requests();
    if (!failing_ && !ended_) {
      moved |= take_completions();
      pair_->ring();
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
  t.since = Clock::now();
  if (failing_) return answer(tag, -EIO);
  ublksrv_io_desc request;
  std::memcpy(&request, requests_.bytes().data() + tag * sizeof request, sizeof request);
  const auto task = translator_.translate(request);
  if (!task) return answer(tag, task.error());
  t.task = *task;
  const auto slot = submit(tag);
  if (!slot && slot.error().kind == ErrorClass::State) return lose(slot.error().message);
  if (!slot || !*slot) return answer(tag, -EIO);
  t.slot = **slot;
  tag_of_slot_[t.slot] = tag;
  ++busy_;
}

Result<std::optional<uint32_t>> DiskQueue::submit(uint32_t tag) {
  const Task& task = tags_[tag].task;
  const NamespaceInfo& name_space = translator_.traits().name_space;
  switch (task.work) {
    case Work::Read:
      return pair_->read(name_space, task.block, task.blocks,
                         reads_->address() + tag * options_.transfer);
    case Work::Write: {
      const Source data = source(tag, task.bytes);
      if (copy_in(data, tag, task.bytes) != 0) return std::optional<uint32_t>();
      return task.through ? pair_->write_through(name_space, task.block, task.blocks, data.address)
                          : pair_->write(name_space, task.block, task.blocks, data.address);
    }
    case Work::Flush:
      return pair_->flush(name_space);
    case Work::Deallocate: {
      const DeallocateRange range{0, task.blocks, task.block};
      const Source data = source(tag, sizeof range);
      std::memcpy(data.bytes, &range, sizeof range);
      return pair_->deallocate(name_space, data.address);
    }
    case Work::WriteZeroes:
      return pair_->write_zeroes(name_space, task.block, task.blocks);
  }
  return std::optional<uint32_t>();
}

DiskQueue::Source DiskQueue::source(uint32_t tag, size_t bytes) {
  const bool staged = bytes <= kStaged;
  Memory& memory = staged ? *staged_ : *writes_;
  const size_t at = tag * (staged ? kStaged : options_.transfer);
  return {memory.bytes().data() + at, memory.address() + at, staged};
}

// Kernels before 6.19 copy to memory that has pages only, which what is behind an NTB has not.
int DiskQueue::copy_in(const Source& to, uint32_t tag, size_t bytes) {
  const auto from = static_cast<off_t>(ublk_data_at(options_.number, tag));
  const auto wanted = static_cast<ssize_t>(bytes);
  if (!to.staged || !bounces_) {
    if (::pread(file_, to.bytes, bytes, from) == wanted) return 0;
    if (!to.staged) return -EIO;
    bounces_ = true;
  }
  if (::pread(file_, bounce_.data(), bytes, from) != wanted) return -EIO;
  std::memcpy(to.bytes, bounce_.data(), bytes);
  return 0;
}

int DiskQueue::copy_out(uint32_t tag, size_t bytes) const {
  const std::byte* const from = reads_->bytes().data() + tag * options_.transfer;
  const auto to = static_cast<off_t>(ublk_data_at(options_.number, tag));
  return ::pwrite(file_, from, bytes, to) == static_cast<ssize_t>(bytes) ? 0 : -EIO;
}

bool DiskQueue::take_completions() {
  bool any = false;
  while (busy_ != 0) {
    const auto done = pair_->take();
    if (!done) {
      lose(done.error().message);
      return true;
    }
    if (!*done) return any;
    any = true;
    --busy_;
    const uint32_t tag = tag_of_slot_[(*done)->slot];
    const Task& task = tags_[tag].task;
    int result = answer_to((*done)->status);
    if (result == 0 && task.work == Work::Read) result = copy_out(tag, task.bytes);
    answer(tag, result == 0 ? static_cast<int>(task.bytes) : result);
  }
  return any;
}

// With nothing to do. What is under way is looked for a while without giving the processor up.
void DiskQueue::rest(Clock::time_point last) {
  const auto now = Clock::now();
  if (!failing_ && device_.epoch() != epoch_)
    return lose("it was reset by others, taken back, or its link was lost");
  if (busy_ != 0 && now - last < kSpin) return;
  if (busy_ != 0) {
    for (const Tag& tag : tags_)
      if (tag.given && now - tag.since > kPatience)
        return lose(fmt::format("it has not answered for {} s", kPatience.count()));
    if (pair_->event() < 0) return std::this_thread::yield();
  }
  pollfd wait[] = {{ring_->fd(), POLLIN, 0}, {pair_->event(), POLLIN, 0}, {device_.fd(), 0, 0}};
  // The end of the lease would be told again and again.
  if (failing_) wait[1].fd = wait[2].fd = -1;
  (void)::poll(wait, std::size(wait), static_cast<int>((busy_ != 0 ? kLook : kIdleLook).count()));
  (void)pair_->interrupts();
}

void DiskQueue::lose(std::string reason) {
  news_.report_loss(std::move(reason));
  if (news_.leaves_requests()) {
    ended_ = true;
    return;
  }
  failing_ = true;
  busy_ = 0;
  for (uint32_t tag = 0; tag < options_.depth; ++tag)
    if (tags_[tag].given) answer(tag, -EIO);
}

}  // namespace pcilend::nvme
