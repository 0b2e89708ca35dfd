// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/transport.h"

#include <libmnl/libmnl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>

namespace pcilend {
namespace {

// The kernel answers a request inside send(); what is waited for here is already on its way.
constexpr time_t kReceiveSeconds = 10;

// Dumps come in datagrams of up to 32 KiB (NLMSG_GOODSIZE of the kernel's skbs).
constexpr size_t kDatagramBytes = 65536;

// Events that wait to be read; the kernel drops what does not fit. (Above rmem_max it needs root.)
constexpr int kEventQueueBytes = 8 << 20;

class Socket final : public EventTransport {
 public:
  Socket(mnl_socket* socket, UniqueFd stop)
      : socket_(socket, &mnl_socket_close), stop_(std::move(stop)) {}

  Result<> send(std::span<const std::byte> message) override {
    if (mnl_socket_sendto(socket_.get(), message.data(), message.size()) < 0)
      return fail_errno("netlink: send");
    return {};
  }

  Result<std::vector<std::byte>> receive() override {
    for (;;) {
      auto datagram = read(0);
      if (!datagram) return tl::unexpected(std::move(datagram).error());
      if (*datagram) return std::move(**datagram);
      if (errno == EAGAIN)
        return fail(ErrorClass::Unreachable, "the kernel did not answer within {} s",
                    kReceiveSeconds);
      if (errno != 0 && errno != EINTR) return fail_errno("netlink: receive");
    }
  }

  Result<> join(uint32_t group) override {
    if (::setsockopt(fd(), SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group) < 0)
      return fail_errno("netlink: subscribe");
    // Best effort: lost events are said either way.
    if (::setsockopt(fd(), SOL_SOCKET, SO_RCVBUFFORCE, &kEventQueueBytes, sizeof kEventQueueBytes) <
        0)
      ::setsockopt(fd(), SOL_SOCKET, SO_RCVBUF, &kEventQueueBytes, sizeof kEventQueueBytes);
    return {};
  }

  Result<std::variant<std::vector<std::byte>, Wake>> wait(
      std::optional<std::chrono::milliseconds> limit) override {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + limit.value_or(std::chrono::milliseconds(0));
    for (;;) {
      int left = -1;
      if (limit)
        left = static_cast<int>(std::max<int64_t>(
            0, std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count()));
      std::array<pollfd, 2> watched{{{fd(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
      const int ready = ::poll(watched.data(), watched.size(), left);
      if (ready < 0 && errno != EINTR) return fail_errno("netlink: wait");
      if (ready < 0) continue;
      if (ready == 0) return Wake::Timeout;
      if (watched[1].revents) return Wake::Stopped;
      auto datagram = read(MSG_DONTWAIT);
      if (!datagram) return tl::unexpected(std::move(datagram).error());
      if (*datagram) return std::move(**datagram);
      if (errno == ENOBUFS) return Wake::Lost;
      if (errno != 0 && errno != EINTR && errno != EAGAIN) return fail_errno("netlink: receive");
    }
  }

  [[nodiscard]] int fd() const { return mnl_socket_get_fd(socket_.get()); }

 private:
  // One datagram of the kernel; nothing with errno if the call failed, or with errno 0 if what came
  // was not from the kernel: any process may send to this socket.
  Result<std::optional<std::vector<std::byte>>> read(int flags) {
    std::vector<std::byte> datagram(kDatagramBytes);
    sockaddr_nl from{};
    iovec part{datagram.data(), datagram.size()};
    msghdr header{};
    header.msg_name = &from;
    header.msg_namelen = sizeof from;
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    const ssize_t n = ::recvmsg(fd(), &header, flags);
    if (n < 0) return std::nullopt;
    if (header.msg_flags & MSG_TRUNC)
      return fail(ErrorClass::Failure, "netlink: the kernel's answer is above {} bytes",
                  kDatagramBytes);
    if (from.nl_pid != 0) {
      errno = 0;
      return std::nullopt;
    }
    datagram.resize(static_cast<size_t>(n));
    return datagram;
  }

  std::unique_ptr<mnl_socket, decltype(&mnl_socket_close)> socket_;
  UniqueFd stop_;
};

Result<std::unique_ptr<Socket>> open_socket(UniqueFd stop) {
  mnl_socket* opened = mnl_socket_open2(NETLINK_GENERIC, SOCK_CLOEXEC);
  if (!opened) return fail_errno("netlink: open");
  auto socket = std::make_unique<Socket>(opened, std::move(stop));
  const int on = 1;
  const timeval limit{kReceiveSeconds, 0};
  if (mnl_socket_bind(opened, 0, MNL_SOCKET_AUTOPID) < 0 ||
      ::setsockopt(socket->fd(), SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof on) < 0 ||
      ::setsockopt(socket->fd(), SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof on) < 0 ||
      ::setsockopt(socket->fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0)
    return fail_errno("netlink: set up");
  return socket;
}

}  // namespace

Result<std::unique_ptr<Transport>> open_netlink_socket() {
  auto socket = open_socket(UniqueFd());
  if (!socket) return tl::unexpected(std::move(socket).error());
  return std::move(*socket);
}

Result<std::unique_ptr<EventTransport>> open_event_socket(UniqueFd stop) {
  auto socket = open_socket(std::move(stop));
  if (!socket) return tl::unexpected(std::move(socket).error());
  return std::move(*socket);
}

}  // namespace pcilend
