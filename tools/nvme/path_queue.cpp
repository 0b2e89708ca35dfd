// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/path_queue.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

using std::chrono::milliseconds;

// An interrupt that came before it was waited for is not lost, but one may be with the link.
constexpr milliseconds kLook{100};
// Who polls spins for so long, and then leaves its CPU to others between two looks.
constexpr milliseconds kSpin{1};
constexpr std::chrono::microseconds kNap{50};

bool changes_medium(Work work) {
  return work != Work::Read && work != Work::Flush;
}

}  // namespace

Result<std::unique_ptr<PathQueue>> PathQueue::create(Paths& paths, const PathQueueOptions& options,
                                                     Fill fill) {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return fail_errno("eventfd");
  std::unique_ptr<PathQueue> queue(
      new PathQueue(paths, options, std::move(fill), std::move(event)));
  PCILEND_TRY(paths.add(*queue));
  queue->heed_news();
  return queue;
}

PathQueue::~PathQueue() {
  heed_news();
  for (const auto& lane : lanes_)
    if (lane->drive().lost()) lane->drive().leave();
}

Result<std::unique_ptr<PathLane>> PathQueue::make_lane(const std::shared_ptr<Drive>& drive,
                                                       size_t path) const {
  auto lane = std::make_unique<Lane>(drive, path);
  Device& device = drive->device();
  const auto allocate = [&](size_t each, const Access& access, std::unique_ptr<Memory>& to) {
    auto memory = device.allocate(options_.depth * each, access);
    if (memory) to = std::move(*memory);
    return memory ? Result<>() : Result<>(tl::unexpected(std::move(memory).error()));
  };
  QueuePairOptions wanted{options_.depth, options_.transfer, {}};
  const auto first = drive->vector();
  if (options_.interrupt && first)
    wanted.vector = static_cast<uint16_t>(*first + *options_.interrupt);
  auto pair = QueuePair::create(device, drive->queues(), wanted);
  if (!pair && wanted.vector) {
    wanted.vector.reset();  // it has less interrupts than queues: this one is polled
    pair = QueuePair::create(device, drive->queues(), wanted);
  }
  if (!pair) return tl::unexpected(std::move(pair).error());
  lane->pair = std::move(*pair);
  // Behind its commands and lists, which need the room beside the drive most.
  if (options_.staged != 0)
    PCILEND_TRY(
        allocate(staged_stride(), {.device_writes = false, .host_reads = false}, lane->staged));
  PCILEND_TRY(allocate(stride(), {.device_writes = false}, lane->writes));
  PCILEND_TRY(allocate(stride(), {.device_reads = false}, lane->reads));
  lane->tag_of_slot.resize(options_.depth);
  return lane;
}

void PathQueue::give(std::unique_ptr<PathLane> lane) {
  const std::lock_guard lock(offers_mutex_);
  offers_.push_back(std::move(lane));
}

void PathQueue::wake() {
  const uint64_t one = 1;
  (void)!::write(event_.get(), &one, sizeof one);
}

void PathQueue::heed_news() {
  const uint64_t news = paths_.news();
  if (news == seen_) return;
  seen_ = news;
  {
    const std::lock_guard lock(offers_mutex_);
    for (auto& lane : offers_) lanes_.emplace_back(static_cast<Lane*>(lane.release()));
    offers_.clear();
  }
  retire_lost();
  for (Tag& tag : tags_)
    if (tag.stage == Stage::Held && paths_.cleared(tag.client)) {
      tag.stage = Stage::Waiting;
      waiting_ = true;
    }
  choose();
}

// Also what was given and lost before this has looked.
void PathQueue::retire_lost() {
  while (active_ && !paths_.works(active_->drive())) lose("it is lost");
  for (auto& lane : lanes_)
    if (lane.get() != active_ && !paths_.works(lane->drive())) abandon(std::move(lane));
  std::erase_if(lanes_, [](const auto& lane) { return !lane; });
}

// The one that is used stays so; of the others the one of the first path.
void PathQueue::choose() {
  if (active_) return;
  const auto first =
      std::ranges::min_element(lanes_, {}, [](const auto& lane) { return lane->path(); });
  if (first != lanes_.end()) active_ = first->get();
}

