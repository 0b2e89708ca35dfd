// SPDX-License-Identifier: GPL-2.0-or-later
// Memory for a leased function and this process, where it is best for what it is used for
// (pcilend-lease(3)).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "pcilend/api.h"
#include "pcilend/error.h"
#include "pcilend/fd.h"
#include "pcilend/lease.h"

namespace pcilend {

// What is done with a buffer. What the function does not write is mapped read-only for it.
struct Access {
  bool device_reads = true;
  bool device_writes = true;
  bool host_reads = true;
  bool host_writes = true;
};

// Where memory is. Stores are cheap over any distance, loads wait for the other end.
enum class Place {
  Process,   // in the host of this process
  Function,  // in the host of the function
};

// Where nobody has to load over the NTB: beside the function what it reads and this process only
// writes, as commands are; else in the process's host.
PCILEND_API Place best_place(const Access& access);

struct BufferOptions {
  Access access;
  std::optional<Place> place;  // else the best one that can be had
  bool huge = false;      // in pages of 2 MiB, which the host must have free (vm.nr_hugepages):
                          // of the process's only
  bool gathered = false;  // stores to what is beside a function of another host are gathered:
                          // they leave with the next fence (std::memory_order_seq_cst)
};

// Memory of this process that the function reaches at address(). Both end with this object; the
// function must have stopped using it. Pages stay in RAM for as long, and count for
// RLIMIT_MEMLOCK.
//
// Beside a function of another host it is its lender's memory (near-get): this process's stores go
// through the NTB, and its loads wait for it. When the link of the lease is lost (Lease::epoch())
// all-ones are in its place, for good: make it anew. Where its lender gives none, what would be
// best there is in the process's host, and remark() says why. On the function's own host both
// places are one.
class PCILEND_API DeviceBuffer {
 public:
  // `bytes`, rounded up to pages, zeroed. Usage if that is nothing, or more than /dev/udmabuf takes
  // at once; As Lease::map() else; with options.place
  // also what its lender says, which is State if it gives no more.
  static Result<DeviceBuffer> create(const Lease& lease, size_t bytes,
                                     const BufferOptions& options = {});

  [[nodiscard]] std::span<std::byte> bytes() const { return mapping_.bytes(); }
  // Where the function reaches bytes()[0]; the others follow.
  [[nodiscard]] uint64_t address() const { return memory_->address(); }
  // The dma-buf, to be handed on.
  [[nodiscard]] int buffer() const { return buffer_.get(); }
  [[nodiscard]] Place place() const { return place_; }
  // For people: why it is not where it would be best; empty if it is.
  [[nodiscard]] const std::string& remark() const { return remark_; }

 private:
  DeviceBuffer() = default;
  [[gnu::visibility("hidden")]] static Result<DeviceBuffer> create_near(
      const Lease& lease, size_t bytes, const BufferOptions& options);
  [[gnu::visibility("hidden")]] Result<> map(const Lease& lease, const Access& access);

  Mapping mapping_;
  UniqueFd buffer_;
  UniqueFd control_;  // of what is beside the function
  std::optional<DeviceMemory> memory_;
  Place place_ = Place::Process;
  std::string remark_;
};

}  // namespace pcilend
