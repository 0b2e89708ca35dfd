// SPDX-License-Identifier: GPL-2.0-or-later
#include "switchtec_registers.h"

#include <linux/pci_regs.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace pcilend::fabric {
namespace {

constexpr uint16_t kVendor = 0x11f8;
constexpr uint16_t kDevice = 0x4000;
constexpr uint32_t kLink = PCI_EXP_LNKSTA_CLS_16_0GB | 16 << 4;
constexpr uint32_t kNoPort = 0xff;
constexpr uint32_t kMrpcDone = 2;
constexpr uint32_t kMrpcUnknown = 1;  // no command is known here
constexpr uint64_t kPage = 4096;
constexpr uint64_t kTargetBits = kPage - 1;  // of a translation: the partition that it leads to
constexpr size_t kMaxWaiting = 16;           // messages
// Proxies of requesters are functions of the NT endpoint's bus from 01.0 on.
constexpr unsigned kFirstProxy = 8;

constexpr uint32_t bar_of(unsigned window) {
  return 2 + 2 * window;
}

void merge(uint32_t& target, uint32_t bits, uint32_t mask) {
  target = (target & ~mask) | (bits & mask);
}

uint32_t half(uint64_t value, bool high) {
  return static_cast<uint32_t>(high ? value >> 32 : value);
}

uint64_t widen(uint32_t bits, bool high) {
  return high ? uint64_t{bits} << 32 : bits;
}

void merge_half(uint64_t& target, bool high, uint32_t bits, uint32_t mask) {
  target = (target & ~widen(mask, high)) | widen(bits & mask, high);
}

// The ID that reads of processors have, as this switch tells; and those of fill_requesters().
constexpr uint32_t kProcessors = 0;
constexpr uint32_t kFillers = 0xff00;

// The dword at `offset`, if it is one of `count` items of `size` bytes from `base` on.
struct Item {
  bool hit;
  unsigned index;
  uint32_t inside;
  [[nodiscard]] bool high() const { return (inside & 4) != 0; }
};
Item item(uint32_t offset, uint32_t base, uint32_t size, uint32_t count) {
  if (offset < base || offset - base >= size * count) return {false, 0, 0};
  return {true, (offset - base) / size, (offset - base) % size};
}

}  // namespace

SwitchtecRegisters::SwitchtecRegisters(const WindowSizes& windows) : windows_(windows) {
  for (unsigned partition = 0; partition < kPartitions; partition++) reset(partition);
}

void SwitchtecRegisters::reset(unsigned partition) {
  Partition& part = parts_.at(partition);
  // Who has the lock of it, or waits for that, is none of its own.
  const auto holder = part.holder;
  const auto waits = part.waits;
  part = {};
  part.holder = holder;
  part.waits = waits;
  for (Partition& one : parts_) unlock(one, partition);
  for (unsigned window = 0; window < kWindowCount; window++)
    part.bars[bar_of(window)].control = gas::kBarValid;
}

void SwitchtecRegisters::read(unsigned partition, uint32_t offset, std::span<std::byte> data) {
  for (size_t done = 0; done < data.size();) {
    const auto at = static_cast<uint32_t>(offset + done);
    const uint32_t skip = at & 3;
    const size_t length = std::min<size_t>(4 - skip, data.size() - done);
    const uint32_t word = read_word(partition, at & ~3u) >> (8 * skip);
    std::memcpy(data.data() + done, &word, length);
    done += length;
  }
}

SwitchtecRegisters::Effects SwitchtecRegisters::write(unsigned partition, uint32_t offset,
                                                      std::span<const std::byte> data) {
  Effects effects;
  parts_.at(partition).touched = true;
  for (size_t done = 0; done < data.size();) {
    const auto at = static_cast<uint32_t>(offset + done);
    const uint32_t skip = at & 3;
    const size_t length = std::min<size_t>(4 - skip, data.size() - done);
    uint32_t word = 0;
    std::memcpy(&word, data.data() + done, length);
    const uint32_t mask = length == 4 ? 0xffffffff : (1u << (8 * length)) - 1;
    write_word(partition, at & ~3u, word << (8 * skip), mask << (8 * skip), effects);
    done += length;
  }
  return effects;
}

