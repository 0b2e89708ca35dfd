// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "domain_xml.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto domain = pcilend::parse_domain_xml({reinterpret_cast<const char*>(data), size});
  if (!domain || !domain->options) return 0;
  if (domain->options->wait > std::chrono::hours(1)) std::abort();
  for (const pcilend::Choice& choice : domain->options->choices) {
    const auto& mdevs = domain->mdevs;
    if (choice.text().empty() || choice.class_code.size() > 6 ||
        std::find(mdevs.begin(), mdevs.end(), choice.mdev) == mdevs.end())
      std::abort();
  }
  return 0;
}
