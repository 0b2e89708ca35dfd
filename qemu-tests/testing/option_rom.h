// SPDX-License-Identifier: GPL-2.0-or-later
// Expansion ROMs for QEMU's devices (romfile=): none of them is run by any firmware.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "pcilend/result.h"

namespace pcilend::scenarios {

// 24 KiB, so that its BAR has 32: an image for a function with these ids, of a code type that no PC
// runs, and no two pages of it are alike.
std::string option_rom(uint16_t vendor, uint16_t device);
// For QEMU's drive.
inline std::string nvme_rom() {
  return option_rom(0x1b36, 0x0010);
}
inline constexpr uint64_t kRomBarBytes = 32 << 10;

// A file that is there for as long as this is: QEMU reads it whenever it starts.
class RomFile {
 public:
  static Result<RomFile> make(const std::string& bytes);

  RomFile(RomFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  RomFile& operator=(RomFile&&) = delete;
  ~RomFile();

  [[nodiscard]] const std::string& path() const { return path_; }
  // As `read_rom` prints it.
  [[nodiscard]] Result<std::string> sum() const;

 private:
  explicit RomFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// A command, for a host or a guest: the checksum of what sysfs shows of the ROM of the function in
// that directory.
std::string read_rom(const std::string& directory);

}  // namespace pcilend::scenarios
