// SPDX-License-Identifier: GPL-2.0-or-later
// Names of PCI classes, vendors and devices from pci.ids, by libpci.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace pcilend {

class PciNames {
 public:
  // `list` is a pci.ids file; empty: the one libpci knows.
  explicit PciNames(const std::string& list = {});
  ~PciNames();
  PciNames(const PciNames&) = delete;
  PciNames& operator=(const PciNames&) = delete;

  // As lspci prints them; what has no name gets its number ("Device 0010"). `class_code` is
  // class << 8 | subclass.
  [[nodiscard]] std::string device_class(uint16_t class_code) const;
  [[nodiscard]] std::string vendor(uint16_t vendor) const;
  [[nodiscard]] std::string device(uint16_t vendor, uint16_t device) const;

 private:
  struct Access;
  std::unique_ptr<Access> access_;
};

}  // namespace pcilend
