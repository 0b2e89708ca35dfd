// SPDX-License-Identifier: GPL-2.0-or-later
// Lines of text go from one host to another through shared memory, with no message and no system
// call of the receiver's host but the one that wakes it.
//
//	host 4 # ./exchange receive 8		# lets node 8 connect; says "segment 40001"
//	host 8 # ./exchange send 40001		# sends the lines of its stdin
//
// The segment is a slot for one line. The sender stores a line and its checksum, then the line's
// number, and notifies. The receiver prints it and stores the number it has taken; only then may
// the next one come. Both roots; build it with the Makefile beside it.
#include <pcilend/segment.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <iostream>
#include <thread>

namespace {

using namespace pcilend;

// Both ends must see it so. Zeroed memory is an empty slot.
struct Slot {
  uint64_t sent;   // number of the line that is in it
  uint64_t taken;  // number of the line that was printed last
  uint64_t checksum;
  uint64_t length;
  char text[4000];
};
static_assert(sizeof(Slot) <= 4096);

uint64_t checksum(const char* text, uint64_t length) {
  uint64_t sum = length;
  for (uint64_t i = 0; i < length; ++i) sum = sum * 31 + static_cast<unsigned char>(text[i]);
  return sum;
}

// Nobody else's stores are behind what it returns.
uint64_t load(uint64_t& number) {
  return std::atomic_ref(number).load(std::memory_order_acquire);
}

void store(uint64_t& number, uint64_t value) {
  std::atomic_ref(number).store(value, std::memory_order_release);
}

// What another host has written is not to be trusted: look at it once, and check.
bool print_line(const Slot& slot) {
  static char text[sizeof slot.text];
  const uint64_t length = slot.length;
  if (length > sizeof text) return false;
  std::memcpy(text, slot.text, length);
  if (slot.checksum != checksum(text, length)) return false;
  std::cout.write(text, static_cast<std::streamsize>(length)) << std::endl;
  return true;
}

Result<> receive(uint32_t node) {
  const auto host = ThisHost::open();
  if (!host) return tl::unexpected(host.error());
  auto segment = OwnedSegment::create(*host, sizeof(Slot), {.name = "exchange", .notify = true});
  if (!segment) return tl::unexpected(segment.error());
  if (auto offered = segment->offer(node); !offered) return offered;
  std::cout << "segment " << to_string(segment->id()) << std::endl;

  auto& slot = *reinterpret_cast<Slot*>(segment->bytes().data());
  pollfd wait[] = {{segment->notifications(), POLLIN, 0}, {segment->fd(), POLLPRI, 0}};
  for (;;) {
    if (::poll(wait, 2, -1) < 0) continue;
    if (wait[1].revents & POLLPRI) {
      // The other host has booted, which ends the offer.
      if (auto offered = segment->offer(node); !offered) ::sleep(1);
    }
    uint64_t count = 0;
    if (::read(segment->notifications(), &count, sizeof count) < 0) continue;
    const uint64_t number = load(slot.sent);
    if (number == slot.taken) continue;
    if (number == 0) return {};  // the sender's good-bye
    if (!print_line(slot)) std::cerr << "line " << number << " is damaged" << std::endl;
    store(slot.taken, number);
  }
}

// A line is through once the sequence says so; a connection that is lost is made again.
class Sender {
 public:
  Sender(const ThisHost& host, FunctionId id) : host_(host), id_(id) {}

  Result<> send(std::string_view line) {
    while (true) {
      if (!connection_) {
        auto opened = Connection::open(host_, id_);
        if (!opened && opened.error().kind != ErrorClass::Unreachable)
          return tl::unexpected(opened.error());
        if (!opened) {
          ::sleep(1);  // the link is down
          continue;
        }
        connection_.emplace(std::move(*opened));
      }
      if (try_send(line)) return {};
      std::cerr << "lost, again" << std::endl;
      connection_.reset();
    }
  }

  // There is no line any more.
  Result<> end() {
    if (!connection_) return {};
    store(slot().sent, 0);
    return connection_->notify();
  }

 private:
  Slot& slot() { return *reinterpret_cast<Slot*>(connection_->bytes().data()); }

  // A line that was taken just before the connection was lost is not sent twice.
  bool try_send(std::string_view line) {
    const Sequence sequence(*connection_);
    const uint64_t taken = load(slot().taken);
    if (!sequence.complete()) return false;
    if (number_ == 0) number_ = taken + 1;
    if (taken != number_ && !store_line(line)) return false;
    while (load(slot().taken) != number_) {
      if (!sequence.complete()) return false;
      std::this_thread::yield();
    }
    if (!sequence.complete()) return false;
    ++number_;
    return true;
  }

  bool store_line(std::string_view line) {
    const Sequence sequence(*connection_);
    const uint64_t length = std::min(line.size(), sizeof slot().text);
    std::memcpy(slot().text, line.data(), length);
    slot().length = length;
    slot().checksum = checksum(line.data(), length);
    store(slot().sent, number_);
    return sequence.complete() && connection_->notify();
  }

  const ThisHost& host_;
  FunctionId id_;
  uint64_t number_ = 0;  // of the line that is sent next; 0: not known yet
  std::optional<Connection> connection_;
};

Result<> send(FunctionId id) {
  const auto host = ThisHost::open();
  if (!host) return tl::unexpected(host.error());
  Sender sender(*host, id);
  for (std::string line; std::getline(std::cin, line);)
    if (auto sent = sender.send(line); !sent) return sent;
  return sender.end();
}

Result<> run(const std::string& verb, const std::string& what) {
  if (verb == "receive") {
    const auto node = parse_node_id(what);
    return node ? receive(*node) : tl::unexpected(node.error());
  }
  if (verb == "send") {
    const auto id = parse_function_id(what);
    return id ? send(*id) : tl::unexpected(id.error());
  }
  return tl::unexpected(Error{ErrorClass::Usage, "usage: exchange receive NODE | send SEGMENT"});
}

}  // namespace

int main(int argc, char** argv) {
  const auto done = run(argc > 2 ? argv[1] : "", argc > 2 ? argv[2] : "");
  if (done) return 0;
  std::cerr << done.error().message << std::endl;
  return static_cast<int>(done.error().kind);
}
