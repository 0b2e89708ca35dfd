// SPDX-License-Identifier: GPL-2.0-or-later
// One adapter of a host that is a program and no VM: the client's side of vfio-user. The program
// has memory on its bus, and drives registers and windows of the adapter itself.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "connection.h"
#include "pcilend/fd.h"
#include "pcilend/result.h"

namespace pcilend::rogue {

class Port final : private fabric::MessageHandler {
 public:
  // Memory of the program at a bus address; whole pages.
  struct Range {
    uint64_t bus;
    size_t size;
  };

  // Negotiates, maps the ranges and sets the bus master bit. Waits 10 s for the fabric at most.
  static Result<std::unique_ptr<Port>> connect(const std::string& socket,
                                               const std::vector<Range>& ranges);
  // The same on a connected stream.
  static Result<std::unique_ptr<Port>> open(UniqueFd socket, const std::vector<Range>& ranges);

  [[nodiscard]] int fd() const { return connection_.fd(); }
  // The fabric is there and takes messages.
  [[nodiscard]] bool alive() const { return alive_; }
  // Memory of the range with that number.
  [[nodiscard]] std::span<std::byte> memory(size_t range) const;
  // Interrupts that peers' functions have raised here.
  [[nodiscard]] uint64_t interrupts() const { return interrupts_; }

  // Takes what has come; never waits.
  void service();

  // Posted, in order. Waits only while the fabric takes nothing.
  void write(uint32_t region, uint64_t offset, std::span<const std::byte> data);
  template <class T>
  void put(uint32_t region, uint64_t offset, T value) {
    write(region, offset, fabric::bytes_of(value));
  }
  // Waits for the answer; false if there is none.
  bool read(uint32_t region, uint64_t offset, std::span<std::byte> data);
  template <class T>
  std::optional<T> get(uint32_t region, uint64_t offset) {
    T value;
    if (!read(region, offset, std::as_writable_bytes(std::span(&value, 1)))) return std::nullopt;
    return value;
  }

 private:
  explicit Port(UniqueFd socket) : connection_(std::move(socket), *this) {}

  Result<> negotiate();
  Result<> map(const std::vector<Range>& ranges);
  bool on_message(fabric::Message& message) override;
  uint16_t send(fabric::Command command, std::span<const std::byte> head,
                std::span<const std::byte> data, uint32_t flags);
  void drain();
  // The body of the reply, if it came and is none of refusal.
  std::optional<fabric::Bytes> await(uint16_t id);

  fabric::Connection connection_;
  UniqueFd file_;
  Mapping mapping_;
  std::vector<std::span<std::byte>> ranges_;
  uint64_t interrupts_ = 0;
  uint16_t next_id_ = 0;
  std::optional<uint16_t> awaited_;
  std::optional<fabric::Bytes> reply_;
  bool refused_ = false;
  bool alive_ = true;
};

}  // namespace pcilend::rogue
