// SPDX-License-Identifier: GPL-2.0-or-later
// A world and what is asked about it, out of the input's bytes: answers are compared with
// transactions that cross that world hop by hop. Sometimes the request, or the topology, is
// nonsense.
#include <cstdio>
#include <cstdlib>

#include "../tests/resolve_world.h"

namespace {

using resolve_world::Bytes;
using resolve_world::Space;
using resolve_world::World;

void Demand(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", what.c_str());
  std::abort();
}

u64 Any(Bytes& bytes) {
  return bytes.Below(~0ULL) >> bytes.Below(64);
}

// Nothing but a number of paths or an errno with a sentence may come of it.
void AskNonsense(Bytes& bytes, World& world, pcilend_resolve_request request) {
  pcilend_topology topology = world.topology;
  std::vector<pcilend_topo_link> links = world.links;
  const pcilend_placed placed = {static_cast<u32>(Any(bytes)), Any(bytes)};
  switch (bytes.Below(8)) {
    case 0:
      request.from.host = static_cast<u32>(Any(bytes));
      break;
    case 1:
      request.target.host = static_cast<u32>(Any(bytes));
      break;
    case 2:
      request.target.phys = Any(bytes);
      break;
    case 3:
      request.target.size = Any(bytes);
      break;
    case 4:
      request.offset = Any(bytes);
      request.size = Any(bytes);
      break;
    case 5:
      request.from.at = Any(bytes);
      break;
    case 6:
      request.target.placed = &placed;
      request.target.placed_count = 1;
      break;
    default:
      if (links.empty()) return;
      links[bytes.Below(links.size())].adapter[bytes.Below(2)] = static_cast<u32>(Any(bytes));
      topology.link = links.data();
  }
  char why[PCILEND_RESOLVE_TEXT_BYTES] = "";
  if (pcilend_topology_check(&topology, why, sizeof(why)) != 0) {
    Demand(why[0] != '\0', "a refusal says why");
    return;
  }
  std::vector<u8> distance(topology.hosts);
  pcilend_path path;
  const int found =
      pcilend_resolve(&topology, &request, distance.data(), &path, 1, why, sizeof(why));
  Demand(found < 0 ? why[0] != '\0' : found == 1, "a path, or a refusal that says why");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const u8* data, size_t size) {
  Bytes bytes(data, size);
  World world(bytes);
  char why[PCILEND_RESOLVE_TEXT_BYTES] = "";
  Demand(pcilend_topology_check(&world.topology, why, sizeof(why)) == 0, why);
  Space function(bytes.Below(64) * PCILEND_PAGE, 8 * resolve_world::kGiB, 4);
  for (int i = 0; i < 4 && !bytes.Empty(); ++i) {
    const pcilend_resolve_request request = world.Request(function);
    if (bytes.OneIn(4)) {
      AskNonsense(bytes, world, request);
    } else {
      const std::string wrong =
          resolve_world::Check(world, request, static_cast<u32>(1 + bytes.Below(6)));
      Demand(wrong.empty(), wrong);
    }
  }
  return 0;
}
