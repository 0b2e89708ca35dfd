// SPDX-License-Identifier: GPL-2.0-or-later
// Everything the client does with what comes out of its socket. The first byte picks a request;
// then datagrams, each behind its length (u16).
#include "../tests/messages.h"
#include "pcilend/client.h"
#include "pcilend/events.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pcilend;
  if (size < 1) return 0;
  const int request = *data++ % 11;
  --size;
  std::deque<test::Bytes> datagrams{test::join({test::family_reply(), test::acknowledge(1)})};
  while (size >= 2) {
    const size_t length = std::min<size_t>(data[0] | data[1] << 8, size - 2);
    const auto* const bytes = reinterpret_cast<const std::byte*>(data + 2);
    datagrams.emplace_back(bytes, bytes + length);
    data += 2 + length;
    size -= 2 + length;
  }
  auto transport = std::make_unique<test::ScriptedTransport>(datagrams, nullptr);
  if (request == 3) {
    const auto events = open_events(std::unique_ptr<EventTransport>(std::move(transport)));
    for (auto next = (*events)->next({}); next; next = (*events)->next({})) {
      if (std::holds_alternative<Wake>(*next)) break;
    }
    return 0;
  }
  auto client = open_client(std::move(transport));
  switch (request) {
    case 0:
      (void)(*client)->node();
      break;
    case 1:
      (void)(*client)->links();
      break;
    case 2:
      (void)(*client)->functions();
      break;
    case 4:
      (void)(*client)->counters();
      break;
    case 7:
      (void)(*client)->segments();
      break;
    case 8:
      (void)(*client)->lease_map(3, 4, false);
      break;
    case 9:
      (void)(*client)->lease_unmap(3, 4096);
      break;
    case 10:
      (void)(*client)->offered_segments();
      break;
    case 5:
      (void)(*client)->config(FunctionId{0x40001}, true);
      break;
    default:
      (void)(*client)->connect(8);
  }
  return 0;
}
