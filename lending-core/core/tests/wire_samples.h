// SPDX-License-Identifier: GPL-2.0-or-later
// One well-formed message of each kind, for tests and as seeds of the fuzzer.
#pragma once

#include <linux/pcilend.h>

#include <array>
#include <cstring>
#include <vector>

#include "pcilend/identity.h"
#include "pcilend/wire.h"

namespace samples {

constexpr __u64 kBoot = 0x1122334455667788;
constexpr __u32 kSequence = 7;
constexpr __u32 kRequest = 99;

using Slot = std::array<u8, PCILEND_SLOT_BYTES>;

struct Sample {
  u16 type;
  bool answer;
  Slot slot;
};

inline pcilend_msg_function Function() {
  pcilend_msg_function function = {};
  function.id = 0x40001;
  pcilend_identity identity = {};
  identity.vendor = 0x1b36;
  identity.device = 0x0010;
  identity.lender = 4;
  pcilend_uuid_make(function.uuid, &identity);
  function.vendor = 0x1b36;
  function.device = 0x0010;
  function.class_revision = 0x01080202;
  function.state = PCILEND_FUNCTION_AVAILABLE;
  function.flags = PCILEND_FUNCTION_DIRECT;
  function.bus = 0;
  function.devfn = 0x28;
  function.bar[0] = {0x4000, PCILEND_BAR_MEM64 | PCILEND_BAR_PREFETCH};
  function.bar[2] = {0x100, 0};
  function.bar[3] = {0x20, PCILEND_BAR_IO};
  function.bar[6] = {0x10000, 0};
  std::memcpy(function.label, "rack 4", 6);
  function.reserved_node = 8;
  function.set = 15;
  return function;
}

inline pcilend_msg_borrowed Borrowed() {
  pcilend_msg_borrowed borrowed = {};
  borrowed.id = 0x40001;
  borrowed.lease = 3;
  borrowed.bar[0] = {0x10000, 0x4000, 1, 0};
  borrowed.bar[2] = {0x20000, 0x100, 1, 0x400};
  borrowed.bar[6] = {0x30000, 0x10000, 1, 0};
  borrowed.dma_address = 0x4000000000;
  borrowed.interrupt_address = 0x40fee00000;
  return borrowed;
}

inline pcilend_msg_exposed Exposed() {
  pcilend_msg_exposed exposed = {};
  exposed.id = 0x40001;
  exposed.lease = 3;
  exposed.borrower = 8;
  exposed.on = 1;
  exposed.bar[0] = {0x10000, 0x4000, 1, 0};
  exposed.bar[2] = {0x20000, 0x1000, 1, 0};
  return exposed;
}

inline pcilend_msg_policy Policy() {
  pcilend_msg_policy policy = {};
  policy.id = 0x40001;
  policy.lease = 3;
  policy.clients = 30;
  policy.vectors = 4;
  policy.slice_bytes = 1 << 26;
  policy.near_bytes = 1 << 20;
  policy.range[0] = {0, 0, 0, 1, 1};
  policy.range[1] = {2, 1, 0, 0, 16};
  return policy;
}

inline pcilend_msg_joined Joined() {
  pcilend_msg_joined joined = {};
  joined.id = 0x40001;
  joined.lease = 4;
  joined.slice = 1ULL << 36;
  joined.alias = 0xfdf00000;
  joined.range[0] = {0x11000, 1, 1, 0, 0, {}};
  joined.range[1] = {0x40000, 16, 1, 32, 2, {}};
  joined.piece = 2;
  return joined;
}

inline pcilend_msg_config Config() {
  pcilend_msg_config config = {};
  config.id = 0x40001;
  config.lease = 3;
  config.offset = 0x40;
  config.length = 4;
  return config;
}

inline pcilend_msg_hello Hello() {
  pcilend_msg_hello hello = {};
  hello.version = PCILEND_WIRE_VERSION;
  hello.lease_ms = PCILEND_LEASE_MS_DEFAULT;
  hello.interrupt_offset = 0xfee00000;
  hello.hole = 0x80000000;
  hello.dma_limit = 0x80000000;
  hello.windows = 2;
  hello.window[0] = 0x1000000000;
  hello.window[1] = 0x400000000;
  return hello;
}

template <typename Payload>
Sample Make(u16 type, bool answer, const Payload& payload) {
  Sample sample = {type, answer, {}};
  const u16 first_request = PCILEND_MSG_BORROW;
  void* body = pcilend_wire_begin(sample.slot.data(), type, answer, PCILEND_STATUS_OK,
                                  type >= first_request ? kRequest : 0, kSequence, kBoot);
  std::memcpy(body, &payload, sizeof(payload));
  return sample;
}

inline Sample MakeEmpty(u16 type, bool answer) {
  Sample sample = {type, answer, {}};
  pcilend_wire_begin(sample.slot.data(), type, answer, PCILEND_STATUS_OK, kRequest, kSequence,
                     kBoot);
  return sample;
}

inline std::vector<Sample> All() {
  const pcilend_msg_lease lease = {0x40001, 3, 0};
  const pcilend_msg_reach reach = {0x40001, 3, 0x40002, 4, 0x1000000000, 2, 1, 0};
  const pcilend_msg_map map = {0x40001, 3, 0x100000000, 0x200000000, 0x40000000, 0, 0};
  return {
      Make(PCILEND_MSG_FUNCTION, false, Function()),
      Make(PCILEND_MSG_WITHDRAW, false, pcilend_msg_id{0x40001}),
      Make(PCILEND_MSG_LOST, false, pcilend_msg_lease{0x40001, 3, PCILEND_LOST_EXPIRED}),
      Make(PCILEND_MSG_CONNECTED, false, pcilend_msg_connected{1}),
      Make(PCILEND_MSG_RECALL, false, pcilend_msg_recall{0x40001, 3, 30000}),
      Make(PCILEND_MSG_WAS_RESET, false, lease),
      Make(PCILEND_MSG_INTX_RAISED, false, lease),
      Make(PCILEND_MSG_BORROW, false,
           pcilend_msg_borrow{0x40001, PCILEND_LEASE_MS_DEFAULT, {}, 0xfe000000, 0x1000, 1, 0}),
      Make(PCILEND_MSG_BORROW, true, Borrowed()),
      Make(PCILEND_MSG_RETURN, false, lease),
      MakeEmpty(PCILEND_MSG_RETURN, true),
      Make(PCILEND_MSG_MAP, false, map),
      MakeEmpty(PCILEND_MSG_MAP, true),
      Make(PCILEND_MSG_UNMAP, false, map),
      MakeEmpty(PCILEND_MSG_UNMAP, true),
      Make(PCILEND_MSG_BUS_MASTER, false, pcilend_msg_bus_master{0x40001, 3, 1}),
      MakeEmpty(PCILEND_MSG_BUS_MASTER, true),
      Make(PCILEND_MSG_RESET, false, lease),
      MakeEmpty(PCILEND_MSG_RESET, true),
      Make(PCILEND_MSG_CONFIG_READ, false, Config()),
      Make(PCILEND_MSG_CONFIG_READ, true, Config()),
      Make(PCILEND_MSG_CONFIG_WRITE, false, Config()),
      MakeEmpty(PCILEND_MSG_CONFIG_WRITE, true),
      MakeEmpty(PCILEND_MSG_SYNC, false),
      MakeEmpty(PCILEND_MSG_SYNC, true),
      Make(PCILEND_MSG_HELLO, false, Hello()),
      MakeEmpty(PCILEND_MSG_HELLO, true),
      Make(PCILEND_MSG_RESERVE, false, pcilend_msg_reserve{0x40001, 8, {}, 60000}),
      MakeEmpty(PCILEND_MSG_RESERVE, true),
      Make(PCILEND_MSG_VOUCH, false, pcilend_msg_vouch{kBoot + 1, kBoot + 2}),
      MakeEmpty(PCILEND_MSG_VOUCH, true),
      Make(PCILEND_MSG_INTX, false, pcilend_msg_intx{0x40001, 3, PCILEND_INTX_OPEN}),
      MakeEmpty(PCILEND_MSG_INTX, true),
      Make(PCILEND_MSG_REACH, false, reach),
      MakeEmpty(PCILEND_MSG_REACH, true),
      Make(PCILEND_MSG_EXPOSE, false, pcilend_msg_expose{0x40001, 3, 8, 1}),
      MakeEmpty(PCILEND_MSG_EXPOSE, true),
      Make(PCILEND_MSG_EXPOSED, false, Exposed()),
      MakeEmpty(PCILEND_MSG_EXPOSED, true),
      Make(PCILEND_MSG_UNREACHED, false, pcilend_msg_unreached{0x40001, 3, 0x80001}),
      Make(PCILEND_MSG_CLIENT, false,
           pcilend_msg_client{0x40001, 3, 4, 8, 1ULL << 36, 1 << 26, 0xfe000000, 4, 63}),
      Make(PCILEND_MSG_CLIENT_GONE, false, pcilend_msg_clear{0x40001, 3, 4, 1}),
      Make(PCILEND_MSG_QUARANTINE, false, pcilend_msg_clear{0x40001, 3, 4, 2}),
      Make(PCILEND_MSG_READMITTED, false, pcilend_msg_lease{0x40001, 4, 0}),
      Make(PCILEND_MSG_POLICY, false, Policy()),
      MakeEmpty(PCILEND_MSG_POLICY, true),
      Make(PCILEND_MSG_JOIN, false,
           pcilend_msg_join{0x40001, PCILEND_LEASE_MS_DEFAULT, 1 << 26, 0x200000000, 0, 4, 4096}),
      Make(PCILEND_MSG_JOIN, true, Joined()),
      Make(PCILEND_MSG_CLEARED, false, pcilend_msg_clear{0x40001, 3, 4, 1}),
      MakeEmpty(PCILEND_MSG_CLEARED, true),
      Make(PCILEND_MSG_MAIL, false, pcilend_msg_mail{0x40001, 4, 1, 5, {'q', 'u', 'e', 'u', 'e'}}),
      MakeEmpty(PCILEND_MSG_MAIL, true),
      Make(PCILEND_MSG_MAILED, false, pcilend_msg_mail{0x40001, 4, 1, 2, {'o', 'k'}}),
      Make(PCILEND_MSG_VECTOR, false, pcilend_msg_vector{0x40001, 4, 31, 1, 0x318, 0x4022}),
      MakeEmpty(PCILEND_MSG_VECTOR, true),
      Make(PCILEND_MSG_MSI, false, pcilend_msg_msi{0x40001, 3, 0, 4, 1}),
      Make(PCILEND_MSG_MSI, true, pcilend_msg_msi_message{0x40001, 3, 0xfee00318, 0, 0}),
      Make(PCILEND_MSG_MSI_RAISED, false, pcilend_msg_msi_raised{0x40001, 3, 5}),
      MakeEmpty(PCILEND_MSG_MSI_RAISED, true),
      Make(PCILEND_MSG_TARGET, false,
           pcilend_msg_target{0x40001, 3, 0xc0001, PCILEND_TARGET_ON | PCILEND_TARGET_READ_ONLY,
                              0x2000000000, 0x4000000}),
      MakeEmpty(PCILEND_MSG_TARGET, true),
      Make(PCILEND_MSG_NEAR, false, pcilend_msg_near{0x40001, 3, 0x10000}),
      Make(PCILEND_MSG_NEAR, true, pcilend_msg_id{0x40002}),
      Make(PCILEND_MSG_SEGMENT_CONNECT, false, pcilend_msg_connection{0x40001, 3, 8}),
      Make(PCILEND_MSG_SEGMENT_CONNECT, true,
           pcilend_msg_segment{0x40001, 5, 0x200000000, 0x4000000, 0,
                               PCILEND_SEGMENT_READ_ONLY | PCILEND_SEGMENT_NOTIFIES, 0x318, 1}),
      Make(PCILEND_MSG_SEGMENT_RELEASE, false, pcilend_msg_connection{0x40001, 3, 0}),
      MakeEmpty(PCILEND_MSG_SEGMENT_RELEASE, true),
      Make(PCILEND_MSG_SEGMENT_WITHDRAW, false, pcilend_msg_withdraw{0x40001, 5}),
      MakeEmpty(PCILEND_MSG_SEGMENT_WITHDRAW, true),
      Make(PCILEND_MSG_SEGMENT_NEXT, false, pcilend_msg_after{0x40001}),
      Make(PCILEND_MSG_SEGMENT_NEXT, true,
           pcilend_msg_offered{0x40002, PCILEND_SEGMENT_READ_ONLY, 0x4000000, "results"}),
  };
}

}  // namespace samples
