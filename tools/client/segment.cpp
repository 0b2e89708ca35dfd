// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/segment.h"

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace pcilend {
namespace {

constexpr const char* kUdmabuf = "/dev/udmabuf";
constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;

size_t rounded(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Memory that can't shrink, which a dma-buf of it counts on.
Result<UniqueFd> make_memory(size_t bytes, bool huge) {
  UniqueFd memory(::memfd_create("pcilend-segment",
                                 MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB : 0u)));
  if (!memory) return fail_errno("memfd_create");
  if (::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0)
    return fail_errno(fmt::format("a segment of {} bytes", bytes));
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) return fail_errno("F_SEAL_SHRINK");
  return memory;
}

Result<UniqueFd> make_dma_buf(int memory, size_t bytes) {
  const UniqueFd device(::open(kUdmabuf, O_RDWR | O_CLOEXEC));
  if (!device && errno == ENOENT)
    return fail(ErrorClass::Unsupported, "{} is not there: modprobe udmabuf", kUdmabuf);
  if (!device) return fail_errno(kUdmabuf);
  udmabuf_create create{};
  create.memfd = static_cast<uint32_t>(memory);
  create.flags = UDMABUF_FLAGS_CLOEXEC;
  create.size = bytes;
  UniqueFd buffer(::ioctl(device.get(), UDMABUF_CREATE, &create));
  if (!buffer && errno == EINVAL)
    return fail(ErrorClass::Usage,
                "{} bytes are more than {} takes at once: make it smaller, or raise "
                "/sys/module/udmabuf/parameters/size_limit_mb",
                bytes, kUdmabuf);
  if (!buffer) return fail_errno(kUdmabuf);
  return buffer;
}

}  // namespace

Result<OwnedSegment> OwnedSegment::create(Client& client, size_t bytes, std::string_view name,
                                          bool huge, bool notify) {
  if (bytes == 0) return fail(ErrorClass::Usage, "a segment has at least one byte: give its size");
  const size_t size = rounded(bytes, huge ? kHugePage : kPage);
  OwnedSegment segment;
  const auto memory = make_memory(size, huge);
  if (!memory) return tl::unexpected(memory.error());
  auto mapping = Mapping::map(memory->get(), 0, size, true);
  if (!mapping) return tl::unexpected(std::move(mapping).error());
  segment.memory_ = std::move(*mapping);
  auto buffer = make_dma_buf(memory->get(), size);
  if (!buffer) return tl::unexpected(std::move(buffer).error());
  segment.buffer_ = std::move(*buffer);
  if (notify) {
    segment.event_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!segment.event_) return fail_errno("eventfd");
  }
  auto created = client.create_segment(segment.buffer_.get(), name, segment.event_.get());
  if (!created) return tl::unexpected(std::move(created).error());
  segment.id_ = created->id;
  segment.fd_ = std::move(created->fd);
  return segment;
}

Result<Connection> Connection::open(Client& client, FunctionId id, const ConnectOptions& options) {
  auto connected = client.connect_segment(id, options);
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
