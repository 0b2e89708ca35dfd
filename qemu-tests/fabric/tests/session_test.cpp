// SPDX-License-Identifier: GPL-2.0-or-later
// The protocol between a scripted client and a session, without a fabric behind it.
#include "session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "tests/client.h"

namespace pcilend::fabric {
namespace {

using test::bytes_from;
using test::Client;
using test::join;
using test::Received;

struct FakeDevice final : Device {
  bool is_connected = false;
  std::vector<DmaMap> maps;
  std::vector<bool> map_had_fd;
  int map_error = 0;
  std::vector<DmaUnmap> unmaps;
  std::vector<uint32_t> irq_fds;
  std::vector<ReadTicket> reads;
  std::vector<RegionAccess> writes;
  Bytes written;
  int resets = 0;
  std::vector<int> failed_writes;

  void connected() override { is_connected = true; }
  uint64_t region_size(uint32_t region) const override { return region == 0 ? 4096 : 0; }
  uint32_t irq_count(uint32_t index) const override { return index == kIrqMsix ? 24 : 0; }
  Parsed<> dma_map(const DmaMap& map, UniqueFd fd) override {
    maps.push_back(map);
    map_had_fd.push_back(bool(fd));
    return map_error == 0 ? Parsed<>() : tl::unexpected(map_error);
  }
  Parsed<> dma_unmap(const DmaUnmap& unmap) override {
    unmaps.push_back(unmap);
    return {};
  }
  Parsed<> set_irqs(const IrqRequest&, std::vector<UniqueFd> fds) override {
    irq_fds.push_back(static_cast<uint32_t>(fds.size()));
    return {};
  }
  void region_read(const ReadTicket& ticket) override { reads.push_back(ticket); }
  void region_write(const RegionAccess& access, std::span<const std::byte> data) override {
    writes.push_back(access);
    written.assign(data.begin(), data.end());
  }
  void reset() override { resets++; }
  void dma_write_failed(int error, uint16_t /*id*/) override { failed_writes.push_back(error); }
};

class SessionTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    client = std::make_unique<Client>(UniqueFd(ends[0]));
    session = std::make_unique<Session>(UniqueFd(ends[1]), device);
  }

  void TearDown() override { session.reset(); }

  // Lets the server run; false once it has closed the stream.
  bool serve() {
    Connection::Progress progress;
    while ((progress = session->connection().receive()) == Connection::Progress::Some) {
    }
    session->connection().flush();
    return progress != Connection::Progress::Closed;
  }
  void negotiate() {
    client->send_version();
    ASSERT_TRUE(serve());
    ASSERT_TRUE(client->receive());
  }
  // Sends, serves, and takes the one answer.
  std::optional<Received> ask(Command command, std::span<const std::byte> body,
                              std::vector<int> fds = {}) {
    const uint16_t id = client->send(command, body, std::move(fds));
    EXPECT_TRUE(serve());
    auto answer = client->receive();
    if (answer) {
      EXPECT_EQ(answer->header.id, id);
      EXPECT_EQ(answer->command(), command);
      EXPECT_FALSE(client->receive()) << "one answer only";
    }
    return answer;
  }
  int error_of(Command command, std::span<const std::byte> body, std::vector<int> fds = {}) {
    const auto answer = ask(command, body, std::move(fds));
    if (!answer) return -1;
    return answer->failed() ? static_cast<int>(answer->header.error) : 0;
  }

  FakeDevice device;
  std::unique_ptr<Client> client;
  std::unique_ptr<Session> session;
};

TEST_F(SessionTest, NegotiatesTheLowerMinorVersion) {
  for (const auto& [offered, got] : {std::pair{0, 0}, {1, 1}, {7, 1}}) {
    SetUp();
    client->send_version("{}", 0, static_cast<uint16_t>(offered));
    ASSERT_TRUE(serve());
    const auto reply = client->receive();
    ASSERT_TRUE(reply);
    EXPECT_FALSE(reply->failed());
    EXPECT_EQ(reply->head<uint32_t>(), static_cast<uint32_t>(got) << 16);
    EXPECT_TRUE(device.is_connected);
  }
}

