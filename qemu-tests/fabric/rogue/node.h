// SPDX-License-Identifier: GPL-2.0-or-later
// One link of a node that is a program: speaks the wire protocol (lending-core/core) honestly, as
// lender and as borrower, until it is told to do otherwise.
#pragma once

#include <linux/pcilend.h>

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pcilend/wire.h"
#include "rogue/driver.h"
#include "rogue/port.h"

namespace pcilend::rogue {

using Clock = std::chrono::steady_clock;
using Slot = std::array<u8, PCILEND_SLOT_BYTES>;

// How a lender, or an owner of segments, answers.
enum class Manner {
  Honest,
  Silent,  // never
  Late,    // after the borrower has given up
  Twice,
  WrongType,     // as if something else had been asked
  WrongPayload,  // a grant of another function, random configuration space
  BadPlacement,  // BARs where none can be; another place each time
  Grows,         // a larger BAR as soon as it is lent, and the MSI-X table in what came with it
  Unreleasing,   // no release of a connection to a segment
};

struct Answer {
  uint16_t status;
  std::array<u8, PCILEND_PAYLOAD_BYTES> payload;
};

// What has come of all messages since the last look.
struct Tally {
  uint64_t sent = 0;
  std::map<std::string, uint64_t> answers;  // by status
  uint64_t unanswered = 0;
};

class Node {
 public:
  // Where the program's memory lies on its bus: the control area; what a lent function may write
  // to; the BARs it offers.
  static constexpr uint64_t kAreaBus = 0x100000;
  static constexpr uint64_t kBarBus = 1ull << 40;
  static constexpr size_t kBarBytes = 4 << 20;
  // Where a function that is borrowed finds this node's interrupt range.
  static constexpr uint64_t kInterruptAlias = 0xfe000000;
  static constexpr uint64_t kSharedBus = 2 << 20;  // the adapter's driver's
  static std::vector<Port::Range> memory() {
    return {{kAreaBus, 1 << 20}, {kBarBus, kBarBytes}, {kSharedBus, Driver::kSharedBytes}};
  }

  // `port` has memory() and outlives the node.
  static Result<std::unique_ptr<Node>> make(Port& port, uint16_t number);

  // Begins the handshake as that node, under a new boot id. Both sides start from nothing.
  void join(uint16_t number);
  // As a host whose module is unloaded.
  void leave();
  // Beats, greets, takes messages. Call it often.
  void step(Clock::time_point now);

  [[nodiscard]] bool joined() const { return joined_; }
  // Both sides have seen each other.
  [[nodiscard]] bool up() const;
  [[nodiscard]] uint16_t number() const { return number_; }
  [[nodiscard]] uint32_t peer_node() const { return peer_.node; }
  [[nodiscard]] uint64_t boot() const { return boot_; }
  // Functions that the peer has told of.
  [[nodiscard]] const std::map<uint32_t, pcilend_msg_function>& seen() const { return seen_; }
  // Messages of the peer that its own protocol does not allow: a bug over there.
  [[nodiscard]] uint64_t malformed() const { return malformed_; }
  // Notices of the peer, by name.
  [[nodiscard]] const std::map<std::string, uint64_t>& notices() const { return notices_; }

  // A message with the next place in the ring.
  [[nodiscard]] Slot make(uint16_t type, bool answer, uint16_t status, uint32_t request,
                          const void* payload) const;
  // Puts it into the peer's ring, and rings. False if the ring stays full for a second.
  bool put(const Slot& slot);
  // The same whether there is room or not, and as it is.
  void force(const Slot& slot);
  [[nodiscard]] bool full() const;
  // Writes it as a polled request, after what is before that head of the ring, and rings. The
  // number is one that was not used before.
  void poll(Slot slot, uint32_t head);
  // The status that the victim has answered the last one with.
  [[nodiscard]] std::optional<uint16_t> polled() const;
  // The number of the request; 0 if the ring stays full.
  uint32_t request(uint16_t type, const void* payload);
  void notice(uint16_t type, const void* payload);
  // request(), and the answer; nothing if none comes in that time.
  std::optional<Answer> ask(uint16_t type, const void* payload,
                            Clock::duration within = std::chrono::seconds(6));
  // Counts from now on; answers that come count by their status.
  Tally take_tally();

