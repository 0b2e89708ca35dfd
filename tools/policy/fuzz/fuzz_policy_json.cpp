// SPDX-License-Identifier: GPL-2.0-or-later
// Any bytes as a configuration file: it is refused with one line, or it means the same when it is
// written and read again.
#include "pcilend/policy/config.h"

using namespace pcilend::policy;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = parse_config("fuzz.json", text);
  if (!config) {
    const std::string& message = config.error().message;
    if (message.empty() || message.find('\n') != std::string::npos) __builtin_trap();
    return 0;
  }
  const std::string written = format_config(*config);
  const auto again = parse_config("fuzz.json", written);
  if (!again || format_config(*again) != written) __builtin_trap();
  const LocalFunction function{{0, 1, 2, 3}, 0x1b36, 0x0010, 0x010802, false, std::nullopt};
  for (const auto& filter : config->filters) matches(filter.pattern, function);
  return 0;
}
