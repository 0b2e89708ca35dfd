// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/segment.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "memory.h"
#include "pcilend/client.h"

namespace pcilend {
namespace {

constexpr size_t kPage = 4096;

}  // namespace

Result<OwnedSegment> OwnedSegment::create(const ThisHost& host, size_t bytes,
                                          const SegmentOptions& options) {
  auto memory = make_memory("segment", bytes, options.huge);
  if (!memory) return tl::unexpected(std::move(memory).error());
  OwnedSegment segment(host.client_);
  segment.memory_ = std::move(memory->mapping);
  segment.buffer_ = std::move(memory->buffer);
  PCILEND_TRY(segment.begin(options));
  return segment;
}

Result<OwnedSegment> OwnedSegment::share(const ThisHost& host, UniqueFd dma_buf,
                                         const SegmentOptions& options) {
  const off_t size = ::lseek(dma_buf.get(), 0, SEEK_END);
  if (size <= 0)
    return fail(ErrorClass::Usage, "what is to be shared is no dma-buf: give one of memory");
  OwnedSegment segment(host.client_);
  auto mapping = Mapping::map(dma_buf.get(), 0, static_cast<size_t>(size), true);
  if (!mapping) return tl::unexpected(std::move(mapping).error());
  segment.memory_ = std::move(*mapping);
  segment.buffer_ = std::move(dma_buf);
  PCILEND_TRY(segment.begin(options));
  return segment;
}

// Once it has its memory.
Result<> OwnedSegment::begin(const SegmentOptions& options) {
  if (options.notify) {
    event_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event_) return fail_errno("eventfd");
  }
  auto created = client_->create_segment(buffer_.get(), options.name, event_.get());
  if (!created) return tl::unexpected(std::move(created).error());
  id_ = created->id;
  fd_ = std::move(created->fd);
  return {};
}

Result<> OwnedSegment::offer(uint32_t node, bool read_only, const std::string& adapter) {
  return client_->offer_segment(id_, node, read_only, adapter);
}

Result<> OwnedSegment::offer_over_all(uint32_t node, bool read_only) {
  const auto links = client_->links();
  if (!links) return tl::unexpected(links.error());
  size_t offers = 0;
  for (const Link& link : *links) {
    if (link.peer != node || link.state != PCILEND_LINK_UP) continue;
    const auto offered = offer(node, read_only, link.adapter);
    // One that went down in between is none.
    if (offered)
      ++offers;
    else if (offered.error().kind != ErrorClass::Unreachable)
      return offered;
  }
  return offers != 0 ? Result<>() : offer(node, read_only);
}

Result<> OwnedSegment::withdraw(std::optional<uint32_t> node) {
  return client_->withdraw_segment(id_, node);
}

Result<Connection> Connection::open(const ThisHost& host, FunctionId id,
                                    const ConnectOptions& options) {
  auto connected = host.client_->connect_segment(id, options);
  if (!connected) return tl::unexpected(std::move(connected).error());
  Connection connection;
  connection.segment_ = std::move(connected->segment);
  connection.buffer_ = std::move(connected->buffer);
  connection.control_ = std::move(connected->control);
  auto memory = Mapping::map(connection.buffer_.get(), 0, connection.segment_.size,
                             !connection.segment_.read_only);
  if (!memory) return tl::unexpected(std::move(memory).error());
  connection.memory_ = std::move(*memory);
  auto status = Mapping::map(connection.control_.get(), 0, kPage, false);
  if (!status) return tl::unexpected(std::move(status).error());
  connection.status_ = std::move(*status);
  return connection;
}

bool Connection::lost() const {
  pollfd look{control_.get(), 0, 0};
  return ::poll(&look, 1, 0) > 0 && (look.revents & POLLHUP) != 0;
}

Result<> Connection::notify() const {
  const uint64_t one = 1;
  if (::write(control_.get(), &one, sizeof one) == sizeof one) return {};
  const std::string id = to_string(segment_.id);
  if (errno == EOPNOTSUPP)
    return fail(
        ErrorClass::Unsupported,
        "{} can't be notified: its owner takes none, or no memory window reaches its host's "
        "interrupts",
        id);
  if (errno == ENOTCONN) return fail(ErrorClass::State, "{} is lost: connect it again", id);
  return fail_errno(fmt::format("notify the owner of {}", id));
}

bool Sequence::complete() const {
  const auto* first = reinterpret_cast<const volatile uint32_t*>(connection_.bytes().data());
  // A load comes back behind the stores before it; gathered ones leave with the fence.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  static_cast<void>(*first);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return connection_.epoch() == epoch_;
}

}  // namespace pcilend
