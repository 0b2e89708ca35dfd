// SPDX-License-Identifier: GPL-2.0-or-later
#include "connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "tests/client.h"

namespace pcilend::fabric {
namespace {

using test::Client;
using Progress = Connection::Progress;

struct Recorder : MessageHandler {
  struct Seen {
    Header header;
    Bytes body;
    size_t fds;
  };
  std::vector<Seen> seen;
  bool accept = true;

  bool on_message(Message& message) override {
    seen.push_back(
        {message.header, Bytes(message.body.begin(), message.body.end()), message.fds.size()});
    return accept;
  }
};

class ConnectionTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    client = std::make_unique<Client>(UniqueFd(ends[0]));
    connection = std::make_unique<Connection>(UniqueFd(ends[1]), recorder);
  }

  Progress receive_all() {
    Progress last;
    while ((last = connection->receive()) == Progress::Some) {
    }
    return last;
  }

  static Bytes message(uint16_t id, size_t body_size) {
    const Header header{id, 9, static_cast<uint32_t>(sizeof(Header) + body_size), 0, 0};
    return test::join({bytes_of(header), Bytes(body_size, static_cast<std::byte>(id))});
  }

  static size_t open_descriptors() {
    size_t count = 0;
    for (int fd = 0; fd < 256; fd++) count += ::fcntl(fd, F_GETFD) >= 0;
    return count;
  }

  Recorder recorder;
  std::unique_ptr<Client> client;
  std::unique_ptr<Connection> connection;
};

TEST_F(ConnectionTest, ManyMessagesInOnePacket) {
  Bytes all;
  for (uint16_t id = 0; id < 100; id++) all = test::join({all, message(id, id)});
  client->send_raw(all);
  EXPECT_EQ(receive_all(), Progress::None);
  ASSERT_EQ(recorder.seen.size(), 100u);
  for (uint16_t id = 0; id < 100; id++) {
    EXPECT_EQ(recorder.seen[id].header.id, id);
    EXPECT_EQ(recorder.seen[id].body, Bytes(id, static_cast<std::byte>(id)));
  }
}

TEST_F(ConnectionTest, AMessageByteByByte) {
  const Bytes whole = message(5, 24);
  for (size_t i = 0; i < whole.size(); i++) {
    EXPECT_TRUE(recorder.seen.empty());
    client->send_raw(std::span(whole).subspan(i, 1));
    receive_all();
  }
  ASSERT_EQ(recorder.seen.size(), 1u);
  EXPECT_EQ(recorder.seen[0].body.size(), 24u);
}

