// SPDX-License-Identifier: GPL-2.0-or-later
// A function of this host, or of another one, copies memory of this process: its registers, its DMA
// and its interrupts are in the process's hands, and no driver of a kernel has it.
//
//	host 4 # pcilend add 0000:01:00.0 && pcilend available 0000:01:00.0
//	host 8 # ./copy 40001
//	copied 16 pages
//
// The function is QEMU's edu (docs/specs/edu.rst there), with addresses wide enough for where
// leased functions have their memory: -device edu,dma_mask=0xffffffffff. It has a page of its own,
// and copies from memory to that, or from that to memory. Build it with the Makefile beside it.
#include <pcilend/device_buffer.h>
#include <pcilend/lease.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

namespace {

using namespace pcilend;

constexpr uint16_t kVendor = 0x1234;
constexpr uint16_t kDevice = 0x11e8;
constexpr size_t kPage = 4096;
constexpr size_t kPages = 16;
constexpr int kPatienceMs = 30000;
// Registers of BAR 0, and bits of kCommand.
constexpr size_t kInterruptStatus = 0x24;
constexpr size_t kAcknowledge = 0x64;
constexpr size_t kSource = 0x80;
constexpr size_t kDestination = 0x88;
constexpr size_t kCount = 0x90;
constexpr size_t kCommand = 0x98;
constexpr uint64_t kRun = 1;
constexpr uint64_t kToMemory = 2;
constexpr uint64_t kInterrupt = 4;
// Where its own page is among the addresses that it copies from and to.
constexpr uint64_t kOwnPage = 0x40000;

class Copier {
 public:
  static Result<Copier> open(FunctionId id) {
    const auto host = ThisHost::open();
    if (!host) return tl::unexpected(host.error());
    auto lease = Lease::borrow(*host, id, "copy");
    if (!lease) return tl::unexpected(std::move(lease).error());
    if (lease->info().vendor != kVendor || lease->info().device != kDevice)
      return tl::unexpected(
          Error{ErrorClass::Unsupported, to_string(id) + " is no edu: name one of QEMU's"});
    auto registers = lease->bar(0, 0, kPage);
    if (!registers) return tl::unexpected(std::move(registers).error());
    auto interrupt = lease->interrupt(0);
    if (!interrupt) return tl::unexpected(std::move(interrupt).error());
    return Copier(std::move(*lease), std::move(*registers), std::move(*interrupt));
  }

  // What the function only reads it can't write to, whatever it is told.
  [[nodiscard]] Result<DeviceBuffer> buffer(size_t bytes, bool function_writes) const {
    return DeviceBuffer::create(lease_, bytes, {{.device_writes = function_writes}});
  }

  // Of whole pages.
  [[nodiscard]] Result<> copy(const DeviceBuffer& from, const DeviceBuffer& to) const {
    const LeaseSequence sequence(lease_);
    for (size_t at = 0; at < from.bytes().size(); at += kPage) {
      if (auto done = move(from.address() + at, kOwnPage, 0); !done) return done;
      if (auto done = move(kOwnPage, to.address() + at, kToMemory); !done) return done;
    }
    if (sequence.complete()) return {};
    return tl::unexpected(Error{
        ErrorClass::State, "the function was reset by others, or its link was lost: run it again"});
  }

 private:
  Copier(Lease lease, Registers registers, UniqueFd interrupt)
      : lease_(std::move(lease)),
        registers_(std::move(registers)),
        interrupt_(std::move(interrupt)) {}

  [[nodiscard]] Result<> move(uint64_t from, uint64_t to, uint64_t direction) const {
    registers_.store<uint64_t>(kSource, from);
    registers_.store<uint64_t>(kDestination, to);
    registers_.store<uint64_t>(kCount, kPage);
    registers_.store<uint64_t>(kCommand, kRun | kInterrupt | direction);
    pollfd wait[] = {{interrupt_.get(), POLLIN, 0}, {lease_.fd(), 0, 0}};
    ::poll(wait, 2, kPatienceMs);
    if (wait[1].revents & POLLHUP)
      return tl::unexpected(Error{ErrorClass::State, "its lender took the function back"});
    uint64_t count = 0;
    if (::read(interrupt_.get(), &count, sizeof count) != sizeof count)
      return tl::unexpected(Error{ErrorClass::Unreachable, "the function raises no interrupt"});
    // By the time that this is answered what the function has written is in memory.
    registers_.store<uint32_t>(kAcknowledge, registers_.load<uint32_t>(kInterruptStatus));
    while (registers_.load<uint64_t>(kCommand) & kRun)
      if (lease_.over())
        return tl::unexpected(Error{ErrorClass::State, "its lender took the function back"});
    return {};
  }

  Lease lease_;
  Registers registers_;
  UniqueFd interrupt_;
};

Result<> run(const std::string& function) {
  const auto id = parse_function_id(function);
  if (!id) return tl::unexpected(id.error());
  const auto copier = Copier::open(*id);
  if (!copier) return tl::unexpected(copier.error());
  const auto from = copier->buffer(kPages * kPage, false);
  if (!from) return tl::unexpected(from.error());
  const auto to = copier->buffer(kPages * kPage, true);
  if (!to) return tl::unexpected(to.error());
  uint32_t word = 0;
  std::ranges::generate(from->bytes(), [&] { return std::byte(++word * 2654435761U >> 24); });
  if (auto done = copier->copy(*from, *to); !done) return done;
  if (!std::ranges::equal(from->bytes(), to->bytes()))
    return tl::unexpected(Error{ErrorClass::Failure, "the copy is not what was copied"});
  std::cout << "copied " << kPages << " pages" << std::endl;
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const auto done =
      argc == 2 ? run(argv[1]) : tl::unexpected(Error{ErrorClass::Usage, "usage: copy FUNCTION"});
  if (done) return 0;
  std::cerr << done.error().message << std::endl;
  return static_cast<int>(done.error().kind);
}