uint32_t SwitchtecRegisters::read_word(unsigned partition, uint32_t offset) {
  Partition& self = parts_.at(partition);
  if (const Item at = item(offset, gas::kControl, 0x2000, kPartitions); at.hit)
    return read_control(partition, parts_[at.index], at.inside);
  if (const Item at = item(offset, gas::kDoorbellsMessages, 0x4000, kPartitions); at.hit)
    return at.index == partition ? read_messages(self, at.inside) : 0;
  if (const Item at = item(offset, gas::kPorts, 0x1000, kPortCount); at.hit)
    return read_port(partition, offset);
  if (const Item at = item(offset, gas::kPartitionConfig, 0x400, kPartitions); at.hit) {
    if (item(at.inside, gas::kDownstreamPorts, 4, 47).hit) return kNoPort;
    if (at.inside == gas::kUpstreamPort) return 2 * at.index;
    if (at.inside == gas::kEndpointPort) return 2 * at.index + 1;
    if (at.inside == gas::kEventVector) return kEvents;
    return at.inside == gas::kMrpcEvent && at.index == partition ? self.mrpc_event : 0;
  }
  if (const Item at = item(offset, gas::kNtb + gas::kPartitionInfo, 16, kPartitions); at.hit)
    return at.inside == gas::kTargetLow ? 1u << (1 - at.index) : 0;
  switch (offset) {
    case gas::kDeviceId:
      return kDevice;
    case gas::kFirmwareVersion:
      return 0x04000000;
    case gas::kPartitionId:
      return partition;
    case gas::kNtb:
      return kPartitions | partition << 8;
    case gas::kNtb + gas::kEndpointMap:
      return (1u << kPartitions) - 1;
    case gas::kMrpcStatus:
      return self.mrpc_status;
    case gas::kMrpcReturn:
      return self.mrpc_return;
    default:
      return 0;
  }
}

void SwitchtecRegisters::write_word(unsigned partition, uint32_t offset, uint32_t value,
                                    uint32_t mask, Effects& effects) {
  Partition& self = parts_.at(partition);
  if (const Item at = item(offset, gas::kControl, 0x2000, kPartitions); at.hit)
    return write_control(partition, at.index, at.inside, value, mask);
  if (const Item at = item(offset, gas::kDoorbellsMessages, 0x4000, kPartitions); at.hit) {
    if (at.index == partition) write_messages(self, at.inside, value, mask, effects);
    return;
  }
  if (const Item at = item(offset, gas::kPorts, 0x1000, kPortCount); at.hit)
    return write_port(self, offset, value, mask);
  if (offset == gas::kPartitionConfig + 0x400 * partition + gas::kMrpcEvent) {
    self.mrpc_event &= ~(value & mask & gas::kEventOccurred);
    merge(self.mrpc_event, value, mask & gas::kEventInterrupts);
    return;
  }
  if (offset == gas::kMrpcCommand) {
    self.mrpc_status = kMrpcDone;
    self.mrpc_return = kMrpcUnknown;
    self.mrpc_event |= gas::kEventOccurred;
    if ((self.mrpc_event & gas::kEventInterrupts) != 0) effects.vectors |= 1u << kEvents;
  }
}

uint32_t SwitchtecRegisters::read_control(unsigned reader, const Partition& part,
                                          uint32_t offset) const {
  if (const Item at = item(offset, gas::kBars, 16, kBarCount); at.hit) {
    const Bar& bar = part.bars[at.index];
    if (at.inside == gas::kBarControl) return bar.control;
    if (at.inside == gas::kBarSize) return bar.size;
    return half(bar.target, at.high());
  }
  if (const Item at = item(offset, gas::kBarExtra, 16, kBarCount); at.hit)
    return at.inside == 0 ? part.bars[at.index].extra : 0;
  if (const Item at = item(offset, gas::kRequesters, 4, kRequesterEntries); at.hit)
    return part.requesters[at.index] | (kFirstProxy + at.index) << 1;
  if (const Item at = item(offset, gas::kLut, 8, kLutEntries); at.hit)
    return half(part.lut[at.index], at.high());
  switch (offset) {
    case gas::kStatus:
      // Each sees how far its own request is.
      return (part.holder == reader   ? gas::kLocked
              : part.waits.at(reader) ? gas::kLocking
                                      : gas::kNormal) |
             part.holder.value_or(0) << 16;
    case gas::kBarError:
      return part.bar_error;
    case gas::kLutSize:
      return kLutEntries;
    case gas::kRequesterSize:
      return kRequesterEntries;
    default:
      return 0;
  }
}

