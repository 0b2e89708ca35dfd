// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/cpio.h"

#include <fmt/format.h>
#include <sys/stat.h>

namespace pcilend::lab {

void pad_archive(std::string& archive) {
  archive.resize((archive.size() + 3) / 4 * 4, '\0');
}

void CpioWriter::add_parents(const std::string& path) {
  for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1))
    add_directory(path.substr(0, slash));
}

void CpioWriter::add_directory(const std::string& path) {
  if (path.empty() || directories_.contains(path)) return;
  add_parents(path);
  directories_.insert(path);
  add(path, {}, S_IFDIR | 0755, 2);
}

void CpioWriter::add_file(const std::string& path, std::string_view content, mode_t permissions) {
  add_parents(path);
  add(path, content, S_IFREG | (permissions & 07777), 1);
}

void CpioWriter::add(const std::string& path, std::string_view content, mode_t mode,
                     unsigned links) {
  // magic, ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor,
  // namesize (with its zero byte), check
  archive_ += fmt::format(
      "070701{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}"
      "{:08X}{:08X}",
      next_inode_++, mode, 0, 0, links, 0, content.size(), 0, 0, 0, 0, path.size() + 1, 0);
  archive_ += path;
  archive_.push_back('\0');
  pad_archive(archive_);
  archive_ += content;
  pad_archive(archive_);
}

std::string CpioWriter::finish() && {
  add("TRAILER!!!", {}, 0, 1);
  archive_.resize((archive_.size() + 511) / 512 * 512, '\0');
  return std::move(archive_);
}

}  // namespace pcilend::lab
