// SPDX-License-Identifier: GPL-2.0-or-later
// Windows as no driver would describe them. Whatever is planned must be sound, whatever is refused
// has its sentence. Input: two hosts, field by field.
#include <cstdio>
#include <cstdlib>

#include "../tests/layout_check.h"
#include "../tests/resolve_world.h"

namespace {

using resolve_world::Bytes;

void Demand(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", what.c_str());
  std::abort();
}

// Often a power of two or close to one, as in life.
u64 Number(Bytes& bytes) {
  switch (bytes.Below(4)) {
    case 0:
      return 0;
    case 1:
      return 1ULL << bytes.Below(64);
    case 2:
      return (1ULL << bytes.Below(64)) + (bytes.Below(16) << bytes.Below(64));
    default:
      return bytes.Below(~0ULL);
  }
}

u64 Alignment(Bytes& bytes) {
  return bytes.OneIn(8) ? Number(bytes) : 1ULL << bytes.Below(40);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const u8* data, size_t size) {
  Bytes bytes(data, size);
  ntb_rules::Link link{"fuzz"};
  link.self.windows = static_cast<u32>(bytes.Below(6));
  link.peer.windows = static_cast<u32>(bytes.Below(6));
  if (bytes.OneIn(16)) link.self.windows = static_cast<u32>(bytes.Below(1ULL << 32));
  for (u32 i = 0; i < std::min<u32>(link.self.windows, PCILEND_LAYOUT_WINDOWS); ++i) {
    link.self.window[i] = {Number(bytes), Number(bytes), Alignment(bytes), Alignment(bytes),
                           bytes.OneIn(4) ? Number(bytes) : 0};
  }
  for (u32 i = 0; i < std::min<u32>(link.peer.windows, PCILEND_LAYOUT_WINDOWS); ++i) {
    link.peer.window[i].size = Number(bytes);
  }
  link.self.hole = bytes.OneIn(2) ? Number(bytes) : 0;
  link.peer.hole = bytes.OneIn(2) ? Number(bytes) : 0;
  link.self.iova_end = bytes.OneIn(2) ? Number(bytes) : 0;
  link.self.relay = bytes.OneIn(8);

  pcilend_layout layout;
  char why[PCILEND_LAYOUT_TEXT_BYTES] = "";
  const int error = pcilend_layout_plan(&link.self, &link.peer, &layout, why, sizeof(why));
  const std::string text = why;
  if (error != 0) {
    Demand(error == -ENOSPC || error == -EINVAL, "known errors");
    Demand(text.size() > 20 && text.size() + 1 < sizeof(why), "a refusal has its sentence");
    return 0;
  }
  Demand(text.empty(), "no sentence without a refusal");
  Demand(layout.windows <= PCILEND_LAYOUT_WINDOWS, "no more windows than there is room for");
  const std::string wrong = layout_check::Wrong(link, layout);
  Demand(wrong.empty(), wrong);
  return 0;
}
