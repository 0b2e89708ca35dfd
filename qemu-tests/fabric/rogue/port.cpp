// SPDX-License-Identifier: GPL-2.0-or-later
#include "rogue/port.h"

#include <fcntl.h>
#include <linux/pci_regs.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>

namespace pcilend::rogue {

using namespace fabric;
using Steady = std::chrono::steady_clock;

namespace {

constexpr auto kPatience = std::chrono::seconds(10);
constexpr uint64_t kInterruptBase = 0xfee00000;
constexpr uint64_t kInterruptSize = 1 << 20;

// False once `deadline` has passed.
bool wait(int fd, short events, Steady::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Steady::now()).count();
  if (left <= 0) return false;
  pollfd poll{fd, events, 0};
  ::poll(&poll, 1, static_cast<int>(left));
  return true;
}

// One message with a descriptor, which Connection has no need to send.
bool send_with_fd(int socket, std::span<const std::byte> bytes, int fd) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

}  // namespace

Result<std::unique_ptr<Port>> Port::connect(const std::string& socket,
                                            const std::vector<Range>& ranges) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket.size() >= sizeof address.sun_path)
    return fail(ErrorClass::Usage, "{}: too long for a socket's path", socket);
  std::memcpy(address.sun_path, socket.c_str(), socket.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno("socket");
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0)
    return fail_errno(socket);
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
  return open(std::move(fd), ranges);
}

Result<std::unique_ptr<Port>> Port::open(UniqueFd socket, const std::vector<Range>& ranges) {
  std::unique_ptr<Port> port(new Port(std::move(socket)));
  PCILEND_TRY(port->negotiate());
  PCILEND_TRY(port->map(ranges));
  port->put<uint16_t>(kRegionConfig, PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
  return port;
}

Result<> Port::negotiate() {
  const uint16_t version[2] = {0, 1};
  const uint16_t id =
      send(Command::Version, std::as_bytes(std::span(version)), {}, Header::kCommand);
  if (!await(id)) return fail(ErrorClass::Unreachable, "the fabric does not answer");
  return {};
}

Result<> Port::map(const std::vector<Range>& ranges) {
  size_t size = 0;
  for (const Range& range : ranges) size += range.size;
  file_.reset(::memfd_create("rogue", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file_ || ::ftruncate(file_.get(), static_cast<off_t>(size)) < 0)
    return fail_errno("memory of the rogue node");
  ::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  auto mapping = Mapping::map(file_.get(), 0, size, true);
  if (!mapping) return tl::unexpected(mapping.error());
  mapping_ = std::move(*mapping);

  size_t offset = 0;
  for (const Range& range : ranges) {
    const DmaMap map{sizeof map, DmaMap::kRead | DmaMap::kWrite, offset, range.bus, range.size};
    const uint16_t id = next_id_++;
    const Header header{id, static_cast<uint16_t>(Command::DmaMap), sizeof header + sizeof map,
                        Header::kCommand, 0};
    Bytes message(header.size);
    std::memcpy(message.data(), &header, sizeof header);
    std::memcpy(message.data() + sizeof header, &map, sizeof map);
    if (!send_with_fd(fd(), message, file_.get())) return fail_errno("memory of the rogue node");
    if (!await(id))
      return fail(ErrorClass::Failure, "the fabric refuses memory at {:#x}", range.bus);
    ranges_.push_back(mapping_.bytes().subspan(offset, range.size));
    offset += range.size;
  }
  return {};
}

std::span<std::byte> Port::memory(size_t range) const {
  return ranges_.at(range);
}

bool Port::on_message(Message& message) {
  const Header& header = message.header;
  if (header.is_reply()) {
    if (awaited_ == header.id) {
      refused_ = (header.flags & Header::kError) != 0;
      reply_.emplace(message.body.begin(), message.body.end());
      awaited_.reset();
    }
    return true;
  }
  // What peers do on this bus outside of memory: interrupts count, nothing else is there.
  const bool write = static_cast<Command>(header.command) == Command::DmaWrite;
  if (write && message.body.size() >= sizeof(DmaAccess)) {
    DmaAccess access;
    std::memcpy(&access, message.body.data(), sizeof access);
    if (access.address >= kInterruptBase && access.address - kInterruptBase < kInterruptSize)
      interrupts_++;
  }
  if (header.wants_reply()) connection_.send(make_error(header, EFAULT));
  return true;
}

void Port::service() {
  for (;;) {
    const auto progress = connection_.receive();
    if (progress == Connection::Progress::Some) continue;
    alive_ &= progress != Connection::Progress::Closed;
    break;
  }
  alive_ &= connection_.flush();
}

uint16_t Port::send(Command command, std::span<const std::byte> head,
                    std::span<const std::byte> data, uint32_t flags) {
  const uint16_t id = next_id_++;
  const Header header{id, static_cast<uint16_t>(command),
                      static_cast<uint32_t>(sizeof header + head.size() + data.size()), flags, 0};
  Bytes message;
  message.reserve(header.size);
  for (const auto part : {bytes_of(header), head, data})
    message.insert(message.end(), part.begin(), part.end());
  connection_.send(std::move(message));
  drain();
  return id;
}

void Port::drain() {
  const auto deadline = Steady::now() + kPatience;
  while (alive_) {
    alive_ = connection_.flush();
    if (!alive_ || !connection_.has_output()) return;
    // It may wait for us to take what it sent.
    if (connection_.receive() == Connection::Progress::Closed) alive_ = false;
    if (!wait(fd(), POLLIN | POLLOUT, deadline)) alive_ = false;
  }
}

std::optional<Bytes> Port::await(uint16_t id) {
  const auto deadline = Steady::now() + kPatience;
  awaited_ = id;
  reply_.reset();
  while (alive_ && !reply_) {
    service();
    if (!reply_ && alive_ && !wait(fd(), POLLIN, deadline)) break;
  }
  awaited_.reset();
  if (!reply_ || refused_) return std::nullopt;
  return std::exchange(reply_, std::nullopt);
}

void Port::write(uint32_t region, uint64_t offset, std::span<const std::byte> data) {
  const RegionAccess access{offset, region, static_cast<uint32_t>(data.size())};
  send(Command::RegionWrite, bytes_of(access), data, Header::kCommand | Header::kNoReply);
}

bool Port::read(uint32_t region, uint64_t offset, std::span<std::byte> data) {
  const RegionAccess access{offset, region, static_cast<uint32_t>(data.size())};
  const auto reply = await(send(Command::RegionRead, bytes_of(access), {}, Header::kCommand));
  if (!reply || reply->size() != sizeof access + data.size()) return false;
  std::memcpy(data.data(), reply->data() + sizeof access, data.size());
  return true;
}

}  // namespace pcilend::rogue
