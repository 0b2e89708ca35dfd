// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/client.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "messages.h"
#include "pcilend/events.h"

namespace pcilend::test {
namespace {

using ::testing::HasSubstr;

Attributes function_nest() {
  const std::array<uint8_t, 16> uuid{'p', 'c', 'l', 'd', 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::array<uint32_t, 2> allowed{8, 12};
  const std::array<uint32_t, 2> reaches{0x40002, 0x40003};
  Attributes bar;
  bar.u32(PCILEND_BAR_A_INDEX, 0).u64(PCILEND_BAR_A_SIZE, 0x4000).u32(PCILEND_BAR_A_FLAGS, 1);
  Attributes function;
  function.u32(PCILEND_FUNCTION_A_ID, 0x40001)
      .raw(PCILEND_FUNCTION_A_UUID, uuid.data(), uuid.size())
      .u32(PCILEND_FUNCTION_A_LENDER, 4)
      .text(PCILEND_FUNCTION_A_BDF, "0000:00:05.0")
      .u32(PCILEND_FUNCTION_A_STATE, PCILEND_FUNCTION_BORROWED)
      .u16(PCILEND_FUNCTION_A_VENDOR, 0x1b36)
      .u16(PCILEND_FUNCTION_A_DEVICE, 0x0010)
      .u32(PCILEND_FUNCTION_A_CLASS, 0x01080202)
      .u32(PCILEND_FUNCTION_A_BORROWER, 8)
      .text(PCILEND_FUNCTION_A_OWNER, "guest")
      .text(PCILEND_FUNCTION_A_LABEL, "lab")
      .raw(PCILEND_FUNCTION_A_ALLOWED, allowed.data(), sizeof allowed)
      .raw(PCILEND_FUNCTION_A_REACHES, reaches.data(), sizeof reaches)
      .flag(PCILEND_FUNCTION_A_DIRECT)
      .flag(PCILEND_FUNCTION_A_SANITIZE)
      .flag(PCILEND_FUNCTION_A_DIRTY)
      .u64(PCILEND_FUNCTION_A_NEAR, uint64_t{1} << 22)
      .u64(PCILEND_FUNCTION_A_NEAR_USED, 65536)
      .flag(PCILEND_FUNCTION_A_RELAYED)
      .nest(PCILEND_FUNCTION_A_BAR, bar)
      .nest(PCILEND_FUNCTION_A_BAR, bar)
      .u64(PCILEND_FUNCTION_A_GUEST_BYTES, 1u << 28)
      .u32(999, 7);
  return function;
}

class ClientTest : public testing::Test {
 protected:
  // A client whose kernel answers with `datagrams` after the family look-up.
  std::unique_ptr<Client> client(std::deque<Bytes> datagrams) {
    datagrams.push_front(join({family_reply(), acknowledge(1)}));
    auto opened = open_client(std::make_unique<ScriptedTransport>(std::move(datagrams), &log_));
    EXPECT_TRUE(opened) << (opened ? "" : opened.error().message);
    return opened ? std::move(*opened) : nullptr;
  }

  // Text of an attribute in a request, empty for a flag; the family look-up is request 0.
  std::string text_in_request(size_t index, uint16_t type) {
    const auto* head = reinterpret_cast<const nlmsghdr*>(log_.requests.at(index).data());
    const auto* a = static_cast<const nlattr*>(mnl_nlmsg_get_payload_offset(head, GENL_HDRLEN));
    const auto* end = static_cast<const char*>(mnl_nlmsg_get_payload_tail(head));
    for (; mnl_attr_ok(a, static_cast<int>(end - reinterpret_cast<const char*>(a)));
         a = mnl_attr_next(a)) {
      if (mnl_attr_get_type(a) != type) continue;
      const auto* text = static_cast<const char*>(mnl_attr_get_payload(a));
      return {text, strnlen(text, mnl_attr_get_payload_len(a))};
    }
    return "absent";
  }

  ScriptedTransport::Log log_;
};

TEST_F(ClientTest, WithoutTheModuleTheCureIsNamed) {
  std::deque<Bytes> datagrams{acknowledge(1, ENOENT)};
  const auto opened = open_client(std::make_unique<ScriptedTransport>(datagrams, nullptr));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().kind, ErrorClass::Unreachable);
  EXPECT_EQ(opened.error().message, "pcilend.ko is not loaded: modprobe pcilend");
}

TEST_F(ClientTest, AFamilyReplyWithoutIdIsRefused) {
  std::deque<Bytes> datagrams{
      join({reply(1, CTRL_CMD_NEWFAMILY, Attributes(), 0, GENL_ID_CTRL), acknowledge(1)})};
  EXPECT_FALSE(open_client(std::make_unique<ScriptedTransport>(datagrams, nullptr)));
}

TEST_F(ClientTest, AModuleOfAnotherVersionIsRefused) {
  std::deque<Bytes> datagrams{join({family_reply(PCILEND_FAMILY_VERSION + 1), acknowledge(1)})};
  const auto opened = open_client(std::make_unique<ScriptedTransport>(datagrams, nullptr));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().kind, ErrorClass::Unreachable);
  EXPECT_EQ(opened.error().message,
            "pcilend.ko and this program do not understand each other (netlink versions 2 and 1): "
            "install both from one release, and load that pcilend.ko by a reboot");
}

TEST_F(ClientTest, AModuleThatIsOlderSaysNothing) {
  auto c = client({acknowledge(2, EOPNOTSUPP)});
  const auto connected = c->connect(9);
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().kind, ErrorClass::Unsupported);
  EXPECT_EQ(connected.error().message,
            "the loaded pcilend.ko does not know this: it is older than this program, and the "
            "installed one is loaded by a reboot");
}

TEST_F(ClientTest, NodeIsDecoded) {
  auto c = client({join({reply(2, PCILEND_CMD_NODE_GET,
                               Attributes()
                                   .u32(PCILEND_A_NODE_ID, 4)
                                   .u64(PCILEND_A_BOOT_ID, 0x1122334455667788)
                                   .u32(PCILEND_A_ABI, 1)),
                         acknowledge(2)})});
  const auto node = c->node();
  ASSERT_TRUE(node) << node.error().message;
  EXPECT_EQ(node->id, 4u);
  EXPECT_EQ(node->boot_id, 0x1122334455667788u);
  EXPECT_EQ(node->abi, 1u);
}