TEST_F(SessionTest, AWrongVersionIsRefusedAndTheStreamEnds) {
  client->send_version("{}", 1, 0);
  EXPECT_FALSE(serve());
  const auto reply = client->receive();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->header.error, static_cast<uint32_t>(EINVAL));
  EXPECT_FALSE(device.is_connected);
}

TEST_F(SessionTest, NothingIsServedBeforeTheVersion) {
  for (uint16_t command = 2; command < 20; command++) {
    SetUp();
    client->send(static_cast<Command>(command), Bytes(32));
    EXPECT_FALSE(serve()) << command;
  }
  EXPECT_TRUE(device.maps.empty() && device.reads.empty() && device.resets == 0);
}

TEST_F(SessionTest, ASecondVersionIsAnError) {
  negotiate();
  EXPECT_EQ(error_of(Command::Version, Bytes(4)), EINVAL);
}

TEST_F(SessionTest, DeviceInfo) {
  negotiate();
  const auto info = ask(Command::DeviceGetInfo, bytes_of(DeviceInfo{16, 0, 0, 0}));
  ASSERT_TRUE(info);
  EXPECT_EQ(info->head<DeviceInfo>().flags, 3u);
  EXPECT_EQ(info->head<DeviceInfo>().num_regions, 9u);
  EXPECT_EQ(info->head<DeviceInfo>().num_irqs, 5u);
}

TEST_F(SessionTest, RegionInfoOfEveryRegion) {
  negotiate();
  for (uint32_t index = 0; index < kRegionCount; index++) {
    const auto info =
        ask(Command::DeviceGetRegionInfo, bytes_of(RegionInfo{32, 0, index, 0, 0, 0}));
    ASSERT_TRUE(info);
    const auto region = info->head<RegionInfo>();
    EXPECT_EQ(region.index, index);
    EXPECT_EQ(region.size, index == 0 ? 4096u : 0u);
    EXPECT_EQ(region.flags, index == 0 ? 3u : 0u) << "never mappable";
  }
  EXPECT_EQ(error_of(Command::DeviceGetRegionInfo, bytes_of(RegionInfo{32, 0, 9, 0, 0, 0})),
            EINVAL);
}

TEST_F(SessionTest, OnlyMsixExists) {
  negotiate();
  for (uint32_t index = 0; index < 8; index++) {
    const auto info = ask(Command::DeviceGetIrqInfo, bytes_of(IrqInfo{16, 0, index, 0}));
    ASSERT_TRUE(info);
    EXPECT_EQ(info->failed(), index != kIrqMsix);
    if (index != kIrqMsix) continue;
    EXPECT_EQ(info->head<IrqInfo>().count, 24u);
    EXPECT_EQ(info->head<IrqInfo>().flags, 9u);
  }
}

TEST_F(SessionTest, MapsComeWithOrWithoutADescriptor) {
  negotiate();
  const UniqueFd event(::eventfd(0, 0));
  const DmaMap map{32, 3, 0, 0x1000, 0x1000};
  EXPECT_EQ(error_of(Command::DmaMap, bytes_of(map), {event.get()}), 0);
  EXPECT_EQ(error_of(Command::DmaMap, bytes_of(map)), 0);
  EXPECT_EQ(device.map_had_fd, (std::vector<bool>{true, false}));
  EXPECT_EQ(error_of(Command::DmaMap, bytes_of(map), {event.get(), event.get()}), EINVAL);
  device.map_error = EEXIST;
  EXPECT_EQ(error_of(Command::DmaMap, bytes_of(map)), EEXIST);
  EXPECT_EQ(error_of(Command::DmaMap, Bytes(31)), EINVAL);
}

TEST_F(SessionTest, AnUnmapIsAppliedBeforeItIsAnsweredAndEchoed) {
  negotiate();
  const DmaUnmap unmap{24, 0, 0x1000, 0x2000};
  client->send(Command::DmaUnmap, bytes_of(unmap));
  while (session->connection().receive() == Connection::Progress::Some) {
  }
  ASSERT_EQ(device.unmaps.size(), 1u);
  EXPECT_FALSE(client->receive()) << "the answer is still to be sent";
  session->connection().flush();
  const auto answer = client->receive();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->head<DmaUnmap>().size, 0x2000u);
  EXPECT_EQ(answer->body.size(), sizeof(DmaUnmap));
}

