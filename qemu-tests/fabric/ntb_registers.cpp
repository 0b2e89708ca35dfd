// SPDX-License-Identifier: GPL-2.0-or-later
#include "ntb_registers.h"

#include <algorithm>
#include <cstring>

namespace pcilend::fabric {
namespace {

constexpr size_t kMaxQueuedEvents = 8;

uint32_t half(uint64_t value, bool high) {
  return static_cast<uint32_t>(high ? value >> 32 : value);
}

void set_half(uint64_t& value, bool high, uint32_t bits, uint32_t mask) {
  const unsigned shift = high ? 32 : 0;
  value = (value & ~(uint64_t{mask} << shift)) | (uint64_t{bits & mask} << shift);
}

template <class T>
void merge(T& target, uint32_t bits, uint32_t mask) {
  target = static_cast<T>((target & ~mask) | (bits & mask));
}

// Which half of which window's 8-byte register at `base` the dword at `offset` is.
struct WindowHalf {
  bool hit;
  unsigned window;
  bool high;
};
WindowHalf window_half(uint32_t offset, uint32_t base) {
  if (offset < base || offset >= base + 8 * kWindowCount) return {false, 0, false};
  return {true, (offset - base) / 8, (offset & 4) != 0};
}

}  // namespace

void NtbRegisters::reset() {
  touched_ = false;
  ready_ = false;
  control_ = 0;
  scratchpads_.fill(0);
  translations_ = {};
  doorbell_mask_ = 0xffff;
  doorbell_status_ = 0;
  interrupt_mask_ = 0xffffffff;
  interrupt_status_ = 0;
  smu_ack_ = 0;
  events_.clear();
  events_held_ = false;
}

void NtbRegisters::read(uint32_t offset, std::span<std::byte> data, const PeerView& peer) const {
  for (size_t done = 0; done < data.size();) {
    const auto at = static_cast<uint32_t>(offset + done);
    const uint32_t skip = at & 3;
    const size_t length = std::min<size_t>(4 - skip, data.size() - done);
    const uint32_t word = read_word(at & ~3u, peer) >> (8 * skip);
    std::memcpy(data.data() + done, &word, length);
    done += length;
  }
}

NtbRegisters::Effects NtbRegisters::write(uint32_t offset, std::span<const std::byte> data) {
  Effects effects;
  touched_ = true;
  for (size_t done = 0; done < data.size();) {
    const auto at = static_cast<uint32_t>(offset + done);
    const uint32_t skip = at & 3;
    const size_t length = std::min<size_t>(4 - skip, data.size() - done);
    uint32_t word = 0;
    std::memcpy(&word, data.data() + done, length);
    const uint32_t mask = length == 4 ? 0xffffffff : (1u << (8 * length)) - 1;
    write_word(at & ~3u, word << (8 * skip), mask << (8 * skip), effects);
    done += length;
  }
  return effects;
}

uint32_t NtbRegisters::read_word(uint32_t offset, const PeerView& peer) const {
  if (offset >= reg::kScratchpad && offset < reg::kScratchpad + 4 * kScratchpadCount)
    return scratchpads_[(offset - reg::kScratchpad) / 4];
  // Set by this side for the peer's windows; what the peer set for ours is seen in our own.
  if (const auto at = window_half(offset, reg::kPeer + reg::kLimit); at.hit)
    return half(translations_[at.window].limit, at.high);
  if (const auto at = window_half(offset, reg::kPeer + reg::kTranslation); at.hit)
    return half(translations_[at.window].address, at.high);
  if (const auto at = window_half(offset, reg::kLimit); at.hit)
    return half(peer.translations[at.window].limit, at.high);
  if (const auto at = window_half(offset, reg::kTranslation); at.hit)
    return half(peer.translations[at.window].address, at.high);

  const bool secondary = side_ == Side::Secondary;
  switch (offset) {
    case reg::kCntl:
      return control_;
    case reg::kSideInfo:
      return (secondary ? reg::kSideSecondary : 0) | (ready_ ? reg::kSideReady : 0);
    case reg::kPeer + reg::kSideInfo:
      return (secondary ? 0 : reg::kSideSecondary) | (peer.ready ? reg::kSideReady : 0);
    case reg::kDoorbellMask:
      return doorbell_mask_;
    case reg::kDoorbellStatus:
      return doorbell_status_;
    case reg::kInterruptMask:
      return interrupt_mask_;
    case reg::kInterruptStatus:
      return interrupt_status_;
    case reg::kSmuAck:
      return smu_ack_;
    default:
      return 0;
  }
}

void NtbRegisters::write_word(uint32_t offset, uint32_t value, uint32_t mask, Effects& effects) {
  if (offset >= reg::kScratchpad && offset < reg::kScratchpad + 4 * kScratchpadCount) {
    const unsigned index = (offset - reg::kScratchpad) / 4;
    merge(scratchpads_[index], value, mask);
    effects.scratchpads.push_back({index, scratchpads_[index]});
    return;
  }
  if (const auto at = window_half(offset, reg::kPeer + reg::kLimit); at.hit) {
    set_half(translations_[at.window].limit, at.high, value, mask);
    return;
  }
  if (const auto at = window_half(offset, reg::kPeer + reg::kTranslation); at.hit) {
    set_half(translations_[at.window].address, at.high, value, mask);
    return;
  }

  switch (offset) {
    case reg::kCntl:
      merge(control_, value, mask);
      break;
    case reg::kSideInfo:
      if ((mask & reg::kSideReady) != 0) set_ready((value & reg::kSideReady) != 0);
      break;
    // The peer's kSideInfo is not written: after a link-down event the primary side's driver clears
    // the ready bit that only the peer's driver can set again, when it loads.
    case reg::kDoorbellRequest:
      effects.peer_doorbells |= static_cast<uint16_t>(value & mask);
      break;
    case reg::kDoorbellMask: {
      const uint16_t before = doorbell_mask_;
      merge(doorbell_mask_, value, mask);
      effects.vectors |= static_cast<uint32_t>(before & ~doorbell_mask_ & doorbell_status_);
      break;
    }
    case reg::kDoorbellStatus:
      doorbell_status_ &= static_cast<uint16_t>(~(value & mask));
      break;
    case reg::kInterruptMask: {
      const uint32_t before = interrupt_mask_;
      merge(interrupt_mask_, value, mask);
      if ((before & ~interrupt_mask_ & interrupt_status_) != 0)
        effects.vectors |= 1u << kEventVector;
      break;
    }
    case reg::kInterruptStatus:
      interrupt_status_ &= ~(value & mask);
      effects.vectors |= present_event();
      break;
    case reg::kSmuAck:
      merge(smu_ack_, value, mask);
      break;
    default:
      break;
  }
}

void NtbRegisters::set_ready(bool ready) {
  if (ready == ready_) return;
  ready_ = ready;
  events_.clear();
  interrupt_status_ = 0;
  events_held_ = ready;
}

uint32_t NtbRegisters::ring_doorbells(uint16_t bits) {
  doorbell_status_ |= bits;
  return static_cast<uint32_t>(bits & ~doorbell_mask_);
}

uint32_t NtbRegisters::link_event(LinkEvent event) {
  if (!ready_) return 0;
  const bool repeated =
      events_.empty() ? interrupt_status_ == static_cast<uint32_t>(event) : events_.back() == event;
  if (repeated) return 0;
  // A driver that doesn't listen: up and down cancel out in pairs.
  if (events_.size() >= kMaxQueuedEvents) events_.erase(events_.begin(), events_.begin() + 2);
  events_.push_back(event);
  return present_event();
}

uint32_t NtbRegisters::release_events() {
  events_held_ = false;
  return present_event();
}

uint32_t NtbRegisters::present_event() {
  if (events_held_ || interrupt_status_ != 0 || events_.empty()) return 0;
  interrupt_status_ = static_cast<uint32_t>(events_.front());
  events_.pop_front();
  return (interrupt_status_ & ~interrupt_mask_) != 0 ? 1u << kEventVector : 0;
}

bool NtbRegisters::loss_pending() const {
  constexpr auto kDown = static_cast<uint32_t>(LinkEvent::Down);
  if ((interrupt_mask_ & kDown) != 0) return false;
  return interrupt_status_ == kDown ||
         std::find(events_.begin(), events_.end(), LinkEvent::Down) != events_.end();
}

bool NtbRegisters::cause_stands(unsigned vector) const {
  if (vector < kDoorbellCount) return ((doorbell_status_ & ~doorbell_mask_) >> vector & 1) != 0;
  return vector == kEventVector && (interrupt_status_ & ~interrupt_mask_) != 0;
}

}  // namespace pcilend::fabric