TEST_F(ClientTest, FunctionsOfSeveralDatagramsAreSortedById) {
  Attributes second;
  second.u32(PCILEND_FUNCTION_A_ID, 0x30001);
  auto c = client({
      reply(2, PCILEND_CMD_FUNCTION_GET, Attributes().nest(PCILEND_A_FUNCTION, function_nest()),
            NLM_F_MULTI),
      reply(2, PCILEND_CMD_FUNCTION_GET, Attributes().nest(PCILEND_A_FUNCTION, second),
            NLM_F_MULTI),
      done(2),
  });
  const auto functions = c->functions();
  ASSERT_TRUE(functions) << functions.error().message;
  ASSERT_EQ(functions->size(), 2u);
  EXPECT_EQ(functions->front().id.value, 0x30001u);
  const Function& f = functions->back();
  EXPECT_EQ(to_string(f.uuid), "70636c64-0102-0304-0506-0708090a0b0c");
  EXPECT_EQ(f.lender, 4u);
  EXPECT_EQ(f.bdf, "0000:00:05.0");
  EXPECT_EQ(f.state, static_cast<uint32_t>(PCILEND_FUNCTION_BORROWED));
  EXPECT_EQ(f.class_revision, 0x01080202u);
  EXPECT_EQ(f.borrower, 8u);
  EXPECT_EQ(f.lease, std::nullopt);
  EXPECT_EQ(f.owner, "guest");
  EXPECT_EQ(f.label, "lab");
  EXPECT_EQ(f.allowed, (std::vector<uint32_t>{8, 12}));
  EXPECT_EQ(functions->front().allowed, std::nullopt);
  EXPECT_EQ(f.reaches, (std::vector<uint32_t>{0x40002, 0x40003}));
  EXPECT_TRUE(f.direct);
  EXPECT_TRUE(f.sanitize);
  EXPECT_TRUE(f.dirty);
  EXPECT_EQ(f.near, uint64_t{1} << 22);
  EXPECT_EQ(f.near_used, 65536U);
  EXPECT_TRUE(f.relayed);
  ASSERT_EQ(f.bars.size(), 2u);
  EXPECT_EQ(f.bars[1].size, 0x4000u);
  EXPECT_EQ(f.guest_bytes, 1u << 28);
  EXPECT_EQ(f.faults, std::nullopt);
}

TEST_F(ClientTest, LinksAreDecoded) {
  Attributes link;
  link.u32(PCILEND_LINK_A_INDEX, 1)
      .text(PCILEND_LINK_A_ADAPTER, "0000:00:04.0")
      .u32(PCILEND_LINK_A_STATE, PCILEND_LINK_REFUSED)
      .text(PCILEND_LINK_A_REASON, "window 0 is 1 MiB\n")
      .flag(PCILEND_LINK_A_CONNECTED)
      .u64(PCILEND_LINK_A_TX_MESSAGES, 12);
  auto c = client(
      {join({reply(2, PCILEND_CMD_LINK_GET, Attributes().nest(PCILEND_A_LINK, link), NLM_F_MULTI),
             done(2)})});
  const auto links = c->links();
  ASSERT_TRUE(links) << links.error().message;
  ASSERT_EQ(links->size(), 1u);
  EXPECT_EQ(links->front().adapter, "0000:00:04.0");
  EXPECT_EQ(links->front().reason, "window 0 is 1 MiB?") << "control characters stay out";
  EXPECT_TRUE(links->front().connected);
  EXPECT_FALSE(links->front().peer_connected);
  EXPECT_EQ(links->front().peer, std::nullopt);
  EXPECT_EQ(links->front().tx_messages, 12u);
}

TEST_F(ClientTest, AnEmptyDumpIsAnEmptyList) {
  auto c = client({done(2)});
  const auto functions = c->functions();
  ASSERT_TRUE(functions);
  EXPECT_TRUE(functions->empty());
}

TEST_F(ClientTest, ADumpThatChangedIsAskedForAgain) {
  auto c = client({
      reply(2, PCILEND_CMD_FUNCTION_GET, Attributes().nest(PCILEND_A_FUNCTION, function_nest()),
            NLM_F_MULTI | NLM_F_DUMP_INTR),
      done(2),
      done(3),
  });
  const auto functions = c->functions();
  ASSERT_TRUE(functions);
  EXPECT_TRUE(functions->empty());
  EXPECT_EQ(log_.requests.size(), 3u);
}

TEST_F(ClientTest, ADumpThatNeverSettlesIsTakenAsItIs) {
  std::deque<Bytes> datagrams;
  for (uint32_t sequence = 2; sequence < 40; ++sequence)
    datagrams.push_back(message(NLMSG_DONE, NLM_F_MULTI | NLM_F_DUMP_INTR, sequence, Bytes(4)));
  auto c = client(datagrams);
  EXPECT_TRUE(c->functions());
  EXPECT_EQ(log_.requests.size(), 1u + 3u);
}

TEST_F(ClientTest, AnErrorAtTheEndOfADumpCounts) {
  auto c = client({done(2, ENOMEM, "no memory for the list")});
  const auto functions = c->functions();
  ASSERT_FALSE(functions);
  EXPECT_EQ(functions.error().message, "no memory for the list");
}

TEST_F(ClientTest, TheKernelsSentenceAndClassReachTheCaller) {
  struct {
    int error;
    ErrorClass kind;
  } const cases[] = {
      {ENODEV, ErrorClass::NotFound},
      {ENOENT, ErrorClass::NotFound},
      {EBUSY, ErrorClass::State},
      {EAGAIN, ErrorClass::State},
      {ESTALE, ErrorClass::State},
      {EUCLEAN, ErrorClass::State},
      {EPERM, ErrorClass::Permission},
      {ETIMEDOUT, ErrorClass::Unreachable},
      {EHOSTDOWN, ErrorClass::Unreachable},
      {EHOSTUNREACH, ErrorClass::Unreachable},
      {EOPNOTSUPP, ErrorClass::Unsupported},
      {EINVAL, ErrorClass::Usage},
      {EIO, ErrorClass::Failure},
  };
  for (const auto& expected : cases) {
    auto c = client({acknowledge(2, expected.error, "node 9 is not there")});
    const auto connected = c->connect(9);
    ASSERT_FALSE(connected);
    EXPECT_EQ(connected.error().kind, expected.kind) << expected.error;
    EXPECT_EQ(connected.error().message, "node 9 is not there");
  }
}

TEST_F(ClientTest, WithoutASentenceTheErrnoSpeaks) {
  EXPECT_EQ(client({acknowledge(2, EIO)})->connect(9).error().message, "Input/output error");
  EXPECT_THAT(client({acknowledge(2, EPERM)})->connect(9).error().message, HasSubstr("root"));
}

