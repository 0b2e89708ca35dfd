// SPDX-License-Identifier: GPL-2.0-or-later
#include "edu.h"

#include <poll.h>
#include <unistd.h>

namespace pcilend {
namespace {

constexpr int kPatienceMs = 30000;
constexpr int kLookMs = 10;
constexpr size_t kBarBytes = size_t{1} << 20;
// Registers, and bits of them.
constexpr size_t kFactorial = 0x08;
constexpr size_t kStatus = 0x20;
constexpr uint32_t kInterruptOnFactorial = 0x80;
constexpr size_t kInterruptStatus = 0x24;
constexpr size_t kAcknowledge = 0x64;
constexpr size_t kSource = 0x80;
constexpr size_t kDestination = 0x88;
constexpr size_t kCount = 0x90;
constexpr size_t kCommand = 0x98;
constexpr uint64_t kRun = 0x1;
constexpr uint64_t kInterruptOnEnd = 0x4;

}  // namespace

Result<Edu> Edu::open(Client& client, FunctionId id, uint64_t slice) {
  auto lease = Lease::borrow(ThisHost(client), id, "edu's user", slice);
  if (!lease) return tl::unexpected(std::move(lease).error());
  auto registers = lease->bar(0, 0, kBarBytes);
  if (!registers) return tl::unexpected(std::move(registers).error());
  auto event = lease->interrupt(0);
  if (!event) return tl::unexpected(std::move(event).error());
  return Edu(std::move(*lease), std::move(*registers), std::move(*event));
}

Result<> Edu::await_interrupt() {
  pollfd wait[] = {{event_.get(), POLLIN, 0}, {lease_.fd(), 0, 0}};
  const int ready = ::poll(wait, 2, kPatienceMs);
  if (ready < 0) return fail_errno("poll");
  if (wait[1].revents & POLLHUP) return fail(ErrorClass::State, "the lease is over");
  if (!(wait[0].revents & POLLIN)) return fail(ErrorClass::Unreachable, "edu raises no interrupt");
  uint64_t count = 0;
  if (::read(event_.get(), &count, sizeof count) != sizeof count)
    return fail_errno("read of the eventfd");
  interrupts_ += count;
  registers_.store<uint32_t>(kAcknowledge, load(kInterruptStatus));
  return {};
}

Result<uint32_t> Edu::factorial(uint32_t number) {
  registers_.store<uint32_t>(kStatus, kInterruptOnFactorial);
  registers_.store<uint32_t>(kFactorial, number);
  PCILEND_TRY(await_interrupt());
  return load(kFactorial);
}

// Resets don't end what is under way in it: a copy that its last user has begun may be.
Result<> Edu::await_idle() const {
  for (int ms = 0; ms < kPatienceMs; ms += kLookMs) {
    if (!(registers_.load<uint64_t>(kCommand) & kRun)) return {};
    if (lease_.over()) return fail(ErrorClass::State, "the lease is over");
    ::poll(nullptr, 0, kLookMs);
  }
  return fail(ErrorClass::Unreachable, "edu does not end its copy");
}

Result<> Edu::copy(uint64_t source, uint64_t destination, uint64_t direction, uint64_t bytes) {
  PCILEND_TRY(await_idle());
  registers_.store<uint64_t>(kSource, source);
  registers_.store<uint64_t>(kDestination, destination);
  registers_.store<uint64_t>(kCount, bytes);
  registers_.store<uint64_t>(kCommand, kRun | kInterruptOnEnd | direction);
  PCILEND_TRY(await_interrupt());
  return await_idle();
}

}  // namespace pcilend
