// SPDX-License-Identifier: GPL-2.0-or-later
// A function in the hands of this process: its registers, its interrupts, and the memory that it
// reaches (docs/device-api.md; pcilend-lease(3)).
//
// To lease needs CAP_SYS_ADMIN; what is made of a lease needs nothing. Objects that were made of
// one ThisHost are for one thread at a time; registers and memory are for all.
#pragma once

#include <linux/pcilend.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "pcilend/api.h"
#include "pcilend/error.h"
#include "pcilend/fd.h"
#include "pcilend/lease_info.h"
#include "pcilend/share.h"
#include "pcilend/this_host.h"

namespace pcilend {

class Client;
struct LeasedFunction;

// Part of a BAR, mapped uncached. When the lease is over all-ones are in its place: loads find
// them, stores go nowhere. A process that was forked does not have it.
class PCILEND_API Registers {
 public:
  // Offset in this part, a multiple of the word's size.
  template <class Word>
  [[nodiscard]] Word load(size_t offset) const {
    return *at<Word>(offset);
  }
  template <class Word>
  void store(size_t offset, Word value) const {
    *at<Word>(offset) = value;
  }
  [[nodiscard]] size_t size() const { return memory_.bytes().size(); }
  // Of a BAR that is memory, and not registers.
  [[nodiscard]] std::span<std::byte> bytes() const { return memory_.bytes(); }
  // The dma-buf, to be handed on.
  [[nodiscard]] int buffer() const { return buffer_.get(); }

 private:
  friend class Lease;
  Registers() = default;

  template <class Word>
  [[nodiscard]] volatile Word* at(size_t offset) const {
    return reinterpret_cast<volatile Word*>(memory_.bytes().data() + offset);
  }

  UniqueFd buffer_;
  Mapping memory_;
};

// Memory that the function reaches at address(), until this object goes or the lease ends. It is
// the function's to write for as long: stop it first.
class PCILEND_API DeviceMemory {
 public:
  DeviceMemory(DeviceMemory&& other) noexcept = default;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    DeviceMemory taken(std::move(other));
    std::swap(client_, taken.client_);
    std::swap(lease_, taken.lease_);
    std::swap(address_, taken.address_);
    return *this;
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();

  [[nodiscard]] uint64_t address() const { return address_; }

 private:
  friend class Lease;
  DeviceMemory(std::shared_ptr<Client> client, const std::shared_ptr<UniqueFd>& lease,
               uint64_t address)
      : client_(std::move(client)), lease_(lease), address_(address) {}

  std::shared_ptr<Client> client_;
  std::weak_ptr<UniqueFd> lease_;
  uint64_t address_;
};

// An available function, for this process alone. Its end, or the process's, stops the function,
// takes what is mapped, resets it and returns it, whatever it was doing.
class PCILEND_API Lease {
 public:
  static constexpr uint64_t kSlice = uint64_t{64} << 20;

  // `owner`: for people, at most 63 bytes. `slice`: bytes, a power of two from 4 KiB to 64 GiB: as
  // much memory can be mapped for the function at once. Waits for the lender. NotFound
  // if nobody offers it to this host; State if it is not available, or lent without an IOMMU;
  // Permission; Unreachable if its lender is.
  static Result<Lease> borrow(const ThisHost& host, FunctionId id, std::string_view owner,
                              uint64_t slice = kSlice);

  // A client of a function that somebody else manages. Its end closes the pages of BARs; memory
  // stays where it is until the manager has confirmed that the function does not use it, or the
  // function was stopped. `vectors`: interrupts that it wants. `adapter`: PCI address of the one
  // that it goes over, for its whole life; empty: one is chosen. A process may have one over each.
  static Result<Lease> join(const ThisHost& host, FunctionId id, std::string_view owner,
                            uint64_t slice = kSlice, uint32_t vectors = 0,
                            const std::string& adapter = {});
  // PCI addresses of the adapters over which its lender offers a function now: in order; none for
  // one of this host.
  static Result<std::vector<std::string>> paths(const ThisHost& host, FunctionId id);

  [[nodiscard]] const LeaseInfo& info() const { return info_; }
  // Of a client: what it may have. The pages are its own.
  [[nodiscard]] const ClientNotice& client() const { return self_; }
  [[nodiscard]] const std::vector<BarRange>& ranges() const { return ranges_; }
  // Offset and size: whole pages. Refused where the table of the function's interrupts is. State if
  // the lease is over, as of all that follows.
  [[nodiscard]] Result<Registers> bar(uint32_t index, uint64_t offset, size_t size) const;
  // What is behind a dma-buf: this host's memory (OwnedSegment::buffer()), which counts for
  // RLIMIT_MEMLOCK; a segment of another host (Connection::buffer()), which must be offered to the
  // function's host, too: NotFound if it is not, Unreachable if that has no link to its owner; or a
  // BAR of this host (Registers::buffer() of another lease, or by whoever exports it); or one of
  // another host's function, if both are leased from there for this process alone. All but the
  // first may be taken away before the object goes: nothing is reached there then. `read_only`: the
  // function can't write to it; not for BARs of other hosts. State if the slice has no room for it,
  // or it was taken away; Unsupported if DMA of the function may not go there.
  [[nodiscard]] Result<DeviceMemory> map(int dma_buf, bool read_only = false) const;
  // An eventfd, not blocking, that MSI or MSI-X number `vector` raises from now on. Unsupported if
  // the function has neither.
  [[nodiscard]] Result<UniqueFd> interrupt(uint32_t vector) const;
  [[nodiscard]] Result<> end_interrupt(uint32_t vector) const;

