// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/transport.h"

#include <libmnl/libmnl.h>
#include <sys/socket.h>
#include <sys/time.h>

namespace pcilend {
namespace {

// The kernel answers a request inside send(); what is waited for here is already on its way.
constexpr time_t kReceiveSeconds = 10;

// Dumps come in datagrams of up to 32 KiB (NLMSG_GOODSIZE of the kernel's skbs).
constexpr size_t kDatagramBytes = 65536;

class Socket final : public Transport {
 public:
  explicit Socket(mnl_socket* socket) : socket_(socket, &mnl_socket_close) {}

  Result<> send(std::span<const std::byte> message) override {
    if (mnl_socket_sendto(socket_.get(), message.data(), message.size()) < 0)
      return fail_errno("netlink: send");
    return {};
  }

  Result<std::vector<std::byte>> receive() override {
    std::vector<std::byte> datagram(kDatagramBytes);
    for (;;) {
      sockaddr_nl from{};
      iovec part{datagram.data(), datagram.size()};
      msghdr header{};
      header.msg_name = &from;
      header.msg_namelen = sizeof from;
      header.msg_iov = &part;
      header.msg_iovlen = 1;
      const ssize_t n = ::recvmsg(mnl_socket_get_fd(socket_.get()), &header, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN)
        return fail(ErrorClass::Unreachable, "the kernel did not answer within {} s",
                    kReceiveSeconds);
      if (n < 0) return fail_errno("netlink: receive");
      if (header.msg_flags & MSG_TRUNC)
        return fail(ErrorClass::Failure, "netlink: the kernel's answer is above {} bytes",
                    kDatagramBytes);
      if (from.nl_pid != 0)
        continue;  // any process may send to this socket; only port 0 is the kernel
      datagram.resize(static_cast<size_t>(n));
      return datagram;
    }
  }

  [[nodiscard]] int fd() const { return mnl_socket_get_fd(socket_.get()); }

 private:
  std::unique_ptr<mnl_socket, decltype(&mnl_socket_close)> socket_;
};

}  // namespace

Result<std::unique_ptr<Transport>> open_netlink_socket() {
  mnl_socket* opened = mnl_socket_open2(NETLINK_GENERIC, SOCK_CLOEXEC);
  if (!opened) return fail_errno("netlink: open");
  auto socket = std::make_unique<Socket>(opened);
  const int on = 1;
  const timeval limit{kReceiveSeconds, 0};
  if (mnl_socket_bind(opened, 0, MNL_SOCKET_AUTOPID) < 0 ||
      ::setsockopt(socket->fd(), SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof on) < 0 ||
      ::setsockopt(socket->fd(), SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof on) < 0 ||
      ::setsockopt(socket->fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0)
    return fail_errno("netlink: set up");
  return socket;
}

}  // namespace pcilend
