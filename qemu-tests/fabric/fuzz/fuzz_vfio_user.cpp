// SPDX-License-Identifier: GPL-2.0-or-later
// Two hostile hosts and a hostile user of the control socket against one fabric. The input is a
// list of steps: what to do (1 byte), an argument (1 byte), a length (2 bytes, little-endian),
// data.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "control.h"
#include "fabric.h"

namespace {

using namespace pcilend;
using namespace pcilend::fabric;

class Hosts {
 public:
  Hosts() : memory_(::memfd_create("ram", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    if (::ftruncate(memory_.get(), 1 << 16) < 0) std::abort();
    ::fcntl(memory_.get(), F_ADD_SEALS, F_SEAL_SHRINK);
    for (size_t host = 0; host < 2; host++) connect(host);
  }

  void step(uint8_t what, uint8_t argument, std::span<const std::byte> data) {
    const size_t host = argument & 1;
    switch (what % 8) {
      case 0:  // any bytes
        send(host, data, argument >> 1 & 3);
        break;
      case 1:
      case 2:  // a message whose size fits
        send_message(host, data, argument >> 1 & 3);
        break;
      case 3:
        answer(host, data);
        break;
      case 4:
        now_ += std::chrono::milliseconds(argument * 8);
        break;
      case 5:
        control({reinterpret_cast<const char*>(data.data()), data.size()});
        break;
      case 6:
        clients_[host].reset();
        run();
        connect(host);
        break;
      default:
        fabric_.set_link(0, 1, (argument & 2) != 0);
        fabric_.set_delay(0, 1, std::chrono::milliseconds(argument >> 2));
        break;
    }
    run();
  }

 private:
  void connect(size_t host) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) < 0)
      std::abort();
    clients_[host].reset(ends[0]);
    fabric_.attach(fabric_.adapter(host, 1 - host), UniqueFd(ends[1]));
    const std::array<std::byte, 4> version{};
    const Header header{0, static_cast<uint16_t>(Command::Version), 20, 0, 0};
    send(host, bytes_of(header), 0);
    send(host, version, 0);
    run();
  }

  void send(size_t host, std::span<const std::byte> data, unsigned fds) {
    if (data.empty()) return;
    const UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    const std::array<int, 3> given{memory_.get(), event.get(), memory_.get()};
    alignas(cmsghdr) char ancillary[CMSG_SPACE(sizeof given)] = {};
    iovec bytes{const_cast<std::byte*>(data.data()), data.size()};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    if (fds != 0) {
      message.msg_control = ancillary;
      message.msg_controllen = CMSG_SPACE(fds * sizeof(int));
      cmsghdr* c = CMSG_FIRSTHDR(&message);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(fds * sizeof(int));
      std::memcpy(CMSG_DATA(c), given.data(), fds * sizeof(int));
    }
    ::sendmsg(clients_[host].get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  void send_message(size_t host, std::span<const std::byte> data, unsigned fds) {
    if (data.size() < 2) return;
    const auto command = static_cast<uint16_t>(std::to_integer<unsigned>(data[0]) % 20);
    const auto flags = std::to_integer<uint32_t>(data[1]);
    data = data.subspan(2);
    const Header header{1, command, static_cast<uint32_t>(sizeof(Header) + data.size()), flags, 0};
    Bytes all;
    const auto head = bytes_of(header);
    all.insert(all.end(), head.begin(), head.end());
    all.insert(all.end(), data.begin(), data.end());
    send(host, all, fds);
  }

  // Answers the oldest request of the fabric to this host, well or badly.
  void answer(size_t host, std::span<const std::byte> data) {
    if (requests_[host].empty()) return;
    Bytes reply = std::move(requests_[host].front());
    requests_[host].erase(requests_[host].begin());
    Header header;
    std::memcpy(&header, reply.data(), sizeof header);
    reply.resize(32);
    const size_t asked = data.empty() ? 8 : data.size();
    reply.resize(32 + asked, std::byte{0x5a});
    header.flags = Header::kReply;
    header.size = static_cast<uint32_t>(reply.size());
    std::memcpy(reply.data(), &header, sizeof header);
    send(host, reply, 0);
  }

  void control(std::string_view line) {
    work_.reset();
    work_ = carry_out(fabric_, line, [](const nlohmann::json& answer) {
      if (!answer.contains("ok")) std::abort();
    });
  }

  void collect(size_t host) {
    std::array<std::byte, 65536> chunk;
    ssize_t n;
    Bytes& input = input_[host];
    while ((n = ::recv(clients_[host].get(), chunk.data(), chunk.size(), MSG_DONTWAIT)) > 0)
      input.insert(input.end(), chunk.begin(), chunk.begin() + n);
    size_t at = 0;
    Header header;
    while (input.size() - at >= sizeof header) {
      std::memcpy(&header, input.data() + at, sizeof header);
      if (header.size < sizeof header) std::abort();
      if (input.size() - at < header.size) break;
      if (!header.is_reply() && header.size >= 32 && requests_[host].size() < 64)
        requests_[host].emplace_back(input.begin() + static_cast<std::ptrdiff_t>(at),
                                     input.begin() + static_cast<std::ptrdiff_t>(at) + 32);
      at += header.size;
    }
    input.erase(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (const auto& adapter : fabric_.adapters()) {
        if (adapter->session() == nullptr) continue;
        Connection& connection = adapter->session()->connection();
        const auto progress = connection.receive();
        if (progress == Connection::Progress::Closed) {
          fabric_.detach(*adapter, std::string(connection.why()));
          input_[adapter->host()].clear();
          requests_[adapter->host()].clear();
        }
        moved |= progress != Connection::Progress::None;
      }
      fabric_.timers().run(now_);
      for (const auto& adapter : fabric_.adapters()) {
        if (adapter->session() != nullptr) adapter->session()->connection().flush();
      }
      for (size_t host = 0; host < 2; host++) collect(host);
    }
  }

  TimePoint now_{};
  UniqueFd memory_;
  Log log_{[this] { return now_; }, [](std::string_view) {}};
  FabricOptions options_{.hosts = 2, .posted_limit = 1 << 20};
  Fabric fabric_{options_, [this] { return now_; }, log_};
  std::array<UniqueFd, 2> clients_;
  std::array<Bytes, 2> input_;
  std::array<std::vector<Bytes>, 2> requests_;
  std::unique_ptr<Work> work_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Hosts hosts;
  auto input = std::as_bytes(std::span(data, size));
  for (int steps = 0; input.size() >= 4 && steps < 64; steps++) {
    const auto what = std::to_integer<uint8_t>(input[0]);
    const auto argument = std::to_integer<uint8_t>(input[1]);
    uint16_t length;
    std::memcpy(&length, input.data() + 2, sizeof length);
    input = input.subspan(4);
    const auto part = input.first(std::min<size_t>(length, input.size()));
    input = input.subspan(part.size());
    hosts.step(what, argument, part);
  }
  return 0;
}
