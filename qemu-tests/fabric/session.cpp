// SPDX-License-Identifier: GPL-2.0-or-later
#include "session.h"

#include <algorithm>
#include <cerrno>

namespace pcilend::fabric {
namespace {

constexpr size_t kMaxUnansweredReads = 4096;
constexpr uint16_t kMaxMinor = 1;

}  // namespace

Session::Session(UniqueFd socket, Device& device)
    : device_(device), connection_(std::move(socket), *this) {}

Session::~Session() {
  auto reads = std::move(reads_);
  for (auto& [id, read] : reads) read.done(tl::unexpected(ECANCELED));
}

bool Session::on_message(Message& message) {
  if (message.header.is_reply()) {
    on_reply(message);
    return true;
  }
  if ((message.header.flags & Header::kTypeMask) != Header::kCommand) return false;
  return on_command(message);
}

bool Session::on_command(Message& message) {
  const Header& header = message.header;
  if (static_cast<Command>(header.command) == Command::Version) {
    if (negotiated_) {
      refuse(header, EINVAL);
      return true;
    }
    negotiate(message);
    return negotiated_;
  }
  if (!negotiated_) {
    refuse(header, EINVAL);
    return false;
  }

  switch (static_cast<Command>(header.command)) {
    case Command::DmaMap: {
      const auto map = parse_dma_map(message.body);
      if (!map || message.fds.size() > 1) {
        refuse(header, EINVAL);
        break;
      }
      UniqueFd fd = message.fds.empty() ? UniqueFd() : std::move(message.fds.front());
      acknowledge(header, device_.dma_map(*map, std::move(fd)));
      break;
    }
    case Command::DmaUnmap: {
      const auto unmap = parse_dma_unmap(message.body);
      if (unmap)
        acknowledge(header, device_.dma_unmap(*unmap), bytes_of(*unmap));
      else
        refuse(header, unmap.error());
      break;
    }
    case Command::DeviceGetInfo: {
      const DeviceInfo info{sizeof info, DeviceInfo::kReset | DeviceInfo::kPci, kRegionCount,
                            kIrqCount};
      acknowledge(header, {}, bytes_of(info));
      break;
    }
    case Command::DeviceGetRegionInfo:
      region_info(message);
      break;
    case Command::DeviceGetIrqInfo:
      irq_info(message);
      break;
    case Command::DeviceSetIrqs: {
      const auto request = parse_set_irqs(message.body);
      if (request)
        acknowledge(header, device_.set_irqs(*request, std::move(message.fds)));
      else
        refuse(header, request.error());
      break;
    }
    case Command::RegionRead:
      region_read(message);
      break;
    case Command::RegionWrite:
      region_write(message);
      break;
    case Command::DeviceReset:
      device_.reset();
      acknowledge(header, {});
      break;
    default:
      refuse(header, ENOSYS);
      break;
  }
  return true;
}

void Session::negotiate(const Message& message) {
  const auto minor = parse_version(message.body);
  if (!minor) {
    refuse(message.header, minor.error());
    return;
  }
  negotiated_ = true;
  if (message.header.wants_reply())
    connection_.send(make_version_reply(message.header.id, std::min(*minor, kMaxMinor)));
  device_.connected();
}

void Session::region_info(const Message& message) {
  const auto index = parse_region_index(message.body);
  if (!index || *index >= kRegionCount) {
    refuse(message.header, EINVAL);
    return;
  }
  const uint64_t size = device_.region_size(*index);
  const RegionInfo info{
      sizeof info, size != 0 ? RegionInfo::kRead | RegionInfo::kWrite : 0, *index, 0, size, 0};
  acknowledge(message.header, {}, bytes_of(info));
}

void Session::irq_info(const Message& message) {
  const auto index = parse_irq_index(message.body);
  // QEMU warns about an error interrupt of count 0, and is silent when there is none.
  const uint32_t count = index && *index < kIrqCount ? device_.irq_count(*index) : 0;
  if (count == 0) {
    refuse(message.header, EINVAL);
    return;
  }
  const IrqInfo info{sizeof info, IrqInfo::kEventfd | IrqInfo::kNoResize, *index, count};
  acknowledge(message.header, {}, bytes_of(info));
}

void Session::region_read(const Message& message) {
  const auto access = parse_region_read(message.body);
  if (!access) {
    refuse(message.header, access.error());
    return;
  }
  const uint64_t size = access->region < kRegionCount ? device_.region_size(access->region) : 0;
  if (access->offset > size || access->count > size - access->offset) {
    refuse(message.header, EINVAL);
    return;
  }
  if (!message.header.wants_reply()) return;
  device_.region_read(ReadTicket{message.header, *access});
}

void Session::region_write(const Message& message) {
  const auto write = parse_region_write(message.body);
  if (!write) {
    refuse(message.header, write.error());
    return;
  }
  const RegionAccess& access = write->access;
  const uint64_t size = access.region < kRegionCount ? device_.region_size(access.region) : 0;
  if (access.offset > size || access.count > size - access.offset) {
    refuse(message.header, EINVAL);
    return;
  }
  device_.region_write(access, write->data);
  acknowledge(message.header, {}, bytes_of(access));
}

void Session::acknowledge(const Header& header, const Parsed<>& result,
                          std::span<const std::byte> head) {
  if (!result) {
    refuse(header, result.error());
    return;
  }
  if (header.wants_reply()) connection_.send(make_reply(header, head));
}

void Session::refuse(const Header& header, int error) {
  if (header.wants_reply()) connection_.send(make_error(header, error));
}

void Session::complete_read(const ReadTicket& ticket, std::span<const std::byte> data) {
  connection_.send(make_reply(ticket.header, bytes_of(ticket.access), data));
}

void Session::dma_write(uint64_t address, std::span<const std::byte> data, unsigned attempts) {
  recent_writes_.note(next_id_, address, data, attempts);
  connection_.send(make_dma_write(next_id_++, address, data));
}

bool Session::dma_read(uint64_t address, uint64_t count, DmaReadDone done) {
  if (reads_.size() >= kMaxUnansweredReads) return false;
  while (reads_.contains(next_id_)) next_id_++;
  const uint16_t id = next_id_++;
  reads_.emplace(id, OutstandingRead{count, std::move(done)});
  connection_.send(make_dma_read(id, address, count));
  return true;
}

void Session::on_reply(const Message& message) {
  const Header& header = message.header;
  const bool failed = (header.flags & Header::kError) != 0;
  switch (static_cast<Command>(header.command)) {
    case Command::DmaWrite:
      // QEMU answers a posted write that fails, though it was told not to.
      if (failed) device_.dma_write_failed(static_cast<int>(header.error), header.id);
      return;
    case Command::DmaRead: {
      const auto found = reads_.find(header.id);
      if (found == reads_.end()) return;
      const OutstandingRead read = std::move(found->second);
      reads_.erase(found);
      if (failed)
        read.done(tl::unexpected(static_cast<int>(header.error)));
      else
        read.done(parse_dma_read_reply(message.body, read.count));
      return;
    }
    default:
      return;
  }
}

}  // namespace pcilend::fabric