TEST_F(ClientTest, TheSentenceIsFoundBehindAQuotedRequest) {
  nlmsgerr body{};
  body.error = -EBUSY;
  body.msg.nlmsg_len = sizeof(nlmsghdr) + 8;
  Bytes payload(sizeof body);
  std::memcpy(payload.data(), &body, sizeof body);
  payload.resize(payload.size() + 8);
  const Bytes tail = Attributes().text(NLMSGERR_ATTR_MSG, "busy").bytes();
  payload.insert(payload.end(), tail.begin(), tail.end());
  auto c = client({message(NLMSG_ERROR, NLM_F_ACK_TLVS, 2, payload)});
  EXPECT_EQ(c->connect(9).error().message, "busy");
}

TEST_F(ClientTest, WhatIsSoAlreadyIsSuccess) {
  EXPECT_TRUE(client({acknowledge(2, EALREADY, "connected already")})->connect(8));
}

TEST_F(ClientTest, BorrowSendsIdFrontendAndOwner) {
  auto c =
      client({acknowledge(2), join({reply(3, PCILEND_CMD_FUNCTION_GET,
                                          Attributes().nest(PCILEND_A_FUNCTION, function_nest())),
                                    acknowledge(3)})});
  const auto borrowed = c->borrow(FunctionId{0x40001}, "vfio", "guest");
  ASSERT_TRUE(borrowed) << borrowed.error().message;
  EXPECT_EQ(borrowed->owner, "guest");
  EXPECT_EQ(text_in_request(1, PCILEND_A_FRONTEND), "vfio");
  EXPECT_EQ(text_in_request(1, PCILEND_A_OWNER), "guest");
  const auto* head = reinterpret_cast<const nlmsghdr*>(log_.requests.at(1).data());
  EXPECT_EQ(head->nlmsg_type, kFamily);
  EXPECT_EQ(head->nlmsg_flags, NLM_F_REQUEST | NLM_F_ACK);
}

TEST_F(ClientTest, AnAdapterIsNamedOnlyIfThereIsOne) {
  auto c = client({acknowledge(2), acknowledge(3)});
  ASSERT_TRUE(c->connect(8));
  ASSERT_TRUE(c->connect(8, "0000:00:05.0"));
  EXPECT_EQ(text_in_request(1, PCILEND_A_ADAPTER), "absent");
  EXPECT_EQ(text_in_request(2, PCILEND_A_ADAPTER), "0000:00:05.0");
}

TEST_F(ClientTest, ReturnWithoutOwnerNamesNone) {
  auto c = client({acknowledge(2)});
  ASSERT_TRUE(c->give_back(FunctionId{0x40001}, ""));
  EXPECT_EQ(text_in_request(1, PCILEND_A_OWNER), "absent");
}

TEST_F(ClientTest, PeerToPeerNamesBothAndTheEnd) {
  const auto function = [](uint32_t sequence) {
    return join({reply(sequence, PCILEND_CMD_FUNCTION_GET,
                       Attributes().nest(PCILEND_A_FUNCTION, function_nest())),
                 acknowledge(sequence)});
  };
  auto c = client({acknowledge(2), function(3), acknowledge(4, EALREADY, "it is so"), function(5)});
  ASSERT_TRUE(c->reach(FunctionId{0x40001}, FunctionId{0x40002}, true));
  EXPECT_EQ(text_in_request(1, PCILEND_A_ID), "\x01");
  EXPECT_EQ(text_in_request(1, PCILEND_A_TARGET), "\x02");
  EXPECT_EQ(text_in_request(1, PCILEND_A_END), "absent");
  ASSERT_TRUE(c->reach(FunctionId{0x40001}, FunctionId{0x40002}, false));
  EXPECT_EQ(text_in_request(3, PCILEND_A_END), "");
}

TEST_F(ClientTest, AvailableSaysHowItIsLent) {
  const auto function = [](uint32_t sequence) {
    return join({reply(sequence, PCILEND_CMD_FUNCTION_GET,
                       Attributes().nest(PCILEND_A_FUNCTION, function_nest())),
                 acknowledge(sequence)});
  };
  auto c = client({acknowledge(2), function(3), acknowledge(4), function(5)});
  const PciAddress address{0, 0, 5, 0};
  const auto flags = {PCILEND_A_DIRECT, PCILEND_A_SANITIZE, PCILEND_A_SANITIZED};
  ASSERT_TRUE(c->make_available(address, {}));
  for (const auto flag : flags) EXPECT_EQ(text_in_request(1, flag), "absent");
  ASSERT_TRUE(c->make_available(address, {true, true, true}));
  for (const auto flag : flags) EXPECT_EQ(text_in_request(3, flag), "");
}

TEST_F(ClientTest, AddSaysWhatTheFunctionIsFromTheStart) {
  const auto function = [] {
    return reply(3, PCILEND_CMD_FUNCTION_GET,
                 Attributes().nest(PCILEND_A_FUNCTION, function_nest()));
  };
  auto c = client({acknowledge(2), join({function(), acknowledge(3)})});
  const PciAddress address{0, 0, 5, 0};
  const AddOptions options{FunctionId{0x40001}, "lab", std::vector<uint32_t>{8}};
  const auto added = c->add(address, options);
  ASSERT_TRUE(added) << added.error().message;
  EXPECT_EQ(text_in_request(1, PCILEND_A_BDF), "0000:00:05.0");
  EXPECT_EQ(text_in_request(1, PCILEND_A_LABEL), "lab");
  EXPECT_EQ(text_in_request(1, PCILEND_A_ID), "\x01");
  EXPECT_EQ(text_in_request(1, PCILEND_A_NODES), "\x08");
}

TEST_F(ClientTest, AChangeThatCantBeReadBackIsDone) {
  auto c = client({acknowledge(2), acknowledge(3, ENOMEM)});
  const auto added = c->add(PciAddress{0, 0, 5, 0}, {});
  ASSERT_FALSE(added);
  EXPECT_EQ(
      added.error().message,
      "it is done, but can't be shown: the kernel is out of memory: free some, and try again");
}

TEST_F(ClientTest, NobodyIsNotEverybody) {
  auto c = client({acknowledge(2), acknowledge(3), acknowledge(4)});
  const PciAddress address{0, 0, 5, 0};
  ASSERT_TRUE(c->allow(address, std::nullopt));
  EXPECT_EQ(text_in_request(1, PCILEND_A_NODES), "absent");
  ASSERT_TRUE(c->allow(address, std::vector<uint32_t>{8}));
  EXPECT_EQ(text_in_request(2, PCILEND_A_NODES), "\x08");
  ASSERT_TRUE(c->label(address, ""));
  EXPECT_EQ(text_in_request(3, PCILEND_A_LABEL), "");
}

