// SPDX-License-Identifier: GPL-2.0-or-later
// A function in the hands of this process: its registers, its interrupts, and the memory that it
// reaches (docs/device-api.md).
#pragma once

#include <linux/pcilend.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "pcilend/client.h"
#include "pcilend/fd.h"

namespace pcilend {

// Part of a BAR, mapped uncached. When the lease is over all-ones are in its place: loads find
// them, stores go nowhere. A process that was forked does not have it.
class Registers {
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
// the function's to write for as long: stop it first. Its Client must live as long.
class DeviceMemory {
 public:
  DeviceMemory(DeviceMemory&& other) noexcept = default;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { unmap(); }

  [[nodiscard]] uint64_t address() const { return address_; }

 private:
  friend class Lease;
  DeviceMemory(Client& client, const std::shared_ptr<UniqueFd>& lease, uint64_t address)
      : client_(&client), lease_(lease), address_(address) {}
  void unmap();

  Client* client_;
  std::weak_ptr<UniqueFd> lease_;
  uint64_t address_;
};

// An available function, for this process alone. Its end, or the process's, stops the function,
// takes what is mapped, resets it and returns it, whatever it was doing. Its Client must live as
// long. Not safe for several threads at once; its parts are, each for one.
class Lease {
 public:
  static constexpr uint64_t kSlice = uint64_t{64} << 20;

  // `owner`: for people, at most 63 bytes. `slice`: bytes, a power of two from 4 KiB to 64 GiB: as
  // much memory can be mapped for the function at once.
  static Result<Lease> borrow(Client& client, FunctionId id, std::string_view owner,
                              uint64_t slice = kSlice);

  // A client of a function that somebody else manages. Its end closes the pages of BARs; memory
  // stays where it is until the manager has confirmed that the function does not use it, or the
  // function was stopped. `vectors`: interrupts that it wants.
  static Result<Lease> join(Client& client, FunctionId id, std::string_view owner,
                            uint64_t slice = kSlice, uint32_t vectors = 0);

  [[nodiscard]] const Function& function() const { return function_; }
  // Of a client: what it may have. The pages are its own.
  [[nodiscard]] const ClientNotice& client() const { return self_; }
  [[nodiscard]] const std::vector<BarRange>& ranges() const { return ranges_; }
  // Offset and size: whole pages. Refused where the table of the function's interrupts is.
  [[nodiscard]] Result<Registers> bar(uint32_t index, uint64_t offset, size_t size) const;
  // The memory behind a dma-buf (OwnedSegment::buffer()). It counts for RLIMIT_MEMLOCK.
  // `read_only`: the function can't write to it.
  [[nodiscard]] Result<DeviceMemory> map(int dma_buf, bool read_only = false) const;
  // An eventfd, not blocking, that the function's interrupt raises from now on.
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

  // Changes when somebody else has reset the function, so that nothing of what it was programmed
  // with is left, or when DMA of it may have been lost, and when the lease is over. One load.
  [[nodiscard]] uint64_t epoch() const {
    return std::atomic_ref(const_cast<__u64&>(status().epoch)).load(std::memory_order_acquire);
  }
  // Its lender takes it soon: let go of it.
  [[nodiscard]] bool recalled() const { return state() == PCILEND_LEASE_RECALLED; }
  [[nodiscard]] bool over() const { return state() == PCILEND_LEASE_OVER; }
  // Polls EPOLLHUP when it is over, EPOLLPRI when it is recalled.
  [[nodiscard]] int fd() const { return fd_->get(); }

 private:
  Lease() = default;
  static Result<Lease> open(Client& client, LeasedFunction leased);

  [[nodiscard]] const pcilend_lease_status& status() const {
    return *reinterpret_cast<const pcilend_lease_status*>(status_.bytes().data());
  }
  [[nodiscard]] uint32_t state() const {
    return std::atomic_ref(const_cast<__u32&>(status().state)).load(std::memory_order_acquire);
  }

  Client* client_ = nullptr;
  Function function_;
  std::shared_ptr<UniqueFd> fd_;  // its number means nothing to DeviceMemory once it is closed
  Mapping status_;
  ClientNotice self_;
  std::vector<BarRange> ranges_;
};

}  // namespace pcilend