// Written without the lock or with it; it is configuring that takes the lock.
void SwitchtecRegisters::write_control(unsigned writer, unsigned partition, uint32_t offset,
                                       uint32_t value, uint32_t mask) {
  Partition& part = parts_[partition];
  if (const Item at = item(offset, gas::kBars, 16, kBarCount); at.hit) {
    Bar& bar = part.bars[at.index];
    if ((bar.control & gas::kBarValid) == 0) return;
    if (at.inside == gas::kBarControl)
      merge(bar.control, value, mask & ~gas::kBarValid);
    else if (at.inside == gas::kBarSize)
      merge(bar.size, value, mask);
    else
      merge_half(bar.target, at.high(), value, mask);
  } else if (const Item extra = item(offset, gas::kBarExtra, 16, kBarCount); extra.hit) {
    if (extra.inside == 0) merge(part.bars[extra.index].extra, value, mask);
  } else if (const Item id = item(offset, gas::kRequesters, 4, kRequesterEntries); id.hit) {
    merge(part.requesters[id.index], value, mask & (0xffff0000 | gas::kEntryEnabled));
  } else if (const Item entry = item(offset, gas::kLut, 8, kLutEntries); entry.hit) {
    merge_half(part.lut[entry.index], entry.high(), value, mask);
  } else if (offset == gas::kOperation) {
    operate(writer, partition, value & mask);
  }
}

void SwitchtecRegisters::operate(unsigned writer, unsigned partition, uint32_t operation) {
  Partition& part = parts_[partition];
  switch (operation) {
    case gas::kLock:
      if (!part.holder)
        part.holder = writer;
      else
        part.waits.at(writer) = part.holder != writer;
      break;
    case gas::kConfigure:
      if (part.holder != writer) break;
      part.bar_error = 0;
      for (unsigned window = 0; window < kWindowCount; window++)
        if (!configure(part, window)) part.bar_error |= 1u << bar_of(window);
      note_requesters(part);
      // After an error it stays locked, until it is configured without one.
      if (part.bar_error == 0) unlock(part, writer);
      break;
    case gas::kReset:
      unlock(part, writer);
      break;
    default:
      break;
  }
}

// The host neither holds nor wants the lock any more; the next one has it.
void SwitchtecRegisters::unlock(Partition& part, unsigned holder) {
  part.waits.at(holder) = false;
  if (part.holder != holder) return;
  part.holder.reset();
  for (unsigned next = 0; next < kPartitions && !part.holder; next++)
    if (std::exchange(part.waits.at(next), false)) part.holder = next;
}

// False if the registers say what a window can't do; nothing leads anywhere then.
bool SwitchtecRegisters::configure(Partition& part, unsigned window) {
  const Bar& bar = part.bars[bar_of(window)];
  std::vector<Opening>& openings = part.openings[window];
  const auto target = static_cast<uint64_t>(&part == parts_.data() ? 1 : 0);
  openings.clear();

  uint64_t direct = 0;
  if ((bar.control & gas::kBarLut) != 0) {
    const unsigned shift = bar.control >> 8 & 0x3f;
    const uint64_t entries = (bar.control >> 14) + 1;
    if (shift < 12 || shift > 30 || entries > kLutEntries || entries << shift > windows_[window])
      return false;
    direct = entries << shift;
    for (unsigned i = 0; i < entries; i++) {
      const uint64_t entry = part.lut[i];
      if ((entry & gas::kEntryEnabled) == 0 || (entry & kTargetBits) >> 1 != target) continue;
      openings.push_back({uint64_t{i} << shift, uint64_t{1} << shift, entry >> shift << shift});
    }
  }
  if ((bar.control & gas::kBarDirect) == 0) return true;

  const unsigned position = bar.size & 0x3f;
  const uint64_t size = widen(bar.extra, true) | (bar.size & ~uint32_t{kPage - 1});
  if (position < 12 || size == 0 || size > windows_[window] - direct ||
      (bar.target & kTargetBits) != target || size >> position > kMaxRepeats) {
    openings.clear();
    return false;
  }
  // Of an address the bits from `position` up are the translation's, the lower ones the offset's.
  const uint64_t step = uint64_t{1} << position;
  for (uint64_t offset = 0; offset < size; offset += step)
    openings.push_back(
        {direct + offset, std::min(step, size - offset), bar.target >> position << position});
  return true;
}