TEST_F(ClientTest, AnArgumentTooLongIsNotSent) {
  auto c = client({});
  const auto borrowed = c->borrow(FunctionId{0x40001}, "vfio", std::string(5000, 'x'));
  ASSERT_FALSE(borrowed);
  EXPECT_EQ(borrowed.error().kind, ErrorClass::Usage);
  EXPECT_EQ(log_.requests.size(), 1u);
}

TEST_F(ClientTest, AnswersToEarlierRequestsAreSkipped) {
  auto c = client({acknowledge(1, EBUSY, "old"), acknowledge(2)});
  EXPECT_TRUE(c->connect(8));
}

TEST_F(ClientTest, SilenceIsUnreachable) {
  const auto connected = client({})->connect(8);
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().kind, ErrorClass::Unreachable);
}

TEST_F(ClientTest, ALinksPlanIsDecoded) {
  Attributes window;
  window.u32(PCILEND_WINDOW_A_INDEX, 1)
      .u64(PCILEND_WINDOW_A_SIZE, 1u << 30)
      .u64(PCILEND_WINDOW_A_SIZE_MAX, 1u << 29)
      .u64(PCILEND_WINDOW_A_ADDRESS_ALIGN, 4096)
      .u64(PCILEND_WINDOW_A_SIZE_ALIGN, 1);
  Attributes region;
  region.u32(PCILEND_REGION_A_KIND, PCILEND_REGION_SLOTS)
      .u64(PCILEND_REGION_A_IOVA, 1ull << 33)
      .u64(PCILEND_REGION_A_SIZE, 1ull << 34)
      .u32(PCILEND_REGION_A_WINDOW, 1)
      .u64(PCILEND_REGION_A_USED, 4096);
  Attributes link;
  link.u32(PCILEND_LINK_A_INDEX, 0)
      .u32(PCILEND_LINK_A_LEASE_MS, 10000)
      .nest(PCILEND_LINK_A_WINDOW, window)
      .nest(PCILEND_LINK_A_WINDOW, window)
      .nest(PCILEND_LINK_A_REGION, region)
      .text(PCILEND_LINK_A_DEGRADED, "no VMs")
      .text(PCILEND_LINK_A_DEGRADED, "interrupts are relayed")
      .u64(PCILEND_LINK_A_HOLE, 0x80000000)
      .u64(PCILEND_LINK_A_DOWNS, 2);
  auto c = client(
      {join({reply(2, PCILEND_CMD_LINK_GET, Attributes().nest(PCILEND_A_LINK, link), NLM_F_MULTI),
             done(2)})});
  const auto links = c->links();
  ASSERT_TRUE(links) << links.error().message;
  const Link& l = links->front();
  EXPECT_EQ(l.lease_ms, 10000u);
  ASSERT_EQ(l.windows.size(), 2u);
  EXPECT_EQ(l.windows[0].index, 1u);
  EXPECT_EQ(l.windows[0].size_max, 1u << 29);
  ASSERT_EQ(l.regions.size(), 1u);
  EXPECT_EQ(l.regions[0].kind, static_cast<uint32_t>(PCILEND_REGION_SLOTS));
  EXPECT_EQ(l.regions[0].iova, 1ull << 33);
  EXPECT_EQ(l.regions[0].used, 4096u);
  EXPECT_EQ(l.degraded, (std::vector<std::string>{"no VMs", "interrupts are relayed"}));
  EXPECT_EQ(l.hole, 0x80000000u);
  EXPECT_EQ(l.peer_hole, std::nullopt);
  EXPECT_EQ(l.downs, 2u);
}

TEST_F(ClientTest, ReservationsAndRecallsAreDecoded) {
  const std::array<uint8_t, 16> uuid{1, 2, 3};
  Attributes function;
  function.u32(PCILEND_FUNCTION_A_ID, 0x40001)
      .u32(PCILEND_FUNCTION_A_RESERVED_NODE, 8)
      .raw(PCILEND_FUNCTION_A_RESERVED_UUID, uuid.data(), uuid.size())
      .u32(PCILEND_FUNCTION_A_RESERVED_MS, 5000)
      .u32(PCILEND_FUNCTION_A_LEASE_MS, 10000)
      .u32(PCILEND_FUNCTION_A_LEASE_LEFT_MS, 9000)
      .u32(PCILEND_FUNCTION_A_RECALL_MS, 30000)
      .u32(PCILEND_FUNCTION_A_GROUP, 14)
      .nest(PCILEND_FUNCTION_A_MEMBER, Attributes()
                                           .text(PCILEND_MEMBER_A_BDF, "0000:00:05.1")
                                           .u32(PCILEND_MEMBER_A_ID, 0x40002)
                                           .u32(PCILEND_MEMBER_A_STATE, PCILEND_FUNCTION_ADDED))
      .nest(PCILEND_FUNCTION_A_MEMBER, Attributes().text(PCILEND_MEMBER_A_BDF, "0000:00:05.2"));
  auto c = client(
      {join({reply(2, PCILEND_CMD_FUNCTION_GET, Attributes().nest(PCILEND_A_FUNCTION, function)),
             acknowledge(2)})});
  const auto f = c->function(FunctionId{0x40001});
  ASSERT_TRUE(f) << f.error().message;
  EXPECT_EQ(f->reserved_node, 8u);
  EXPECT_EQ(f->reserved_uuid->bytes[2], 3);
  EXPECT_EQ(f->reserved_ms, 5000u);
  EXPECT_EQ(f->lease_ms, 10000u);
  EXPECT_EQ(f->lease_left_ms, 9000u);
  EXPECT_EQ(f->recall_ms, 30000u);
  EXPECT_EQ(f->group, 14u);
  ASSERT_EQ(f->members.size(), 2u);
  EXPECT_EQ(f->members[0].bdf, "0000:00:05.1");
  EXPECT_EQ(f->members[0].id, FunctionId{0x40002});
  EXPECT_EQ(f->members[0].state, PCILEND_FUNCTION_ADDED);
  EXPECT_EQ(f->members[1].id, std::nullopt);
}

