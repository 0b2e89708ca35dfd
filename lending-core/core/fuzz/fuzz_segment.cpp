// SPDX-License-Identifier: GPL-2.0-or-later
// A segment's offers and connections, whatever happens in whatever order, and whatever is lost.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "../tests/segment_world.h"

extern "C" int LLVMFuzzerTestOneInput(const u8* data, size_t size) {
  const u8* const end = data + std::min<size_t>(size, 4096);
  segment_world::World world([&](u32 below) { return data == end ? 0 : *data++ % below; });
  while (data != end && world.broken.empty()) world.step();
  if (world.broken.empty()) world.end();
  if (world.broken.empty()) return 0;
  std::fprintf(stderr, "broken promise: %s\n", world.broken.c_str());
  std::abort();
}
