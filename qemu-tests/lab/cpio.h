// SPDX-License-Identifier: GPL-2.0-or-later
// Archives that the kernel unpacks behind an initramfs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace pcilend::lab {

// Writes a cpio archive in the "newc" format (Linux Documentation/driver-api/early-userspace/
// buffer-format.rst). Everything belongs to root and has no date, so equal content makes an equal
// archive. Directories are made as needed.
class CpioWriter {
 public:
  // `path` is relative ("payload/usr/sbin/pcilend"); the file must be smaller than 4 GiB.
  void add_file(const std::string& path, std::string_view content, mode_t permissions);
  void add_directory(const std::string& path);

  // The archive with its trailer, padded to 512 bytes.
  std::string finish() &&;

 private:
  void add_parents(const std::string& path);
  void add(const std::string& path, std::string_view content, mode_t mode, unsigned links);

  std::string archive_;
  std::set<std::string> directories_;
  uint32_t next_inode_ = 1;
};

// Zero bytes to the next multiple of four: the kernel wants archives to begin there.
void pad_archive(std::string& archive);

}  // namespace pcilend::lab