TEST_F(ClientTest, SegmentsAreDecoded) {
  const auto own =
      Attributes()
          .u32(PCILEND_SEGMENT_A_ID, 0x40001)
          .text(PCILEND_SEGMENT_A_NAME, "results")
          .u64(PCILEND_SEGMENT_A_SIZE, 1 << 26)
          .u32(PCILEND_SEGMENT_A_STATE, PCILEND_SEGMENT_CONNECTED)
          .nest(PCILEND_SEGMENT_A_OFFER, Attributes()
                                             .u32(PCILEND_OFFER_A_NODE, 8)
                                             .text(PCILEND_OFFER_A_ADAPTER, "0000:00:04.0")
                                             .flag(PCILEND_OFFER_A_READ_ONLY)
                                             .u32(PCILEND_OFFER_A_CONNECTIONS, 2))
          .nest(PCILEND_SEGMENT_A_OFFER,
                Attributes().u32(PCILEND_OFFER_A_NODE, 12).flag(PCILEND_OFFER_A_WITHDRAWN));
  const auto connected = Attributes()
                             .u32(PCILEND_SEGMENT_A_ID, 0x80001)
                             .u32(PCILEND_SEGMENT_A_STATE, PCILEND_SEGMENT_LOST)
                             .text(PCILEND_SEGMENT_A_ADAPTER, "0000:00:05.0")
                             .flag(PCILEND_SEGMENT_A_READ_ONLY)
                             .flag(PCILEND_SEGMENT_A_WRITE_COMBINING);
  auto c = client(
      {join({reply(2, PCILEND_CMD_SEGMENT_GET, Attributes().nest(PCILEND_A_SEGMENT, own)),
             reply(2, PCILEND_CMD_SEGMENT_GET, Attributes().nest(PCILEND_A_SEGMENT, connected)),
             acknowledge(2)}),
       join({reply(3, PCILEND_CMD_SEGMENT_GET,
                   Attributes().nest(PCILEND_A_SEGMENT,
                                     Attributes().u32(PCILEND_SEGMENT_A_STATE, 1))),
             acknowledge(3)})});
  const auto list = c->segments();
  ASSERT_TRUE(list) << list.error().message;
  ASSERT_EQ(list->size(), 2u);
  const Segment& first = list->front();
  EXPECT_EQ(to_string(first.id), "40001");
  EXPECT_EQ(first.name, "results");
  EXPECT_EQ(first.size, 1u << 26);
  EXPECT_EQ(segment_state_name(first.state), "connected");
  ASSERT_EQ(first.offers.size(), 2u);
  EXPECT_EQ(first.offers[0].adapter, "0000:00:04.0");
  EXPECT_TRUE(first.offers[0].read_only);
  EXPECT_FALSE(first.offers[0].withdrawn);
  EXPECT_EQ(first.offers[0].connections, 2u);
  EXPECT_TRUE(first.offers[1].withdrawn);
  const Segment& second = list->back();
  EXPECT_EQ(segment_state_name(second.state), "lost");
  EXPECT_TRUE(second.read_only && second.write_combining);
  EXPECT_EQ(second.adapter, "0000:00:05.0");
  EXPECT_FALSE(c->segments()) << "a segment without id";
}

// The descriptors of the answer are the client's from then on.
TEST_F(ClientTest, DescriptorsOfSegmentsAreOwned) {
  int ends[2] = {};
  ASSERT_EQ(::pipe(ends), 0);
  const auto descriptor = [&](int end) { return static_cast<uint32_t>(ends[end]); };
  auto c = client(
      {join({reply(2, PCILEND_CMD_SEGMENT_CONNECT,
                   Attributes()
                       .nest(PCILEND_A_SEGMENT, Attributes().u32(PCILEND_SEGMENT_A_ID, 0x40001))
                       .u32(PCILEND_A_FD, descriptor(0))
                       .u32(PCILEND_A_CONTROL_FD, descriptor(1))),
             acknowledge(2)})});
  {
    const auto connected = c->connect_segment(FunctionId{0x40001}, {true, false, "0000:00:04.0"});
    ASSERT_TRUE(connected) << connected.error().message;
    EXPECT_EQ(connected->buffer.get(), ends[0]);
    EXPECT_EQ(connected->control.get(), ends[1]);
  }
  EXPECT_NE(::fcntl(ends[0], F_GETFD), 0) << "it is closed";
  EXPECT_NE(text_in_request(1, PCILEND_A_READ_ONLY), "absent");
  EXPECT_EQ(text_in_request(1, PCILEND_A_WRITE_COMBINING), "absent");
  EXPECT_EQ(text_in_request(1, PCILEND_A_ADAPTER), "0000:00:04.0");
}

// Of memory beside a function, too; how much is asked for, and how it is mapped.
TEST_F(ClientTest, MemoryBesideAFunctionIsAConnection) {
  int ends[2] = {};
  ASSERT_EQ(::pipe(ends), 0);
  const auto descriptor = [&](int end) { return static_cast<uint32_t>(ends[end]); };
  auto c = client(
      {join({reply(2, PCILEND_CMD_NEAR_GET,
                   Attributes()
                       .nest(PCILEND_A_SEGMENT, Attributes().u32(PCILEND_SEGMENT_A_ID, 0x40001))
                       .u32(PCILEND_A_FD, descriptor(0))
                       .u32(PCILEND_A_CONTROL_FD, descriptor(1))),
             acknowledge(2)}),
       acknowledge(3)});
  {
    const auto near = c->lease_near(7, 65536, true);
    ASSERT_TRUE(near) << near.error().message;
    EXPECT_EQ(near->buffer.get(), ends[0]);
    EXPECT_EQ(near->control.get(), ends[1]);
    EXPECT_EQ(near->segment.id.value, 0x40001U);
  }
  EXPECT_NE(::fcntl(ends[0], F_GETFD), 0) << "it is closed";
  EXPECT_NE(text_in_request(1, PCILEND_A_WRITE_COMBINING), "absent");
  EXPECT_FALSE(c->lease_near(7, 65536, false)) << "an answer without it";
  EXPECT_EQ(text_in_request(2, PCILEND_A_WRITE_COMBINING), "absent");
}

