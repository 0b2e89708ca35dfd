// SPDX-License-Identifier: GPL-2.0-or-later
#include "rogue/node.h"

#include <linux/pci_regs.h>
#include <poll.h>

#include <algorithm>
#include <random>

#include "adapter_model.h"
#include "memory_access.h"
#include "pcilend/identity.h"

namespace pcilend::rogue {

using namespace fabric;
using namespace std::chrono_literals;

namespace {

constexpr auto kLook = 20ms;
constexpr auto kLookWhenUp = 200ms;
constexpr auto kBeat = std::chrono::milliseconds(PCILEND_HEARTBEAT_MS);
constexpr auto kLate = std::chrono::milliseconds(PCILEND_REQUEST_MS + 1000);
constexpr uint64_t kBar0 = 16 << 10;
constexpr uint64_t kInterruptBus = 0xfee00000;
constexpr uint64_t kBar2 = 1 << 20;
constexpr uint64_t kAreaPages = (uint64_t{1} << PCILEND_AREA_WINDOW_SHIFT) - 1;
constexpr uint64_t kGrownBar0 = 4ull << 30;
constexpr uint32_t kGrownTable = 1 << 30;  // in it

std::mt19937_64& dice() {
  static std::mt19937_64 generator(std::random_device{}());
  return generator;
}

// A boot id; neither half is 0.
uint64_t new_boot() {
  return dice()() | 1 | 1ull << 32;
}

}  // namespace

Result<std::unique_ptr<Node>> Node::make(Port& port, uint16_t number) {
  auto driver = Driver::make(port, port.memory(2), kSharedBus);
  if (!driver) return tl::unexpected(std::move(driver).error());
  return std::unique_ptr<Node>(new Node(port, std::move(*driver), number));
}

Node::Node(Port& port, std::unique_ptr<Driver> driver, uint16_t number)
    : port_(port), driver_(std::move(driver)), number_(number) {
  pump = [this] { step(Clock::now()); };
}

pcilend_wire_area& Node::area() const {
  return *reinterpret_cast<pcilend_wire_area*>(port_.memory(0).data());
}

// What the peer has written into this node's control area.
template <class T>
T Node::shown(size_t offset) const {
  T value;
  load(std::as_writable_bytes(std::span(&value, 1)), port_.memory(0).subspan(offset, sizeof value));
  return value;
}

void Node::join(uint16_t number) {
  number_ = number;
  boot_ = new_boot();
  peer_ = {};
  head_ = tail_ = polled_taken_ = 0;
  seen_.clear();
  answers_.clear();
  delayed_.clear();
  outbox_.clear();
  lent_.clear();
  area() = {};
  area().magic = PCILEND_WIRE_MAGIC;
  area().version = PCILEND_WIRE_VERSION;
  area().boot = boot_;
  area().node = number_;
  const auto opened = driver_->open(kBarBus);
  if (!opened) fmt::print(stderr, "rogue: {}\n", opened.error().message);
  driver_->set_ready(true);
  joined_ = beating_ = taking_ = true;
  greet();
}

void Node::leave() {
  scratchpad(PCILEND_SPAD_MAGIC, 0);
  driver_->ring(1 << PCILEND_DOORBELL_KICK);
  driver_->set_ready(false);
  joined_ = false;
}

void Node::scratchpad(unsigned index, uint32_t value) {
  driver_->set_scratchpad(index, value);
}

void Node::greet() {
  scratchpad(PCILEND_SPAD_BOOT_LOW, static_cast<uint32_t>(boot_));
  scratchpad(PCILEND_SPAD_BOOT_HIGH, static_cast<uint32_t>(boot_ >> 32));
  scratchpad(PCILEND_SPAD_NODE, number_);
  scratchpad(PCILEND_SPAD_AREA_PAGE, kAreaBus / PCILEND_PAGE | driver_->memory_window()
                                                                   << PCILEND_AREA_WINDOW_SHIFT);
  scratchpad(PCILEND_SPAD_SEEN_LOW, static_cast<uint32_t>(peer_.boot));
  scratchpad(PCILEND_SPAD_MAGIC, PCILEND_WIRE_MAGIC + PCILEND_WIRE_VERSION);
  driver_->ring(1 << PCILEND_DOORBELL_KICK);
}

// A link is up only when both have said it.
void Node::say_hello() {
  pcilend_msg_hello hello{};
  hello.version = PCILEND_WIRE_VERSION;
  hello.lease_ms = PCILEND_LEASE_MS_MAX;
  hello.interrupt_offset = kInterruptBus;
  hello.dma_limit = kAreaBus + (1 << 20);
  hello.interrupt_window = driver_->memory_window();
  hello.windows = kWindowCount;
  for (unsigned number = 0; number < kWindowCount; number++)
    hello.window[number] = driver_->window(number).size;
  hello.window[driver_->memory_window()] =
      std::min<uint64_t>(hello.window[driver_->memory_window()], window_);
  if (++next_request_ == 0) ++next_request_;
  outbox_.push_front(make(PCILEND_MSG_HELLO, false, PCILEND_STATUS_OK, next_request_, &hello));
}

bool Node::up() const {
  return joined_ && peer_.boot != 0 && peer_.seen == static_cast<uint32_t>(boot_) &&
         shown<u64>(offsetof(pcilend_wire_area, writer_boot)) == peer_.boot &&
         shown<u64>(offsetof(pcilend_wire_area, reader_boot)) == boot_;
}

void Node::look_at_peer() {
  driver_->take_events();
  std::array<uint32_t, PCILEND_SPADS> shown;
  if (!driver_->scratchpads(shown)) return;
  if (shown[PCILEND_SPAD_MAGIC] != PCILEND_WIRE_MAGIC + PCILEND_WIRE_VERSION) return;
  const Peer peer{shown[PCILEND_SPAD_NODE],
                  shown[PCILEND_SPAD_BOOT_LOW] | uint64_t{shown[PCILEND_SPAD_BOOT_HIGH]} << 32,
                  shown[PCILEND_SPAD_AREA_PAGE] >> PCILEND_AREA_WINDOW_SHIFT,
                  (shown[PCILEND_SPAD_AREA_PAGE] & kAreaPages) * PCILEND_PAGE,
                  shown[PCILEND_SPAD_SEEN_LOW]};
  const bool other_life = peer.boot != peer_.boot;
  peer_ = peer;
  if (other_life) {
    head_ = tail_ = polled_taken_ = 0;
    poke(offsetof(pcilend_wire_area, polled), uint32_t{0});
    seen_.clear();
    say_hello();
  }
  if (other_life || !up()) greet();
}

void Node::poke(size_t offset, std::span<const std::byte> data) {
  if (peer_.boot == 0) return;
  const Driver::Window window = driver_->window(peer_.window & 1);
  port_.write(window.region, window.offset + peer_.area + offset, data);
}

// writer_boot last: it vouches for the rest.
void Node::beat() {
  poke(offsetof(pcilend_wire_area, head), head_);
  poke(offsetof(pcilend_wire_area, tail), tail_);
  ++beats_;
  poke(offsetof(pcilend_wire_area, trail) + beats_ % PCILEND_TRAIL_SLOTS * sizeof(uint32_t),
       static_cast<uint32_t>(beats_));
  poke(offsetof(pcilend_wire_area, heartbeat), beats_);
  poke(offsetof(pcilend_wire_area, reader_boot), peer_.boot);
  poke(offsetof(pcilend_wire_area, writer_boot), boot_);
}

void Node::step(Clock::time_point now) {
  port_.service();
  if (!joined_ || !port_.alive()) return;
  if (now >= next_look_) {
    look_at_peer();
    next_look_ = now + (up() ? kLookWhenUp : kLook);
  }
  if (beating_ && now >= next_beat_) {
    beat();
    next_beat_ = now + kBeat;
  }
  if (taking_ && up()) take_messages();
  if (taking_ && up()) take_polled();
  while (!delayed_.empty() && delayed_.front().due <= now) {
    outbox_.push_back(delayed_.front().slot);
    delayed_.pop_front();
  }
  for (; up() && !outbox_.empty() && !full(); outbox_.pop_front()) place(outbox_.front());
}

bool Node::full() const {
  return head_ - shown<u32>(offsetof(pcilend_wire_area, tail)) >= PCILEND_RING_SLOTS;
}

Slot Node::make(uint16_t type, bool answer, uint16_t status, uint32_t request,
                const void* payload) const {
  Slot slot;
  void* body = pcilend_wire_begin(slot.data(), type, answer, status, request, head_, boot_);
  const int length = pcilend_wire_length(type, answer);
  if (payload != nullptr && length > 0) std::memcpy(body, payload, static_cast<size_t>(length));
  return slot;
}

void Node::force(const Slot& slot) {
  poke(offsetof(pcilend_wire_area, slots) + head_ % PCILEND_RING_SLOTS * PCILEND_SLOT_BYTES,
       std::as_bytes(std::span(slot)));
  poke(offsetof(pcilend_wire_area, head), ++head_);
  driver_->ring(1 << PCILEND_DOORBELL_KICK);
  tally_.sent++;
}

bool Node::put(const Slot& slot) {
  const auto deadline = Clock::now() + 1s;
  while (full()) {
    if (Clock::now() >= deadline || !port_.alive()) return false;
    pump();
    ::poll(nullptr, 0, 1);
  }
  place(slot);
  return true;
}

// In the place that is the next one now.
void Node::place(Slot slot) {
  reinterpret_cast<pcilend_msg_header*>(slot.data())->sequence = head_;
  force(slot);
}

void Node::poll(Slot slot, uint32_t head) {
  if (++polls_ == 0) ++polls_;
  auto& header = *reinterpret_cast<pcilend_msg_header*>(slot.data());
  header.sequence = header.request = polls_;
  poke(offsetof(pcilend_wire_area, polled), uint32_t{0});
  poke(offsetof(pcilend_wire_area, polled_head), head);
  poke(offsetof(pcilend_wire_area, polled_slot), std::as_bytes(std::span(slot)));
  poke(offsetof(pcilend_wire_area, polled), polls_);
  driver_->ring(1 << PCILEND_DOORBELL_KICK);
  tally_.sent++;
}

std::optional<uint16_t> Node::polled() const {
  const u64 answer = shown<u64>(offsetof(pcilend_wire_area, polled_answer));
  if (pcilend_polled_number(answer) != polls_) return std::nullopt;
  return pcilend_polled_status(answer);
}

uint32_t Node::request(uint16_t type, const void* payload) {
  if (++next_request_ == 0) ++next_request_;
  const uint32_t number = next_request_;
  if (!put(make(type, false, PCILEND_STATUS_OK, number, payload))) return 0;
  tally_.unanswered++;
  return number;
}

void Node::notice(uint16_t type, const void* payload) {
  put(make(type, false, PCILEND_STATUS_OK, 0, payload));
}

std::optional<Answer> Node::ask(uint16_t type, const void* payload, Clock::duration within) {
  const uint32_t number = request(type, payload);
  const auto deadline = Clock::now() + within;
  for (; number != 0 && port_.alive() && Clock::now() < deadline; ::poll(nullptr, 0, 1)) {
    pump();
    const auto found = answers_.find(number);
    if (found == answers_.end()) continue;
    const Answer answer = found->second;
    answers_.erase(found);
    return answer;
  }
  return std::nullopt;
}

Tally Node::take_tally() {
  answers_.clear();
  return std::exchange(tally_, Tally{});
}

uint32_t Node::borrow(uint32_t id) {
  const pcilend_msg_borrow message{id, PCILEND_LEASE_MS_MAX, {}, kInterruptAlias};
  const auto answer = ask(PCILEND_MSG_BORROW, &message);
  if (!answer || answer->status != PCILEND_STATUS_OK) return 0;
  return reinterpret_cast<const pcilend_msg_borrowed*>(answer->payload.data())->lease;
}

uint16_t Node::give_back(uint32_t id, uint32_t lease) {
  const pcilend_msg_lease message{id, lease, 0};
  const auto answer = ask(PCILEND_MSG_RETURN, &message, 20s);
  return answer ? answer->status : uint16_t{PCILEND_STATUS_FAILED};
}

void Node::take_messages() {
  const uint32_t head = shown<u32>(offsetof(pcilend_wire_area, head));
  if (head == tail_) return;
  if (head - tail_ > PCILEND_RING_SLOTS) {
    malformed_++;
    tail_ = head;
    return;
  }
  while (tail_ != head) {
    Slot slot;
    std::memcpy(slot.data(), area().slots[tail_ % PCILEND_RING_SLOTS], slot.size());
    take(slot, tail_++);
  }
  poke(offsetof(pcilend_wire_area, tail), tail_);
}

// As an honest peer it has one under way only.
void Node::take_polled() {
  const uint32_t number = shown<u32>(offsetof(pcilend_wire_area, polled));
  if (number == 0 || number == polled_taken_) return;
  polled_taken_ = number;
  Slot slot;
  std::memcpy(slot.data(), area().polled_slot, slot.size());
  if (pcilend_wire_check_polled(slot.data(), peer_.boot, number, nullptr) != 0) {
    malformed_++;
    return;
  }
  const auto& header = *reinterpret_cast<const pcilend_msg_header*>(slot.data());
  notices_["polled " + std::string(pcilend_msg_name(header.type))]++;
  answer_polled(number);
}

// Late and twice is what the same request by the ring is answered.
void Node::answer_polled(uint32_t number) {
  if (manner_ == Manner::Silent || manner_ == Manner::Late) return;
  poke(offsetof(pcilend_wire_area, polled_answer),
       pcilend_polled_answer(number, PCILEND_STATUS_OK));
}

void Node::take(const Slot& slot, uint32_t sequence) {
  if (pcilend_wire_check(slot.data(), peer_.boot, sequence, nullptr) != 0) {
    malformed_++;
    return;
  }
  const auto& header = *reinterpret_cast<const pcilend_msg_header*>(slot.data());
  const u8* payload = slot.data() + sizeof header;
  if ((header.flags & PCILEND_MSG_FLAG_ANSWER) != 0) {
    if (header.type == PCILEND_MSG_HELLO) return;
    Answer answer{header.status, {}};
    std::memcpy(answer.payload.data(), payload, answer.payload.size());
    answers_[header.request] = answer;
    tally_.answers[pcilend_status_name(header.status)]++;
    if (tally_.unanswered != 0) tally_.unanswered--;
    if (answers_.size() > 4096) answers_.erase(answers_.begin());
  } else if (header.request != 0) {
    serve(header, payload);
  } else {
    take_notice(header.type, payload);
  }
}

void Node::take_notice(uint16_t type, const void* payload) {
  notices_[pcilend_msg_name(type)]++;
  if (type == PCILEND_MSG_FUNCTION) {
    const auto& function = *static_cast<const pcilend_msg_function*>(payload);
    seen_[function.id] = function;
  } else if (type == PCILEND_MSG_WITHDRAW) {
    seen_.erase(static_cast<const pcilend_msg_id*>(payload)->id);
  }
}

void Node::offer(unsigned count) {
  offered_ = count;
  const pcilend_msg_connected connected{count != 0};
  outbox_.push_back(make(PCILEND_MSG_CONNECTED, false, PCILEND_STATUS_OK, 0, &connected));
  announce();
}

void Node::announce() {
  for (unsigned index = 1; index <= offered_; index++)
    tell(pcilend_id(number_, static_cast<u16>(index)));
}

void Node::tell(uint32_t id) {
  const auto told = function(id);
  outbox_.push_back(make(PCILEND_MSG_FUNCTION, false, PCILEND_STATUS_OK, 0, &told));
}

// An NVMe drive, as far as can be seen.
pcilend_msg_function Node::function(uint32_t id) const {
  pcilend_msg_function told{};
  told.id = id;
  told.vendor = 0x1b36;
  told.device = 0x0010;
  told.class_revision = 0x01080200;
  told.state = PCILEND_FUNCTION_AVAILABLE;
  bool grown = false;
  if (const auto lent = lent_.find(id); lent != lent_.end()) {
    told.state = PCILEND_FUNCTION_BORROWED;
    told.borrower = peer_.node;
    told.lease = lent->second;
    grown = manner_ == Manner::Grows;
  }
  told.segment = pcilend_id_index(id) >> 8;
  told.devfn = static_cast<u8>(pcilend_id_index(id));
  told.bar[0] = {grown ? kGrownBar0 : kBar0, PCILEND_BAR_MEM64};
  told.bar[2] = {kBar2, PCILEND_BAR_MEM64 | PCILEND_BAR_PREFETCH};
  pcilend_identity identity{};
  identity.vendor = told.vendor;
  identity.device = told.device;
  identity.class_code = told.class_revision >> 8;
  identity.lender = number_;
  identity.segment = told.segment;
  identity.function = told.devfn & 7;
  identity.devfn = told.devfn;
  pcilend_uuid_make(told.uuid, &identity);
  return told;
}

namespace {

// Configuration space of function(): header, a PCIe capability, and MSI-X where that has grown.
u8 config_byte(uint32_t at, const pcilend_msg_function& function) {
  std::array<u8, 0x90> space{};
  const auto set = [&](size_t offset, auto value) {
    std::memcpy(&space[offset], &value, sizeof value);
  };
  set(PCI_VENDOR_ID, function.vendor);
  set(PCI_DEVICE_ID, function.device);
  set(PCI_STATUS, uint16_t{PCI_STATUS_CAP_LIST});
  set(PCI_CLASS_REVISION, function.class_revision);
  set(PCI_BASE_ADDRESS_0, uint32_t{PCI_BASE_ADDRESS_MEM_TYPE_64});
  set(PCI_BASE_ADDRESS_2, uint32_t{PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH});
  set(PCI_CAPABILITY_LIST, uint8_t{0x40});
  set(0x40, uint8_t{PCI_CAP_ID_EXP});
  set(0x40 + PCI_EXP_FLAGS, uint16_t{2});
  set(0x40 + PCI_EXP_DEVCAP, uint32_t{PCI_EXP_DEVCAP_FLR});
  if (function.bar[0].size == kGrownBar0) {
    set(0x40 + PCI_CAP_LIST_NEXT, uint8_t{0x80});
    set(0x80, uint8_t{PCI_CAP_ID_MSIX});
    set(0x80 + PCI_MSIX_TABLE, kGrownTable);
    set(0x80 + PCI_MSIX_PBA, kGrownTable + 0x1000);
  }
  return at < space.size() ? space[at] : 0;
}

}  // namespace

void Node::place_bars(uint32_t id, pcilend_msg_borrowed& out) {
  out.id = id;
  out.last_address = (1ull << 48) - 1;
  const u32 bars = driver_->bar_window();
  const u32 memory = driver_->memory_window();
  out.bar[0] = {0, kBar0, bars, 0};
  out.bar[2] = {kBar2, kBar2, bars, 0};
  if (manner_ != Manner::BadPlacement) return;
  const pcilend_msg_placement bad[] = {
      {1ull << 62, kBar2, bars, 0},                              // beyond the window
      {driver_->window(bars).size - kBar2 / 2, kBar2, bars, 0},  // half of it
      {0, kBar2, 2, 0},                                          // no such window
      {0, kBar2, 15, 0},
      {0, kBar2, 1000, 0},       // none that can be
      {0x1000, kBar2, bars, 0},  // not aligned by its size, and over BAR 0
      {0, 2 * kBar2, bars, 0},   // not its size
      {0, 1ull << 63, bars, 0},
      {0x123, kBar2, bars, 0},       // not at a page
      {0, kBar2, bars, 0xfff},       // a shift in a large BAR
      {kAreaBus, kBar2, memory, 0},  // this node's control area
      {0xfee00000, kBar2, memory, 0},
      {0, kBar0, bars, 0},  // another one's size, the same place
  };
  const size_t turn = placements_++ % (std::size(bad) + 1);
  if (turn < std::size(bad))
    out.bar[2] = bad[turn];
  else
    out.bar[6] = {0, kBar2, bars, 0};  // an expansion ROM, of which nothing was said
}

// Whatever id it has: a page behind BAR 2.
pcilend_msg_segment Node::segment(const pcilend_msg_connection& wanted) const {
  pcilend_msg_segment place{};
  place.id = wanted.id;
  place.offer = 1;
  place.offset = 2 * kBar2;
  place.size = PCILEND_PAGE;
  place.window = driver_->bar_window();
  return place;
}

void Node::serve(const pcilend_msg_header& header, const void* payload) {
  notices_["request " + std::string(pcilend_msg_name(header.type))]++;
  const auto id = static_cast<const pcilend_msg_id*>(payload)->id;
  std::array<u8, PCILEND_PAYLOAD_BYTES> body{};
  uint16_t status = PCILEND_STATUS_OK;
  if (header.type == PCILEND_MSG_SYNC) {
    announce();
  } else if (header.type == PCILEND_MSG_BORROW) {
    auto& out = *reinterpret_cast<pcilend_msg_borrowed*>(body.data());
    out.lease = static_cast<uint32_t>(dice()()) | 1;
    lent_[id] = out.lease;
    if (manner_ != Manner::Grows) tell(id);
    place_bars(manner_ == Manner::WrongPayload ? id + 1 : id, out);
  } else if (header.type == PCILEND_MSG_RETURN) {
    lent_.erase(id);
    tell(id);
  } else if (header.type == PCILEND_MSG_CONFIG_READ) {
    auto& out = *reinterpret_cast<pcilend_msg_config*>(body.data());
    std::memcpy(&out, payload, sizeof out);
    const auto told = function(out.id);
    for (uint32_t i = 0; i < out.length; i++)
      out.data[i] = manner_ == Manner::WrongPayload ? static_cast<u8>(dice()())
                                                    : config_byte(out.offset + i, told);
  } else if (header.type == PCILEND_MSG_SEGMENT_CONNECT) {
    const auto place = segment(*static_cast<const pcilend_msg_connection*>(payload));
    std::memcpy(body.data(), &place, sizeof place);
  } else if (header.type == PCILEND_MSG_NEAR) {
    status = PCILEND_STATUS_NO_SPACE;
  }
  answer(header.type, header.request, body.data(), status);
  // What has grown is told when the borrower has compared BARs, and has not read all of it yet.
  if (header.type == PCILEND_MSG_CONFIG_READ && manner_ == Manner::Grows) tell(id);
}

void Node::answer(uint16_t type, uint32_t number, const void* payload, uint16_t status) {
  if (type == PCILEND_MSG_HELLO) {
    outbox_.push_back(make(type, true, PCILEND_STATUS_OK, number, payload));
    return;
  }
  const bool other = manner_ == Manner::WrongType && type != PCILEND_MSG_SYNC;
  const uint16_t wrong = type == PCILEND_MSG_RETURN ? PCILEND_MSG_RESET : PCILEND_MSG_RETURN;
  const uint16_t told = other ? wrong : type;
  const Slot slot = make(told, true, status, number, payload);
  switch (manner_) {
    case Manner::Silent:
      return;
    case Manner::Unreleasing:
      if (type == PCILEND_MSG_SEGMENT_RELEASE) return;
      break;
    case Manner::Late:
      delayed_.push_back({Clock::now() + kLate, slot});
      return;
    case Manner::Twice:
      outbox_.push_back(slot);
      break;
    default:
      break;
  }
  outbox_.push_back(slot);
}

std::optional<Manner> manner_named(std::string_view name) {
  static const std::map<std::string_view, Manner> names{{"honest", Manner::Honest},
                                                        {"silent", Manner::Silent},
                                                        {"late", Manner::Late},
                                                        {"twice", Manner::Twice},
                                                        {"wrong-type", Manner::WrongType},
                                                        {"wrong-payload", Manner::WrongPayload},
                                                        {"bad-placement", Manner::BadPlacement},
                                                        {"grows", Manner::Grows},
                                                        {"unreleasing", Manner::Unreleasing}};
  const auto found = names.find(name);
  if (found == names.end()) return std::nullopt;
  return found->second;
}

}  // namespace pcilend::rogue