void PathQueue::abandon(std::unique_ptr<Lane> lane) {
  doorbells_ += lane->pair->doorbells();
  interrupts_ += lane->pair->interrupts();
  paths_.retire(std::move(lane));
}

// What is under way over the active lane may be done or not, now or later.
void PathQueue::lose(const std::string& why) {
  const auto at =
      std::ranges::find_if(lanes_, [&](const auto& lane) { return lane.get() == active_; });
  std::unique_ptr<Lane> lane = std::move(*at);
  lanes_.erase(at);
  const ClientName client = lane->drive().client();
  loss_ = why;
  paths_.report(lane->drive(), why);
  const bool cleared = paths_.cleared(client);
  for (Tag& tag : tags_) {
    if (tag.stage != Stage::Issued) continue;
    ++held_;
    ++repeated_;
    tag.client = client;
    tag.stage = changes_medium(tag.task.work) && !cleared ? Stage::Held : Stage::Waiting;
    waiting_ |= tag.stage == Stage::Waiting;
  }
  active_ = nullptr;
  abandon(std::move(lane));
  choose();
}

Result<> PathQueue::submit(uint32_t tag, const Task& task) {
  if (tag >= tags_.size() || tags_[tag].stage != Stage::Free)
    return fail(ErrorClass::Usage, "command {} is under way, or there are {}", tag, tags_.size());
  if (task.bytes > options_.transfer)
    return fail(ErrorClass::Usage, "a command of {} bytes: this queue takes {}", task.bytes,
                options_.transfer);
  Tag& t = tags_[tag];
  t = {.stage = Stage::Waiting, .task = task, .since = Clock::now()};
  ++under_way_;
  ++held_;
  heed_news();
  const auto issued = issue(tag);
  if (issued) {
    waiting_ |= !*issued;
    return {};
  }
  t.stage = Stage::Free;
  --under_way_;
  --held_;
  return tl::unexpected(issued.error());
}

// False: it waits, as there is no path.
Result<bool> PathQueue::issue(uint32_t tag) {
  Tag& t = tags_[tag];
  while (active_) {
    const auto slot = submit_to(*active_, tag);
    if (!slot && slot.error().kind == ErrorClass::State) {
      lose(slot.error().message);
      continue;
    }
    if (!slot) return tl::unexpected(slot.error());
    if (!*slot) return false;
    active_->tag_of_slot[**slot] = tag;
    t.stage = Stage::Issued;
    t.since = Clock::now();
    --held_;
    return true;
  }
  return false;
}

Result<> PathQueue::issue_waiting() {
  if (!waiting_ || !active_) return {};
  waiting_ = false;
  for (uint32_t tag = 0; tag < tags_.size(); ++tag) {
    if (tags_[tag].stage != Stage::Waiting) continue;
    const auto issued = issue(tag);
    if (!issued) return tl::unexpected(issued.error());
    waiting_ |= !*issued;
  }
  if (active_) active_->pair->ring();
  return {};
}

Result<std::optional<uint32_t>> PathQueue::submit_to(Lane& lane, uint32_t tag) {
  const Task& task = tags_[tag].task;
  QueuePair& pair = *lane.pair;
  const NamespaceInfo& space = options_.name_space;
  const bool near = task.bytes <= options_.staged && lane.staged;
  Memory& memory = near ? *lane.staged : *lane.writes;
  const size_t at = tag * (near ? staged_stride() : stride());
  std::byte* const data = memory.bytes().data() + at;
  const uint64_t address = memory.address() + at;
  switch (task.work) {
    case Work::Read:
      return pair.read(space, task.block, task.blocks, lane.reads->address() + tag * stride());
    case Work::Write:
      if (!fill_(tag, {data, task.bytes}))
        return fail(ErrorClass::Failure, "what is to be written can't be had");
      return task.through ? pair.write_through(space, task.block, task.blocks, address)
                          : pair.write(space, task.block, task.blocks, address);
    case Work::Flush:
      return pair.flush(space);
    case Work::Deallocate: {
      const DeallocateRange range{0, task.blocks, task.block};
      std::memcpy(data, &range, sizeof range);
      return pair.deallocate(space, address);
    }
    case Work::WriteZeroes:
      return pair.write_zeroes(space, task.block, task.blocks);
  }
  return std::optional<uint32_t>();
}

