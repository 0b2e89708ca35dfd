// SPDX-License-Identifier: GPL-2.0-or-later
// A root directory for tests: files, and PCI functions of a made-up host.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "pcilend/environment.h"
#include "pcilend/ids.h"

namespace pcilend::policy::test {

namespace fs = std::filesystem;

// The content of testdata/NAME; with PCILEND_GOLDEN=write in the environment, `now` is put there.
inline std::string golden(const std::string& name, const std::string& now) {
  const std::string path = PCILEND_TESTDATA_DIR "/" + name;
  if (const char* const mode = std::getenv("PCILEND_GOLDEN"); mode && mode == std::string("write"))
    std::ofstream(path) << now;
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Card {
  uint16_t vendor = 0x1b36;
  uint16_t device = 0x0010;
  uint32_t class_code = 0x010802;
  uint64_t serial = 0;
  uint8_t header = 0;
};

class RootTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/pcilend-policy.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    fs::create_directories(root_ / "sys/bus/pci/devices");
  }
  void TearDown() override { fs::remove_all(root_); }

  [[nodiscard]] Environment environment() const { return Environment(root_); }

  void write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  [[nodiscard]] static fs::path device(const std::string& bdf) {
    return fs::path("sys/bus/pci/devices") / bdf;
  }

  void install(const std::string& bdf, const Card& card) {
    const auto attribute = [&](const char* name, uint32_t value, int digits) {
      write(device(bdf) / name, fmt::format("0x{:0{}x}\n", value, digits));
    };
    attribute("vendor", card.vendor, 4);
    attribute("device", card.device, 4);
    attribute("subsystem_vendor", 0x1af4, 4);
    attribute("subsystem_device", 0x1100, 4);
    attribute("class", card.class_code, 6);
    std::string config(4096, '\0');
    config[0x0e] = static_cast<char>(card.header);
    const auto dword = [&](size_t at, uint64_t value) {
      for (size_t i = 0; i < 4; ++i) config[at + i] = static_cast<char>(value >> (8 * i));
    };
    dword(0x100, 0x14010001);  // advanced error reporting, next at 0x140
    if (card.serial) {
      dword(0x140, 0x00010003);
      dword(0x144, card.serial);
      dword(0x148, card.serial >> 32);
    }
    write(device(bdf) / "config", config);
  }

  // pcilend_mdev.ko with a kind at that address, or with one more. The fake attributes keep what
  // was written to them last.
  void make_kind(const std::string& bdf, const std::string& text, int devices = 0) {
    const fs::path at = fs::path("sys/bus/pci/drivers/pcilend_mdev") / bdf;
    const std::string type = "pcilend_mdev-" + text.substr(0, text.find(' '));
    write(at.parent_path() / "new_kind", "");
    write(at.parent_path() / "remove_kind", "");
    write(at / "kind", text + "\n");
    write(at / "mdev_supported_types" / type / "available_instances", "2\n");
    for (int i = 0; i < devices; ++i)
      write(at / "mdev_supported_types" / type / "devices" / fmt::format("{}", i), "");
  }

  void unplug(const std::string& bdf) { fs::remove_all(root_ / device(bdf)); }

  fs::path root_;
};

inline PciAddress at(const std::string& bdf) {
  return parse_pci_address(bdf).value();
}

}  // namespace pcilend::policy::test
