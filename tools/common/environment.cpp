// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/environment.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pcilend/fd.h"

namespace pcilend {

namespace fs = std::filesystem;

fs::path Environment::path(std::string_view absolute) const {
  return root_ / fs::path(absolute).relative_path();
}

Result<std::string> Environment::read(std::string_view absolute) const {
  const fs::path file = path(absolute);
  UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    if (errno == ENOENT || errno == ENODEV)
      return fail(ErrorClass::NotFound, "{}: {}", file.native(), std::strerror(errno));
    return fail_errno(file.native());
  }
  std::string text;
  char chunk[4096];
  for (;;) {
    const ssize_t n = ::read(fd.get(), chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(file.native());
    if (n == 0) return text;
    text.append(chunk, static_cast<size_t>(n));
  }
}

Result<> Environment::write_attribute(std::string_view absolute, std::string_view value) const {
  const fs::path file = path(absolute);
  UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd && errno == ENOENT)
    return fail(ErrorClass::NotFound, "{}: {}", file.native(), std::strerror(errno));
  if (!fd) return fail_errno(file.native());
  if (::write(fd.get(), value.data(), value.size()) < 0)
    return fail_errno(fmt::format("write '{}' to {}", value, file.native()));
  return {};
}

Result<> Environment::replace_file(std::string_view absolute, std::string_view content) const {
  fs::path file = path(absolute);
  std::error_code error;
  // A link stays, and what it leads to is replaced; so does a mode that somebody has chosen.
  if (fs::is_symlink(file, error)) {
    const fs::path target = fs::weakly_canonical(file, error);
    if (error) return fail_errno(file.native(), error.value());
    file = target;
  }
  const fs::file_status before = fs::status(file, error);
  const mode_t mode =
      fs::exists(before) ? static_cast<mode_t>(before.permissions()) & 0777 : mode_t{0644};
  fs::create_directories(file.parent_path(), error);
  if (error) return fail_errno(file.parent_path().native(), error.value());

  std::string aside = file.native() + ".XXXXXX";
  UniqueFd fd(::mkostemp(aside.data(), O_CLOEXEC));
  if (!fd) return fail_errno(aside);
  auto written = write_all(fd.get(), std::as_bytes(std::span(content)));
  if (written && ::fchmod(fd.get(), mode) < 0) written = fail_errno(aside);
  if (written && ::fsync(fd.get()) < 0) written = fail_errno(aside);
  if (written && ::rename(aside.c_str(), file.c_str()) < 0) written = fail_errno(file.native());
  if (!written) ::unlink(aside.c_str());
  // The new name outlives a power cut only when its directory is on the disk.
  const UniqueFd directory(::open(file.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (written && ::fsync(directory.get()) < 0) written = fail_errno(file.parent_path().native());
  return written;
}

Result<> Environment::remove_file(std::string_view absolute) const {
  const fs::path file = path(absolute);
  if (::unlink(file.c_str()) < 0 && errno != ENOENT) return fail_errno(file.native());
  return {};
}

Result<fs::path> Environment::resolve(std::string_view absolute) const {
  std::error_code error;
  const fs::path file = path(absolute);
  fs::path end = fs::canonical(file, error);
  if (!error) return end;
  if (error == std::errc::no_such_file_or_directory)
    return fail(ErrorClass::NotFound, "{}: {}", file.native(), error.message());
  return fail_errno(file.native(), error.value());
}

bool Environment::exists(std::string_view absolute) const {
  std::error_code error;
  return fs::exists(path(absolute), error);
}

}  // namespace pcilend
