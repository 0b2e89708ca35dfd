// SPDX-License-Identifier: GPL-2.0-or-later
// A controller in memory, with a medium of 1 MiB: as NVMe has it, written down a second time.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "pcilend/nvme/command.h"
#include "pcilend/nvme/device.h"
#include "pcilend/result.h"

namespace pcilend::nvme::test {

class FakeController : public Device {
 public:
  static constexpr uint32_t kBlock = 512;
  static constexpr size_t kMediumBytes = size_t{1} << 20;

  FakeController() : medium(kMediumBytes) { identify_controller(); }
  FakeController(const FakeController&) = delete;
  FakeController& operator=(const FakeController&) = delete;
  ~FakeController() override { own.reset(); }

  // What tests look at, and change.
  std::vector<std::byte> medium;
  std::array<std::byte, 4096> controller_page{};
  std::array<std::byte, 4096> namespace_page{};
  uint64_t capabilities = 1ULL << 37 | 1ULL << 24 | 1ULL << 16 | 63;  // TO 500 ms, CQR, 64 entries
  uint32_t pairs = 4;
  std::unique_ptr<Memory> own;  // its own memory, when that is enabled
  uint32_t event_requests = 0;  // that may be under way
  uint32_t own_pages = 0;       // capabilities bit 57 says that there is some
  uint64_t now_epoch = 0;
  bool gone = false;    // all-ones
  bool deaf = false;    // takes no commands
  bool fatal = false;   // it was given an address where nothing is, or that is not to be written
  bool held = false;    // commands wait for release()
  bool aborts = false;  // completes what is under way in a queue that it deletes
  bool keeps_queues = false;  // refuses to delete them
  bool broken = false;        // it has a fatal error of its own, until it is reset
  bool enabled = false;
  std::vector<uint32_t> opcodes;                        // of all commands
  uint64_t rings = 0;                                   // of doorbells
  uint64_t data_writes = 0;                             // to the medium
  std::function<void(std::array<uint32_t, 4>&)> alter;  // a completion of an I/O queue

  // I/O commands that wait, last come first.
  void release() {
    held = false;
    for (auto it = waiting_.rbegin(); it != waiting_.rend(); ++it) run(it->first, it->second);
    waiting_.clear();
  }
  // One of them; the others wait on.
  void release_last() {
    const auto last = waiting_.back();
    waiting_.pop_back();
    run(last.first, last.second);
  }
  // Namespaces that have changed; read, they are forgotten.
  std::vector<uint32_t> changed;
  uint32_t told_events = 0;  // Asynchronous Event Configuration
  // What it tells by itself, if it was asked to: dword 0 of the completion.
  bool tell(uint32_t event) {
    if (asked_.empty()) return false;
    const Sqe command = asked_.back();
    asked_.pop_back();
    post(0, command, 0, event);
    return true;
  }
  [[nodiscard]] size_t io_queues() const { return submissions_.size() - (enabled ? 1 : 0); }
  [[nodiscard]] size_t mapped() const { return memory_.size(); }