// What a lease allows names its descriptor, and gets what it is for.
TEST_F(ClientTest, WhatALeaseAllowsIsAskedWithItsDescriptor) {
  int ends[2] = {};
  ASSERT_EQ(::pipe(ends), 0);
  const auto descriptor = [&](int end) { return static_cast<uint32_t>(ends[end]); };
  auto c =
      client({join({reply(2, PCILEND_CMD_BORROW,
                          Attributes()
                              .nest(PCILEND_A_FUNCTION, Attributes()
                                                            .u32(PCILEND_FUNCTION_A_ID, 0x80001)
                                                            .u32(PCILEND_FUNCTION_A_LENDER, 8))
                              .u32(PCILEND_A_FD, descriptor(0))),
                    acknowledge(2)}),
              join({reply(3, PCILEND_CMD_BAR_GET, Attributes().u32(PCILEND_A_FD, descriptor(1))),
                    acknowledge(3)}),
              join({reply(4, PCILEND_CMD_SEGMENT_MAP,
                          Attributes().u64(PCILEND_A_ADDRESS, uint64_t{1} << 36)),
                    acknowledge(4)}),
              join({reply(5, PCILEND_CMD_SEGMENT_MAP, Attributes()), acknowledge(5)}),
              acknowledge(6), acknowledge(7)});
  {
    const auto leased = c->lease(FunctionId{0x80001}, "me", 1 << 26);
    ASSERT_TRUE(leased) << leased.error().message;
    EXPECT_EQ(leased->fd.get(), ends[0]);
    EXPECT_EQ(text_in_request(1, PCILEND_A_FRONTEND), "lease");
    EXPECT_EQ(text_in_request(1, PCILEND_A_OWNER), "me");
    const auto bar = c->lease_bar(ends[0], 2, 4096, 8192);
    ASSERT_TRUE(bar) << bar.error().message;
    EXPECT_EQ(bar->get(), ends[1]);
    for (uint16_t type : {PCILEND_A_LEASE_FD, PCILEND_A_BAR, PCILEND_A_OFFSET, PCILEND_A_SIZE})
      EXPECT_NE(text_in_request(2, type), "absent") << type;
    EXPECT_EQ(c->lease_map(ends[0], 3, true).value_or(0), uint64_t{1} << 36);
    EXPECT_NE(text_in_request(3, PCILEND_A_READ_ONLY), "absent");
    EXPECT_FALSE(c->lease_map(ends[0], 3, false)) << "no address";
    EXPECT_EQ(text_in_request(4, PCILEND_A_READ_ONLY), "absent");
    EXPECT_TRUE(c->lease_unmap(ends[0], uint64_t{1} << 36));
    EXPECT_TRUE(c->lease_interrupt(ends[0], 1, -1));
    EXPECT_EQ(text_in_request(6, PCILEND_A_EVENT_FD), "absent") << "no longer";
  }
  EXPECT_NE(::fcntl(ends[0], F_GETFD), 0) << "it is closed";
  EXPECT_NE(::fcntl(ends[1], F_GETFD), 0);
}

// A manager's policy and news, and what a client is told of itself.
TEST_F(ClientTest, AFunctionIsSharedByItsLease) {
  int ends[2] = {};
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd other(ends[1]);
  const auto notice = [] {
    return Attributes()
        .u32(PCILEND_CLIENT_A_LEASE, 12)
        .u32(PCILEND_CLIENT_A_NODE, 8)
        .u64(PCILEND_CLIENT_A_SLICE, uint64_t{1} << 36)
        .u64(PCILEND_CLIENT_A_SLICE_BYTES, uint64_t{1} << 26)
        .u32(PCILEND_CLIENT_A_VECTOR, 3)
        .u32(PCILEND_CLIENT_A_VECTORS, 2)
        .u32(PCILEND_CLIENT_A_PIECE, 1);
  };
  auto c = client(
      {acknowledge(2),
       join({reply(3, PCILEND_CMD_CLIENT_NEXT,
                   Attributes().nest(PCILEND_A_CLIENT,
                                     notice()
                                         .u32(PCILEND_CLIENT_A_NEWS, PCILEND_NEWS_GONE)
                                         .u32(PCILEND_CLIENT_A_ROUND, 7))),
             acknowledge(3)}),
       join({reply(4, PCILEND_CMD_CLIENT_NEXT, Attributes()), acknowledge(4)}), acknowledge(5),
       join({reply(6, PCILEND_CMD_JOIN,
                   Attributes()
                       .nest(PCILEND_A_FUNCTION, Attributes()
                                                     .u32(PCILEND_FUNCTION_A_ID, 0x40001)
                                                     .u32(PCILEND_FUNCTION_A_LENDER, 4))
                       .nest(PCILEND_A_CLIENT,
                             notice().nest(PCILEND_CLIENT_A_RANGE,
                                           Attributes()
                                               .u32(PCILEND_RANGE_A_BAR, 2)
                                               .u32(PCILEND_RANGE_A_PAGE, 20)
                                               .u32(PCILEND_RANGE_A_PAGES, 4)
                                               .u32(PCILEND_RANGE_A_KIND, PCILEND_RANGE_POOL)))
                       .u32(PCILEND_A_FD, static_cast<uint32_t>(ends[0]))),
             acknowledge(6)})});
  EXPECT_TRUE(c->lease_share(3, {.clients = 2,
                                 .ranges = {{.bar = 0, .page = 1, .pages = 1},
                                            {.bar = 2, .page = 16, .pages = 4, .pool = true}},
                                 .nodes = {{8, 12}}}));
  for (uint16_t type : {PCILEND_A_LEASE_FD, PCILEND_A_CLIENTS, PCILEND_A_SIZE, PCILEND_A_NODES})
    EXPECT_NE(text_in_request(1, type), "absent") << type;
  const auto gone = c->lease_next_client(3);
  ASSERT_TRUE(gone) << gone.error().message;
  ASSERT_TRUE(*gone);
  EXPECT_EQ((*gone)->news, static_cast<uint32_t>(PCILEND_NEWS_GONE));
  EXPECT_EQ((*gone)->round, 7U);
  EXPECT_EQ((*gone)->slice, uint64_t{1} << 36);
  const auto nothing = c->lease_next_client(3);
  ASSERT_TRUE(nothing);
  EXPECT_FALSE(*nothing) << "no news";
  EXPECT_TRUE(c->lease_cleared(3, 12, 7));
  const auto joined = c->join(FunctionId{0x40001}, "me", 1 << 26, 2);
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_EQ(joined->leased.fd.get(), ends[0]);
  EXPECT_EQ(joined->client.vector, 3U);
  EXPECT_EQ(joined->client.piece, 1U);
  ASSERT_EQ(joined->ranges.size(), 1U);
  EXPECT_EQ(joined->ranges[0].page, 20U);
  EXPECT_TRUE(joined->ranges[0].pool);
}

