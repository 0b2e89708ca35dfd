// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/queue_pair.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// An interrupt that came before it was waited for is not lost, but one may be with the link.
constexpr milliseconds kLook{100};
// Who polls spins for so long, and then leaves its CPU to others between two looks.
constexpr milliseconds kSpin{1};
constexpr std::chrono::microseconds kNap{50};
constexpr uint32_t kBlocksMax = 65536;

}  // namespace

Result<std::unique_ptr<QueuePair>> QueuePair::create(Device& device, Queues& queues,
                                                     const QueuePairOptions& options) {
  const QueueLimits limits = queues.limits();
  if (options.depth >= limits.entries)
    return fail(ErrorClass::Usage, "{} has 1 to {} commands under way in a queue: not {}",
                device.name(), limits.entries - 1, options.depth);
  if (options.transfer == 0 || options.transfer > limits.transfer)
    return fail(ErrorClass::Usage, "a command of {} has up to {} bytes: not {}", device.name(),
                limits.transfer, options.transfer);
  auto ring = Ring::make(device, options.depth);
  if (!ring) return tl::unexpected(std::move(ring).error());
  std::unique_ptr<QueuePair> pair(new QueuePair(device, queues, options, std::move(*ring)));
  // What is in two pages at most needs no list.
  if (options.transfer > kPage) {
    auto lists =
        device.allocate(options.depth * kPage, {.device_writes = false, .host_reads = false});
    if (!lists) return tl::unexpected(std::move(lists).error());
    pair->lists_ = std::move(*lists);
  }
  if (options.vector) {
    auto event = device.interrupt(*options.vector);
    if (!event) return tl::unexpected(std::move(event).error());
    pair->event_ = std::move(*event);
  }
  const auto grant = queues.create(
      {pair->ring_.entries(), pair->ring_.submission(), pair->ring_.completion(), options.vector});
  if (!grant) return tl::unexpected(grant.error());
  pair->ring_.attach(*grant);
  pair->id_ = grant->id;
  return pair;
}

QueuePair::~QueuePair() {
  if (id_) queues_.remove(*id_);
  if (event_) (void)device_.end_interrupt(*options_.vector);
}

Result<> QueuePair::check(const NamespaceInfo& name_space, uint64_t block, uint32_t blocks) const {
  const size_t bytes = size_t{blocks} * name_space.block_bytes;
  if (blocks == 0 || blocks > kBlocksMax || bytes > options_.transfer)
    return fail(ErrorClass::Usage, "{} blocks of {} bytes in one command: 1 to {} bytes fit",
                blocks, name_space.block_bytes, options_.transfer);
  if (block >= name_space.blocks || blocks > name_space.blocks - block)
    return fail(ErrorClass::Usage, "blocks {} to {}: namespace {} of {} has {}", block,
                block + blocks - 1, name_space.id, device_.name(), name_space.blocks);
  return {};
}

Result<std::optional<uint32_t>> QueuePair::transfer(Make make, const NamespaceInfo& name_space,
                                                    uint64_t block, uint32_t blocks,
                                                    uint64_t address) {
  PCILEND_TRY(check(name_space, block, blocks));
  const size_t bytes = size_t{blocks} * name_space.block_bytes;
  const auto slot = ring_.free_slot();
  if (!slot) return slot;
  PrpList list;
  if (lists_) {
    const size_t at = *slot * kPage;
    list.entries = {reinterpret_cast<uint64_t*>(lists_->bytes().data() + at), kPrpEntries};
    list.address = lists_->address() + at;
  }
  const auto data = make_prps(address, bytes, list);
  if (!data) return tl::unexpected(data.error());
  PCILEND_TRY(ring_.submit(*slot, make(name_space.id, block, blocks, *data)));
  return slot;
}

Result<std::optional<uint32_t>> QueuePair::read(const NamespaceInfo& name_space, uint64_t block,
                                                uint32_t blocks, uint64_t address) {
  return transfer(make_read, name_space, block, blocks, address);
}

Result<std::optional<uint32_t>> QueuePair::write(const NamespaceInfo& name_space, uint64_t block,
                                                 uint32_t blocks, uint64_t address) {
  return transfer(make_write, name_space, block, blocks, address);
}

Result<std::optional<uint32_t>> QueuePair::submit(const Command& command) {
  const auto slot = ring_.free_slot();
  if (!slot) return slot;
  PCILEND_TRY(ring_.submit(*slot, command));
  return slot;
}

Result<std::optional<uint32_t>> QueuePair::flush(const NamespaceInfo& name_space) {
  return submit(make_flush(name_space.id));
}

Result<std::optional<uint32_t>> QueuePair::write_through(const NamespaceInfo& name_space,
                                                         uint64_t block, uint32_t blocks,
                                                         uint64_t address) {
  return transfer(make_write_through, name_space, block, blocks, address);
}

Result<std::optional<uint32_t>> QueuePair::write_zeroes(const NamespaceInfo& name_space,
                                                        uint64_t block, uint32_t blocks) {
  PCILEND_TRY(check(name_space, block, blocks));
  return submit(make_write_zeroes(name_space.id, block, blocks));
}

Result<std::optional<uint32_t>> QueuePair::deallocate(const NamespaceInfo& name_space,
                                                      uint64_t address) {
  return submit(make_deallocate(name_space.id, address));
}

// Until the interrupt, or the end of the lease, which take() tells of.
Result<> QueuePair::sleep(milliseconds limit) {
  pollfd wait[] = {{event_.get(), POLLIN, 0}, {device_.fd(), 0, 0}};
  if (::poll(wait, 2, static_cast<int>(limit.count())) < 0 && errno != EINTR)
    return fail_errno("poll");
  (void)interrupts();
  return {};
}

uint64_t QueuePair::interrupts() {
  uint64_t count = 0;
  if (event_ && ::read(event_.get(), &count, sizeof count) == sizeof count) interrupts_ += count;
  return interrupts_;
}

Result<Done> QueuePair::wait(milliseconds patience) {
  ring_.ring();
  const auto start = steady_clock::now();
  const auto spin = start + kSpin;
  const auto end = start + patience;
  for (;;) {
    auto done = ring_.take();
    if (!done) return tl::unexpected(std::move(done).error());
    if (*done) return **done;
    if (steady_clock::now() > end)
      return fail(ErrorClass::Unreachable, "{} has not answered {} commands for {} s",
                  device_.name(), under_way(), patience.count() / 1000);
    if (event_)
      PCILEND_TRY(sleep(std::min(kLook, patience)));
    else if (steady_clock::now() < spin)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kNap);
  }
}

}  // namespace pcilend::nvme