  [[nodiscard]] std::string name() const override { return "40001"; }
  [[nodiscard]] size_t register_bytes() const override { return 0x2000; }
  [[nodiscard]] uint32_t load(size_t offset) const override {
    if (gone) return ~0U;
    if (offset == 0) return static_cast<uint32_t>(capabilities);
    if (offset == 4) return static_cast<uint32_t>(capabilities >> 32);
    if (offset == 0x1c) return status_ | (fatal || broken ? 2U : 0U);
    const auto control = registers_.find(0x50);
    const bool open = control != registers_.end() && (control->second & 1) != 0;
    if (offset == 0x38 && open) return 1U << 12 | 2;            // BAR 2, behind its first page
    if (offset == 0x3c && open) return own_pages << 12 | 0x1d;  // all but completions
    const auto it = registers_.find(offset);
    return it == registers_.end() ? 0 : it->second;
  }
  void store(size_t offset, uint32_t value) override {
    if (gone) return;
    if (offset >= 0x1000) {
      ++rings;
      ring((offset - 0x1000) / 4, value);
      return;
    }
    registers_[offset] = value;
    if (offset == 0x14) configure(value);
    if (offset == 0x50 && (value & 2) != 0)
      own = place(static_cast<uint64_t>(registers_[0x54]) << 32 | (value & ~0xfffU),
                  own_pages * kPage, true);
  }
  Result<std::unique_ptr<Memory>> allocate(size_t bytes, const Access& access) override {
    auto memory = place(next_address_, bytes, access.device_writes);
    next_address_ += memory->bytes().size() + kPage;  // nothing behind it
    return memory;
  }
  // Memory that it reaches there.
  std::unique_ptr<Memory> place(uint64_t address, size_t bytes, bool writable) {
    const size_t size = (bytes + kPage - 1) / kPage * kPage;
    auto block = std::make_unique<Block>(*this, address, size, writable);
    memory_[address] = block.get();
    return block;
  }
  // The same of memory that somebody else has.
  std::unique_ptr<Memory> show(uint64_t address, std::span<std::byte> bytes) {
    auto block = std::make_unique<Block>(*this, address, bytes);
    memory_[address] = block.get();
    return block;
  }
  Result<std::span<std::byte>> bar(uint32_t index, uint64_t offset, size_t bytes) override {
    if (!own || index != 2 || offset < kPage || offset - kPage + bytes > own->bytes().size())
      return fail(ErrorClass::Permission, "no such part");
    return own->bytes().subspan(offset - kPage, bytes);
  }
  Result<UniqueFd> interrupt(uint32_t vector) override {
    UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    events_[vector] = event.get();
    return event;
  }
  Result<> end_interrupt(uint32_t vector) override {
    events_.erase(vector);
    return {};
  }
  [[nodiscard]] uint64_t epoch() const override { return now_epoch; }
  [[nodiscard]] int fd() const override { return -1; }

  // As a lender's administrator does it.
  void reset_by_others() {
    configure(0);
    ++now_epoch;
  }

 protected:
  struct Submissions {
    uint64_t base = 0;
    uint32_t entries = 0;
    uint16_t completions = 0;
    uint32_t head = 0;
  };
  using Sqe = std::array<uint32_t, 16>;

  // Status of a command, and dword 0 of its completion.
  virtual uint16_t execute(uint16_t queue, const Sqe& c, uint32_t& result) {
    return queue == 0 ? admin(c, result) : io(c);
  }

  virtual void forge(uint16_t queue, std::array<uint32_t, 4>& completion) {
    if (queue != 0 && alter) alter(completion);
  }

  void post(uint16_t queue, const Sqe& command, uint16_t status, uint32_t result) {
    const auto submissions = submissions_.find(queue);
    if (submissions == submissions_.end()) return;
    // One that has lied about making the completion queue has nowhere to put it.
    const auto completions = completions_.find(submissions->second.completions);
    if (completions == completions_.end()) return;
    Completions& c = completions->second;
    std::array<uint32_t, 4> entry{
        result, 0, static_cast<uint32_t>(queue) << 16 | submissions->second.head,
        command[0] >> 16 | (c.phase ? 1U << 16 : 0U) | static_cast<uint32_t>(status) << 17};
    forge(queue, entry);
    if (std::byte* to = reach(c.base + c.tail * 16, 16, true)) std::memcpy(to, entry.data(), 16);
    c.tail = (c.tail + 1) % c.entries;
    if (c.tail == 0) c.phase = !c.phase;
    const uint64_t one = 1;
    if (c.vector >= 0 && events_.contains(c.vector))
      (void)!::write(events_[c.vector], &one, sizeof one);
  }

  // Memory as it sees it; nothing, and a fatal error, where there is none.
  std::byte* reach(uint64_t address, size_t bytes, bool write) {
    auto it = memory_.upper_bound(address);
    if (it != memory_.begin()) {
      Block& block = *std::prev(it)->second;
      const uint64_t at = address - block.address();
      if (at < block.bytes().size() && bytes <= block.bytes().size() - at &&
          (!write || block.writable()))
        return block.bytes().data() + at;
    }
    fatal = true;
    return nullptr;
  }

