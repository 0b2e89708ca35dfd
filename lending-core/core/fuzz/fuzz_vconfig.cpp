// SPDX-License-Identifier: GPL-2.0-or-later
// A hostile snapshot of a function's configuration space, then accesses of a hostile guest.
// Input: 7 BARs of 9 bytes (size, flags), a length byte, 24 bytes of accesses (offset, length,
// value: 8 bytes each), then the snapshot.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../tests/vconfig_check.h"

namespace {

constexpr size_t kBarBytes = 9;
constexpr size_t kAccesses = 3;
constexpr size_t kHead = 7 * kBarBytes + 1 + kAccesses * 8;

void Demand(const std::string& wrong) {
  if (wrong.empty()) return;
  std::fprintf(stderr, "broken promise: %s\n", wrong.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const u8* data, size_t size) {
  if (size < kHead) return 0;
  pcilend_vconfig_bar bar[7];
  for (size_t i = 0; i < 7; ++i) {
    std::memcpy(&bar[i].size, data + i * kBarBytes, 8);
    bar[i].flags = data[i * kBarBytes + 8];
  }
  const size_t length = (data[7 * kBarBytes] & 1) != 0 ? 256 : 4096;
  static u8 snapshot[PCILEND_VCONFIG_BYTES];
  std::memset(snapshot, 0, sizeof(snapshot));
  std::memcpy(snapshot, data + kHead, size - kHead < length ? size - kHead : length);

  static pcilend_vconfig config;
  const int error = pcilend_vconfig_init(&config, snapshot, length, bar);
  if (error != 0) {
    Demand(error == -EINVAL ? "" : "unknown error");
    return 0;
  }
  Demand(vconfig_check::All(config));
  static pcilend_vconfig fresh;
  fresh = config;
  for (size_t i = 0; i < kAccesses; ++i) {
    const u8* access = data + 7 * kBarBytes + 1 + i * 8;
    const u32 offset = access[0] | access[1] << 8;
    u32 value;
    std::memcpy(&value, access + 4, 4);
    const unsigned effects = pcilend_vconfig_write(&config, offset, access[2], value);
    Demand((effects & ~0xffu) == 0 ? "" : "unknown effect");
    pcilend_vconfig_read(&config, offset, access[2]);
    pcilend_vconfig_forwards(&config, offset, access[2]);
  }
  Demand(vconfig_check::All(config));
  for (size_t at = 0; at < PCILEND_VCONFIG_BYTES; ++at) {
    if (((config.value[at] ^ fresh.value[at]) & ~config.writable[at]) != 0) {
      Demand("a read-only bit changed");
    }
  }
  pcilend_vconfig_reset(&config);
  Demand(std::memcmp(config.value, fresh.value, sizeof(config.value)) == 0
             ? ""
             : "reset is not power-on");
  return 0;
}