// A question and an answer, from both ends; no client's number in a client's own.
TEST_F(ClientTest, MailGoesByTheLease) {
  const std::string text("hi\0!", 4);
  const std::string long_one(kMailMax + 1, 'x');
  auto c = client({acknowledge(2), acknowledge(3),
                   join({reply(4, PCILEND_CMD_MAIL_NEXT,
                               Attributes()
                                   .raw(PCILEND_A_MAIL, text.data(), text.size())
                                   .u32(PCILEND_A_CLIENT_LEASE, 12)),
                         acknowledge(4)}),
                   join({reply(5, PCILEND_CMD_MAIL_NEXT, Attributes()), acknowledge(5)}),
                   join({reply(6, PCILEND_CMD_MAIL_NEXT,
                               Attributes().raw(PCILEND_A_MAIL, long_one.data(), long_one.size())),
                         acknowledge(6)})});
  const Mail mail{12, {std::byte{1}, std::byte{2}}};
  EXPECT_TRUE(c->lease_send_mail(3, mail));
  for (uint16_t type : {PCILEND_A_LEASE_FD, PCILEND_A_CLIENT_LEASE, PCILEND_A_MAIL})
    EXPECT_NE(text_in_request(1, type), "absent") << type;
  EXPECT_TRUE(c->lease_send_mail(3, {0, mail.bytes}));
  EXPECT_EQ(text_in_request(2, PCILEND_A_CLIENT_LEASE), "absent") << "a client's own";
  const auto next = c->lease_next_mail(3);
  ASSERT_TRUE(next) << next.error().message;
  ASSERT_TRUE(*next);
  EXPECT_EQ((*next)->client, 12U);
  ASSERT_EQ((*next)->bytes.size(), text.size());
  EXPECT_EQ((*next)->bytes[3], std::byte{'!'});
  const auto none = c->lease_next_mail(3);
  ASSERT_TRUE(none);
  EXPECT_FALSE(*none);
  EXPECT_FALSE(c->lease_next_mail(3)) << "more than mail can be";
}

TEST_F(ClientTest, CountersAndConfigAreDecoded) {
  Attributes counters;
  for (uint16_t type = PCILEND_COUNTER_A_GRANTED; type <= PCILEND_COUNTER_A_RELAYED; ++type)
    counters.u64(type, type * 10u);
  const std::vector<uint8_t> space(256, 0x5a);
  auto c = client(
      {join({reply(2, PCILEND_CMD_COUNTERS_GET, Attributes().nest(PCILEND_A_COUNTERS, counters)),
             acknowledge(2)}),
       join({reply(3, PCILEND_CMD_CONFIG_GET,
                   Attributes().raw(PCILEND_A_CONFIG, space.data(), space.size())),
             acknowledge(3)}),
       join(
           {reply(4, PCILEND_CMD_CONFIG_GET, Attributes().raw(PCILEND_A_CONFIG, space.data(), 255)),
            acknowledge(4)}),
       join({reply(5, PCILEND_CMD_CONFIG_GET, Attributes().flag(PCILEND_A_CONFIG)),
             acknowledge(5)})});
  const auto counted = c->counters();
  ASSERT_TRUE(counted) << counted.error().message;
  EXPECT_EQ(counted->granted, 10u);
  EXPECT_EQ(counted->reset_failures, 70u);
  EXPECT_EQ(counted->relayed, 110u);
  const auto config = c->config(FunctionId{0x40001}, true);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(*config, space);
  EXPECT_NE(text_in_request(2, PCILEND_A_EMULATED), "absent");
  EXPECT_FALSE(c->config(FunctionId{0x40001}, false)) << "255 bytes";
  EXPECT_EQ(text_in_request(3, PCILEND_A_EMULATED), "absent");
  EXPECT_FALSE(c->config(FunctionId{0x40001}, false)) << "no bytes";
}

TEST_F(ClientTest, TakingBackSaysHow) {
  auto c = client({acknowledge(2), acknowledge(3), acknowledge(4), acknowledge(5)});
  const PciAddress address = parse_pci_address("00:05.0").value();
  ASSERT_TRUE(c->make_unavailable(address, false));
  ASSERT_TRUE(c->make_unavailable(address, true));
  EXPECT_EQ(text_in_request(1, PCILEND_A_FORCE), "absent");
  EXPECT_NE(text_in_request(2, PCILEND_A_FORCE), "absent");
  ASSERT_TRUE(c->recall(address, 5000));
  ASSERT_TRUE(c->reserve(FunctionId{0x40001}, {}));
  EXPECT_EQ(text_in_request(4, PCILEND_A_TTL_MS), "absent");
}

class EventsTest : public ClientTest {
 protected:
  std::unique_ptr<EventStream> events(std::deque<Bytes> datagrams) {
    datagrams.push_front(join({family_reply(), acknowledge(1)}));
    auto opened = open_events(std::unique_ptr<EventTransport>(
        std::make_unique<ScriptedTransport>(std::move(datagrams), &log_)));
    EXPECT_TRUE(opened) << (opened ? "" : opened.error().message);
    return opened ? std::move(*opened) : nullptr;
  }
  static Attributes audit_nest() {
    Attributes audit;
    const int32_t result = -EBUSY;
    audit.u64(PCILEND_AUDIT_A_TIME, 5)
        .u32(PCILEND_AUDIT_A_NODE, 12)
        .text(PCILEND_AUDIT_A_ACTION, "borrow")
        .u32(PCILEND_AUDIT_A_FUNCTION, 0x40001)
        .u32(PCILEND_AUDIT_A_TARGET, 0x40002)
        .raw(PCILEND_AUDIT_A_RESULT, &result, sizeof result);
    return audit;
  }
};

TEST_F(EventsTest, ComeOneByOneInTheirOrder) {
  const Attributes link = Attributes().u32(PCILEND_LINK_A_INDEX, 3);
  auto stream = events(
      {join({notification(
                 Attributes().u32(PCILEND_A_EVENT, PCILEND_EVENT_LINK).nest(PCILEND_A_LINK, link)),
             notification(Attributes()
                              .u32(PCILEND_A_EVENT, PCILEND_EVENT_LEASE_LOST)
                              .nest(PCILEND_A_FUNCTION, function_nest()))}),
       notification(Attributes()
                        .u32(PCILEND_A_EVENT, PCILEND_EVENT_AUDIT)
                        .nest(PCILEND_A_AUDIT, audit_nest())),
       notification(Attributes().u32(PCILEND_A_EVENT, 999))});
  EXPECT_THAT(log_.groups, testing::ElementsAre(kEventGroup));
  const auto first = std::get<Event>(stream->next({}).value());
  EXPECT_EQ(first.kind, static_cast<uint32_t>(PCILEND_EVENT_LINK));
  EXPECT_EQ(first.link->index, 3u);
  EXPECT_EQ(std::get<Event>(stream->next({}).value()).function->id.value, 0x40001u);
  const auto third = std::get<Event>(stream->next({}).value());
  EXPECT_EQ(third.audit->action, "borrow");
  EXPECT_EQ(third.audit->node, 12u);
  EXPECT_EQ(third.audit->target->value, 0x40002u);
  EXPECT_EQ(third.audit->uid, std::nullopt);
  EXPECT_EQ(third.audit->result, -EBUSY);
  EXPECT_EQ(std::get<Event>(stream->next({}).value()).kind, 999u) << "of a newer kernel";
  EXPECT_EQ(std::get<Wake>(stream->next({}).value()), Wake::Timeout);
}

