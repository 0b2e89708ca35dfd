// SPDX-License-Identifier: GPL-2.0-or-later
#include "protocol.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

namespace pcilend::fabric {
namespace {

struct VersionHead {
  uint16_t major;
  uint16_t minor;
};
static_assert(sizeof(VersionHead) == 4);

template <class T>
Parsed<T> take(std::span<const std::byte> body) {
  if (body.size() < sizeof(T)) return tl::unexpected(EINVAL);
  T value;
  std::memcpy(&value, body.data(), sizeof value);
  return value;
}

template <class T>
Parsed<T> take_exactly(std::span<const std::byte> body) {
  if (body.size() != sizeof(T)) return tl::unexpected(EINVAL);
  return take<T>(body);
}

// A non-empty range that ends at or below the top of the address space.
bool sane_range(uint64_t address, uint64_t size) {
  return size != 0 && size - 1 <= UINT64_MAX - address;
}

void append(Bytes& out, std::span<const std::byte> more) {
  out.insert(out.end(), more.begin(), more.end());
}

Bytes make(uint16_t id, uint16_t command, uint32_t flags, uint32_t error,
           std::span<const std::byte> head, std::span<const std::byte> data) {
  const auto size = static_cast<uint32_t>(sizeof(Header) + head.size() + data.size());
  const Header header{id, command, size, flags, error};
  Bytes out;
  out.reserve(size);
  append(out, bytes_of(header));
  append(out, head);
  append(out, data);
  return out;
}

}  // namespace

Parsed<uint16_t> parse_version(std::span<const std::byte> body) {
  const auto head = take<VersionHead>(body);
  if (!head || head->major != 0) return tl::unexpected(EINVAL);
  const auto text = body.subspan(sizeof(VersionHead));
  if (text.empty()) return head->minor;
  if (text.back() != std::byte{0}) return tl::unexpected(EINVAL);
  const std::string_view json(reinterpret_cast<const char*>(text.data()), text.size() - 1);
  const auto capabilities = nlohmann::json::parse(json, nullptr, false);
  if (!capabilities.is_object()) return tl::unexpected(EINVAL);
  return head->minor;
}

Parsed<DmaMap> parse_dma_map(std::span<const std::byte> body) {
  const auto map = take_exactly<DmaMap>(body);
  if (!map) return map;
  if (!sane_range(map->address, map->size) || !sane_range(map->offset, map->size))
    return tl::unexpected(EINVAL);
  if ((map->flags & ~(DmaMap::kRead | DmaMap::kWrite)) != 0) return tl::unexpected(EINVAL);
  return map;
}

Parsed<DmaUnmap> parse_dma_unmap(std::span<const std::byte> body) {
  const auto unmap = take_exactly<DmaUnmap>(body);
  if (!unmap) return unmap;
  if ((unmap->flags & ~DmaUnmap::kAll) != 0) return tl::unexpected(EINVAL);
  if ((unmap->flags & DmaUnmap::kAll) == 0 && !sane_range(unmap->address, unmap->size))
    return tl::unexpected(EINVAL);
  return unmap;
}

Parsed<uint32_t> parse_region_index(std::span<const std::byte> body) {
  const auto info = take<RegionInfo>(body);
  if (!info || info->argsz < sizeof(RegionInfo)) return tl::unexpected(EINVAL);
  return info->index;
}

Parsed<uint32_t> parse_irq_index(std::span<const std::byte> body) {
  const auto info = take<IrqInfo>(body);
  if (!info || info->argsz < sizeof(IrqInfo)) return tl::unexpected(EINVAL);
  return info->index;
}

Parsed<IrqRequest> parse_set_irqs(std::span<const std::byte> body) {
  const auto set = take<IrqSet>(body);
  if (!set) return tl::unexpected(EINVAL);
  const auto data = body.subspan(sizeof(IrqSet));
  const uint32_t kind = set->flags & (IrqSet::kDataNone | IrqSet::kDataBool | IrqSet::kDataEventfd);
  const uint32_t action =
      set->flags & (IrqSet::kActionMask | IrqSet::kActionUnmask | IrqSet::kActionTrigger);
  if (!std::has_single_bit(kind) || !std::has_single_bit(action) || set->flags != (kind | action))
    return tl::unexpected(EINVAL);
  const size_t expected = kind == IrqSet::kDataBool ? set->count : 0;
  if (data.size() != expected) return tl::unexpected(EINVAL);
  return IrqRequest{*set, data};
}

Parsed<RegionAccess> parse_region_read(std::span<const std::byte> body) {
  const auto access = take_exactly<RegionAccess>(body);
  if (!access) return access;
  if (access->count > kMaxTransfer) return tl::unexpected(E2BIG);
  return access;
}

Parsed<RegionWriteRequest> parse_region_write(std::span<const std::byte> body) {
  const auto access = take<RegionAccess>(body);
  if (!access) return tl::unexpected(EINVAL);
  if (access->count > kMaxTransfer) return tl::unexpected(E2BIG);
  const auto data = body.subspan(sizeof(RegionAccess));
  if (data.size() != access->count) return tl::unexpected(EINVAL);
  return RegionWriteRequest{*access, data};
}

Parsed<std::span<const std::byte>> parse_dma_read_reply(std::span<const std::byte> body,
                                                        uint64_t count) {
  const auto access = take<DmaAccess>(body);
  if (!access || access->count != count || body.size() - sizeof(DmaAccess) != count)
    return tl::unexpected(EIO);
  return body.subspan(sizeof(DmaAccess));
}

Bytes make_version_reply(uint16_t id, uint16_t minor) {
  // Without write_multiple, so that every write is a message of its own.
  nlohmann::json capabilities;
  capabilities["capabilities"] = {{"max_msg_fds", kMaxMessageFds},
                                  {"max_data_xfer_size", kMaxTransfer}};
  const std::string text = capabilities.dump();
  const VersionHead head{0, minor};
  return make(id, static_cast<uint16_t>(Command::Version), Header::kReply, 0, bytes_of(head),
              std::as_bytes(std::span(text.c_str(), text.size() + 1)));
}

Bytes make_reply(const Header& request, std::span<const std::byte> head,
                 std::span<const std::byte> data) {
  return make(request.id, request.command, Header::kReply, 0, head, data);
}

Bytes make_error(const Header& request, int error) {
  return make(request.id, request.command, Header::kReply | Header::kError,
              static_cast<uint32_t>(error), {}, {});
}

Bytes make_dma_read(uint16_t id, uint64_t address, uint64_t count) {
  const DmaAccess access{address, count};
  return make(id, static_cast<uint16_t>(Command::DmaRead), Header::kCommand, 0, bytes_of(access),
              {});
}

Bytes make_dma_write(uint16_t id, uint64_t address, std::span<const std::byte> data) {
  const DmaAccess access{address, data.size()};
  return make(id, static_cast<uint16_t>(Command::DmaWrite), Header::kCommand | Header::kNoReply, 0,
              bytes_of(access), data);
}

}  // namespace pcilend::fabric
