// SPDX-License-Identifier: GPL-2.0-or-later
// The registers (GAS) of a Switchtec Gen4 with two NT partitions, a host each, as Linux's switchtec
// and ntb_hw_switchtec drive them (include/linux/switchtec.h). Both hosts see one and the same
// switch: each programs the other's windows, in the other's partition.
// Pure: no I/O, no clock; what a write causes outside is returned to the caller.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "adapter_model.h"

namespace pcilend::fabric {

// Offsets in bytes in BAR0.
namespace gas {
inline constexpr uint32_t kMrpcCommand = 0x800;
inline constexpr uint32_t kMrpcStatus = 0x804;
inline constexpr uint32_t kMrpcReturn = 0x808;
inline constexpr uint32_t kDeviceId = 0x2000;
inline constexpr uint32_t kFirmwareVersion = 0x2008;
inline constexpr uint32_t kPartitionId = 0x2048;
inline constexpr uint32_t kPartitionConfig = 0x4000;  // 0x400 a partition
inline constexpr uint32_t kNtb = 0x10000;
inline constexpr uint32_t kControl = 0x14000;            // 0x2000 a partition
inline constexpr uint32_t kDoorbellsMessages = 0x74000;  // 0x4000 a partition
inline constexpr uint32_t kPorts = 0x134000;             // 0x1000 a port function (PFF)
inline constexpr uint32_t kSize = 4 << 20;

// In a partition's configuration.
inline constexpr uint32_t kUpstreamPort = 0x10;
inline constexpr uint32_t kEndpointPort = 0x14;
inline constexpr uint32_t kDownstreamPorts = 0x18;  // 47 words
inline constexpr uint32_t kEventVector = 0x100;
inline constexpr uint32_t kMrpcEvent = 0x13c;

// In kNtb.
inline constexpr uint32_t kEndpointMap = 0x4;
inline constexpr uint32_t kRequesterId = 0xc;
inline constexpr uint32_t kPartitionInfo = 0x20;  // 16 bytes a partition
inline constexpr uint32_t kTargetLow = 0x4;       // in a partition's 16 bytes

// In a partition's control.
inline constexpr uint32_t kStatus = 0x0;
inline constexpr uint32_t kOperation = 0x4;
inline constexpr uint32_t kBarError = 0x10;
inline constexpr uint32_t kLutSize = 0x14;        // entries, 16 bits
inline constexpr uint32_t kRequesterSize = 0x1c;  // entries, 16 bits
inline constexpr uint32_t kBars = 0x40;           // 16 bytes a BAR
inline constexpr uint32_t kBarControl = 0x0;      // in a BAR's 16 bytes
inline constexpr uint32_t kBarSize = 0x4;
inline constexpr uint32_t kBarTarget = 0x8;     // 64 bits
inline constexpr uint32_t kBarExtra = 0xa0;     // 16 bytes a BAR: upper half of its window's size
inline constexpr uint32_t kRequesters = 0x400;  // 4 bytes an entry
inline constexpr uint32_t kLut = 0x1000;        // 8 bytes an entry

inline constexpr uint32_t kLock = 1;
inline constexpr uint32_t kConfigure = 2;
inline constexpr uint32_t kReset = 3;
inline constexpr uint32_t kNormal = 1;
inline constexpr uint32_t kLocked = 2;
inline constexpr uint32_t kLocking = 3;

inline constexpr uint32_t kBarValid = 1 << 0;
inline constexpr uint32_t kBarDirect = 1 << 4;
inline constexpr uint32_t kBarLut = 1 << 5;
inline constexpr uint32_t kEntryEnabled = 1;  // of kRequesters and kLut

// In a partition's doorbells and messages.
inline constexpr uint32_t kOutDoorbells = 0x1000;
inline constexpr uint32_t kOutMask = 0x1008;
inline constexpr uint32_t kInDoorbells = 0x1010;  // cleared by writing ones
inline constexpr uint32_t kInMask = 0x1018;       // a one lets it interrupt
inline constexpr uint32_t kVectors = 0x1020;      // a byte each
inline constexpr uint32_t kMessageMap = 0x1060;   // a byte each: sender's number | partition << 2
inline constexpr uint32_t kOutMessages = 0x1068;  // 8 bytes each
inline constexpr uint32_t kInMessages = 0x1088;   // 8 bytes each
inline constexpr uint32_t kMsixTable = 0x2000;
inline constexpr uint32_t kMsixPba = 0x3000;

// In an incoming message's second word.
inline constexpr uint32_t kMessagePending = 1 << 0;  // cleared by writing a one
inline constexpr uint32_t kMessageEnabled = 1 << 8;

// In a port's function.
inline constexpr uint32_t kPortLink = 0x74;  // LNKCTL and LNKSTA
inline constexpr uint32_t kPortLinkEvent = 0xd30;

inline constexpr uint32_t kEventOccurred = 1 << 0;  // cleared by writing a one
inline constexpr uint32_t kEventInterrupts = 1 << 3;
inline constexpr uint32_t kEventCounter = 5;  // 8 bits from there on
}  // namespace gas

class SwitchtecRegisters {
 public:
  static constexpr unsigned kPartitions = 2;
  static constexpr unsigned kBarCount = 6;
  static constexpr unsigned kLutEntries = 512;
  static constexpr unsigned kRequesterEntries = 64;
  static constexpr unsigned kDoorbells = 64;
  static constexpr unsigned kMessages = 4;
  static constexpr unsigned kPortCount = 2 * kPartitions;  // upstream port and endpoint of each
  static constexpr unsigned kEvents = 0;                   // the vector of the switch's events
  // An outbound window is a translation's lower bits: more often than that it would only repeat.
  static constexpr unsigned kMaxRepeats = 16;