  // Whoever has borrowed the function becomes its manager: others may join. Again while there are
  // none, with another policy; one for no clients ends those that there are. When a manager's
  // lease ends the function is taken from all clients.
  [[nodiscard]] Result<> share(const SharePolicy& policy) const;
  // What a manager was not told yet; fd() polls EPOLLIN while there is something. Of a client that
  // ends soon only its end may be told.
  [[nodiscard]] Result<std::optional<ClientNotice>> next_client() const;
  // All that the function has been told to do for that client has ended: within 5 seconds after
  // next_client() could have told it. Else the function is stopped and reset, and lost for all.
  [[nodiscard]] Result<> cleared(const ClientNotice& notice) const;

  // Between a client and its manager, on whatever hosts they are; the lender carries it, and says
  // which client it is. One question of a client is under way at a time. A client's: the question.
  // State while one is under way, or its answer was not taken. A manager's: the answer to what
  // next_mail() gave it of that client. State if that client waits for none (any more), NotFound if
  // it is none.
  [[nodiscard]] Result<> send_mail(const Mail& mail) const;
  // The manager: the next question, that which was asked first; a client: its answer. fd() polls
  // EPOLLIN while there is one. A client that ends takes its question with it; one whose link was
  // lost asks again by itself, once it is readmitted: its manager gets the question anew.
  [[nodiscard]] Result<std::optional<Mail>> next_mail() const;
  // A client's: sends, waits, takes. Unreachable when there is no answer in time: the question is
  // still under way, and its late answer is dropped by the next ask(). State if the lease is over.
  [[nodiscard]] Result<Mail> ask(std::span<const std::byte> question,
                                 std::chrono::milliseconds patience) const;

  // Changes when somebody else has reset the function, so that nothing of what it was programmed
  // with is left, or when DMA of it may have been lost, and when the lease is over. One load.
  [[nodiscard]] uint64_t epoch() const {
    return std::atomic_ref(const_cast<__u64&>(status().epoch)).load(std::memory_order_acquire);
  }
  // Its lender takes it soon: let go of it.
  [[nodiscard]] bool recalled() const { return state() == PCILEND_LEASE_RECALLED; }
  [[nodiscard]] bool over() const { return state() == PCILEND_LEASE_OVER; }
  // Polls EPOLLHUP when it is over, EPOLLPRI when it is recalled, EPOLLIN while there are notices
  // or mail.
  [[nodiscard]] int fd() const { return fd_->get(); }

 private:
  friend class DeviceBuffer;
  Lease() = default;
  static Result<Lease> open(const ThisHost& host, LeasedFunction leased);

  [[nodiscard]] const pcilend_lease_status& status() const {
    return *reinterpret_cast<const pcilend_lease_status*>(status_.bytes().data());
  }
  [[nodiscard]] uint32_t state() const {
    return std::atomic_ref(const_cast<__u32&>(status().state)).load(std::memory_order_acquire);
  }

  std::shared_ptr<Client> client_;
  LeaseInfo info_;
  std::shared_ptr<UniqueFd> fd_;  // its number means nothing to DeviceMemory once it is closed
  Mapping status_;
  ClientNotice self_;
  std::vector<BarRange> ranges_;
};

// Is what the function did since this was made to be believed? A function that was reset by others,
// or whose DMA was lost with the link, has no way to say so, so a program asks after each piece of
// its work, once it has seen that it is done:
//
//	LeaseSequence sequence(lease);
//	...has the function work, waits for it, reads what it has written
//	if (!sequence.complete()) ...nothing of it counts
//
// Of a lost link the epoch tells some milliseconds late; by then the function is stopped. To know
// of stores to registers, load one before. The lease must outlive it.
class PCILEND_API LeaseSequence {
 public:
  explicit LeaseSequence(const Lease& lease) : lease_(lease), epoch_(lease.epoch()) {}

  [[nodiscard]] bool complete() const {
    std::atomic_thread_fence(std::memory_order_acquire);  // behind what was read before
    return lease_.epoch() == epoch_;
  }

 private:
  const Lease& lease_;
  uint64_t epoch_;
};

}  // namespace pcilend
