// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/lab_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace pcilend::lab {
namespace {

bool is_at(int fd, const std::string& path) {
  struct stat held {
  }, there{};
  return ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &there) == 0 &&
         held.st_ino == there.st_ino && held.st_dev == there.st_dev;
}

}  // namespace

Result<LabLock> LabLock::take(const std::string& path, const Deadline& deadline) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  for (;;) {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!fd) return fail_errno(path);
    if (!wait_until(deadline, [&] { return ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0; }))
      return fail(ErrorClass::State, "another pcilend-lab command is changing this lab ({})", path);
    // The one who had it may have removed the file.
    if (is_at(fd.get(), path)) return LabLock(std::move(fd), path);
  }
}

void LabLock::remove() {
  ::unlink(path_.c_str());
  fd_.reset();
}

}  // namespace pcilend::lab