 private:
  struct Completions {
    uint64_t base = 0;
    uint32_t entries = 0;
    int vector = -1;
    uint32_t tail = 0;
    bool phase = true;
  };

  class Block final : public Memory {
   public:
    Block(FakeController& owner, uint64_t address, size_t bytes, bool writable)
        : owner_(owner), address_(address), own_(bytes), bytes_(own_), writable_(writable) {}
    Block(FakeController& owner, uint64_t address, std::span<std::byte> bytes)
        : owner_(owner), address_(address), bytes_(bytes), writable_(true) {}
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block() override { owner_.memory_.erase(address_); }
    std::span<std::byte> bytes() override { return bytes_; }
    [[nodiscard]] uint64_t address() const override { return address_; }
    [[nodiscard]] bool writable() const { return writable_; }

   private:
    FakeController& owner_;
    uint64_t address_;
    std::vector<std::byte> own_;
    std::span<std::byte> bytes_;
    bool writable_;
  };

  void identify_controller() {
    const auto text = [&](size_t at, std::string_view value, size_t bytes) {
      std::fill_n(controller_page.begin() + static_cast<ptrdiff_t>(at), bytes, std::byte{' '});
      std::memcpy(controller_page.data() + at, value.data(), value.size());
    };
    text(4, "made up", 20);
    text(24, "A drive of memory", 40);
    text(64, "1.0", 8);
    controller_page[77] = std::byte{6};  // 64 pages
    controller_page[93] = std::byte{1};  // events of namespaces
    controller_page[512] = std::byte{0x66};
    controller_page[513] = std::byte{0x44};
    controller_page[516] = std::byte{1};
    const uint64_t blocks = kMediumBytes / kBlock;
    std::memcpy(namespace_page.data(), &blocks, sizeof blocks);
    namespace_page[130] = std::byte{9};
  }

  void configure(uint32_t value) {
    if ((value & 1) == 0) {
      enabled = broken = false;
      status_ = 0;
      submissions_.clear();
      completions_.clear();
      waiting_.clear();
      asked_.clear();
      return;
    }
    if (!enabled) {
      const uint32_t sizes = registers_[0x24];
      const auto wide = [&](size_t at) {
        return registers_[at] | static_cast<uint64_t>(registers_[at + 4]) << 32;
      };
      submissions_[0] = {wide(0x28), (sizes & 0xfff) + 1, 0};
      completions_[0] = {wide(0x30), (sizes >> 16 & 0xfff) + 1};
      enabled = true;
      status_ = 1;
    }
    if ((value >> 14 & 3) != 0) status_ |= 2U << 2;
  }

  void ring(size_t doorbell, uint32_t value) {
    const auto queue = static_cast<uint16_t>(doorbell / 2);
    if (doorbell % 2 != 0 || deaf || !submissions_.contains(queue)) return;
    // Deleting a queue, which a command may do, ends the loop.
    while (submissions_.contains(queue) && submissions_[queue].head != value) {
      Submissions& s = submissions_[queue];
      const std::byte* from = reach(s.base + s.head * 64, 64, false);
      if (!from || value >= s.entries) return;
      Sqe command;
      std::memcpy(command.data(), from, 64);
      s.head = (s.head + 1) % s.entries;
      if (queue != 0 && held)
        waiting_.emplace_back(queue, command);
      else
        run(queue, command);
    }
  }

  void run(uint16_t queue, const Sqe& command) {
    uint32_t result = 0;
    opcodes.push_back(command[0] & 0xff);
    if (queue == 0 && (command[0] & 0xff) == 0x0c && asked_.size() < event_requests) {
      asked_.push_back(command);
      return;
    }
    const uint16_t status = execute(queue, command, result);
    post(queue, command, status, result);
  }

  static uint64_t wide(const Sqe& c, size_t dword) {
    return c[dword] | static_cast<uint64_t>(c[dword + 1]) << 32;
  }