  // `windows`: sizes of BAR2 and BAR4 of each partition's endpoint.
  explicit SwitchtecRegisters(const WindowSizes& windows);

  struct Effects {
    uint32_t vectors = 0;         // to raise at the host that wrote
    std::vector<Signal> signals;  // for the other partition
  };

  // By the host of a partition. Any size and alignment.
  void read(unsigned partition, uint32_t offset, std::span<std::byte> data);
  Effects write(unsigned partition, uint32_t offset, std::span<const std::byte> data);

  // What arrives at a partition. They return the vectors to raise there.
  [[nodiscard]] uint32_t ring(unsigned partition, uint64_t doorbells);
  [[nodiscard]] uint32_t take_message(unsigned partition, unsigned sender, unsigned index,
                                      uint32_t value);
  // The state of the other partition's upstream port has changed.
  [[nodiscard]] uint32_t link_event(unsigned partition, bool up);

  // A driver has asked for link events.
  [[nodiscard]] bool ready(unsigned partition) const;
  // The driver has been told of the loss of the link, and has not read of it yet.
  [[nodiscard]] bool loss_unread(unsigned partition) const;
  [[nodiscard]] bool cause_stands(unsigned partition, unsigned vector) const;
  [[nodiscard]] bool touched(unsigned partition) const { return parts_.at(partition).touched; }

  // Where BAR2 or BAR4 of the partition's endpoint leads, in the other partition.
  [[nodiscard]] std::span<const Opening> openings(unsigned partition, unsigned window) const {
    return parts_.at(partition).openings.at(window);
  }
  [[nodiscard]] std::vector<Requester> requesters(unsigned partition) const;
  [[nodiscard]] bool lets_functions_through(unsigned partition) const;
  // Takes all free entries for IDs of bus 255, or gives those back.
  void fill_requesters(unsigned partition, bool full);

  // Power-on state of a partition.
  void reset(unsigned partition);

 private:
  struct Bar {
    uint32_t control = 0;
    uint32_t size = 0;
    uint64_t target = 0;
    uint32_t extra = 0;
  };
  struct Message {
    uint32_t value = 0;
    uint32_t state = 0;
    uint8_t sender = 0;
    // Behind the one that is shown. A driver that is late here, as the lab's may be, loses none.
    std::deque<uint32_t> waiting;
  };
  struct Partition {
    bool touched = false;
    // Control.
    std::optional<unsigned> holder;  // of the lock
    std::array<bool, kPartitions> waits{};
    uint32_t bar_error = 0;
    std::array<Bar, kBarCount> bars;
    std::array<uint32_t, kRequesterEntries> requesters{};
    std::array<uint64_t, kLutEntries> lut{};
    // As it was configured last.
    std::array<std::vector<Opening>, kWindowCount> openings;
    std::vector<Requester> allowed;
    // Doorbells and messages.
    uint64_t out_mask = 0;
    uint64_t doorbells = 0;
    uint64_t in_mask = 0;
    std::array<uint8_t, kDoorbells> vectors{};
    uint32_t message_map = 0;
    std::array<Message, kMessages> messages;
    // What its host sees of the ports, and of its own commands.
    std::array<uint32_t, kPortCount> port_events{};
    bool event_unread = false;
    bool loss_unread = false;
    uint32_t mrpc_event = 0;
    uint32_t mrpc_status = 0;
    uint32_t mrpc_return = 0;
  };

  [[nodiscard]] uint32_t read_word(unsigned partition, uint32_t offset);
  // Only the bits in `mask` are written.
  void write_word(unsigned partition, uint32_t offset, uint32_t value, uint32_t mask,
                  Effects& effects);
  [[nodiscard]] uint32_t read_control(unsigned reader, const Partition& part,
                                      uint32_t offset) const;
  void write_control(unsigned writer, unsigned partition, uint32_t offset, uint32_t value,
                     uint32_t mask);
  [[nodiscard]] uint32_t read_messages(const Partition& part, uint32_t offset) const;
  void write_messages(Partition& part, uint32_t offset, uint32_t value, uint32_t mask,
                      Effects& effects);
  [[nodiscard]] uint32_t read_port(unsigned partition, uint32_t offset);
  void write_port(Partition& part, uint32_t offset, uint32_t value, uint32_t mask);
  void operate(unsigned writer, unsigned partition, uint32_t operation);
  static void unlock(Partition& part, unsigned holder);
  bool configure(Partition& part, unsigned window);
  static void note_requesters(Partition& part);
  static uint32_t vectors_of(const Partition& part, uint64_t doorbells);
  static void show_message(Partition& part, unsigned index);
  // If a message is there and may interrupt.
  static uint32_t message_vector(const Partition& part, unsigned index);

  WindowSizes windows_;
  std::array<Partition, kPartitions> parts_;
};

}  // namespace pcilend::fabric