  // Borrows: the lease's number, 0 if it is refused.
  uint32_t borrow(uint32_t id);
  uint16_t give_back(uint32_t id, uint32_t lease);

  // Offers functions of its own, as lender; tells the peer now, and when it asks.
  void offer(unsigned count);
  [[nodiscard]] pcilend_msg_function function(uint32_t id) const;
  // Where whoever asks for a segment of its finds that.
  [[nodiscard]] pcilend_msg_segment segment(const pcilend_msg_connection& wanted) const;
  void set_manner(Manner manner) { manner_ = manner; }
  // What it says of its memory window is no more than that, from the next join() on.
  void set_window(uint64_t bytes) { window_ = bytes; }

  // Stops and starts what happens by itself.
  void set_beating(bool beating) { beating_ = beating; }
  void set_taking(bool taking) { taking_ = taking; }

  // Writes into the peer's control area, wherever that is allowed or not.
  void poke(size_t offset, std::span<const std::byte> data);
  template <std::integral T>
  void poke(size_t offset, T value) {
    poke(offset, fabric::bytes_of(value));
  }
  void scratchpad(unsigned index, uint32_t value);
  void greet();
  Driver& driver() { return *driver_; }
  [[nodiscard]] bool alive() const { return port_.alive(); }

  // Runs while ask() and put() wait; steps all nodes of the program.
  std::function<void()> pump;

 private:
  Node(Port& port, std::unique_ptr<Driver> driver, uint16_t number);

  struct Peer {
    uint32_t node = 0;
    uint64_t boot = 0;
    unsigned window = 0;  // behind which its area is
    uint64_t area = 0;    // bytes into that
    uint32_t seen = 0;
  };
  struct Delayed {
    Clock::time_point due;
    Slot slot;
  };

  [[nodiscard]] pcilend_wire_area& area() const;
  template <class T>
  [[nodiscard]] T shown(size_t offset) const;
  void look_at_peer();
  void say_hello();
  void beat();
  void place(Slot slot);
  void announce();
  void tell(uint32_t id);
  void take_messages();
  void take_polled();
  void take(const Slot& slot, uint32_t sequence);
  void take_notice(uint16_t type, const void* payload);
  void serve(const pcilend_msg_header& header, const void* payload);
  void answer(uint16_t type, uint32_t number, const void* payload,
              uint16_t status = PCILEND_STATUS_OK);
  void answer_polled(uint32_t number);
  void place_bars(uint32_t id, pcilend_msg_borrowed& out);

  Port& port_;
  std::unique_ptr<Driver> driver_;
  uint16_t number_;
  uint64_t boot_ = 0;
  bool joined_ = false;
  bool beating_ = true;
  bool taking_ = true;
  Peer peer_;
  uint32_t head_ = 0;          // messages put into the peer's ring
  uint32_t tail_ = 0;          // messages taken from ours
  uint32_t polls_ = 0;         // polled requests made
  uint32_t polled_taken_ = 0;  // the last one of the peer's
  uint64_t beats_ = 0;
  uint32_t next_request_ = 0;
  Clock::time_point next_look_;
  Clock::time_point next_beat_;
  std::map<uint32_t, Answer> answers_;
  Tally tally_;
  std::map<uint32_t, pcilend_msg_function> seen_;
  std::map<std::string, uint64_t> notices_;
  uint64_t malformed_ = 0;
  unsigned offered_ = 0;
  std::map<uint32_t, uint32_t> lent_;  // function -> lease
  Manner manner_ = Manner::Honest;
  uint64_t window_ = UINT64_MAX;
  unsigned placements_ = 0;
  std::deque<Delayed> delayed_;
  std::deque<Slot> outbox_;  // sent as room comes
};

// The manner with that name, and all names.
std::optional<Manner> manner_named(std::string_view name);

}  // namespace pcilend::rogue
