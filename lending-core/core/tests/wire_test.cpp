// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/wire.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "wire_samples.h"

namespace {

using samples::Slot;

constexpr u64 kBoot = samples::kBoot;
constexpr u32 kSequence = samples::kSequence;

std::string Check(const Slot& slot) {
  const char* why = nullptr;
  const int error = pcilend_wire_check(slot.data(), kBoot, kSequence, &why);
  if (error == 0) {
    EXPECT_EQ(why, nullptr);
    return "";
  }
  EXPECT_EQ(error, -EPROTO);
  return why;
}

pcilend_msg_header& Header(Slot& slot) {
  return *reinterpret_cast<pcilend_msg_header*>(slot.data());
}

template <typename Payload>
Payload& Body(Slot& slot) {
  return *reinterpret_cast<Payload*>(slot.data() + sizeof(pcilend_msg_header));
}

// What the other side, maybe another version of us, relies on.
TEST(Wire, LayoutIsFixed) {
  EXPECT_EQ(offsetof(pcilend_wire_area, boot), 8u);
  EXPECT_EQ(offsetof(pcilend_wire_area, node), 16u);
  EXPECT_EQ(offsetof(pcilend_wire_area, heartbeat), 64u);
  EXPECT_EQ(offsetof(pcilend_wire_area, head), 72u);
  EXPECT_EQ(offsetof(pcilend_wire_area, tail), 76u);
  EXPECT_EQ(offsetof(pcilend_wire_area, writer_boot), 80u);
  EXPECT_EQ(offsetof(pcilend_wire_area, reader_boot), 352u);
  EXPECT_EQ(offsetof(pcilend_wire_area, polled), 360u);
  EXPECT_EQ(offsetof(pcilend_wire_area, polled_answer), 368u);
  EXPECT_EQ(offsetof(pcilend_wire_area, polled_slot), 376u);
  EXPECT_EQ(offsetof(pcilend_wire_area, slots), 1024u);
  EXPECT_EQ(offsetof(pcilend_msg_header, request), 8u);
  EXPECT_EQ(offsetof(pcilend_msg_header, boot), 16u);
  EXPECT_EQ(sizeof(pcilend_msg_lease), 12u);
  EXPECT_EQ(sizeof(pcilend_msg_borrow), 48u);
  EXPECT_EQ(offsetof(pcilend_msg_function, flags), 33u);
  EXPECT_EQ(sizeof(pcilend_msg_map), 40u);
  EXPECT_EQ(sizeof(pcilend_msg_reach), 40u);
  EXPECT_EQ(sizeof(pcilend_msg_placement), 24u);
  EXPECT_EQ(offsetof(pcilend_msg_config, data), 12u);
  EXPECT_EQ(PCILEND_RING_SLOTS & (PCILEND_RING_SLOTS - 1), 0) << "head and tail wrap at 2^32";
}

TEST(Wire, HeaderBytesAreLittleEndian) {
  Slot slot;
  slot.fill(0xee);
  void* body = pcilend_wire_begin(slot.data(), PCILEND_MSG_CONFIG_READ, 1, PCILEND_STATUS_RANGE,
                                  0x01020304, 0x05060708, 0x1112131415161718);
  EXPECT_EQ(body, slot.data() + 24);
  const std::vector<u8> expected = {22, 0, 1, 0, 6,    0,    204,  0,    4,    3,    2,    1,
                                    8,  7, 6, 5, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11};
  EXPECT_EQ(std::vector<u8>(slot.begin(), slot.begin() + 24), expected);
  EXPECT_EQ(std::set<u8>(slot.begin() + 24, slot.end()), std::set<u8>{0});
}

TEST(Wire, SamplesPass) {
  std::set<u16> types;
  for (const samples::Sample& sample : samples::All()) {
    EXPECT_EQ(Check(sample.slot), "") << pcilend_msg_name(sample.type) << sample.answer;
    types.insert(sample.type);
  }
  EXPECT_EQ(types.size(), 42u) << "a sample of each type";
}

TEST(Wire, LengthFitsASlot) {
  for (u32 type = 0; type <= 0xffff; ++type) {
    for (const int answer : {0, 1}) {
      const int length = pcilend_wire_length(static_cast<u16>(type), answer);
      EXPECT_LE(length, PCILEND_PAYLOAD_BYTES);
      const bool notice = (type >= 1 && type <= 8) || (type >= 11 && type <= 15);
      const bool known = (notice && answer == 0) || (type >= 16 && type <= 35) ||
                         (type >= 40 && type <= 43) || (type >= 48 && type <= 52);
      EXPECT_EQ(length == -EPROTO, !known) << type;
    }
  }
  EXPECT_EQ(pcilend_wire_length(PCILEND_MSG_BORROW, 0), 48);
  EXPECT_EQ(pcilend_wire_length(PCILEND_MSG_BORROW, 1), 200);
  EXPECT_EQ(pcilend_wire_length(PCILEND_MSG_MSI, 1), 24);
  EXPECT_EQ(pcilend_wire_length(PCILEND_MSG_SYNC, 0), 0);
}

TEST(Wire, BadHeadersOfEveryMessage) {
  struct Fault {
    const char* why;
    std::function<void(pcilend_msg_header&)> make;
  };
  const std::vector<Fault> faults = {
      {"unknown type", [](auto& h) { h.type = 0; }},
      {"unknown type", [](auto& h) { h.type = 9; }},
      {"unknown type", [](auto& h) { h.type = 36; }},
      {"unknown flags", [](auto& h) { h.flags = h.flags | 2; }},
      {"boot id of somebody else", [](auto& h) { h.boot = h.boot + 1; }},
      {"out of sequence", [](auto& h) { h.sequence = h.sequence + 1; }},
      {"out of sequence", [](auto& h) { h.sequence = h.sequence - 1; }},
      {"wrong length", [](auto& h) { h.length = h.length + 1; }},
      {"wrong length", [](auto& h) { h.length = h.length - 1; }},
      {"wrong length", [](auto& h) { h.length = 0xffff; }},
  };
  for (const samples::Sample& sample : samples::All()) {
    for (const Fault& fault : faults) {
      Slot slot = sample.slot;
      fault.make(Header(slot));
      EXPECT_EQ(Check(slot), fault.why) << pcilend_msg_name(sample.type);
    }
    Slot slot = sample.slot;
    Header(slot).status = PCILEND_STATUS_BUSY;
    EXPECT_EQ(Check(slot), sample.answer ? "" : "status outside an answer");
    Header(slot).status = 20;
    EXPECT_EQ(Check(slot), sample.answer ? "unknown status" : "status outside an answer");
    slot = sample.slot;
    Header(slot).request = Header(slot).request == 0 ? 1 : 0;
    EXPECT_EQ(Check(slot), sample.type < PCILEND_MSG_BORROW ? "notice with a request number"
                                                            : "request number 0");
    if (sample.type < PCILEND_MSG_BORROW) {
      slot = sample.slot;
      Header(slot).flags = PCILEND_MSG_FLAG_ANSWER;
      EXPECT_EQ(Check(slot), "answer to a notice");
    }
  }
}

TEST(Wire, RefusedAnswersMayBeEmpty) {
  Slot slot;
  pcilend_wire_begin(slot.data(), PCILEND_MSG_BORROW, 1, PCILEND_STATUS_BUSY, 1, kSequence, kBoot);
  EXPECT_EQ(Check(slot), "");
  pcilend_wire_begin(slot.data(), PCILEND_MSG_BORROW, 1, PCILEND_STATUS_OK, 1, kSequence, kBoot);
  EXPECT_EQ(Check(slot), "lease number 0");
}

TEST(Wire, WhyIsOptional) {
  Slot slot = {};
  EXPECT_EQ(pcilend_wire_check(slot.data(), kBoot, kSequence, nullptr), -EPROTO);
}

Slot SampleOf(u16 type, bool answer = false) {
  for (const samples::Sample& sample : samples::All()) {
    if (sample.type == type && sample.answer == answer) return sample.slot;
  }
  ADD_FAILURE() << "no sample of type " << type;
  return {};
}

template <typename Payload>
std::string CheckChanged(u16 type, bool answer, const std::function<void(Payload&)>& change) {
  Slot slot = SampleOf(type, answer);
  change(Body<Payload>(slot));
  return Check(slot);
}

TEST(Wire, FunctionNotice) {
  const auto check = [](const std::function<void(pcilend_msg_function&)>& change) {
    return CheckChanged<pcilend_msg_function>(PCILEND_MSG_FUNCTION, false, change);
  };
  EXPECT_EQ(check([](auto& f) { f.id = 0x40000; }), "id without node or index");
  EXPECT_EQ(check([](auto& f) { f.id = 1; }), "id without node or index");
  EXPECT_EQ(check([](auto& f) { f.state = PCILEND_FUNCTION_LOCAL; }), "unknown function state");
  EXPECT_EQ(check([](auto& f) { f.state = 7; }), "unknown function state");
  EXPECT_EQ(check([](auto& f) { f.reserved[1] = 1; }), "reserved bytes set");
  EXPECT_EQ(check([](auto& f) { f.flags = 0; }), "");
  EXPECT_EQ(check([](auto& f) { f.flags = 4; }), "reserved bytes set");
  EXPECT_EQ(check([](auto& f) { f.borrower = 65536; }), "borrower is not a node id");
  EXPECT_EQ(check([](auto& f) { f.uuid[0] = 0; }), "UUID is not one of a lent function");
  EXPECT_EQ(check([](auto& f) { f.bar[0].flags = 8; }), "unknown BAR flags");
  EXPECT_EQ(check([](auto& f) { f.bar[5].flags = 8; }), "unknown BAR flags");
  EXPECT_EQ(check([](auto& f) { f.bar[0].size = 0x5000; }), "BAR size is not a power of two");
  EXPECT_EQ(check([](auto& f) { f.bar[0].size = ~0ULL; }), "BAR size is not a power of two");
  EXPECT_EQ(check([](auto& f) { f.bar[0].size = 8; }), "BAR below 16 bytes");
  EXPECT_EQ(check([](auto& f) { f.bar[1].size = 0x1000; }), "64-bit BAR without its upper half");
  EXPECT_EQ(check([](auto& f) {
              f.bar[5] = {0x1000, PCILEND_BAR_MEM64};
            }),
            "64-bit BAR without its upper half");
  EXPECT_EQ(check([](auto& f) { f.bar[2].size = 0x100000000; }), "32-bit BAR above 2 GiB");
  EXPECT_EQ(check([](auto& f) { f.bar[2].size = 0x80000000; }), "");
  EXPECT_EQ(check([](auto& f) { f.bar[0].size = 1ULL << 63; }), "");
  EXPECT_EQ(check([](auto& f) { f.bar[3].size = 2; }), "impossible I/O BAR");
  EXPECT_EQ(check([](auto& f) { f.bar[3].size = 0x20000; }), "impossible I/O BAR");
  EXPECT_EQ(check([](auto& f) { f.bar[3].flags = PCILEND_BAR_IO | PCILEND_BAR_PREFETCH; }),
            "impossible I/O BAR");
  EXPECT_EQ(check([](auto& f) { f.bar[6] = {0x100, PCILEND_BAR_IO}; }), "impossible I/O BAR");
  EXPECT_EQ(check([](auto& f) { f.bar[6].size = 1024; }), "impossible expansion ROM");
  EXPECT_EQ(check([](auto& f) { f.bar[6].size = 0x2000000; }), "impossible expansion ROM");
  EXPECT_EQ(check([](auto& f) { f.bar[6].flags = PCILEND_BAR_PREFETCH; }),
            "impossible expansion ROM");
}

TEST(Wire, LabelsDoNothingToATerminal) {
  const auto check = [](const std::function<void(pcilend_msg_function&)>& change) {
    return CheckChanged<pcilend_msg_function>(PCILEND_MSG_FUNCTION, false, change);
  };
  const char* label = "label is not printable ASCII";
  EXPECT_EQ(check([](auto& f) { std::memset(f.label, 0, sizeof(f.label)); }), "");
  EXPECT_EQ(check([](auto& f) { std::memset(f.label, '~', sizeof(f.label) - 1); }), "");
  EXPECT_EQ(check([](auto& f) { std::memset(f.label, '~', sizeof(f.label)); }), label);
  EXPECT_EQ(check([](auto& f) { f.label[0] = '\033'; }), label);
  EXPECT_EQ(check([](auto& f) { f.label[1] = 0x7f; }), label);
  EXPECT_EQ(check([](auto& f) { f.label[1] = 0xc3; }), label);
  EXPECT_EQ(check([](auto& f) { f.label[1] = 0; }), label) << "something behind the end";
  EXPECT_EQ(check([](auto& f) { f.reserved_node = 65536; }), "reserved for what is not a node id");
}

TEST(Wire, Recall) {
  const auto check = [](const std::function<void(pcilend_msg_recall&)>& change) {
    return CheckChanged<pcilend_msg_recall>(PCILEND_MSG_RECALL, false, change);
  };
  EXPECT_EQ(check([](auto& m) { m.grace_ms = 0; }), "");
  EXPECT_EQ(check([](auto& m) { m.grace_ms = PCILEND_GRACE_MS_MAX + 1; }),
            "grace time out of range");
  EXPECT_EQ(check([](auto& m) { m.lease = 0; }), "lease number 0");
  EXPECT_EQ(check([](auto& m) { m.id = 0; }), "id without node or index");
}

TEST(Wire, Reserve) {
  const auto check = [](const std::function<void(pcilend_msg_reserve&)>& change) {
    return CheckChanged<pcilend_msg_reserve>(PCILEND_MSG_RESERVE, false, change);
  };
  const char* time = "reserved for an impossible time";
  EXPECT_EQ(check([](auto& m) { m.ttl_ms = 0; }), time);
  EXPECT_EQ(check([](auto& m) { m.ttl_ms = PCILEND_RESERVE_MS_MIN - 1; }), time);
  EXPECT_EQ(check([](auto& m) { m.ttl_ms = PCILEND_RESERVE_MS_MAX + 1; }), time);
  EXPECT_EQ(check([](auto& m) { m.node = 65536; }), "reserved for what is not a node id");
  EXPECT_EQ(check([](auto& m) { m.uuid[15] = 1; }), "reserved for two");
  EXPECT_EQ(check([](auto& m) { m.node = 0; }), "reserved for nobody");
  EXPECT_EQ(check([](auto& m) {
              m.node = 0;
              m.uuid[15] = 1;
            }),
            "");
  EXPECT_EQ(check([](auto& m) { m.node = m.ttl_ms = 0; }), "") << "ends it";
  EXPECT_EQ(check([](auto& m) { m.id = 0; }), "id without node or index");
}

TEST(Wire, SmallNotices) {
  EXPECT_EQ(CheckChanged<pcilend_msg_id>(PCILEND_MSG_WITHDRAW, false, [](auto& m) { m.id = 0; }),
            "id without node or index");
  EXPECT_EQ(CheckChanged<pcilend_msg_connected>(PCILEND_MSG_CONNECTED, false,
                                                [](auto& m) { m.connected = 2; }),
            "flag neither 0 nor 1");
  const auto lost = [](const std::function<void(pcilend_msg_lease&)>& change) {
    return CheckChanged<pcilend_msg_lease>(PCILEND_MSG_LOST, false, change);
  };
  EXPECT_EQ(lost([](auto& m) { m.reason = 0; }), "unknown reason of a lost lease");
  EXPECT_EQ(lost([](auto& m) { m.reason = 4; }), "unknown reason of a lost lease");
  EXPECT_EQ(lost([](auto& m) { m.lease = 0; }), "lease number 0");
  EXPECT_EQ(lost([](auto& m) { m.id = 5; }), "id without node or index");
}

TEST(Wire, LeaseRequests) {
  for (const u16 type :
       {PCILEND_MSG_WAS_RESET, PCILEND_MSG_INTX_RAISED, PCILEND_MSG_RETURN, PCILEND_MSG_RESET}) {
    const auto check = [type](const std::function<void(pcilend_msg_lease&)>& change) {
      return CheckChanged<pcilend_msg_lease>(type, false, change);
    };
    EXPECT_EQ(check([](auto& m) { m.lease = 0; }), "lease number 0");
    EXPECT_EQ(check([](auto& m) { m.id = 0; }), "id without node or index");
    EXPECT_EQ(check([](auto& m) { m.reason = 1; }), "reserved bytes set");
  }
  const auto master = [](const std::function<void(pcilend_msg_bus_master&)>& change) {
    return CheckChanged<pcilend_msg_bus_master>(PCILEND_MSG_BUS_MASTER, false, change);
  };
  EXPECT_EQ(master([](auto& m) { m.on = 2; }), "flag neither 0 nor 1");
  EXPECT_EQ(master([](auto& m) { m.on = 0; }), "");
  EXPECT_EQ(master([](auto& m) { m.lease = 0; }), "lease number 0");
}

TEST(Wire, Intx) {
  const auto check = [](const std::function<void(pcilend_msg_intx&)>& change) {
    return CheckChanged<pcilend_msg_intx>(PCILEND_MSG_INTX, false, change);
  };
  for (const u32 state : {PCILEND_INTX_OFF, PCILEND_INTX_MASKED, PCILEND_INTX_OPEN}) {
    EXPECT_EQ(check([state](auto& m) { m.state = state; }), "");
  }
  const char* unknown = "unknown state of a legacy interrupt";
  EXPECT_EQ(check([](auto& m) { m.state = PCILEND_INTX_OPEN + 1; }), unknown);
  EXPECT_EQ(check([](auto& m) { m.state = ~0u; }), unknown);
  EXPECT_EQ(check([](auto& m) { m.lease = 0; }), "lease number 0");
  EXPECT_EQ(check([](auto& m) { m.id = 0x40000; }), "id without node or index");
}

TEST(Wire, Msi) {
  const auto check = [](const std::function<void(pcilend_msg_msi&)>& change) {
    return CheckChanged<pcilend_msg_msi>(PCILEND_MSG_MSI, false, change);
  };
  const auto range = [&](u32 vector, u32 count) {
    return check([=](auto& m) {
      m.vector = vector;
      m.count = count;
    });
  };
  EXPECT_EQ(check([](auto& m) { m.on = 0; }), "");
  EXPECT_EQ(range(63, 1), "");
  EXPECT_EQ(range(0, 32), "");
  for (const u32 vector : {64u, ~0u}) EXPECT_EQ(range(vector, 1), "a vector that is not relayed");
  const char* number = "an impossible number of vectors";
  for (const u32 count : {0u, 3u, 33u, 64u, 0x80000000u}) EXPECT_EQ(range(0, count), number);
  EXPECT_EQ(range(2, 2), number);
  EXPECT_EQ(check([](auto& m) { m.on = 2; }), "flag neither 0 nor 1");
  EXPECT_EQ(check([](auto& m) { m.lease = 0; }), "lease number 0");
  EXPECT_EQ(check([](auto& m) { m.id = 0x40000; }), "id without node or index");

  const auto answer = [](const std::function<void(pcilend_msg_msi_message&)>& change) {
    return CheckChanged<pcilend_msg_msi_message>(PCILEND_MSG_MSI, true, change);
  };
  EXPECT_EQ(answer([](auto& m) { m.address = ~u64{3}; }), "") << "the function's lender knows";
  EXPECT_EQ(answer([](auto& m) { m.address = 0xfee00002; }),
            "interrupt message to an unaligned address");
  EXPECT_EQ(answer([](auto& m) { m.reserved = 1; }), "reserved bytes set");
  EXPECT_EQ(answer([](auto& m) { m.lease = 0; }), "lease number 0");

  const auto raised = [](const std::function<void(pcilend_msg_msi_raised&)>& change) {
    return CheckChanged<pcilend_msg_msi_raised>(PCILEND_MSG_MSI_RAISED, false, change);
  };
  EXPECT_EQ(raised([](auto& m) { m.vectors = ~u64{0}; }), "");
  EXPECT_EQ(raised([](auto& m) { m.vectors = 0; }), "no vector has raised an interrupt");
  EXPECT_EQ(raised([](auto& m) { m.lease = 0; }), "lease number 0");
  EXPECT_EQ(raised([](auto& m) { m.id = 5; }), "id without node or index");
}

TEST(Wire, Segments) {
  const auto place = [](const std::function<void(pcilend_msg_segment&)>& change) {
    return CheckChanged<pcilend_msg_segment>(PCILEND_MSG_SEGMENT_CONNECT, true, change);
  };
  const char* where = "segment at an impossible place";
  EXPECT_EQ(place([](auto& m) { m.flags = PCILEND_SEGMENT_NOTIFIES; }), "");
  EXPECT_EQ(place([](auto& m) { m.flags = 4; }), "reserved bytes set");
  const char* notified = "notified at an impossible place";
  const auto notify = [&](u32 flags, u32 offset, u32 data) {
    return place([=](auto& m) {
      m.flags = flags;
      m.notify_offset = offset;
      m.notify_data = data;
    });
  };
  EXPECT_EQ(notify(0, 0, 0), "");
  EXPECT_EQ(notify(PCILEND_SEGMENT_NOTIFIES, 0xffffc, ~0u), "");
  EXPECT_EQ(notify(0, 4, 0), notified);
  EXPECT_EQ(notify(0, 0, 1), notified);
  EXPECT_EQ(notify(PCILEND_SEGMENT_NOTIFIES, 2, 0), notified);
  EXPECT_EQ(notify(PCILEND_SEGMENT_NOTIFIES, 0x100000, 0), notified);
  EXPECT_EQ(place([](auto& m) { m.window = PCILEND_WIRE_WINDOWS - 1; }), "");
  EXPECT_EQ(place([](auto& m) { m.window = PCILEND_WIRE_WINDOWS; }), "impossible window");
  EXPECT_EQ(place([](auto& m) { m.size = 0; }), where);
  EXPECT_EQ(place([](auto& m) { m.size = 0x800; }), where);
  EXPECT_EQ(place([](auto& m) { m.offset = 0x800; }), where);
  EXPECT_EQ(place([](auto& m) { m.size = u64{1} << 40; }), "");
  EXPECT_EQ(place([](auto& m) { m.size = (u64{1} << 40) + PCILEND_PAGE; }), where);
  EXPECT_EQ(place([](auto& m) { m.offset = ~(PCILEND_PAGE - 1); }), where);
  EXPECT_EQ(place([](auto& m) { m.offer = 0; }), "offer number 0");
  EXPECT_EQ(place([](auto& m) { m.id = 5; }), "id without node or index");

  for (const u16 type : {PCILEND_MSG_SEGMENT_CONNECT, PCILEND_MSG_SEGMENT_RELEASE}) {
    const auto check = [=](const std::function<void(pcilend_msg_connection&)>& change) {
      return CheckChanged<pcilend_msg_connection>(type, false, change);
    };
    EXPECT_EQ(check([](auto& m) { m.connection = ~0u; }), "");
    EXPECT_EQ(check([](auto& m) { m.connection = 0; }), "connection number 0");
    EXPECT_EQ(check([](auto& m) { m.id = 0x40000; }), "id without node or index");
    const char* node = "connected for what is not a node id";
    EXPECT_EQ(check([](auto& m) { m.node = 0; }), "");
    EXPECT_EQ(check([](auto& m) { m.node = PCILEND_NODE_MAX; }),
              type == PCILEND_MSG_SEGMENT_CONNECT ? "" : node);
    EXPECT_EQ(check([](auto& m) { m.node = PCILEND_NODE_MAX + 1; }), node);
  }
  const auto withdrawn = [](const std::function<void(pcilend_msg_withdraw&)>& change) {
    return CheckChanged<pcilend_msg_withdraw>(PCILEND_MSG_SEGMENT_WITHDRAW, false, change);
  };
  EXPECT_EQ(withdrawn([](auto& m) { m.offer = 0; }), "offer number 0");
  EXPECT_EQ(withdrawn([](auto& m) { m.id = 0; }), "id without node or index");
}

TEST(Wire, SegmentsForFunctions) {
  const auto check = [](const std::function<void(pcilend_msg_target&)>& change) {
    return CheckChanged<pcilend_msg_target>(PCILEND_MSG_TARGET, false, change);
  };
  const char* range = "device-side range empty, unaligned or past the end";
  EXPECT_EQ(check([](auto& m) { m.flags = 0; }), "");
  EXPECT_EQ(check([](auto& m) { m.flags = 4; }), "reserved bytes set");
  EXPECT_EQ(check([](auto& m) { m.size = 0; }), range);
  EXPECT_EQ(check([](auto& m) { m.size = 0x800; }), range);
  EXPECT_EQ(check([](auto& m) { m.device_address = 0x800; }), range);
  EXPECT_EQ(check([](auto& m) { m.device_address = ~(PCILEND_PAGE - 1); }), range);
  EXPECT_EQ(check([](auto& m) { m.size = u64{1} << 40; }), "");
  EXPECT_EQ(check([](auto& m) { m.size = (u64{1} << 40) + PCILEND_PAGE; }),
            "segment of an impossible size");
  EXPECT_EQ(check([](auto& m) { m.segment = 5; }), "id without node or index");
  EXPECT_EQ(check([](auto& m) { m.id = 5; }), "id without node or index");
  EXPECT_EQ(check([](auto& m) { m.lease = 0; }), "lease number 0");
}

TEST(Wire, MemoryBesideFunctions) {
  const auto check = [](const std::function<void(pcilend_msg_near&)>& change) {
    return CheckChanged<pcilend_msg_near>(PCILEND_MSG_NEAR, false, change);
  };
  const char* size = "memory of an impossible size";
  EXPECT_EQ(check([](auto& m) { m.size = PCILEND_PAGE; }), "");
  EXPECT_EQ(check([](auto& m) { m.size = 0; }), size);
  EXPECT_EQ(check([](auto& m) { m.size = 0x1800; }), size);
  EXPECT_EQ(check([](auto& m) { m.size = u64{1} << 30; }), "");
  EXPECT_EQ(check([](auto& m) { m.size = (u64{1} << 30) + PCILEND_PAGE; }), size);
  EXPECT_EQ(check([](auto& m) { m.id = 5; }), "id without node or index");
  EXPECT_EQ(check([](auto& m) { m.lease = 0; }), "lease number 0");
  const auto answer = [](const std::function<void(pcilend_msg_id&)>& change) {
    return CheckChanged<pcilend_msg_id>(PCILEND_MSG_NEAR, true, change);
  };
  EXPECT_EQ(answer([](auto& m) { m.id = 0x40001; }), "");
  EXPECT_EQ(answer([](auto& m) { m.id = 5; }), "id without node or index");
}

TEST(Wire, OfferedSegments) {
  const auto after = [](const std::function<void(pcilend_msg_after&)>& change) {
    return CheckChanged<pcilend_msg_after>(PCILEND_MSG_SEGMENT_NEXT, false, change);
  };
  EXPECT_EQ(after([](auto& m) { m.id = 0; }), "");
  EXPECT_EQ(after([](auto& m) { m.id = 0x40001; }), "");
  EXPECT_EQ(after([](auto& m) { m.id = 0x40000; }), "id without node or index");

  const auto offered = [](const std::function<void(pcilend_msg_offered&)>& change) {
    return CheckChanged<pcilend_msg_offered>(PCILEND_MSG_SEGMENT_NEXT, true, change);
  };
  const char* size = "segment of an impossible size";
  EXPECT_EQ(offered([](auto& m) { m.flags = 3; }), "");
  EXPECT_EQ(offered([](auto& m) { m.flags = 4; }), "reserved bytes set");
  EXPECT_EQ(offered([](auto& m) { m.size = u64{1} << 40; }), "");
  EXPECT_EQ(offered([](auto& m) { m.size = (u64{1} << 40) + PCILEND_PAGE; }), size);
  EXPECT_EQ(offered([](auto& m) { m.size = 0; }), size);
  EXPECT_EQ(offered([](auto& m) { m.size = 0x800; }), size);
  EXPECT_EQ(offered([](auto& m) { m.name[0] = '\033'; }), "label is not printable ASCII");
  EXPECT_EQ(offered([](auto& m) { m.name[63] = 'x'; }), "label is not printable ASCII");
  EXPECT_EQ(offered([](auto& m) { m.id = 4; }), "id without node or index");
}

TEST(Wire, Reach) {
  const auto check = [](const std::function<void(pcilend_msg_reach&)>& change) {
    return CheckChanged<pcilend_msg_reach>(PCILEND_MSG_REACH, false, change);
  };
  const char* address = "device-side address unaligned or past the end";
  EXPECT_EQ(check([](auto& m) { m.on = 0; }), "");
  EXPECT_EQ(check([](auto& m) { m.on = 2; }), "flag neither 0 nor 1");
  EXPECT_EQ(check([](auto& m) { m.bar = 5; }), "");
  EXPECT_EQ(check([](auto& m) { m.bar = 6; }), "no BAR of that number");
  EXPECT_EQ(check([](auto& m) { m.bar = ~0u; }), "no BAR of that number");
  EXPECT_EQ(check([](auto& m) { m.device_address = 0x800; }), address);
  EXPECT_EQ(check([](auto& m) { m.device_address = ~0xfffULL; }), address);
  EXPECT_EQ(check([](auto& m) { m.target = m.id; }), "a function that is to reach itself");
  EXPECT_EQ(check([](auto& m) { m.target = 2; }), "id without node or index");
  EXPECT_EQ(check([](auto& m) { m.id = 2; }), "id without node or index");
  EXPECT_EQ(check([](auto& m) { m.lease = 0; }), "lease number 0");
  EXPECT_EQ(check([](auto& m) { m.target_lease = 0; }), "lease number 0");
  EXPECT_EQ(check([](auto& m) { m.reserved = 1; }), "reserved bytes set");
}

TEST(Wire, Expose) {
  const auto check = [](const std::function<void(pcilend_msg_expose&)>& change) {
    return CheckChanged<pcilend_msg_expose>(PCILEND_MSG_EXPOSE, false, change);
  };
  const char* node = "exposed to what is not a node id";
  EXPECT_EQ(check([](auto& m) { m.on = 0; }), "");
  EXPECT_EQ(check([](auto& m) { m.on = 2; }), "flag neither 0 nor 1");
  EXPECT_EQ(check([](auto& m) { m.node = 0; }), node);
  EXPECT_EQ(check([](auto& m) { m.node = 65536; }), node);
  EXPECT_EQ(check([](auto& m) { m.id = 2; }), "id without node or index");
  EXPECT_EQ(check([](auto& m) { m.lease = 0; }), "lease number 0");
}

TEST(Wire, Exposed) {
  const auto check = [](const std::function<void(pcilend_msg_exposed&)>& change) {
    return CheckChanged<pcilend_msg_exposed>(PCILEND_MSG_EXPOSED, false, change);
  };
  EXPECT_EQ(check([](auto& m) { m.on = 2; }), "flag neither 0 nor 1");
  EXPECT_EQ(check([](auto& m) { m.borrower = 0; }), "borrower is not a node id");
  EXPECT_EQ(check([](auto& m) { m.borrower = 65536; }), "borrower is not a node id");
  const char* size = "exposed BAR is not whole pages, a power of two";
  EXPECT_EQ(check([](auto& m) { m.bar[0].size = 0x100; }), size);
  EXPECT_EQ(check([](auto& m) { m.bar[0].size = 0x3000; }), size);
  const char* aligned = "exposed BAR is not aligned";
  EXPECT_EQ(check([](auto& m) { m.bar[0].offset = 0x11000; }), aligned);
  EXPECT_EQ(check([](auto& m) { m.bar[0] = {0x101000, 0x40000000, 1, 0}; }), aligned);
  EXPECT_EQ(check([](auto& m) { m.bar[0] = {0x200000, 0x40000000, 1, 0}; }), "");
  EXPECT_EQ(check([](auto& m) { m.bar[0].size = 0; }), "");
  EXPECT_EQ(check([](auto& m) { m.bar[0].shift = 0x100; }), "BAR placed at an impossible shift");
  EXPECT_EQ(check([](auto& m) { m.bar[5] = {0x800, 0x1000, 1, 0}; }), aligned);
  EXPECT_EQ(check([](auto& m) { m.bar[0].window = PCILEND_WIRE_WINDOWS; }),
            "BAR placed in an impossible window");
  EXPECT_EQ(check([](auto& m) {
              m.on = 0;
              m.bar[0].size = 1;
            }),
            "")
      << "not looked at";
  EXPECT_EQ(check([](auto& m) { m.id = 2; }), "id without node or index");
  EXPECT_EQ(check([](auto& m) { m.lease = 0; }), "lease number 0");
}

TEST(Wire, Unreached) {
  const auto check = [](const std::function<void(pcilend_msg_unreached&)>& change) {
    return CheckChanged<pcilend_msg_unreached>(PCILEND_MSG_UNREACHED, false, change);
  };
  EXPECT_EQ(check([](auto& m) { m.target = 0; }), "id without node or index");
  EXPECT_EQ(check([](auto& m) { m.id = 0; }), "id without node or index");
  EXPECT_EQ(check([](auto& m) { m.lease = 0; }), "lease number 0");
}

TEST(Wire, Hello) {
  const auto check = [](const std::function<void(pcilend_msg_hello&)>& change) {
    return CheckChanged<pcilend_msg_hello>(PCILEND_MSG_HELLO, false, change);
  };
  EXPECT_EQ(check([](auto& m) { m.hole = 0; }), "");
  EXPECT_EQ(check([](auto& m) { m.needs = 1; }), "") << "the receiver knows what it knows";
  EXPECT_EQ(check([](auto& m) { m.lease_ms = PCILEND_LEASE_MS_MIN - 1; }),
            "lease time out of range");
  EXPECT_EQ(check([](auto& m) { m.windows = 0; }), "impossible window");
  EXPECT_EQ(check([](auto& m) { m.windows = PCILEND_WIRE_WINDOWS + 1; }), "impossible window");
  EXPECT_EQ(check([](auto& m) { m.interrupt_window = PCILEND_WIRE_WINDOWS; }), "impossible window");
  const auto nowhere = [&](u64 offset) {
    return check([=](auto& m) {
      m.interrupt_window = PCILEND_WIRE_NO_WINDOW;
      m.interrupt_offset = offset;
    });
  };
  EXPECT_EQ(nowhere(0), "");
  EXPECT_EQ(nowhere(0xfee00000), "interrupts at an offset in no window");
  EXPECT_EQ(check([](auto& m) { m.interrupt_offset = 0xfee01000; }),
            "interrupts not 1 MiB aligned");
  const char* unaligned = "PCI hole or DMA area not page aligned";
  EXPECT_EQ(check([](auto& m) { m.hole = 0x80000001; }), unaligned);
  EXPECT_EQ(check([](auto& m) { m.dma_limit = 0x7fffffff; }), unaligned);
  EXPECT_EQ(check([](auto& m) { m.dma_limit = 0; }), unaligned);
  EXPECT_EQ(check([](auto& m) { m.window[2] = 0x1000; }), "reserved bytes set");
  EXPECT_EQ(check([](auto& m) { m.reserved = 1; }), "reserved bytes set");
}

TEST(Wire, Vouch) {
  const auto check = [](const std::function<void(pcilend_msg_vouch&)>& change) {
    return CheckChanged<pcilend_msg_vouch>(PCILEND_MSG_VOUCH, false, change);
  };
  EXPECT_EQ(check([](auto& m) { m.asker = m.asked; }), "") << "the receiver's to judge";
  EXPECT_EQ(check([](auto& m) { m.asker = 0; }), "boot id 0");
  EXPECT_EQ(check([](auto& m) { m.asked = 0; }), "boot id 0");
}

TEST(Wire, Borrow) {
  const auto check = [](const std::function<void(pcilend_msg_borrow&)>& change) {
    return CheckChanged<pcilend_msg_borrow>(PCILEND_MSG_BORROW, false, change);
  };
  const char* lease = "lease time out of range";
  const char* alias = "interrupt alias not 1 MiB aligned below 4 GiB";
  EXPECT_EQ(check([](auto& m) { m.lease_ms = 0; }), lease);
  EXPECT_EQ(check([](auto& m) { m.lease_ms = PCILEND_LEASE_MS_MIN - 1; }), lease);
  EXPECT_EQ(check([](auto& m) { m.lease_ms = PCILEND_LEASE_MS_MAX + 1; }), lease);
  EXPECT_EQ(check([](auto& m) { m.interrupt_alias = 0xfe000001; }), alias);
  EXPECT_EQ(check([](auto& m) { m.interrupt_alias = 0xfe080000; }), alias);
  EXPECT_EQ(check([](auto& m) { m.interrupt_alias = 0x100000000; }), alias);
  EXPECT_EQ(check([](auto& m) { m.interrupt_alias = 0xfff00000; }), "");
  EXPECT_EQ(check([](auto& m) { m.interrupt_alias = 0; }), "");
  EXPECT_EQ(check([](auto& m) { m.interrupt_alias = 0xfee00000; }),
            "interrupt alias on the lender's interrupt range");
  EXPECT_EQ(check([](auto& m) { m.reserved = 1; }), "reserved bytes set");
  EXPECT_EQ(check([](auto& m) { m.dma_window = PCILEND_WIRE_WINDOWS; }),
            "DMA area at an impossible place");
  EXPECT_EQ(check([](auto& m) { m.dma_offset = 0x800; }), "DMA area at an impossible place");
  EXPECT_EQ(check([](auto& m) { m.id = 0; }), "id without node or index");
}

TEST(Wire, BorrowAnswer) {
  const auto check = [](const std::function<void(pcilend_msg_borrowed&)>& change) {
    return CheckChanged<pcilend_msg_borrowed>(PCILEND_MSG_BORROW, true, change);
  };
  const char* offset = "BAR placed at an impossible offset";
  const char* shift = "BAR placed at an impossible shift";
  EXPECT_EQ(check([](auto& m) { m.lease = 0; }), "lease number 0");
  EXPECT_EQ(check([](auto& m) { m.bar[0].offset = 0x10001; }), offset);
  EXPECT_EQ(check([](auto& m) { m.bar[0].offset = ~0xfffULL; }), offset);
  EXPECT_EQ(check([](auto& m) { m.bar[0].window = PCILEND_WIRE_WINDOWS; }),
            "BAR placed in an impossible window");
  EXPECT_EQ(check([](auto& m) { m.bar[0].shift = 16; }), shift);
  EXPECT_EQ(check([](auto& m) { m.bar[0].size = 0x4100; }), shift);
  EXPECT_EQ(check([](auto& m) { m.bar[2].shift = 0xf01; }), shift);
  EXPECT_EQ(check([](auto& m) { m.bar[2].shift = ~0u; }), shift);
  EXPECT_EQ(check([](auto& m) { m.bar[2].shift = 0xf00; }), "");
  EXPECT_EQ(check([](auto& m) { m.bar[1] = {1, 0, 77, 5}; }), "") << "size 0: not there";
  EXPECT_EQ(check([](auto& m) { m.bar[6].offset = 0x30800; }), offset) << "the ROM";
  EXPECT_EQ(check([](auto& m) { m.bar[6].shift = 16; }), shift);
  const char* address = "device-side addresses that can't be";
  EXPECT_EQ(check([](auto& m) { m.dma_address = 0x800; }), address);
  EXPECT_EQ(check([](auto& m) { m.dma_address = 1ULL << 62; }), address);
  EXPECT_EQ(check([](auto& m) { m.interrupt_address = 0xfee01000; }), address);
  EXPECT_EQ(check([](auto& m) { m.interrupt_address = 0; }), "");
  EXPECT_EQ(check([](auto& m) { m.dma_address = 0; }), address) << "interrupts only";
  const char* last = "a last address that can't be";
  const auto lent_by_iommu = [&](u64 last_address) {
    return check([&](auto& m) {
      m.dma_address = m.interrupt_address = 0;
      m.last_address = last_address;
    });
  };
  EXPECT_EQ(lent_by_iommu(0xffffffffffff), "");
  EXPECT_EQ(lent_by_iommu(0), last);
  EXPECT_EQ(lent_by_iommu(0xfffffffff000), last);
  EXPECT_EQ(lent_by_iommu((1ULL << 62) + 0xfff), last);
  EXPECT_EQ(lent_by_iommu(~0ULL), last);
  EXPECT_EQ(check([](auto& m) { m.last_address = 0xffffffffffff; }), last) << "it is direct";
}

TEST(Wire, Map) {
  for (const bool map : {true, false}) {
    const auto check = [map](const std::function<void(pcilend_msg_map&)>& change) {
      return CheckChanged<pcilend_msg_map>(map ? PCILEND_MSG_MAP : PCILEND_MSG_UNMAP, false,
                                           change);
    };
    const char* device = "device-side range empty, unaligned or past the end";
    const char* window = map ? "window range unaligned or past the end" : "";
    EXPECT_EQ(check([](auto& m) { m.reserved = 1; }), "reserved bytes set");
    EXPECT_EQ(check([](auto& m) { m.size = 0; }), device);
    EXPECT_EQ(check([](auto& m) { m.size = 0x1001; }), device);
    EXPECT_EQ(check([](auto& m) { m.device_address = 0x800; }), device);
    EXPECT_EQ(check([](auto& m) { m.device_address = 0 - m.size; }), device);
    EXPECT_EQ(check([](auto& m) { m.device_address = 0 - m.size - 0x1000; }), "");
    EXPECT_EQ(check([](auto& m) { m.offset = 0x800; }), window);
    EXPECT_EQ(check([](auto& m) { m.offset = ~0xfffULL; }), window);
    EXPECT_EQ(check([](auto& m) { m.window = PCILEND_WIRE_WINDOWS; }),
              map ? "impossible window" : "");
    EXPECT_EQ(check([](auto& m) { m.lease = 0; }), "lease number 0");
    EXPECT_EQ(check([](auto& m) { m.id = 0; }), "id without node or index");
  }
}

TEST(Wire, Config) {
  const char* range = "configuration access out of range";
  const auto checked = [](u16 type, bool answer, u16 offset, u16 length) {
    return CheckChanged<pcilend_msg_config>(type, answer, [&](auto& m) {
      m.offset = offset;
      m.length = length;
    });
  };
  for (const bool answer : {false, true}) {
    const u16 type = PCILEND_MSG_CONFIG_READ;
    EXPECT_EQ(checked(type, answer, 0, 0), range);
    EXPECT_EQ(checked(type, answer, 0, PCILEND_CONFIG_CHUNK + 1), range);
    EXPECT_EQ(checked(type, answer, 0, 0xffff), range);
    EXPECT_EQ(checked(type, answer, 4096, 1), range);
    EXPECT_EQ(checked(type, answer, 4095, 2), range);
    EXPECT_EQ(checked(type, answer, 0xffff, 1), range);
    EXPECT_EQ(checked(type, answer, 3, 7), "");
    EXPECT_EQ(checked(type, answer, 4096 - PCILEND_CONFIG_CHUNK, PCILEND_CONFIG_CHUNK), "");
  }
  const char* write = "configuration write not 1, 2 or 4 bytes, aligned";
  EXPECT_EQ(checked(PCILEND_MSG_CONFIG_WRITE, false, 0x41, 2), write);
  EXPECT_EQ(checked(PCILEND_MSG_CONFIG_WRITE, false, 0x42, 4), write);
  EXPECT_EQ(checked(PCILEND_MSG_CONFIG_WRITE, false, 0x40, 3), write);
  EXPECT_EQ(checked(PCILEND_MSG_CONFIG_WRITE, false, 0x40, 8), write);
  EXPECT_EQ(checked(PCILEND_MSG_CONFIG_WRITE, false, 0x43, 1), "");
  EXPECT_EQ(CheckChanged<pcilend_msg_config>(PCILEND_MSG_CONFIG_READ, false,
                                             [](auto& m) { m.lease = 0; }),
            "lease number 0");
}

// No lender takes a request that lasts, or whose answer has a payload, by the way that is polled.
TEST(Wire, Polled) {
  std::set<std::string> polled;
  for (const samples::Sample& sample : samples::All()) {
    const char* why = nullptr;
    if (pcilend_wire_check_polled(sample.slot.data(), kBoot, kSequence, &why) == 0) {
      EXPECT_FALSE(sample.answer);
      polled.insert(pcilend_msg_name(sample.type));
    } else {
      EXPECT_STREQ(why, "it is not a request that is polled for");
    }
    EXPECT_EQ(pcilend_wire_check_polled(sample.slot.data(), kBoot, kSequence + 1, &why), -EPROTO);
    EXPECT_STREQ(why, "out of sequence");
  }
  EXPECT_EQ(polled, (std::set<std::string>{"bus-master", "config-write"}));

  const u64 answer = pcilend_polled_answer(0xfedcba98, PCILEND_STATUS_RANGE);
  EXPECT_EQ(pcilend_polled_number(answer), 0xfedcba98u);
  EXPECT_EQ(pcilend_polled_status(answer), PCILEND_STATUS_RANGE);
  EXPECT_EQ(pcilend_status_to_errno(pcilend_polled_status(~u64{0})), -EPROTO);
}

// Whatever one flipped bit makes of a message, it is refused or still means something sane.
TEST(Wire, FlippedBits) {
  for (const samples::Sample& sample : samples::All()) {
    const size_t checked_bytes =
        sizeof(pcilend_msg_header) + pcilend_wire_length(sample.type, sample.answer);
    for (size_t bit = 0; bit < PCILEND_SLOT_BYTES * 8; ++bit) {
      Slot slot = sample.slot;
      slot[bit / 8] ^= 1 << (bit % 8);
      const std::string why = Check(slot);
      if (bit / 8 >= checked_bytes) {
        EXPECT_EQ(why, "") << "bytes behind the message don't count";
      }
      if ((bit / 8 >= 6 && bit / 8 < 8) || (bit / 8 >= 12 && bit / 8 < 24)) {
        EXPECT_NE(why, "") << "length, sequence and boot id have one value only";
      }
    }
  }
}

TEST(Status, ErrnoBothWays) {
  const std::vector<int> errors = {0,       -EPROTO,     -ENODEV,       -EAGAIN,       -EBUSY,
                                   -ESTALE, -ERANGE,     -ENOSPC,       -EIO,          -EUCLEAN,
                                   -EBUSY,  -EACCES,     -EXDEV,        -EUSERS,       -ENOTUNIQ,
                                   -EMLINK, -EOPNOTSUPP, -EHOSTUNREACH, -ECONNREFUSED, -EXFULL};
  std::set<std::string> names;
  for (u16 status = 0; status < errors.size(); ++status) {
    EXPECT_EQ(pcilend_status_to_errno(status), errors[status]);
    names.insert(pcilend_status_name(status));
    if (status != PCILEND_STATUS_OVERLOAD) {
      EXPECT_EQ(pcilend_status_from_errno(errors[status]), status);
    }
  }
  EXPECT_EQ(names.size(), errors.size());
  EXPECT_EQ(names.count("unknown"), 0u);
  for (const u16 status : {20, 255, 0xffff}) {
    EXPECT_EQ(pcilend_status_to_errno(status), -EPROTO);
    EXPECT_STREQ(pcilend_status_name(status), "unknown");
  }
  EXPECT_EQ(pcilend_status_from_errno(-EINVAL), PCILEND_STATUS_MALFORMED);
  EXPECT_EQ(pcilend_status_from_errno(-ENOENT), PCILEND_STATUS_NO_FUNCTION);
  EXPECT_EQ(pcilend_status_from_errno(-EPERM), PCILEND_STATUS_NO_FUNCTION);
  EXPECT_EQ(pcilend_status_from_errno(-EALREADY), PCILEND_STATUS_BUSY);
  EXPECT_EQ(pcilend_status_from_errno(-ENOMEM), PCILEND_STATUS_NO_SPACE);
  EXPECT_EQ(pcilend_status_from_errno(-ENOTTY), PCILEND_STATUS_FAILED);
  EXPECT_EQ(pcilend_status_from_errno(EBUSY), PCILEND_STATUS_FAILED) << "not a negative errno";
}

TEST(Names, OfMessages) {
  EXPECT_STREQ(pcilend_msg_name(PCILEND_MSG_CONFIG_READ), "config-read");
  EXPECT_STREQ(pcilend_msg_name(0), "unknown");
}

// Each bit of a notice either makes it another function's, or says how the function is.
TEST(WireFunction, IdentityAndBarsNeverChange) {
  const pcilend_msg_function known = {.id = 0x40001, .class_revision = 0x01080200};
  const auto may_change = [](size_t at) {
    for (const auto& [from, bytes] :
         {std::pair(offsetof(pcilend_msg_function, state), size_t{12}),
          std::pair(offsetof(pcilend_msg_function, segment), size_t{4}),
          std::pair(offsetof(pcilend_msg_function, label), sizeof(pcilend_msg_function{}.label)),
          std::pair(offsetof(pcilend_msg_function, reserved_node), size_t{8})}) {
      if (at >= from && at < from + bytes) return true;
    }
    return false;
  };
  EXPECT_TRUE(pcilend_function_same(&known, &known));
  for (size_t bit = 0; bit < 8 * sizeof(known); ++bit) {
    pcilend_msg_function told = known;
    reinterpret_cast<u8*>(&told)[bit / 8] ^= static_cast<u8>(1u << bit % 8);
    EXPECT_EQ(pcilend_function_same(&known, &told), may_change(bit / 8)) << "byte " << bit / 8;
  }
}

}  // namespace
