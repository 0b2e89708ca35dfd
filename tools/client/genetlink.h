// SPDX-License-Identifier: GPL-2.0-or-later
// Requests to one generic-netlink family, and what the kernel makes of them.
#pragma once

#include <linux/netlink.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pcilend/transport.h"

namespace pcilend {

// Why an exchange gave no reply.
struct Refusal {
  int number = 0;  // errno from the kernel; 0 if the exchange itself failed
  Error error;
};

// A request under construction. Family and sequence are filled in when it is sent.
class Request {
 public:
  enum class Kind { Do, Dump };

  explicit Request(uint8_t command, Kind kind = Kind::Do);

  Request& put(uint16_t type, uint32_t value);
  Request& put64(uint16_t type, uint64_t value);
  Request& put(uint16_t type, std::string_view text);
  Request& put(uint16_t type, std::span<const uint32_t> values);
  Request& put(uint16_t type, std::span<const std::byte> bytes);
  // Attributes of numbers, inside of one.
  Request& nest(uint16_t type, std::initializer_list<std::pair<uint16_t, uint32_t>> values);
  Request& flag(uint16_t type) { return put(type, std::span<const std::byte>()); }

  [[nodiscard]] Kind kind() const { return kind_; }

 private:
  friend class GenericNetlink;

  nlmsghdr* header() { return reinterpret_cast<nlmsghdr*>(buffer_.data()); }

  alignas(nlmsghdr) std::array<std::byte, 1024> buffer_{};
  Kind kind_;
  bool overflow_ = false;
};

// Attributes of each message, without netlink and generic-netlink headers.
using Replies = std::vector<std::vector<std::byte>>;

// What the kernel knows by a family's name.
struct Family {
  uint16_t id = 0;
  uint32_t version = 0;
  std::map<std::string, uint32_t, std::less<>> groups;  // of multicast
};

// NotFound if the kernel has none of that name.
Result<Family> find_family(Transport& transport, std::string_view name);

// The messages of a family in a datagram that nobody asked for; other commands are skipped.
Result<Replies> split_notifications(std::span<const std::byte> datagram, uint16_t family,
                                    uint8_t command);

class GenericNetlink {
 public:
  // Looks the family up; NotFound if the kernel has none of that name, Unreachable if it is of
  // another version.
  static Result<GenericNetlink> open(std::unique_ptr<Transport> transport, std::string_view family,
                                     uint8_t version);

  // Over a transport that the caller keeps alive, to a family by its number.
  GenericNetlink(Transport& transport, uint16_t family, uint8_t version)
      : transport_(&transport), family_(family), version_(version) {}

  // Sends the request and takes all of its replies, up to the kernel's acknowledgement.
  tl::expected<Replies, Refusal> exchange(Request& request);

 private:
  enum class Progress { More, Done };

  tl::expected<Replies, Refusal> exchange_once(Request& request, bool* interrupted);
  tl::expected<Progress, Refusal> take(const nlmsghdr* message, Replies* replies) const;

  std::unique_ptr<Transport> owned_;
  Transport* transport_;
  uint16_t family_;
  uint8_t version_;
  uint32_t sequence_ = 0;
};

}  // namespace pcilend