TEST_F(SessionTest, IrqDescriptorsReachTheDevice) {
  negotiate();
  const UniqueFd event(::eventfd(0, 0));
  client->send_set_irqs(0x24, 0, 1);
  client->send_set_irqs(0x24, 0, 3, {event.get(), event.get(), event.get()});
  serve();
  EXPECT_EQ(device.irq_fds, (std::vector<uint32_t>{0, 3}));
  while (client->receive()) {
  }
  EXPECT_EQ(error_of(Command::DeviceSetIrqs, Bytes(19)), EINVAL);
}

TEST_F(SessionTest, APostedWriteIsNeverAnswered) {
  negotiate();
  client->post<uint32_t>(0, 16, 0x1234);
  client->send_write(0, 4092, Bytes(8));  // posted, and out of range
  client->send(Command::DeviceReset, {}, {}, Header::kNoReply);
  serve();
  EXPECT_FALSE(client->receive());
  EXPECT_EQ(device.writes.size(), 1u);
  EXPECT_EQ(device.resets, 1);
}

TEST_F(SessionTest, AWriteThatWantsAnAnswerGetsOne) {
  negotiate();
  client->send_write(0, 8, bytes_from("12345678"), false);
  serve();
  const auto answer = client->receive();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body.size(), sizeof(RegionAccess));
  EXPECT_EQ(answer->head<RegionAccess>().count, 8u);
  EXPECT_EQ(device.written, bytes_from("12345678"));
}

TEST_F(SessionTest, AccessesStayInsideTheirRegion) {
  negotiate();
  const auto read_error = [&](uint32_t region, uint64_t offset, uint32_t count) {
    return error_of(Command::RegionRead, bytes_of(RegionAccess{offset, region, count}));
  };
  EXPECT_EQ(read_error(0, 4096, 1), EINVAL);
  EXPECT_EQ(read_error(0, 4095, 2), EINVAL);
  EXPECT_EQ(read_error(0, UINT64_MAX, 1), EINVAL);
  EXPECT_EQ(read_error(1, 0, 4), EINVAL);
  EXPECT_EQ(read_error(9, 0, 4), EINVAL);
  EXPECT_EQ(read_error(UINT32_MAX, 0, 4), EINVAL);
  EXPECT_EQ(read_error(0, 0, kMaxTransfer + 1), E2BIG);
  EXPECT_EQ(error_of(Command::RegionWrite,
                     join({bytes_of(RegionAccess{UINT64_MAX - 3, 0, 8}), Bytes(8)})),
            EINVAL);
  EXPECT_TRUE(device.reads.empty());
  EXPECT_TRUE(device.writes.empty());
}

TEST_F(SessionTest, ReadsAreAnsweredInAnyOrder) {
  negotiate();
  const uint16_t first = client->send_read(0, 0, 4);
  const uint16_t second = client->send_read(0, 4, 4);
  serve();
  ASSERT_EQ(device.reads.size(), 2u);
  EXPECT_FALSE(client->receive());
  session->complete_read(device.reads[1], bytes_from("bbbb"));
  session->complete_read(device.reads[0], bytes_from("aaaa"));
  serve();
  auto answer = client->receive();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.id, second);
  EXPECT_EQ(answer->head<RegionAccess>().offset, 4u);
  EXPECT_THAT(answer->data(), testing::ElementsAreArray(bytes_from("bbbb")));
  answer = client->receive();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.id, first);
}

TEST_F(SessionTest, UnknownCommandsAreRefusedAndTheStreamGoesOn) {
  negotiate();
  for (const uint16_t command : {0, 6, 11, 12, 14, 15, 16, 17, 18, 99, 65535})
    EXPECT_EQ(error_of(static_cast<Command>(command), Bytes(64)), ENOSYS) << command;
  EXPECT_EQ(error_of(Command::DeviceGetInfo, Bytes(16)), 0);
}

