// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/fd.h"

#include <sys/mman.h>
#include <unistd.h>

#include "pcilend/result.h"

namespace pcilend {

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Mapping::~Mapping() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

Result<Mapping> Mapping::map(int fd, size_t offset, size_t size, bool writable) {
  const int protection = PROT_READ | (writable ? PROT_WRITE : 0);
  void* at = ::mmap(nullptr, size, protection, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (at == MAP_FAILED) return fail_errno(fmt::format("map {} bytes at {:#x}", size, offset));
  return Mapping(std::span(static_cast<std::byte*>(at), size));
}

Result<> write_all(int fd, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("write");
    data = data.subspan(static_cast<size_t>(n));
  }
  return {};
}

}  // namespace pcilend
