// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/device_buffer.h"

#include "memory.h"
#include "pcilend/result.h"

namespace pcilend {

Place best_place(const Access& access) {
  const bool function_waits = access.device_reads;
  const bool process_waits = access.host_reads;
  return function_waits && !process_waits ? Place::Function : Place::Process;
}

Result<DeviceBuffer> DeviceBuffer::create(const Lease& lease, size_t bytes,
                                          const BufferOptions& options) {
  const std::string id = to_string(lease.info().id);
  const bool far = !lease.info().adapter.empty();
  const Place best = options.place.value_or(best_place(options.access));
  if (options.place == Place::Function && far)
    return fail(ErrorClass::Unsupported,
                "memory beside {}, which is in another host, can't be had yet: leave the place out",
                id);
  auto memory = make_memory("buffer", bytes, options.huge);
  if (!memory) return tl::unexpected(std::move(memory).error());
  auto mapped = lease.map(memory->buffer.get(), !options.access.device_writes);
  if (!mapped) return tl::unexpected(std::move(mapped).error());
  DeviceBuffer buffer;
  buffer.mapping_ = std::move(memory->mapping);
  buffer.buffer_ = std::move(memory->buffer);
  buffer.memory_.emplace(std::move(*mapped));
  buffer.place_ = far ? Place::Process : best;
  if (buffer.place_ != best)
    buffer.remark_ = fmt::format(
        "it would be best beside {}, where pcilend.ko has no memory yet: {} reads it over the NTB",
        id, id);
  return buffer;
}

}  // namespace pcilend
