// SPDX-License-Identifier: GPL-2.0-or-later
// Memory that processes of several hosts share (docs/segments.md).
#pragma once

#include <linux/pcilend.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "pcilend/client.h"
#include "pcilend/fd.h"

namespace pcilend {

// Memory of this process that other hosts may connect once it is offered to them
// (Client::offer_segment()). It ends with this object, or the process: who has it connected finds
// all-ones in its place from then on.
class OwnedSegment {
 public:
  // `bytes`: whole pages, rounded up; in huge pages of 2 MiB with `huge`, which the host must have
  // free (vm.nr_hugepages). `name`: for people, at most 63 bytes.
  // `notify`: those who connect it can raise notifications().
  static Result<OwnedSegment> create(Client& client, size_t bytes, std::string_view name,
                                     bool huge = false, bool notify = false);

  [[nodiscard]] FunctionId id() const { return id_; }
  [[nodiscard]] std::span<std::byte> bytes() const { return memory_.bytes(); }
  // The dma-buf, to be handed on or mapped for a function (Lease::map()).
  [[nodiscard]] int buffer() const { return buffer_.get(); }
  // Polls EPOLLPRI when an offer has ended because its node has booted, until the next one is made.
  [[nodiscard]] int fd() const { return fd_.get(); }
  // An eventfd, not blocking; -1 without `notify`.
  [[nodiscard]] int notifications() const { return event_.get(); }

 private:
  OwnedSegment() = default;

  FunctionId id_;
  Mapping memory_;
  UniqueFd buffer_;
  UniqueFd event_;
  UniqueFd fd_;
};

// A segment of another host, mapped by this process: loads and stores go through the NTB. When the
// link is lost, or the segment, pages of all-ones are in its place, for good; whoever wants to go
// on connects again. A process that was forked does not have it.
class Connection {
 public:
  static Result<Connection> open(Client& client, FunctionId id, const ConnectOptions& options = {});

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
class Sequence {
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
