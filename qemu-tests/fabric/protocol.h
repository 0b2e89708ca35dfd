// SPDX-License-Identifier: GPL-2.0-or-later
// The vfio-user messages that QEMU's client and this server exchange: layouts, parsing, making.
// Layouts: QEMU docs/interop/vfio-user.rst and <linux/vfio.h>. Fields are in host byte order (both
// ends are on one machine); sizes and addresses in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace pcilend::fabric {

enum class Command : uint16_t {
  Version = 1,
  DmaMap = 2,
  DmaUnmap = 3,
  DeviceGetInfo = 4,
  DeviceGetRegionInfo = 5,
  DeviceGetRegionIoFds = 6,
  DeviceGetIrqInfo = 7,
  DeviceSetIrqs = 8,
  RegionRead = 9,
  RegionWrite = 10,
  DmaRead = 11,   // server to client
  DmaWrite = 12,  // server to client
  DeviceReset = 13,
};

struct Header {
  static constexpr uint32_t kTypeMask = 0xf;
  static constexpr uint32_t kCommand = 0;
  static constexpr uint32_t kReply = 1;
  static constexpr uint32_t kNoReply = 0x10;
  static constexpr uint32_t kError = 0x20;

  uint16_t id;
  uint16_t command;
  uint32_t size;  // of the whole message, this header included
  uint32_t flags;
  uint32_t error;  // errno, when kError is set

  [[nodiscard]] bool is_reply() const { return (flags & kTypeMask) == kReply; }
  [[nodiscard]] bool wants_reply() const { return (flags & kNoReply) == 0; }
};
static_assert(sizeof(Header) == 16);

struct DmaMap {
  static constexpr uint32_t kRead = 1;
  static constexpr uint32_t kWrite = 2;

  uint32_t argsz;
  uint32_t flags;
  uint64_t offset;  // in the file of the descriptor that comes along
  uint64_t address;
  uint64_t size;
};
static_assert(sizeof(DmaMap) == 32);

struct DmaUnmap {
  static constexpr uint32_t kAll = 2;

  uint32_t argsz;
  uint32_t flags;
  uint64_t address;
  uint64_t size;
};
static_assert(sizeof(DmaUnmap) == 24);

struct DeviceInfo {
  static constexpr uint32_t kReset = 1;
  static constexpr uint32_t kPci = 2;

  uint32_t argsz;
  uint32_t flags;
  uint32_t num_regions;
  uint32_t num_irqs;
};
static_assert(sizeof(DeviceInfo) == 16);

struct RegionInfo {
  static constexpr uint32_t kRead = 1;
  static constexpr uint32_t kWrite = 2;

  uint32_t argsz;
  uint32_t flags;
  uint32_t index;
  uint32_t cap_offset;
  uint64_t size;
  uint64_t offset;
};
static_assert(sizeof(RegionInfo) == 32);

struct IrqInfo {
  static constexpr uint32_t kEventfd = 1;
  static constexpr uint32_t kNoResize = 8;

  uint32_t argsz;
  uint32_t flags;
  uint32_t index;
  uint32_t count;
};
static_assert(sizeof(IrqInfo) == 16);

struct IrqSet {
  static constexpr uint32_t kDataNone = 1;
  static constexpr uint32_t kDataBool = 2;
  static constexpr uint32_t kDataEventfd = 4;
  static constexpr uint32_t kActionMask = 8;
  static constexpr uint32_t kActionUnmask = 0x10;
  static constexpr uint32_t kActionTrigger = 0x20;

  uint32_t argsz;
  uint32_t flags;
  uint32_t index;
  uint32_t start;
  uint32_t count;
};
static_assert(sizeof(IrqSet) == 20);

// Head of a REGION_READ or REGION_WRITE; the data follows.
struct RegionAccess {
  uint64_t offset;
  uint32_t region;
  uint32_t count;
};
static_assert(sizeof(RegionAccess) == 16);

// Head of a DMA_READ or DMA_WRITE; the data follows, at byte 32 of the message.
struct DmaAccess {
  uint64_t address;
  uint64_t count;
};
static_assert(sizeof(DmaAccess) == 16);

// Indices of VFIO PCI regions and interrupts (<linux/vfio.h>).
inline constexpr uint32_t kRegionBar0 = 0;
inline constexpr uint32_t kRegionBar2 = 2;
inline constexpr uint32_t kRegionBar4 = 4;
inline constexpr uint32_t kRegionConfig = 7;
inline constexpr uint32_t kRegionCount = 9;
inline constexpr uint32_t kIrqMsix = 2;
inline constexpr uint32_t kIrqCount = 5;

// What one message may carry. QEMU refuses max_msg_fds above 16, and kills the stream when a
// count exceeds max_data_xfer_size.
inline constexpr uint32_t kMaxMessageFds = 8;
inline constexpr uint32_t kMaxTransfer = 1 << 20;
inline constexpr uint32_t kMaxMessage = sizeof(Header) + sizeof(RegionAccess) + kMaxTransfer;
// QEMU cuts off DMA_READ replies that its socket buffer has no room for.
inline constexpr uint32_t kMaxDmaRead = 64 << 10;

// A parsed part of a message, or the errno for the reply.
template <class T = void>
using Parsed = tl::expected<T, int>;

// Reads the version the client offers; EINVAL unless its major version is 0 and its capabilities,
// if any, are a NUL-terminated JSON object. Returns the client's minor version.
Parsed<uint16_t> parse_version(std::span<const std::byte> body);

// EINVAL for a wrong size, a zero length, a range that wraps, or flags that are not known.
Parsed<DmaMap> parse_dma_map(std::span<const std::byte> body);
// A request with kAll stands for the whole address space; its range is ignored.
Parsed<DmaUnmap> parse_dma_unmap(std::span<const std::byte> body);

// The index of a GET_REGION_INFO or GET_IRQ_INFO; EINVAL if the caller leaves no room for a reply.
Parsed<uint32_t> parse_region_index(std::span<const std::byte> body);
Parsed<uint32_t> parse_irq_index(std::span<const std::byte> body);

struct IrqRequest {
  IrqSet set;
  std::span<const std::byte> data;  // one byte a vector with kDataBool, else empty
};
// EINVAL unless exactly one data and one action flag is set and the sizes agree.
Parsed<IrqRequest> parse_set_irqs(std::span<const std::byte> body);

// E2BIG above kMaxTransfer, EINVAL for a wrong size.
Parsed<RegionAccess> parse_region_read(std::span<const std::byte> body);
struct RegionWriteRequest {
  RegionAccess access;
  std::span<const std::byte> data;  // access.count bytes
};
Parsed<RegionWriteRequest> parse_region_write(std::span<const std::byte> body);

// The data of a DMA_READ reply; EIO if it isn't what was asked for.
Parsed<std::span<const std::byte>> parse_dma_read_reply(std::span<const std::byte> body,
                                                        uint64_t count);

// A message ready to be sent.
using Bytes = std::vector<std::byte>;

Bytes make_version_reply(uint16_t id, uint16_t minor);
// A reply to `request` whose body is `head` followed by `data`.
Bytes make_reply(const Header& request, std::span<const std::byte> head = {},
                 std::span<const std::byte> data = {});
Bytes make_error(const Header& request, int error);
Bytes make_dma_read(uint16_t id, uint64_t address, uint64_t count);
// Posted: the client is told not to answer.
Bytes make_dma_write(uint16_t id, uint64_t address, std::span<const std::byte> data);

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace pcilend::fabric
