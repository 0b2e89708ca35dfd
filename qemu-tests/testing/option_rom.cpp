// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/option_rom.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "lab/process.h"
#include "pcilend/fd.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;

constexpr size_t kImageBytes = 24 << 10;
constexpr size_t kStructure = 0x1c;  // PCI Firmware 3.0 §5.1.1, §5.1.2
constexpr char kOpenFirmware = 1;
constexpr char kLastImage = '\x80';

}  // namespace

std::string option_rom(uint16_t vendor, uint16_t device) {
  std::string rom(kImageBytes, '\0');
  std::minstd_rand dice(vendor);
  for (char& byte : rom) byte = static_cast<char>(dice());
  const auto put = [&](size_t at, uint16_t value) {
    rom[at] = static_cast<char>(value);
    rom[at + 1] = static_cast<char>(value >> 8);
  };
  constexpr uint16_t kUnits = kImageBytes / 512;
  put(0, 0xaa55);
  rom[2] = kUnits;
  put(0x18, kStructure);
  rom.replace(kStructure, 0x18, 0x18, '\0');
  rom.replace(kStructure, 4, "PCIR");
  put(kStructure + 4, vendor);
  put(kStructure + 6, device);
  put(kStructure + 0xa, 0x18);
  put(kStructure + 0x10, kUnits);
  rom[kStructure + 0x14] = kOpenFirmware;
  rom[kStructure + 0x15] = kLastImage;
  return rom;
}

Result<RomFile> RomFile::make(const std::string& bytes) {
  std::string path = std::filesystem::temp_directory_path() / "pcilend-rom-XXXXXX";
  const UniqueFd fd(::mkstemp(path.data()));
  if (!fd) return fail_errno(path);
  RomFile file(path);
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  out.close();
  if (!out) return fail_errno(path);
  return file;
}

RomFile::~RomFile() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove(path_, ignored);
}

Result<std::string> RomFile::sum() const {
  return lab::run_program({"sh", "-c", "sha256sum <" + path_}, lab::Deadline(60s));
}

std::string read_rom(const std::string& directory) {
  return fmt::format("cd {} && echo 1 >rom && sha256sum <rom; code=$?; echo 0 >rom && exit $code",
                     directory);
}

}  // namespace pcilend::scenarios
