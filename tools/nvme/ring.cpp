// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/ring.h"

#include <atomic>
#include <cstring>

#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

constexpr uint32_t kDepthMax = 0xffff;

// Dword 0 of an entry that has no command, and what the drive completes if it takes it for one.
constexpr uint16_t kNoCommand = 0xffff;
constexpr size_t kHead = 8;  // bytes of an entry that are stored last, at once

}  // namespace

Result<Ring> Ring::make(Device& device, uint32_t depth) {
  if (depth == 0 || depth > kDepthMax)
    return fail(ErrorClass::Usage, "a queue has 1 to {} commands under way: give such a depth",
                kDepthMax);
  Ring ring(device, depth);
  // It must be able to tell full from empty: one entry more than commands.
  auto submission = device.allocate(ring.entries() * sizeof(Command),
                                    {.device_writes = false, .host_reads = false});
  if (!submission) return tl::unexpected(std::move(submission).error());
  auto completion = device.allocate(ring.entries() * kCompletionBytes,
                                    {.device_reads = false, .host_writes = false});
  if (!completion) return tl::unexpected(std::move(completion).error());
  ring.submission_ = std::move(*submission);
  ring.completion_ = std::move(*completion);
  for (uint32_t entry = 0; entry < ring.entries(); ++entry) ring.scrub(entry);
  return ring;
}

std::optional<uint32_t> Ring::free_slot() const {
  for (uint32_t slot = 0; slot < depth(); ++slot)
    if (!slots_[slot].used) return slot;
  return std::nullopt;
}

// As many commands are under way as there are slots, so that neither queue is ever full.
Result<> Ring::submit(uint32_t slot, Command command) {
  if (failed_) return tl::unexpected(*failed_);
  if (device_->epoch() != epoch_) return disturbed();
  command.dword[0] = (command.dword[0] & 0xffff) | slot << 16;
  // Where memory beside the drive is lost on the way, what was stored until then is there, and no
  // more: without its head the entry has no command still.
  std::byte* const entry = submission_->bytes().data() + tail_ * sizeof command;
  const auto* const bytes = reinterpret_cast<const std::byte*>(&command);
  std::memcpy(entry + kHead, bytes + kHead, sizeof command - kHead);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::memcpy(entry, bytes, kHead);
  slots_[slot] = {true, tail_};
  owners_[tail_] = slot;
  tail_ = (tail_ + 1) % entries();
  ++under_way_;
  return {};
}

void Ring::ring() {
  if (failed_ || rung_ == tail_) return;
  std::atomic_thread_fence(std::memory_order_release);  // commands, then the doorbell
  device_->store(grant_.submission_doorbell, tail_);
  rung_ = tail_;
  ++doorbells_;
}

tl::unexpected<Error> Ring::give_up(ErrorClass kind, std::string text) {
  failed_ = Error{kind, std::move(text)};
  return tl::unexpected(*failed_);
}

tl::unexpected<Error> Ring::disturbed() {
  return give_up(
      ErrorClass::State,
      fmt::format(
          "{} was reset by others, taken back, or its link was lost: {} commands may be done "
          "or not; open it again",
          device_->name(), under_way_));
}

Result<std::optional<Done>> Ring::take() {
  if (failed_) return tl::unexpected(*failed_);
  auto* const entry =
      reinterpret_cast<uint32_t*>(completion_->bytes().data() + head_ * kCompletionBytes);
  // The controller writes the phase last, or all at once: the others are read behind it.
  std::array<uint32_t, 4> dwords{};
  dwords[3] = std::atomic_ref(entry[3]).load(std::memory_order_acquire);
  if ((dwords[3] >> 16 & 1) != phase_) {
    // Nothing comes any more of what was under way.
    if (device_->epoch() != epoch_) return disturbed();
    return std::optional<Done>();
  }
  for (size_t i = 0; i < 3; ++i)
    dwords[i] = std::atomic_ref(entry[i]).load(std::memory_order_relaxed);
  const Completion completion = Completion::parse(dwords);
  // Of an entry that has none: the command was lost on its way, or others ring.
  if (completion.queue == grant_.id && completion.command == kNoCommand && completion.status != 0)
    return disturbed();
  if (completion.queue != grant_.id || completion.command >= depth() ||
      !slots_[completion.command].used)
    return give_up(
        ErrorClass::Failure,
        fmt::format("{} completes command {} of queue {}, which it was not given: lend it "
                    "to nobody",
                    device_->name(), completion.command, completion.queue));
  // Data of before is behind the completion only if nothing was lost in between.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (device_->epoch() != epoch_) return disturbed();
  Slot& slot = slots_[completion.command];
  slot.used = false;
  // Another one may have that entry by now, as commands end in any order.
  if (owners_[slot.entry] == completion.command) scrub(slot.entry);
  --under_way_;
  release_entry();
  return std::optional(Done{completion.command, completion.status, completion.result});
}

void Ring::scrub(uint32_t entry) {
  Command unknown = make_unknown();
  unknown.dword[0] |= uint32_t{kNoCommand} << 16;
  std::memcpy(submission_->bytes().data() + entry * sizeof unknown, &unknown, kHead);
}

void Ring::release_entry() {
  head_ = (head_ + 1) % entries();
  if (head_ == 0) phase_ = !phase_;
  device_->store(grant_.completion_doorbell, head_);
  ++doorbells_;
}

}  // namespace pcilend::nvme