  uint16_t admin(const Sqe& c, uint32_t& result) {
    const auto id = static_cast<uint16_t>(c[10]);
    switch (c[0] & 0xff) {
      case 0x02:
        return log_page(c);
      case 0x06:
        return identify(c);
      case 0x09:
        if ((c[10] & 0xff) == 0x0b) {
          told_events = c[11];
          return 0;
        }
        result = (pairs - 1) << 16 | (pairs - 1);
        return 0;
      case 0x05:
        completions_[id] = {wide(c, 6), (c[10] >> 16) + 1,
                            c[11] & 2 ? static_cast<int>(c[11] >> 16) : -1};
        return 0;
      case 0x01:
        if (!completions_.contains(static_cast<uint16_t>(c[11] >> 16))) return 0x100;
        submissions_[id] = {wide(c, 6), (c[10] >> 16) + 1, static_cast<uint16_t>(c[11] >> 16)};
        return 0;
      case 0x00:
        if (keeps_queues) return 0x006;
        if (aborts)
          for (const auto& [queue, command] : waiting_)
            if (queue == id) post(queue, command, 0x008, 0);
        std::erase_if(waiting_, [&](const auto& w) { return w.first == id; });
        return submissions_.erase(id) ? 0 : 0x101;
      case 0x04:
        return completions_.erase(id) ? 0 : 0x101;
      default:
        return 0x001;
    }
  }

  // All of it, and whichever: bytes that count up.
  uint16_t log_page(const Sqe& c) {
    const size_t bytes = ((c[10] >> 16) + 1) * 4;
    std::byte* to = reach(wide(c, 6), bytes, true);
    if (!to) return 0x004;
    for (size_t i = 0; i < bytes; ++i) to[i] = std::byte(i);
    if ((c[10] & 0xff) != 0x04) return 0;
    std::memset(to, 0, bytes);
    std::memcpy(to, changed.data(), std::min(bytes, changed.size() * sizeof(uint32_t)));
    changed.clear();
    return 0;
  }

  uint16_t identify(const Sqe& c) {
    std::byte* page = reach(wide(c, 6), 4096, true);
    if (!page) return 0x004;
    std::memset(page, 0, 4096);
    const uint32_t one = 1;
    switch (c[10] & 0xff) {
      case 0:
        std::memcpy(page, namespace_page.data(), 4096);
        return 0;
      case 1:
        std::memcpy(page, controller_page.data(), 4096);
        return 0;
      case 2:
        std::memcpy(page, &one, sizeof one);
        return 0;
      default:
        return 0x002;
    }
  }

  uint16_t io(const Sqe& c) {
    const uint32_t opcode = c[0] & 0xff;
    if (opcode == 0x00) return 0;
    if (opcode != 0x01 && opcode != 0x02) return 0x001;
    const uint64_t at = wide(c, 10) * kBlock;
    size_t left = ((c[12] & 0xffff) + 1) * kBlock;
    if (at + left > medium.size()) return 0x080;
    std::byte* place = medium.data() + at;
    uint64_t page = wide(c, 6);
    uint64_t second = wide(c, 8);
    for (size_t number = 0; left != 0; ++number) {
      const size_t piece = std::min<size_t>(left, 4096 - page % 4096);
      std::byte* data = reach(page, piece, opcode == 0x02);
      if (!data) return 0x004;
      if (opcode == 0x01)
        std::memcpy(place, data, piece);
      else
        std::memcpy(data, place, piece);
      place += piece;
      left -= piece;
      if (left == 0) break;
      page = second;
      if (number == 0 && left <= 4096) continue;
      const std::byte* entry = reach(second + number * 8, 8, false);
      if (!entry) return 0x004;
      std::memcpy(&page, entry, 8);
    }
    data_writes += opcode == 0x01;
    return 0;
  }

  std::map<size_t, uint32_t> registers_;
  std::map<uint64_t, Block*> memory_;
  std::map<uint32_t, int> events_;
  std::map<uint16_t, Submissions> submissions_;
  std::map<uint16_t, Completions> completions_;
  std::vector<std::pair<uint16_t, Sqe>> waiting_;
  std::vector<Sqe> asked_;  // for events
  uint64_t next_address_ = uint64_t{1} << 36;
  uint32_t status_ = 0;
};

}  // namespace pcilend::nvme::test