uint32_t SwitchtecRegisters::read_messages(const Partition& part, uint32_t offset) const {
  if (const Item at = item(offset, gas::kVectors, 1, kDoorbells); at.hit) {
    uint32_t word;
    std::memcpy(&word, part.vectors.data() + at.index, sizeof word);
    return word;
  }
  if (const Item at = item(offset, gas::kInMessages, 8, kMessages); at.hit) {
    const Message& message = part.messages[at.index];
    return at.high() ? message.state | uint32_t{message.sender} << 16 : message.value;
  }
  switch (offset & ~4u) {
    case gas::kOutMask:
      return half(part.out_mask, (offset & 4) != 0);
    case gas::kInDoorbells:
      return half(part.doorbells, (offset & 4) != 0);
    case gas::kInMask:
      return half(part.in_mask, (offset & 4) != 0);
    case gas::kMessageMap:
      return (offset & 4) == 0 ? part.message_map : 0;
    default:
      return 0;
  }
}

void SwitchtecRegisters::write_messages(Partition& part, uint32_t offset, uint32_t value,
                                        uint32_t mask, Effects& effects) {
  const bool high = (offset & 4) != 0;
  if (const Item at = item(offset, gas::kVectors, 1, kDoorbells); at.hit) {
    uint32_t word;
    std::memcpy(&word, part.vectors.data() + at.index, sizeof word);
    merge(word, value, mask);
    std::memcpy(part.vectors.data() + at.index, &word, sizeof word);
    return;
  }
  if (const Item at = item(offset, gas::kOutMessages, 8, kMessages); at.hit) {
    if (!at.high()) effects.signals.push_back({Signal::Kind::Message, at.index, value & mask});
    return;
  }
  if (const Item at = item(offset, gas::kInMessages, 8, kMessages); at.hit) {
    if (!at.high()) return;
    Message& message = part.messages[at.index];
    const bool was_enabled = (message.state & gas::kMessageEnabled) != 0;
    merge(message.state, value, mask & gas::kMessageEnabled);
    if ((value & mask & gas::kMessagePending) != 0) {
      message.state &= ~gas::kMessagePending;
      show_message(part, at.index);
      effects.vectors |= message_vector(part, at.index);
    } else if (!was_enabled) {
      effects.vectors |= message_vector(part, at.index);
    }
    return;
  }
  switch (offset & ~4u) {
    case gas::kOutDoorbells: {
      const uint64_t bits = widen(value & mask, high) & part.out_mask;
      if (bits != 0) effects.signals.push_back({Signal::Kind::Doorbells, 0, bits});
      break;
    }
    case gas::kOutMask:
      merge_half(part.out_mask, high, value, mask);
      break;
    case gas::kInDoorbells:
      part.doorbells &= ~widen(value & mask, high);
      break;
    case gas::kInMask: {
      const uint64_t before = part.in_mask;
      merge_half(part.in_mask, high, value, mask);
      effects.vectors |= vectors_of(part, part.doorbells & part.in_mask & ~before);
      break;
    }
    case gas::kMessageMap:
      if (!high) merge(part.message_map, value, mask);
      break;
    default:
      break;
  }
}

uint32_t SwitchtecRegisters::read_port(unsigned partition, uint32_t offset) {
  const Item port = item(offset, gas::kPorts, 0x1000, kPortCount);
  Partition& self = parts_[partition];
  switch (port.inside) {
    case PCI_VENDOR_ID:
      return kVendor | uint32_t{kDevice} << 16;
    case gas::kPortLink:
      return kLink << 16;
    case gas::kPortLinkEvent:
      if (port.index / 2 != partition) self.event_unread = self.loss_unread = false;
      return self.port_events[port.index];
    default:
      return 0;
  }
}

void SwitchtecRegisters::write_port(Partition& part, uint32_t offset, uint32_t value,
                                    uint32_t mask) {
  const Item port = item(offset, gas::kPorts, 0x1000, kPortCount);
  if (port.inside != gas::kPortLinkEvent) return;
  uint32_t& event = part.port_events[port.index];
  event &= ~(value & mask & gas::kEventOccurred);
  merge(event, value, mask & gas::kEventInterrupts);
}

uint32_t SwitchtecRegisters::vectors_of(const Partition& part, uint64_t doorbells) {
  uint32_t vectors = 0;
  for (unsigned bit = 0; bit < kDoorbells; bit++)
    if ((doorbells >> bit & 1) != 0) vectors |= 1u << (part.vectors[bit] & 31);
  return vectors;
}

