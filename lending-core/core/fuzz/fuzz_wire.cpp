// SPDX-License-Identifier: GPL-2.0-or-later
// A slot as a hostile peer may fill it. Whatever passes the check has to be what it promises.
#include <linux/pcilend.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "pcilend/identity.h"
#include "pcilend/wire.h"

namespace {

void Demand(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

template <typename Payload>
Payload Body(const u8* slot) {
  Payload payload;
  std::memcpy(&payload, slot + sizeof(pcilend_msg_header), sizeof(payload));
  return payload;
}

void DemandFunction(const pcilend_msg_function& f) {
  Demand(pcilend_uuid_is_ours(f.uuid), "our UUID");
  Demand(f.label[PCILEND_LABEL_BYTES - 1] == 0, "a label that ends");
  for (const u8 c : f.label) Demand(c == 0 || (c >= 0x20 && c < 0x7f), "a printable label");
  Demand(f.reserved_node <= PCILEND_NODE_MAX, "reserved for a node");
  for (unsigned i = 0; i < PCILEND_BARS; ++i) {
    Demand((f.bar[i].size & (f.bar[i].size - 1)) == 0, "BAR sizes are powers of two");
    if ((f.bar[i].flags & PCILEND_BAR_MEM64) == 0) {
      Demand(f.bar[i].size <= 0x80000000, "32-bit BARs fit in 32 bits");
    } else if (f.bar[i].size != 0) {
      Demand(i < 5 && f.bar[i + 1].size == 0, "64-bit BARs have their upper half");
    }
  }
}

void DemandPayload(u16 type, bool answer, const u8* slot) {
  // All that name a function begin with its id; most name a lease next.
  u32 id_and_lease[2];
  std::memcpy(id_and_lease, slot + sizeof(pcilend_msg_header), sizeof(id_and_lease));
  if (type == PCILEND_MSG_HELLO) {
    const auto m = Body<pcilend_msg_hello>(slot);
    Demand(m.windows >= 1 && m.windows <= PCILEND_WIRE_WINDOWS, "windows");
    Demand(m.interrupt_window < PCILEND_WIRE_WINDOWS ||
               (m.interrupt_window == PCILEND_WIRE_NO_WINDOW && m.interrupt_offset == 0),
           "a window");
    Demand((m.hole | m.dma_limit) % PCILEND_PAGE == 0, "pages");
    return;
  }
  if (type == PCILEND_MSG_VOUCH) {
    const auto m = Body<pcilend_msg_vouch>(slot);
    Demand(m.asker != 0 && m.asked != 0, "boot ids");
    return;
  }
  if (type == PCILEND_MSG_SEGMENT_NEXT && !answer) {
    Demand(id_and_lease[0] == 0 || pcilend_id_valid(id_and_lease[0]), "a valid id, or none");
    return;
  }
  if (type != PCILEND_MSG_CONNECTED && type != PCILEND_MSG_SYNC) {
    Demand(pcilend_id_valid(id_and_lease[0]), "a valid id");
  }
  switch (type) {
    case PCILEND_MSG_FUNCTION:
      DemandFunction(Body<pcilend_msg_function>(slot));
      return;
    case PCILEND_MSG_RECALL:
      Demand(Body<pcilend_msg_recall>(slot).grace_ms <= PCILEND_GRACE_MS_MAX, "grace time");
      break;
    case PCILEND_MSG_RESERVE: {
      const auto m = Body<pcilend_msg_reserve>(slot);
      Demand(m.node <= PCILEND_NODE_MAX && m.ttl_ms <= PCILEND_RESERVE_MS_MAX, "reservation");
      return;
    }
    case PCILEND_MSG_WITHDRAW:
    case PCILEND_MSG_CONNECTED:
    case PCILEND_MSG_SYNC:
      return;
    case PCILEND_MSG_BORROW:
      if (!answer) {
        const auto m = Body<pcilend_msg_borrow>(slot);
        Demand(m.interrupt_alias % 0x100000 == 0 && m.interrupt_alias >> 32 == 0, "alias");
        Demand(m.lease_ms >= PCILEND_LEASE_MS_MIN && m.lease_ms <= PCILEND_LEASE_MS_MAX, "time");
        Demand(m.dma_offset % PCILEND_PAGE == 0 && m.dma_window < PCILEND_WIRE_WINDOWS, "DMA");
        return;
      }
      for (const auto& bar : Body<pcilend_msg_borrowed>(slot).bar) {
        if (bar.size == 0) continue;
        Demand(bar.offset % PCILEND_PAGE == 0 && bar.offset + bar.size > bar.offset, "placement");
        Demand(bar.window < PCILEND_WIRE_WINDOWS && bar.shift < PCILEND_PAGE, "window, shift");
      }
      Demand(Body<pcilend_msg_borrowed>(slot).dma_address % PCILEND_PAGE == 0, "DMA address");
      Demand(Body<pcilend_msg_borrowed>(slot).last_address >> 62 == 0, "last address");
      break;
    case PCILEND_MSG_MAP: {
      const auto m = Body<pcilend_msg_map>(slot);
      Demand(m.offset + m.size > m.offset && m.window < PCILEND_WIRE_WINDOWS, "window range");
      [[fallthrough]];
    }
    case PCILEND_MSG_UNMAP: {
      const auto m = Body<pcilend_msg_map>(slot);
      Demand(m.device_address + m.size > m.device_address, "device range");
      Demand(((m.device_address | m.size) & (PCILEND_PAGE - 1)) == 0, "whole pages");
      break;
    }
    case PCILEND_MSG_INTX:
      Demand(Body<pcilend_msg_intx>(slot).state <= PCILEND_INTX_OPEN, "a state of INTx");
      break;
    case PCILEND_MSG_MSI: {
      if (answer) break;
      const auto m = Body<pcilend_msg_msi>(slot);
      Demand(m.count != 0 && m.vector + m.count <= PCILEND_RELAY_VECTORS, "vectors");
      Demand(m.on <= 1 && (m.count & (m.count - 1)) == 0, "how many");
      break;
    }
    case PCILEND_MSG_MSI_RAISED:
      Demand(Body<pcilend_msg_msi_raised>(slot).vectors != 0, "a vector");
      break;
    case PCILEND_MSG_SEGMENT_CONNECT: {
      if (!answer) break;
      const auto m = Body<pcilend_msg_segment>(slot);
      Demand(((m.offset | m.size) & (PCILEND_PAGE - 1)) == 0, "whole pages");
      Demand(m.offset + m.size > m.offset && m.window < PCILEND_WIRE_WINDOWS, "place");
      Demand(m.flags <= 3, "known flags");
      Demand(m.notify_offset + 4 <= 0x100000, "in the interrupt range");
      break;
    }
    case PCILEND_MSG_SEGMENT_NEXT: {
      const auto m = Body<pcilend_msg_offered>(slot);
      Demand(m.size != 0 && m.size % PCILEND_PAGE == 0 && m.size <= u64{1} << 40, "whole pages");
      Demand(m.flags <= 3, "known flags");
      Demand(m.name[PCILEND_LABEL_BYTES - 1] == 0, "a name that ends");
      for (const u8 c : m.name) Demand(c == 0 || (c >= 0x20 && c < 0x7f), "a printable name");
      return;
    }
    case PCILEND_MSG_SEGMENT_RELEASE: {
      const auto m = Body<pcilend_msg_connection>(slot);
      Demand(m.connection != 0 && m.node == 0, "a connection");
      break;
    }
    case PCILEND_MSG_TARGET: {
      const auto m = Body<pcilend_msg_target>(slot);
      Demand(m.flags <= 3 && m.segment >> 16 != 0, "a segment");
      Demand(m.device_address % PCILEND_PAGE == 0 && m.size % PCILEND_PAGE == 0, "whole pages");
      Demand(m.size != 0 && m.size <= u64{1} << 40 && m.device_address <= -m.size, "a range");
      break;
    }
    case PCILEND_MSG_NEAR: {
      if (answer) {
        Demand(Body<pcilend_msg_id>(slot).id >> 16 != 0, "a segment");
        return;
      }
      const auto m = Body<pcilend_msg_near>(slot);
      Demand(m.size != 0 && m.size % PCILEND_PAGE == 0 && m.size <= u64{1} << 30, "whole pages");
      Demand(m.lease != 0, "a lease");
      break;
    }
    case PCILEND_MSG_SEGMENT_WITHDRAW:
      Demand(Body<pcilend_msg_withdraw>(slot).offer != 0, "an offer");
      break;
    case PCILEND_MSG_REACH: {
      const auto m = Body<pcilend_msg_reach>(slot);
      Demand(m.device_address % PCILEND_PAGE == 0 && m.bar <= 5, "BAR, whole pages");
      Demand(m.on <= 1 && m.target != m.id, "reach");
      break;
    }
    case PCILEND_MSG_EXPOSE: {
      const auto m = Body<pcilend_msg_expose>(slot);
      Demand(m.on <= 1 && m.node != 0 && m.node <= PCILEND_NODE_MAX, "exposed to a node");
      break;
    }
    case PCILEND_MSG_EXPOSED: {
      const auto m = Body<pcilend_msg_exposed>(slot);
      Demand(m.on <= 1 && m.borrower != 0 && m.borrower <= PCILEND_NODE_MAX, "for a node");
      for (const auto& bar : m.bar) {
        if (m.on == 0 || bar.size == 0) continue;
        Demand((bar.offset | bar.size) % PCILEND_PAGE == 0 && bar.shift == 0, "whole pages");
        Demand(bar.offset + bar.size > bar.offset && bar.window < PCILEND_WIRE_WINDOWS, "place");
      }
      break;
    }
    case PCILEND_MSG_UNREACHED:
      Demand(pcilend_id_valid(Body<pcilend_msg_unreached>(slot).target), "a valid target");
      break;
    case PCILEND_MSG_POLICY: {
      const auto m = Body<pcilend_msg_policy>(slot);
      Demand(m.clients <= 64 && m.vectors <= 32 && m.near_bytes % PCILEND_PAGE == 0, "policy");
      for (const auto& range : m.range) Demand(range.pages == 0 || range.bar <= 5, "a BAR");
      break;
    }
    case PCILEND_MSG_JOIN: {
      if (answer) {
        const auto m = Body<pcilend_msg_joined>(slot);
        Demand(m.slice >= 1ULL << 36 && m.slice >> 62 == 0, "a slice");
        Demand(m.alias != 0 && m.alias <= 0xfe000000 && m.alias % 0x100000 == 0, "an alias");
        break;
      }
      const auto m = Body<pcilend_msg_join>(slot);
      Demand(m.slice_offset + m.slice_bytes > m.slice_offset, "a slice that does not wrap");
      Demand((m.slice_bytes & (m.slice_bytes - 1)) == 0 && m.slice_bytes >= PCILEND_PAGE, "size");
      Demand(m.slice_window < PCILEND_WIRE_WINDOWS && m.vectors <= 32, "window, vectors");
      return;
    }
    case PCILEND_MSG_CLIENT: {
      const auto m = Body<pcilend_msg_client>(slot);
      Demand(m.client != 0 && m.node != 0 && m.node <= PCILEND_NODE_MAX, "a client");
      Demand(m.slice % m.slice_bytes == 0 && m.slice >> 62 == 0 && m.piece < 64, "its slice");
      break;
    }
    case PCILEND_MSG_CLIENT_GONE:
    case PCILEND_MSG_QUARANTINE:
    case PCILEND_MSG_CLEARED: {
      const auto m = Body<pcilend_msg_clear>(slot);
      Demand(m.client != 0 && m.round != 0, "which client, which round");
      break;
    }
    case PCILEND_MSG_CONFIG_READ:
    case PCILEND_MSG_CONFIG_WRITE: {
      const auto m = Body<pcilend_msg_config>(slot);
      Demand(m.length != 0 && m.length <= sizeof(m.data), "data fits");
      Demand(m.offset + m.length <= 4096, "inside config space");
      break;
    }
    default:
      break;
  }
  Demand(id_and_lease[1] != 0, "a lease, a connection or an offer");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const u8* data, size_t size) {
  u8 slot[PCILEND_SLOT_BYTES] = {};
  std::memcpy(slot, data, size < sizeof(slot) ? size : sizeof(slot));
  pcilend_msg_header header;
  std::memcpy(&header, slot, sizeof(header));

  const char* why = nullptr;
  // Boot id and sequence as expected in most runs, so that the rest is reached.
  const u64 boot = size % 16 == 15 ? 1 : header.boot;
  const u32 sequence = size % 16 == 14 ? 1 : header.sequence;
  const int error = pcilend_wire_check(slot, boot, sequence, &why);
  if (error != 0) {
    Demand(error == -EPROTO && why != nullptr, "a refusal says why");
    return 0;
  }
  const bool answer = (header.flags & PCILEND_MSG_FLAG_ANSWER) != 0;
  Demand(why == nullptr, "no reason without a refusal");
  Demand(header.boot == boot && header.sequence == sequence, "boot id and sequence");
  Demand(header.length == pcilend_wire_length(header.type, answer), "length");
  Demand(header.length <= PCILEND_PAYLOAD_BYTES, "fits in its slot");
  Demand(std::strcmp(pcilend_msg_name(header.type), "unknown") != 0, "known type");
  Demand(std::strcmp(pcilend_status_name(header.status), "unknown") != 0, "known status");
  const bool polled =
      !answer && (header.type == PCILEND_MSG_BUS_MASTER || header.type == PCILEND_MSG_CONFIG_WRITE);
  Demand(polled == (pcilend_wire_check_polled(slot, boot, sequence, &why) == 0), "what is polled");
  if (header.status == PCILEND_STATUS_OK && header.length != 0) {
    DemandPayload(header.type, answer, slot);
  }
  return 0;
}
