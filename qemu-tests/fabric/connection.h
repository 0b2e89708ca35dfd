// SPDX-License-Identifier: GPL-2.0-or-later
// One vfio-user stream: frames messages, pairs them with the descriptors that came along, and
// queues what is to be sent. Knows nothing of what messages mean.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "pcilend/fd.h"
#include "protocol.h"

namespace pcilend::fabric {

struct Message {
  Header header;
  std::span<const std::byte> body;  // valid during MessageHandler::on_message only
  std::vector<UniqueFd> fds;
};

class MessageHandler {
 public:
  virtual ~MessageHandler() = default;
  // False ends the connection: the stream can't be trusted any more.
  virtual bool on_message(Message& message) = 0;
};

class Connection {
 public:
  // `socket`: a non-blocking Unix stream socket. `handler` must outlive the connection.
  Connection(UniqueFd socket, MessageHandler& handler);

  [[nodiscard]] int fd() const { return socket_.get(); }

  enum class Progress { Some, None, Closed };
  // Reads at most one buffer and hands every whole message in it to the handler. `Closed` when the
  // peer is gone or broke the framing; why() says which.
  Progress receive();
  [[nodiscard]] const std::string& why() const { return why_; }

  // Queues one message behind those queued before.
  void send(Bytes message);
  // Sends what the socket takes; false if the peer is gone.
  bool flush();
  [[nodiscard]] bool has_output() const { return !outbox_.empty(); }
  [[nodiscard]] size_t queued_bytes() const { return queued_bytes_; }
  [[nodiscard]] size_t queued_messages() const { return outbox_.size(); }

 private:
  // Descriptors, and the stream position just behind the bytes they came with. They belong to the
  // message that holds the byte before it: the kernel ends a read behind a packet with descriptors.
  struct FdBatch {
    uint64_t end;
    std::vector<UniqueFd> fds;
  };

  Progress close(std::string why);
  bool dispatch();
  std::vector<UniqueFd> take_fds(uint64_t message_end);

  UniqueFd socket_;
  MessageHandler& handler_;
  std::string why_;

  std::vector<std::byte> buffer_;
  size_t begin_ = 0;         // first byte of buffer_ not yet dispatched
  size_t end_ = 0;           // behind the last byte received
  uint64_t position_ = 0;    // of begin_ in the stream
  std::deque<FdBatch> fds_;  // not yet taken by a message
  size_t fd_count_ = 0;

  std::deque<Bytes> outbox_;
  size_t head_sent_ = 0;  // bytes of outbox_.front() already sent
  size_t queued_bytes_ = 0;
};

}  // namespace pcilend::fabric