void SwitchtecRegisters::show_message(Partition& part, unsigned index) {
  Message& message = part.messages[index];
  if ((message.state & gas::kMessagePending) != 0 || message.waiting.empty()) return;
  message.value = message.waiting.front();
  message.waiting.pop_front();
  message.state |= gas::kMessagePending;
}

uint32_t SwitchtecRegisters::message_vector(const Partition& part, unsigned index) {
  constexpr uint32_t kWanted = gas::kMessagePending | gas::kMessageEnabled;
  if ((part.messages[index].state & kWanted) != kWanted) return 0;
  return 1u << (part.vectors[kDoorbells - kMessages + index] & 31);
}

uint32_t SwitchtecRegisters::ring(unsigned partition, uint64_t doorbells) {
  Partition& part = parts_.at(partition);
  part.doorbells |= doorbells;
  return vectors_of(part, doorbells & part.in_mask);
}

uint32_t SwitchtecRegisters::take_message(unsigned partition, unsigned sender, unsigned index,
                                          uint32_t value) {
  Partition& part = parts_.at(partition);
  for (unsigned i = 0; i < kMessages; i++) {
    if ((part.message_map >> 8 * i & 0xff) != (index | sender << 2)) continue;
    Message& message = part.messages[i];
    if (message.waiting.size() >= kMaxWaiting) return 0;
    message.sender = static_cast<uint8_t>(sender);
    message.waiting.push_back(value);
    show_message(part, i);
    // Each message interrupts, as one may have come before its vector was set.
    return message_vector(part, i);
  }
  return 0;
}

uint32_t SwitchtecRegisters::link_event(unsigned partition, bool up) {
  Partition& part = parts_.at(partition);
  uint32_t& event = part.port_events[2 * (1 - partition)];
  const uint32_t counter = ((event >> gas::kEventCounter) + 1) & 0xff;
  event = (event & gas::kEventInterrupts) | gas::kEventOccurred | counter << gas::kEventCounter;
  part.loss_unread = false;
  if ((event & gas::kEventInterrupts) == 0) return 0;
  part.event_unread = true;
  part.loss_unread = !up;
  return 1u << kEvents;
}

bool SwitchtecRegisters::ready(unsigned partition) const {
  return (parts_.at(partition).port_events[2 * (1 - partition)] & gas::kEventInterrupts) != 0;
}

bool SwitchtecRegisters::loss_unread(unsigned partition) const {
  return parts_.at(partition).loss_unread;
}

bool SwitchtecRegisters::cause_stands(unsigned partition, unsigned vector) const {
  const Partition& part = parts_.at(partition);
  if (vector == kEvents) return part.event_unread || (part.mrpc_event & gas::kEventOccurred) != 0;
  uint32_t standing = vectors_of(part, part.doorbells & part.in_mask);
  for (unsigned i = 0; i < kMessages; i++) standing |= message_vector(part, i);
  return (standing >> vector & 1) != 0;
}

void SwitchtecRegisters::note_requesters(Partition& part) {
  part.allowed = {};
  for (unsigned i = 0; i < kRequesterEntries; i++)
    if ((part.requesters[i] & gas::kEntryEnabled) != 0)
      part.allowed.push_back(
          {static_cast<uint16_t>(part.requesters[i] >> 16), static_cast<uint8_t>(kFirstProxy + i)});
}

std::vector<Requester> SwitchtecRegisters::requesters(unsigned partition) const {
  return parts_.at(partition).allowed;
}

bool SwitchtecRegisters::lets_functions_through(unsigned partition) const {
  const auto& allowed = parts_.at(partition).allowed;
  return std::any_of(allowed.begin(), allowed.end(), [](const Requester& one) {
    return one.id != kProcessors && one.id < kFillers;
  });
}

void SwitchtecRegisters::fill_requesters(unsigned partition, bool full) {
  Partition& part = parts_.at(partition);
  for (unsigned i = 0; i < kRequesterEntries; i++) {
    uint32_t& entry = part.requesters[i];
    const bool enabled = (entry & gas::kEntryEnabled) != 0;
    if (full && !enabled)
      entry = (kFillers + i) << 16 | gas::kEntryEnabled;
    else if (!full && enabled && entry >> 16 >= kFillers)
      entry = 0;
  }
  note_requesters(part);
}

}  // namespace pcilend::fabric