void PathQueue::ring() {
  if (active_) active_->pair->ring();
}

bool PathQueue::is_late() {
  const auto now = Clock::now();
  if (now - looked_ < kLook) return false;
  looked_ = now;
  const auto limit = now - options_.patience;
  return std::ranges::any_of(
      tags_, [&](const Tag& tag) { return tag.stage == Stage::Issued && tag.since < limit; });
}

Result<std::optional<PathDone>> PathQueue::take() {
  heed_news();
  PCILEND_TRY(issue_waiting());
  while (active_) {
    auto done = active_->pair->take();
    if (!done && done.error().kind != ErrorClass::State)
      return tl::unexpected(std::move(done).error());
    if (!done) {
      lose(done.error().message);
      PCILEND_TRY(issue_waiting());
      continue;
    }
    if (!*done) {
      if (active_->pair->under_way() == 0 || !is_late()) return std::nullopt;
      lose(
          fmt::format("no answer for {} s",
                      std::chrono::duration_cast<std::chrono::seconds>(options_.patience).count()));
      PCILEND_TRY(issue_waiting());
      continue;
    }
    // By its manager, which ends or clears this client: the command was not answered.
    if (status_code((*done)->status) == kQueueDeleted) {
      lose(status_text((*done)->status));
      PCILEND_TRY(issue_waiting());
      continue;
    }
    const uint32_t tag = active_->tag_of_slot[(*done)->slot];
    Tag& t = tags_[tag];
    if (t.task.work == Work::Read)
      read_[tag] = active_->reads->bytes().subspan(tag * stride(), t.task.bytes);
    t.stage = Stage::Free;
    --under_way_;
    return std::optional(PathDone{tag, (*done)->status});
  }
  return std::nullopt;
}

Result<PathDone> PathQueue::wait(milliseconds patience) {
  ring();
  const auto start = Clock::now();
  for (;;) {
    const auto done = take();
    if (!done) return tl::unexpected(done.error());
    if (*done) return **done;
    if (Clock::now() > start + patience)
      return fail(ErrorClass::Unreachable,
                  "{} commands are not done within {} ms, {} of them for want of a path",
                  under_way_, patience.count(), held_);
    PCILEND_TRY(nap(start + kSpin));
  }
}

Result<> PathQueue::nap(Clock::time_point spin) {
  if (active_ && event() < 0) {
    if (Clock::now() < spin)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kNap);
    return {};
  }
  pollfd wait[] = {{event(), POLLIN, 0}, {news_event(), POLLIN, 0}};
  if (::poll(wait, std::size(wait), static_cast<int>(kLook.count())) < 0 && errno != EINTR)
    return fail_errno("poll");
  (void)interrupts();
  return {};
}

std::span<const std::byte> PathQueue::data(uint32_t tag) const {
  return read_.at(tag);
}

std::optional<size_t> PathQueue::path() const {
  return active_ ? std::optional(active_->path()) : std::nullopt;
}

void PathQueue::spoil(uint32_t tag) {
  for (const auto& lane : lanes_)
    std::ranges::fill(lane->reads->bytes().subspan(tag * stride(), stride()), std::byte{0x5a});
}

uint64_t PathQueue::doorbells() const {
  uint64_t all = doorbells_;
  for (const auto& lane : lanes_) all += lane->pair->doorbells();
  return all;
}

uint64_t PathQueue::interrupts() {
  uint64_t count = 0;
  (void)!::read(event_.get(), &count, sizeof count);
  uint64_t all = interrupts_;
  for (const auto& lane : lanes_) all += lane->pair->interrupts();
  return all;
}

int PathQueue::event() const {
  return active_ ? active_->pair->event() : -1;
}

int PathQueue::lease_event() const {
  return active_ ? active_->drive().device().fd() : -1;
}

std::string PathQueue::remark() const {
  return active_ ? active_->pair->remark() : std::string();
}

}  // namespace pcilend::nvme
