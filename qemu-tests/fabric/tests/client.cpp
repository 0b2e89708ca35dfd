// SPDX-License-Identifier: GPL-2.0-or-later
#include "client.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace pcilend::fabric::test {

Memory::Memory(size_t size, bool sealed)
    : fd_(::memfd_create("ram", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (::ftruncate(fd_.get(), static_cast<off_t>(size)) < 0) ADD_FAILURE() << "ftruncate";
  if (sealed) ::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK);
  mapping_ = Mapping::map(fd_.get(), 0, size, true).value();
}

Bytes bytes_from(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return Bytes(bytes.begin(), bytes.end());
}

Bytes join(std::initializer_list<std::span<const std::byte>> parts) {
  Bytes all;
  for (const auto part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

uint16_t Client::send(Command command, std::span<const std::byte> body, std::vector<int> fds,
                      uint32_t flags) {
  const uint16_t id = next_id_++;
  const Header header{id, static_cast<uint16_t>(command),
                      static_cast<uint32_t>(sizeof(Header) + body.size()), flags, 0};
  send_raw(join({bytes_of(header), body}), std::move(fds));
  return id;
}

void Client::send_raw(std::span<const std::byte> bytes, std::vector<int> fds) {
  alignas(cmsghdr) char control[CMSG_SPACE(64 * sizeof(int))] = {};
  iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
  }
  const ssize_t n = ::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  // A server that closed the stream is what some tests are about.
  if (n < 0 && errno == EPIPE) return;
  EXPECT_EQ(n, static_cast<ssize_t>(bytes.size())) << std::strerror(errno);
}

bool Client::fill() {
  std::byte chunk[65536];
  const ssize_t n = ::recv(fd(), chunk, sizeof chunk, MSG_DONTWAIT);
  if (n <= 0) return n == 0;
  input_.insert(input_.end(), chunk, chunk + n);
  return true;
}

std::optional<Received> Client::receive() {
  for (;;) {
    if (input_.size() >= sizeof(Header)) {
      Received received;
      std::memcpy(&received.header, input_.data(), sizeof(Header));
      const size_t size = received.header.size;
      if (input_.size() >= size) {
        received.body.assign(input_.begin() + sizeof(Header),
                             input_.begin() + static_cast<std::ptrdiff_t>(size));
        input_.erase(input_.begin(), input_.begin() + static_cast<std::ptrdiff_t>(size));
        return received;
      }
    }
    const size_t before = input_.size();
    fill();
    if (input_.size() == before) return std::nullopt;
  }
}

bool Client::closed() {
  char byte;
  const ssize_t n = ::recv(fd(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  return input_.empty() && (n == 0 || (n < 0 && errno == ECONNRESET));
}

uint16_t Client::send_version(std::string_view json, uint16_t major, uint16_t minor) {
  const std::string text(json);
  return send(Command::Version, join({bytes_of(major), bytes_of(minor),
                                      std::as_bytes(std::span(text.c_str(), text.size() + 1))}));
}

uint16_t Client::send_map(uint64_t address, uint64_t size, int fd, uint64_t offset,
                          uint32_t flags) {
  const DmaMap map{sizeof map, flags, offset, address, size};
  return send(Command::DmaMap, bytes_of(map), fd < 0 ? std::vector<int>{} : std::vector{fd});
}

uint16_t Client::send_unmap(uint64_t address, uint64_t size, uint32_t flags) {
  const DmaUnmap unmap{sizeof unmap, flags, address, size};
  return send(Command::DmaUnmap, bytes_of(unmap));
}

uint16_t Client::send_read(uint32_t region, uint64_t offset, uint32_t count) {
  const RegionAccess access{offset, region, count};
  return send(Command::RegionRead, bytes_of(access));
}

uint16_t Client::send_write(uint32_t region, uint64_t offset, std::span<const std::byte> data,
                            bool posted) {
  const RegionAccess access{offset, region, static_cast<uint32_t>(data.size())};
  return send(Command::RegionWrite, join({bytes_of(access), data}), {},
              posted ? Header::kNoReply : Header::kCommand);
}

uint16_t Client::send_set_irqs(uint32_t flags, uint32_t start, uint32_t count, std::vector<int> fds,
                               uint32_t index) {
  const IrqSet set{sizeof set, flags, index, start, count};
  return send(Command::DeviceSetIrqs, bytes_of(set), std::move(fds));
}

void Client::answer(const Received& request, std::span<const std::byte> data) {
  const auto access = request.head<DmaAccess>();
  Header header = request.header;
  header.flags = Header::kReply;
  header.size = static_cast<uint32_t>(sizeof(Header) + sizeof access + data.size());
  send_raw(join({bytes_of(header), bytes_of(access), data}));
}

void Client::answer_error(const Received& request, int error) {
  Header header = request.header;
  header.flags = Header::kReply | Header::kError;
  header.size = sizeof(Header);
  header.error = static_cast<uint32_t>(error);
  send_raw(bytes_of(header));
}

}  // namespace pcilend::fabric::test
