// SPDX-License-Identifier: GPL-2.0-or-later
// What an administrator writes to new_kind. What is taken must come back the same from its text.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "pcilend/kind.h"

namespace {

void Demand(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  pcilend_kind kind;
  const char* why = nullptr;
  if (pcilend_kind_parse(text.c_str(), &kind, &why)) {
    Demand(why, "a refusal has its sentence");
    return 0;
  }
  char again[PCILEND_KIND_TEXT_BYTES];
  Demand(pcilend_kind_format(&kind, again) == static_cast<int>(std::strlen(again)), "its length");
  pcilend_kind same;
  Demand(!pcilend_kind_parse(again, &same, &why), "its own text is taken");
  Demand(!std::memcmp(&kind, &same, sizeof(kind)), "and means the same");
  return 0;
}
