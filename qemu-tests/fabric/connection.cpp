// SPDX-License-Identifier: GPL-2.0-or-later
#include "connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace pcilend::fabric {
namespace {

constexpr size_t kReceiveSize = 64 << 10;
// Descriptors held for messages that aren't whole yet.
constexpr size_t kMaxPendingFds = 64;
constexpr size_t kSendBatch = 64;

}  // namespace

Connection::Connection(UniqueFd socket, MessageHandler& handler)
    : socket_(std::move(socket)), handler_(handler), buffer_(kReceiveSize) {}

Connection::Progress Connection::close(std::string why) {
  if (why_.empty()) why_ = std::move(why);
  return Progress::Closed;
}

Connection::Progress Connection::receive() {
  if (!why_.empty()) return Progress::Closed;
  if (begin_ == end_) begin_ = end_ = 0;
  if (end_ == buffer_.size()) {
    if (begin_ != 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    } else {
      buffer_.resize(buffer_.size() * 2);  // dispatch() has bounded the message's size
    }
  }

  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxPendingFds * sizeof(int))> control;
  iovec data{buffer_.data() + end_, buffer_.size() - end_};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t n = ::recvmsg(fd(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0) {
    if (errno == EAGAIN || errno == EINTR) return Progress::None;
    return close(fmt::format("receive: {}", std::strerror(errno)));
  }

  FdBatch batch;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int received;
      std::memcpy(&received, CMSG_DATA(c) + i * sizeof(int), sizeof received);
      batch.fds.emplace_back(received);
    }
  }
  if (n == 0) {
    return close(begin_ == end_ ? "disconnected" : "disconnected in the middle of a message");
  }
  if ((header.msg_flags & MSG_CTRUNC) != 0) return close("too many descriptors in one message");

  end_ += static_cast<size_t>(n);
  if (!batch.fds.empty()) {
    batch.end = position_ + (end_ - begin_);
    fd_count_ += batch.fds.size();
    fds_.push_back(std::move(batch));
  }
  if (!dispatch()) return Progress::Closed;
  if (fd_count_ > kMaxPendingFds) return close("too many descriptors for one message");
  return Progress::Some;
}

bool Connection::dispatch() {
  while (end_ - begin_ >= sizeof(Header)) {
    Message message;
    std::memcpy(&message.header, buffer_.data() + begin_, sizeof(Header));
    const uint32_t size = message.header.size;
    if (size < sizeof(Header) || size > kMaxMessage) {
      close(fmt::format("message of {} bytes: the stream is out of step", size));
      return false;
    }
    if (end_ - begin_ < size) break;
    message.body = std::span(buffer_).subspan(begin_ + sizeof(Header), size - sizeof(Header));
    begin_ += size;
    position_ += size;
    if (!fds_.empty()) message.fds = take_fds(position_);
    if (!handler_.on_message(message)) {
      close("protocol error");
      return false;
    }
  }
  return true;
}

std::vector<UniqueFd> Connection::take_fds(uint64_t message_end) {
  std::vector<UniqueFd> taken;
  while (!fds_.empty() && fds_.front().end <= message_end) {
    fd_count_ -= fds_.front().fds.size();
    std::move(fds_.front().fds.begin(), fds_.front().fds.end(), std::back_inserter(taken));
    fds_.pop_front();
  }
  return taken;
}

void Connection::send(Bytes message) {
  queued_bytes_ += message.size();
  outbox_.push_back(std::move(message));
}

bool Connection::flush() {
  // One packet a message: QEMU gives up on a header that arrives in two pieces.
  while (!outbox_.empty()) {
    std::array<mmsghdr, kSendBatch> packets{};
    std::array<iovec, kSendBatch> data;
    const size_t count = std::min(outbox_.size(), kSendBatch);
    for (size_t i = 0; i < count; i++) {
      const size_t skip = i == 0 ? head_sent_ : 0;
      data[i] = {outbox_[i].data() + skip, outbox_[i].size() - skip};
      packets[i].msg_hdr.msg_iov = &data[i];
      packets[i].msg_hdr.msg_iovlen = 1;
    }
    const int sent =
        ::sendmmsg(fd(), packets.data(), static_cast<unsigned>(count), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return true;
      close(fmt::format("send: {}", std::strerror(errno)));
      return false;
    }
    for (int i = 0; i < sent; i++) {
      const size_t packet = packets[static_cast<size_t>(i)].msg_len;
      queued_bytes_ -= packet;
      head_sent_ += packet;
      if (head_sent_ < outbox_.front().size()) return true;  // the socket is full
      head_sent_ = 0;
      outbox_.pop_front();
    }
  }
  return true;
}

}  // namespace pcilend::fabric
