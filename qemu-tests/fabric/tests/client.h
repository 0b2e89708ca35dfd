// SPDX-License-Identifier: GPL-2.0-or-later
// A scripted vfio-user client: what QEMU sends, or should never send, message by message.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pcilend/fd.h"
#include "protocol.h"

namespace pcilend::fabric::test {

// Shared memory as QEMU's memory-backend-memfd makes it.
class Memory {
 public:
  explicit Memory(size_t size, bool sealed = true);
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] std::span<std::byte> bytes() const { return mapping_.bytes(); }
  template <class T>
  [[nodiscard]] T get(size_t offset) const {
    T value;
    std::memcpy(&value, bytes().data() + offset, sizeof value);
    return value;
  }
  template <class T>
  void put(size_t offset, T value) {
    std::memcpy(bytes().data() + offset, &value, sizeof value);
  }

 private:
  UniqueFd fd_;
  Mapping mapping_;
};

Bytes bytes_from(std::string_view text);
template <class T>
Bytes value_bytes(T value) {
  const auto bytes = bytes_of(value);
  return Bytes(bytes.begin(), bytes.end());
}
Bytes join(std::initializer_list<std::span<const std::byte>> parts);

struct Received {
  Header header;
  Bytes body;

  [[nodiscard]] Command command() const { return static_cast<Command>(header.command); }
  [[nodiscard]] bool failed() const { return (header.flags & Header::kError) != 0; }
  template <class T>
  [[nodiscard]] T head() const {
    T value{};
    if (body.size() >= sizeof value) std::memcpy(&value, body.data(), sizeof value);
    return value;
  }
  // What follows a RegionAccess or DmaAccess.
  [[nodiscard]] std::span<const std::byte> data() const { return std::span(body).subspan(16); }
  template <class T>
  [[nodiscard]] T value() const {
    T value{};
    if (body.size() >= 16 + sizeof value) std::memcpy(&value, body.data() + 16, sizeof value);
    return value;
  }
};

class Client {
 public:
  explicit Client(UniqueFd socket) : socket_(std::move(socket)) {}

  // Nothing is waited for: the test lets the server run in between.
  uint16_t send(Command command, std::span<const std::byte> body, std::vector<int> fds = {},
                uint32_t flags = Header::kCommand);
  void send_raw(std::span<const std::byte> bytes, std::vector<int> fds = {});
  // The next message, if a whole one is there.
  std::optional<Received> receive();
  // The server closed the stream, and nothing is left to read.
  bool closed();
  void hang_up() { socket_.reset(); }
  [[nodiscard]] int fd() const { return socket_.get(); }

  uint16_t send_version(std::string_view json = "{\"capabilities\":{\"max_msg_fds\":16}}",
                        uint16_t major = 0, uint16_t minor = 0);
  uint16_t send_map(uint64_t address, uint64_t size, int fd, uint64_t offset = 0,
                    uint32_t flags = DmaMap::kRead | DmaMap::kWrite);
  uint16_t send_unmap(uint64_t address, uint64_t size, uint32_t flags = 0);
  uint16_t send_read(uint32_t region, uint64_t offset, uint32_t count);
  uint16_t send_write(uint32_t region, uint64_t offset, std::span<const std::byte> data,
                      bool posted = true);
  template <class T>
  void post(uint32_t region, uint64_t offset, T value) {
    send_write(region, offset, bytes_of(value));
  }
  uint16_t send_set_irqs(uint32_t flags, uint32_t start, uint32_t count, std::vector<int> fds = {},
                         uint32_t index = kIrqMsix);
  // Answers a DMA_READ of the server.
  void answer(const Received& request, std::span<const std::byte> data);
  void answer_error(const Received& request, int error);

 private:
  bool fill();

  UniqueFd socket_;
  uint16_t next_id_ = 1000;
  Bytes input_;
};

}  // namespace pcilend::fabric::test
