// SPDX-License-Identifier: GPL-2.0-or-later
// The one way to system paths: every program and library gets an Environment, tests give it a
// temporary root.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "pcilend/result.h"

namespace pcilend {

class Environment {
 public:
  // All absolute paths are taken below `root` ("/" for the running system).
  explicit Environment(std::filesystem::path root = "/") : root_(std::move(root)) {}

  // Where an absolute path such as /sys/bus/pcilend lies below the root.
  [[nodiscard]] std::filesystem::path path(std::string_view absolute) const;

  // The whole file; NotFound if it isn't there.
  [[nodiscard]] Result<std::string> read(std::string_view absolute) const;

  // Writes an existing attribute (sysfs, procfs) in one write call.
  Result<> write_attribute(std::string_view absolute, std::string_view value) const;

  // Replaces a file atomically, for good when this returns; makes its directory.
  Result<> replace_file(std::string_view absolute, std::string_view content) const;

  // Removes a file; no error if it isn't there.
  Result<> remove_file(std::string_view absolute) const;

  // Where a path ends when all symbolic links are followed; NotFound if it isn't there.
  [[nodiscard]] Result<std::filesystem::path> resolve(std::string_view absolute) const;

  [[nodiscard]] bool exists(std::string_view absolute) const;

 private:
  std::filesystem::path root_;
};

}  // namespace pcilend
