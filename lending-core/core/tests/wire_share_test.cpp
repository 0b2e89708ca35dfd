// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/wire_share.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "pcilend/share.h"
#include "wire_samples.h"

namespace {

template <typename Payload>
std::string Changed(u16 type, bool answer, const std::function<void(Payload&)>& change) {
  for (const samples::Sample& sample : samples::All()) {
    if (sample.type != type || sample.answer != answer) continue;
    samples::Slot slot = sample.slot;
    change(*reinterpret_cast<Payload*>(slot.data() + sizeof(pcilend_msg_header)));
    const char* why = "";
    const int error = pcilend_wire_check(slot.data(), samples::kBoot, samples::kSequence, &why);
    return error == 0 ? "" : why;
  }
  return "no sample";
}

TEST(WireShare, LayoutIsFixed) {
  EXPECT_EQ(offsetof(pcilend_msg_policy, range), 32u);
  EXPECT_EQ(offsetof(pcilend_msg_join, slice_offset), 16u);
  EXPECT_EQ(offsetof(pcilend_msg_joined, range), 24u);
  EXPECT_EQ(offsetof(pcilend_msg_client, slice), 16u);
  EXPECT_EQ(offsetof(pcilend_msg_clear, round), 12u);
}

TEST(WireShare, Policy) {
  const auto check = [](const std::function<void(pcilend_msg_policy&)>& change) {
    return Changed<pcilend_msg_policy>(PCILEND_MSG_POLICY, false, change);
  };
  EXPECT_EQ(check([](auto& m) { m.clients = 64; }), "");
  EXPECT_EQ(check([](auto& m) { m.clients = 65; }), "too many clients");
  EXPECT_EQ(check([](auto& m) { m.vectors = 33; }), "too many vectors");
  EXPECT_EQ(check([](auto& m) { m.slice_bytes = 0; }), "a slice of an impossible size");
  EXPECT_EQ(check([](auto& m) { m.slice_bytes = 0x3000; }), "a slice of an impossible size");
  EXPECT_EQ(check([](auto& m) { m.slice_bytes = 1ULL << 37; }), "a slice of an impossible size");
  EXPECT_EQ(check([](auto& m) { m.clients = m.slice_bytes = 0; }), "") << "uses it alone";
  EXPECT_EQ(check([](auto& m) { m.near_bytes = 1; }), "near memory is not whole pages");
  EXPECT_EQ(check([](auto& m) { m.range[7].reserved = 1; }), "reserved bytes set");
  EXPECT_EQ(check([](auto& m) { m.range[0].bar = 6; }), "pages of no BAR");
  EXPECT_EQ(check([](auto& m) { m.range[1].kind = 2; }), "pages of no BAR");
  EXPECT_EQ(check([](auto& m) { m.range[2].bar = 6; }), "") << "no pages";
  EXPECT_EQ(check([](auto& m) { m.lease = 0; }), "lease number 0");
  EXPECT_EQ(check([](auto& m) { m.id = 1; }), "function id without node or index");
}

TEST(WireShare, Join) {
  const auto check = [](const std::function<void(pcilend_msg_join&)>& change) {
    return Changed<pcilend_msg_join>(PCILEND_MSG_JOIN, false, change);
  };
  EXPECT_EQ(check([](auto& m) { m.lease_ms = 1999; }), "lease time out of range");
  EXPECT_EQ(check([](auto& m) { m.lease_ms = 3600001; }), "lease time out of range");
  EXPECT_EQ(check([](auto& m) { m.vectors = 33; }), "too many vectors");
  EXPECT_EQ(check([](auto& m) { m.slice_bytes = 0x1001; }), "a slice of an impossible size");
  EXPECT_EQ(check([](auto& m) { m.slice_bytes = 1ULL << 63; }), "a slice of an impossible size");
  EXPECT_EQ(check([](auto& m) { m.slice_window = 16; }), "impossible window");
  EXPECT_EQ(check([](auto& m) { m.slice_offset = 1; }), "a slice at an impossible offset");
  EXPECT_EQ(check([](auto& m) { m.slice_offset = ~0xfffULL; }), "a slice at an impossible offset");
  EXPECT_EQ(check([](auto& m) { m.near_bytes = 8; }), "near memory is not whole pages");
  EXPECT_EQ(check([](auto& m) { m.id = 0; }), "function id without node or index");
}

TEST(WireShare, JoinAnswer) {
  const auto check = [](const std::function<void(pcilend_msg_joined&)>& change) {
    return Changed<pcilend_msg_joined>(PCILEND_MSG_JOIN, true, change);
  };
  const char* slice = "a slice at an impossible address";
  const char* alias = "an interrupt alias at an impossible address";
  EXPECT_EQ(check([](auto& m) { m.slice = 1ULL << 35; }), slice);
  EXPECT_EQ(check([](auto& m) { m.slice = 1ULL << 62; }), slice);
  EXPECT_EQ(check([](auto& m) { m.slice += 1; }), slice);
  EXPECT_EQ(check([](auto& m) { m.alias = 0xfee00000; }), alias);
  EXPECT_EQ(check([](auto& m) { m.alias = 0xfdf80000; }), alias);
  EXPECT_EQ(check([](auto& m) { m.alias = 0; }), alias);
  EXPECT_EQ(check([](auto& m) { m.range[0].window = 16; }), "impossible window");
  EXPECT_EQ(check([](auto& m) { m.range[0].offset = 8; }), "BAR pages at an impossible offset");
  EXPECT_EQ(check([](auto& m) { m.range[1].offset = ~0xfffULL; }),
            "BAR pages at an impossible offset");
  EXPECT_EQ(check([](auto& m) { m.range[1].bar = 6; }), "pages of no BAR");
  EXPECT_EQ(check([](auto& m) { m.range[7].window = 99; }), "") << "no pages";
  EXPECT_EQ(check([](auto& m) { m.piece = 64; }), "too many clients");
  EXPECT_EQ(check([](auto& m) { m.vector = 2049; }), "too many vectors");
  EXPECT_EQ(check([](auto& m) { m.lease = 0; }), "lease number 0");
}

TEST(WireShare, Mail) {
  for (const u16 type : {PCILEND_MSG_MAIL, PCILEND_MSG_MAILED}) {
    const auto check = [type](const std::function<void(pcilend_msg_mail&)>& change) {
      return Changed<pcilend_msg_mail>(type, false, change);
    };
    EXPECT_EQ(check([](auto& m) { m.number = 0; }), "mail without a number");
    EXPECT_EQ(check([](auto& m) { m.bytes = 0; }), "mail of an impossible size");
    EXPECT_EQ(check([](auto& m) { m.bytes = 200; }), "");
    EXPECT_EQ(check([](auto& m) { m.bytes = 201; }), "mail of an impossible size");
    EXPECT_EQ(check([](auto& m) { m.bytes = ~0u; }), "mail of an impossible size");
    EXPECT_EQ(check([](auto& m) { m.text[199] = 1; }), "reserved bytes set");
    EXPECT_EQ(check([](auto& m) { m.lease = 0; }), "lease number 0");
    EXPECT_EQ(check([](auto& m) { m.id = 0; }), "function id without node or index");
  }
}

TEST(WireShare, InterruptsOfAClient) {
  const auto check = [](const std::function<void(pcilend_msg_vector&)>& change) {
    return Changed<pcilend_msg_vector>(PCILEND_MSG_VECTOR, false, change);
  };
  const char* outside = "an interrupt outside the interrupt range";
  EXPECT_EQ(check([](auto& m) { m.on = 0; }), "");
  EXPECT_EQ(check([](auto& m) { m.on = 2; }), "neither on nor off");
  EXPECT_EQ(check([](auto& m) { m.vector = 32; }), "too many vectors");
  EXPECT_EQ(check([](auto& m) { m.offset = 0xffffc; }), "");
  EXPECT_EQ(check([](auto& m) { m.offset = 0x100000; }), outside);
  EXPECT_EQ(check([](auto& m) { m.offset = 2; }), outside);
  EXPECT_EQ(check([](auto& m) { m.lease = 0; }), "lease number 0");
  EXPECT_EQ(check([](auto& m) { m.id = 0; }), "function id without node or index");
}

TEST(WireShare, NoticesToTheManager) {
  const auto check = [](const std::function<void(pcilend_msg_client&)>& change) {
    return Changed<pcilend_msg_client>(PCILEND_MSG_CLIENT, false, change);
  };
  EXPECT_EQ(check([](auto& m) { m.client = 0; }), "lease number 0");
  EXPECT_EQ(check([](auto& m) { m.node = 0; }), "a client that is not a node id");
  EXPECT_EQ(check([](auto& m) { m.node = 65536; }), "a client that is not a node id");
  EXPECT_EQ(check([](auto& m) { m.slice_bytes = 5; }), "a slice of an impossible size");
  EXPECT_EQ(check([](auto& m) { m.slice += 4096; }), "a slice that is not aligned to its size");
  EXPECT_EQ(check([](auto& m) { m.vectors = 33; }), "too many vectors");
  EXPECT_EQ(check([](auto& m) { m.piece = 64; }), "too many clients");
  EXPECT_EQ(check([](auto& m) { m.alias = 0xfee00000; }),
            "an interrupt alias at an impossible address");
  EXPECT_EQ(check([](auto& m) { m.id = 5; }), "function id without node or index");
}

TEST(WireShare, QueuesOfAClient) {
  for (const u16 type : {PCILEND_MSG_CLIENT_GONE, PCILEND_MSG_QUARANTINE, PCILEND_MSG_CLEARED}) {
    const auto check = [type](const std::function<void(pcilend_msg_clear&)>& change) {
      return Changed<pcilend_msg_clear>(type, false, change);
    };
    EXPECT_EQ(check([](auto& m) { m.client = 0; }), "lease number 0");
    EXPECT_EQ(check([](auto& m) { m.lease = 0; }), "lease number 0");
    EXPECT_EQ(check([](auto& m) { m.round = 0; }), "round 0");
    EXPECT_EQ(check([](auto& m) { m.id = 0; }), "function id without node or index");
  }
  const auto readmitted = [](u32 reason) {
    return Changed<pcilend_msg_lease>(PCILEND_MSG_READMITTED, false,
                                      [reason](auto& m) { m.reason = reason; });
  };
  EXPECT_EQ(readmitted(PCILEND_READMITTED_AGAIN), "");
  EXPECT_EQ(readmitted(2), "reserved bytes set");
}

}  // namespace
