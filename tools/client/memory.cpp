// SPDX-License-Identifier: GPL-2.0-or-later
#include "memory.h"

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pcilend/result.h"

namespace pcilend {
namespace {

constexpr const char* kUdmabuf = "/dev/udmabuf";
constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kBytesMax = size_t{1} << 40;

size_t rounded(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Can't shrink, which a dma-buf of it counts on.
Result<UniqueFd> make_file(const std::string& what, size_t bytes, bool huge) {
  UniqueFd file(::memfd_create(("pcilend-" + what).c_str(),
                               MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB : 0u)));
  if (!file) return fail_errno("memfd_create");
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    return fail_errno(fmt::format("a {} of {} bytes", what, bytes));
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) return fail_errno("F_SEAL_SHRINK");
  return file;
}

Result<UniqueFd> make_dma_buf(int file, size_t bytes) {
  const UniqueFd device(::open(kUdmabuf, O_RDWR | O_CLOEXEC));
  if (!device && errno == ENOENT)
    return fail(ErrorClass::Unsupported, "{} is not there: modprobe udmabuf", kUdmabuf);
  if (!device) return fail_errno(kUdmabuf);
  udmabuf_create create{};
  create.memfd = static_cast<uint32_t>(file);
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

Result<Memory> make_memory(const std::string& what, size_t bytes, bool huge) {
  if (bytes == 0 || bytes > kBytesMax)
    return fail(ErrorClass::Usage, "a {} has 1 byte to 1 TiB: give another size", what);
  const size_t size = rounded(bytes, huge ? kHugePage : kPage);
  const auto file = make_file(what, size, huge);
  if (!file) return tl::unexpected(file.error());
  auto mapping = Mapping::map(file->get(), 0, size, true);
  if (!mapping) return tl::unexpected(std::move(mapping).error());
  auto buffer = make_dma_buf(file->get(), size);
  if (!buffer) return tl::unexpected(std::move(buffer).error());
  return Memory{std::move(*mapping), std::move(*buffer)};
}

}  // namespace pcilend
