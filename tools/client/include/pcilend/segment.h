// SPDX-License-Identifier: GPL-2.0-or-later
// Memory that processes of several hosts share (docs/segments.md; pcilend-segment(3)).
//
// What is made here needs CAP_SYS_ADMIN when it is made, and nothing when it is used. Objects that
// were made of one ThisHost are for one thread at a time; the memory itself is for all.
#pragma once

#include <linux/pcilend.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "pcilend/api.h"
#include "pcilend/error.h"
#include "pcilend/fd.h"
#include "pcilend/segment_info.h"
#include "pcilend/this_host.h"

namespace pcilend {

struct SegmentOptions {
  std::string name;     // for people, at most 63 bytes
  bool huge = false;    // in pages of 2 MiB, which the host must have free (vm.nr_hugepages)
  bool notify = false;  // those who connect it can raise notifications()
};

// Memory of this process that other hosts may connect once it is offered to them. It ends with this
// object, or the process: who has it connected finds all-ones in its place from then on. Its pages
// stay in RAM for as long, and count for RLIMIT_MEMLOCK.
class PCILEND_API OwnedSegment {
 public:
  // New memory, zeroed: `bytes`, rounded up to pages. Usage if that is nothing, or more than
  // /dev/udmabuf takes at once; Failure if there is no such memory.
  static Result<OwnedSegment> create(const ThisHost& host, size_t bytes,
                                     const SegmentOptions& options = {});
  // Memory that there is: a dma-buf of RAM which its exporter lets processes map and devices reach
  // (udmabuf, dma-heaps); Unsupported else. `huge` means nothing here.
  static Result<OwnedSegment> share(const ThisHost& host, UniqueFd dma_buf,
                                    const SegmentOptions& options = {});

  // Node `node` may connect it from now on, until withdraw() or its next boot; all programs there
  // and functions that it has borrowed can read it then, and write it without `read_only`.
  // `adapter`: PCI address of the NTB, else any that leads there. Unreachable if no link does;
  // State if it is offered there with another right, has as many offers as there can be, or that
  // node would be offered more than the module's segment_mib. Succeeds if it is so already.
  [[nodiscard]] Result<> offer(uint32_t node, bool read_only = false,
                               const std::string& adapter = {});
  // The same over each adapter that leads there now, as a node may connect it over any of them
  // then.
  [[nodiscard]] Result<> offer_over_all(uint32_t node, bool read_only = false);
  // From that node, or from all: nothing of it is reached there when this returns.
  [[nodiscard]] Result<> withdraw(std::optional<uint32_t> node = {});

  // What others connect; to be passed on to them by other means.
  [[nodiscard]] FunctionId id() const { return id_; }
  [[nodiscard]] std::span<std::byte> bytes() const { return memory_.bytes(); }
  // The dma-buf, to be handed on or mapped for a function (Lease::map()).
  [[nodiscard]] int buffer() const { return buffer_.get(); }
  // Polls EPOLLPRI when an offer has ended because its node has booted, until the next one is made.
  [[nodiscard]] int fd() const { return fd_.get(); }
  // An eventfd, not blocking; -1 without `notify`.
  [[nodiscard]] int notifications() const { return event_.get(); }

 private:
  explicit OwnedSegment(std::shared_ptr<Client> client) : client_(std::move(client)) {}
  [[gnu::visibility("hidden")]] Result<> begin(const SegmentOptions& options);

  std::shared_ptr<Client> client_;
  FunctionId id_;
  Mapping memory_;
  UniqueFd buffer_;
  UniqueFd event_;
  UniqueFd fd_;
};

// A segment of another host, mapped by this process: loads and stores go through the NTB. When the
// link is lost, or the segment, pages of all-ones are in its place, for good; whoever wants to go
// on connects again. A process that was forked does not have it.
class PCILEND_API Connection {
 public:
  // NotFound if it is not offered to this host; Unreachable if its owner's host is; Permission if
  // it is offered read-only and `options` don't say so.
  static Result<Connection> open(const ThisHost& host, FunctionId id,
                                 const ConnectOptions& options = {});

  [[nodiscard]] const Segment& segment() const { return segment_; }
  // Read-only if it was connected so. Loads are slow: each waits for the other host.
  [[nodiscard]] std::span<std::byte> bytes() const { return memory_.bytes(); }
  // Changes whenever the link was lost, and when the segment is. One load.
  [[nodiscard]] uint64_t epoch() const {
    const auto* status = reinterpret_cast<pcilend_segment_status*>(status_.bytes().data());
    return std::atomic_ref(const_cast<__u64&>(status->epoch)).load(std::memory_order_acquire);
  }
  [[nodiscard]] bool lost() const;
  // Raises the owner's notifications(), behind all that was stored before. Unsupported if it takes
  // none, or no window reaches its host's interrupts; State if it is lost.
  [[nodiscard]] Result<> notify() const;
  // The dma-buf, to be handed on or mapped once more.
  [[nodiscard]] int buffer() const { return buffer_.get(); }
  // Polls EPOLLHUP when it is lost.
  [[nodiscard]] int fd() const { return control_.get(); }

 private:
  Connection() = default;

  Segment segment_;
  UniqueFd buffer_;
  UniqueFd control_;
  Mapping memory_;
  Mapping status_;
};

// Have all stores since this was made gone through? A store over a dead link vanishes without a
// word, so a program asks after each piece of its work:
//
//	Sequence sequence(connection);
//	std::memcpy(connection.bytes().data(), data, size);
//	if (!sequence.complete()) ...it is lost, connect again
//
// Not so when the owner ends the segment: for some milliseconds until that is told stores vanish,
// and loads give all-ones; have it confirm what it has taken, where that matters. The connection
// must outlive it.
class PCILEND_API Sequence {
 public:
  explicit Sequence(const Connection& connection)
      : connection_(connection), epoch_(connection.epoch()) {}

  // Waits until the stores are through, by a load from the segment's first bytes.
  [[nodiscard]] bool complete() const;

 private:
  const Connection& connection_;
  uint64_t epoch_;
};

}  // namespace pcilend