TEST_F(SessionTest, AMessageThatIsNeitherCommandNorReplyEndsTheStream) {
  negotiate();
  client->send(Command::DeviceGetInfo, Bytes(16), {}, 0x2);
  EXPECT_FALSE(serve());
}

TEST_F(SessionTest, UnexpectedDescriptorsAreHarmless) {
  negotiate();
  const UniqueFd event(::eventfd(0, 0));
  EXPECT_EQ(error_of(Command::DeviceGetInfo, Bytes(16), {event.get()}), 0);
}

class DmaReadTest : public SessionTest {
 protected:
  void SetUp() override {
    SessionTest::SetUp();
    negotiate();
  }
  bool read(uint64_t address, uint64_t count) {
    return session->dma_read(address, count, [this](Parsed<std::span<const std::byte>> answer) {
      results.push_back(answer ? Parsed<Bytes>(Bytes(answer->begin(), answer->end()))
                               : tl::unexpected(answer.error()));
    });
  }
  Received request() {
    session->connection().flush();
    auto received = client->receive();
    EXPECT_TRUE(received);
    return *received;
  }

  std::vector<Parsed<Bytes>> results;
};

TEST_F(DmaReadTest, GetsTheDataOnce) {
  ASSERT_TRUE(read(0xfebf0000, 4));
  const Received asked = request();
  EXPECT_EQ(asked.command(), Command::DmaRead);
  EXPECT_EQ(asked.head<DmaAccess>().address, 0xfebf0000u);
  EXPECT_EQ(asked.head<DmaAccess>().count, 4u);
  client->answer(asked, bytes_from("data"));
  client->answer(asked, bytes_from("late"));
  serve();
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0], bytes_from("data"));
}

TEST_F(DmaReadTest, ErrorsAndBrokenAnswersAreErrors) {
  read(0, 4);
  client->answer_error(request(), ENODEV);
  read(0, 4);
  client->answer(request(), bytes_from("dat"));
  read(0, 4);
  client->answer(request(), bytes_from("data+"));
  serve();
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].error(), ENODEV);
  EXPECT_EQ(results[1].error(), EIO);
  EXPECT_EQ(results[2].error(), EIO);
}

TEST_F(DmaReadTest, AnAnswerToAPostedWriteIsNotTakenForARead) {
  session->dma_write(0x1000, bytes_from("w"));
  const Received write = request();
  for (int i = 0; i < 3; i++) read(0, 1);
  Received fake = write;
  for (uint16_t id = 0; id < 8; id++) {
    fake.header.id = id;
    client->answer_error(fake, EFAULT);
  }
  serve();
  EXPECT_TRUE(results.empty());
  EXPECT_EQ(device.failed_writes.size(), 8u);
  EXPECT_EQ(session->unanswered_reads(), 3u);
}

TEST_F(DmaReadTest, AnswersToNothingAreIgnored) {
  Received fake{{77, 11, 0, 0, 0}, {}};
  client->answer(fake, bytes_from("data"));
  fake.header.command = 9;
  client->answer(fake, bytes_from("data"));
  EXPECT_TRUE(serve());
  EXPECT_TRUE(results.empty());
}

TEST_F(DmaReadTest, IdsInUseAreNotUsedAgain) {
  ASSERT_TRUE(read(0xdead, 4));
  const uint16_t first = request().header.id;
  for (int i = 0; i < 65536 + 10; i++) session->dma_write(0, bytes_from("w"));
  ASSERT_TRUE(read(0xbeef, 4));
  uint16_t last = first;
  for (int round = 0; round < 10000 && session->connection().has_output(); round++) {
    session->connection().flush();
    while (const auto received = client->receive()) {
      if (received->command() == Command::DmaRead) last = received->header.id;
    }
  }
  EXPECT_NE(last, first);
}

TEST_F(DmaReadTest, AClientThatNeverAnswersIsNotAskedForEver) {
  int sent = 0;
  while (sent < 100'000 && read(0, 4)) sent++;
  EXPECT_EQ(sent, 4096);
}

TEST_F(DmaReadTest, TheEndOfTheSessionCancelsThem) {
  read(0, 4);
  read(8, 4);
  session.reset();
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].error(), ECANCELED);
}

}  // namespace
}  // namespace pcilend::fabric
