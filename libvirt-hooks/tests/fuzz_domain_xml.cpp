// SPDX-License-Identifier: GPL-2.0-or-later
#include <cstdint>

#include "domain_xml.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)pcilend::parse_domain_xml({reinterpret_cast<const char*>(data), size});
  return 0;
}
