// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/pci_hostdev.h"

#include <fmt/format.h>

#include <cstdio>

namespace pcilend::scenarios {

std::string pci_hostdev(const std::string& address) {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned slot = 0;
  unsigned function = 0;
  std::sscanf(address.c_str(), "%x:%x:%x.%x", &domain, &bus, &slot, &function);
  return fmt::format(
      "<hostdev mode='subsystem' type='pci' managed='yes'><source><address domain='0x{:04x}' "
      "bus='0x{:02x}' slot='0x{:02x}' function='0x{:x}'/></source></hostdev>\n",
      domain, bus, slot, function);
}

}  // namespace pcilend::scenarios