TEST_F(ConnectionTest, TheLargestMessageGrowsTheBuffer) {
  const Bytes whole = message(1, kMaxMessage - sizeof(Header));
  for (size_t at = 0; at < whole.size(); at += 100'000) {
    client->send_raw(std::span(whole).subspan(at, std::min<size_t>(100'000, whole.size() - at)));
    receive_all();
  }
  client->send_raw(message(2, 8));
  EXPECT_EQ(receive_all(), Progress::None);
  ASSERT_EQ(recorder.seen.size(), 2u);
  EXPECT_EQ(recorder.seen[0].body.size(), kMaxMessage - sizeof(Header));
  EXPECT_EQ(recorder.seen[1].header.id, 2);
}

TEST_F(ConnectionTest, ASizeThatCannotBeEndsTheStream) {
  for (const uint32_t size : {0u, 15u, kMaxMessage + 1, UINT32_MAX}) {
    SetUp();
    const Header header{1, 9, size, 0, 0};
    client->send_raw(bytes_of(header));
    EXPECT_EQ(receive_all(), Progress::Closed) << size;
    EXPECT_NE(connection->why().find("out of step"), std::string::npos);
    EXPECT_EQ(connection->receive(), Progress::Closed);
  }
  EXPECT_TRUE(recorder.seen.empty());
}

TEST_F(ConnectionTest, AHandlerCanEndTheStream) {
  recorder.accept = false;
  client->send_raw(test::join({message(1, 0), message(2, 0)}));
  EXPECT_EQ(receive_all(), Progress::Closed);
  EXPECT_EQ(recorder.seen.size(), 1u);
}

TEST_F(ConnectionTest, HangingUpIsToldFromHangingUpInAMessage) {
  client->hang_up();
  EXPECT_EQ(receive_all(), Progress::Closed);
  EXPECT_EQ(connection->why(), "disconnected");

  SetUp();
  const Bytes whole = message(1, 8);
  client->send_raw(std::span(whole).first(20));
  client->hang_up();
  EXPECT_EQ(receive_all(), Progress::Closed);
  EXPECT_EQ(connection->why(), "disconnected in the middle of a message");
}

TEST_F(ConnectionTest, DescriptorsGoToTheMessageTheyCameWith) {
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  client->send_raw(message(1, 8));
  client->send_raw(message(2, 8), {event.get()});
  client->send_raw(message(3, 8));
  client->send_raw(message(4, 8), {event.get(), event.get()});
  client->send_raw(message(5, 8), {event.get()});
  receive_all();
  std::vector<size_t> counts;
  for (const auto& seen : recorder.seen) counts.push_back(seen.fds);
  EXPECT_EQ(counts, (std::vector<size_t>{0, 1, 0, 2, 1}));
}

TEST_F(ConnectionTest, DescriptorsWaitForTheRestOfTheirMessage) {
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  const Bytes whole = message(1, 8);
  client->send_raw(std::span(whole).first(10), {event.get()});
  receive_all();
  client->send_raw(test::join({std::span(whole).subspan(10), message(2, 0)}));
  receive_all();
  ASSERT_EQ(recorder.seen.size(), 2u);
  EXPECT_EQ(recorder.seen[0].fds, 1u);
  EXPECT_EQ(recorder.seen[1].fds, 0u);
}

TEST_F(ConnectionTest, DescriptorsOfAnUnfinishedMessageAreClosed) {
  const size_t before = open_descriptors();
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  const Bytes whole = message(1, 8);
  client->send_raw(std::span(whole).first(10), {event.get(), event.get()});
  receive_all();
  EXPECT_EQ(open_descriptors(), before + 3);
  client->hang_up();
  receive_all();
  connection.reset();
  EXPECT_EQ(open_descriptors(), before + 1 - 2);  // the event; less both ends of the stream
}

TEST_F(ConnectionTest, TooManyDescriptorsEndTheStream) {
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  const Bytes whole = message(1, 1000);
  Progress last = Progress::None;
  for (size_t at = 0; at < 8 && last == Progress::None; at++) {
    client->send_raw(std::span(whole).subspan(at, 1), std::vector<int>(16, event.get()));
    last = receive_all();
  }
  EXPECT_EQ(last, Progress::Closed);
  EXPECT_NE(connection->why().find("descriptors"), std::string::npos);
}

TEST_F(ConnectionTest, SendsInOrderAcrossAFullSocket) {
  // More than a socket buffer takes at once.
  for (uint16_t id = 0; id < 2000; id++) connection->send(message(id, 1000));
  size_t got = 0;
  while (got < 2000) {
    ASSERT_TRUE(connection->flush());
    const size_t before = got;
    while (const auto received = client->receive()) {
      EXPECT_EQ(received->header.id, got);
      EXPECT_EQ(received->body.size(), 1000u);
      got++;
    }
    ASSERT_GT(got, before);
  }
  EXPECT_FALSE(connection->has_output());
  EXPECT_EQ(connection->queued_bytes(), 0u);
}

TEST_F(ConnectionTest, ALargeMessageIsSentInPiecesAndStaysWhole) {
  const size_t size = 900'000;
  connection->send(message(7, size));
  connection->send(message(8, 4));
  std::vector<test::Received> all;
  for (int round = 0; round < 1000 && all.size() < 2; round++) {
    ASSERT_TRUE(connection->flush());
    while (auto received = client->receive()) all.push_back(std::move(*received));
  }
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].body, Bytes(size, std::byte{7}));
  EXPECT_EQ(all[1].header.id, 8);
}

TEST_F(ConnectionTest, SendingToOneWhoHungUpFails) {
  client->hang_up();
  connection->send(message(1, 8));
  EXPECT_FALSE(connection->flush());
}

}  // namespace
}  // namespace pcilend::fabric