TEST_F(EventsTest, SegmentsCome) {
  const auto segment = [](uint32_t kind, const Attributes& what) {
    return notification(Attributes().u32(PCILEND_A_EVENT, kind).nest(PCILEND_A_SEGMENT, what));
  };
  const auto stream = events(
      {segment(PCILEND_EVENT_SEGMENT,
               Attributes()
                   .u32(PCILEND_SEGMENT_A_ID, 0x40001)
                   .u32(PCILEND_SEGMENT_A_STATE, PCILEND_SEGMENT_OFFERED)
                   .nest(PCILEND_SEGMENT_A_OFFER, Attributes().u32(PCILEND_OFFER_A_NODE, 8))),
       segment(PCILEND_EVENT_SEGMENT_GONE, Attributes().u32(PCILEND_SEGMENT_A_ID, 0x40001)),
       segment(PCILEND_EVENT_SEGMENT, Attributes())});
  const auto offered = std::get<Event>(stream->next({}).value());
  EXPECT_EQ(event_name(offered.kind), "segment");
  ASSERT_TRUE(offered.segment);
  ASSERT_EQ(offered.segment->offers.size(), 1u);
  EXPECT_EQ(offered.segment->offers[0].node, 8u);
  EXPECT_EQ(event_name(std::get<Event>(stream->next({}).value()).kind), "segment-gone");
  EXPECT_FALSE(stream->next({})) << "a segment without an id";
}

TEST_F(EventsTest, MalformedOnesAreErrors) {
  const Attributes kind = Attributes().u32(PCILEND_A_EVENT, PCILEND_EVENT_LINK);
  Attributes no_action;
  no_action.u64(PCILEND_AUDIT_A_TIME, 1);
  for (const auto& datagram :
       {notification(Attributes()), notification(kind),
        notification(Attributes(kind).nest(PCILEND_A_FUNCTION, function_nest())),
        notification(Attributes().u64(PCILEND_A_EVENT, 1)),
        notification(Attributes()
                         .u32(PCILEND_A_EVENT, PCILEND_EVENT_AUDIT)
                         .nest(PCILEND_A_AUDIT, no_action)),
        Bytes(3), message(kFamily, 0, 0, Bytes(2))})
    EXPECT_FALSE(events({datagram})->next({}));
}

TEST_F(EventsTest, WithoutTheModuleTheCureIsNamed) {
  std::deque<Bytes> datagrams{acknowledge(1, ENOENT)};
  const auto opened = open_events(
      std::unique_ptr<EventTransport>(std::make_unique<ScriptedTransport>(datagrams, nullptr)));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().kind, ErrorClass::Unreachable);
}

class MalformedAnswerTest : public ClientTest, public testing::WithParamInterface<int> {};

TEST_P(MalformedAnswerTest, IsAnError) {
  const auto wrap = [](const Attributes& nest) {
    return join({reply(2, PCILEND_CMD_FUNCTION_GET, Attributes().nest(PCILEND_A_FUNCTION, nest)),
                 acknowledge(2)});
  };
  Bytes overlong = wrap(function_nest());
  reinterpret_cast<nlattr*>(overlong.data() + sizeof(nlmsghdr) + GENL_HDRLEN)->nla_len = 0xffff;
  Bytes short_attribute = wrap(function_nest());
  reinterpret_cast<nlattr*>(short_attribute.data() + sizeof(nlmsghdr) + GENL_HDRLEN)->nla_len = 2;
  Bytes cut = reply(2, PCILEND_CMD_FUNCTION_GET, function_nest());
  cut.resize(cut.size() - 4);
  Bytes huge = wrap(function_nest());
  reinterpret_cast<nlmsghdr*>(huge.data())->nlmsg_len = 0xa5a5a5a5;
  const Attributes id = Attributes().u32(PCILEND_FUNCTION_A_ID, 1);

  const std::vector<Bytes> cases{
      overlong,
      short_attribute,
      cut,
      huge,
      Bytes(3),
      acknowledge(2),                                                    // no reply at all
      wrap(Attributes()),                                                // no id
      wrap(Attributes().u64(PCILEND_FUNCTION_A_ID, 1)),                  // wrong width
      wrap(Attributes(id).u32(PCILEND_FUNCTION_A_UUID, 1)),              // UUID of 4 bytes
      wrap(Attributes(id).raw(PCILEND_FUNCTION_A_BDF, "abc", 3)),        // text without end
      wrap(Attributes(id).flag(PCILEND_FUNCTION_A_BDF)),                 // empty text
      wrap(Attributes(id).nest(PCILEND_FUNCTION_A_BAR, Attributes())),   // BAR without number
      wrap(Attributes(id).u64(PCILEND_FUNCTION_A_RECALL_MS, 1)),         // wrong width
      wrap(Attributes(id).u32(PCILEND_FUNCTION_A_RESERVED_UUID, 1)),     // UUID of 4 bytes
      wrap(Attributes(id).raw(PCILEND_FUNCTION_A_ALLOWED, "abcde", 5)),  // a node and a bit
      join({reply(2, PCILEND_CMD_FUNCTION_GET, Attributes()), acknowledge(2)}),
      join({reply(2, 0, Attributes().nest(PCILEND_A_FUNCTION, function_nest()), 0, 0x33),
            acknowledge(2)}),                              // another family's
      message(NLMSG_ERROR, 0, 2, Bytes(2)),                // acknowledgement without errno
      message(NLMSG_ERROR, 0, 2, Bytes(4, std::byte{1})),  // a positive errno
      message(kFamily, 0, 2, Bytes(2)),                    // no generic-netlink header
      join({reply(2, 0, Attributes().nest(PCILEND_A_FUNCTION, function_nest())),
            reply(2, 0, Attributes().nest(PCILEND_A_FUNCTION, function_nest())),
            acknowledge(2)}),  // two answers
  };
  ASSERT_LT(static_cast<size_t>(GetParam()), cases.size());
  const auto function =
      client({cases[static_cast<size_t>(GetParam())]})->function(FunctionId{0x40001});
  ASSERT_FALSE(function);
  EXPECT_NE(function.error().kind, ErrorClass::NotFound);
  EXPECT_EQ(function.error().message.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, MalformedAnswerTest, testing::Range(0, 21));

}  // namespace
}  // namespace pcilend::test
