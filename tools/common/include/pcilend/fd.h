// SPDX-License-Identifier: GPL-2.0-or-later
// Owners of file descriptors and memory mappings.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "pcilend/api.h"
#include "pcilend/error.h"

namespace pcilend {

// Owns one file descriptor; closes it when it goes.
class PCILEND_API UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Owns one shared mapping of a file; unmaps it when it goes.
class PCILEND_API Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  // Maps `size` bytes from `offset` (a multiple of the page size); `writable` or read-only.
  static Result<Mapping> map(int fd, size_t offset, size_t size, bool writable);

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit Mapping(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

// Writes all of `data` to a blocking descriptor, however many calls it takes.
PCILEND_API Result<> write_all(int fd, std::span<const std::byte> data);

}  // namespace pcilend
