// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/device_buffer.h"

#include "memory.h"
#include "pcilend/client.h"
#include "pcilend/result.h"

namespace pcilend {
namespace {

constexpr size_t kPage = 4096;

}  // namespace

Place best_place(const Access& access) {
  const bool function_waits = access.device_reads;
  const bool process_waits = access.host_reads;
  return function_waits && !process_waits ? Place::Function : Place::Process;
}

Result<> DeviceBuffer::map(const Lease& lease, const Access& access) {
  auto mapped = lease.map(buffer_.get(), !access.device_writes);
  if (!mapped) return tl::unexpected(std::move(mapped).error());
  memory_.emplace(std::move(*mapped));
  return {};
}

// Memory of the lender's, for a function of another host.
Result<DeviceBuffer> DeviceBuffer::create_near(const Lease& lease, size_t bytes,
                                               const BufferOptions& options) {
  const size_t size = (bytes + kPage - 1) / kPage * kPage;
  auto made = lease.client_->lease_near(lease.fd(), size, options.gathered);
  if (!made) return tl::unexpected(std::move(made).error());
  auto mapping = Mapping::map(made->buffer.get(), 0, size, true);
  if (!mapping) return tl::unexpected(std::move(mapping).error());
  DeviceBuffer buffer;
  buffer.mapping_ = std::move(*mapping);
  buffer.buffer_ = std::move(made->buffer);
  buffer.control_ = std::move(made->control);
  buffer.place_ = Place::Function;
  PCILEND_TRY(buffer.map(lease, options.access));
  return buffer;
}

Result<DeviceBuffer> DeviceBuffer::create(const Lease& lease, size_t bytes,
                                          const BufferOptions& options) {
  const bool far = !lease.info().adapter.empty();
  const Place best = options.place.value_or(best_place(options.access));
  std::string remark;
  if (far && best == Place::Function && bytes != 0) {
    auto near = create_near(lease, bytes, options);
    if (near || options.place) return near;
    const std::string id = to_string(lease.info().id);
    remark = fmt::format("it would be best beside {}, which reads it over the NTB now: {}", id,
                         near.error().message);
  }
  auto memory = make_memory("buffer", bytes, options.huge);
  if (!memory) return tl::unexpected(std::move(memory).error());
  DeviceBuffer buffer;
  buffer.mapping_ = std::move(memory->mapping);
  buffer.buffer_ = std::move(memory->buffer);
  buffer.place_ = far ? Place::Process : best;
  buffer.remark_ = std::move(remark);
  PCILEND_TRY(buffer.map(lease, options.access));
  return buffer;
}

}  // namespace pcilend
