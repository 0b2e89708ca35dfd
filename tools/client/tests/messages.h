// SPDX-License-Identifier: GPL-2.0-or-later
// Netlink messages as the kernel would send them, and a transport that plays them.
#pragma once

#include <libmnl/libmnl.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/pcilend.h>

#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "pcilend/transport.h"

namespace pcilend::test {

using Bytes = std::vector<std::byte>;

inline constexpr uint16_t kFamily = 0x22;

// Attributes one behind the other, each padded to 4 bytes.
class Attributes {
 public:
  Attributes& raw(uint16_t type, const void* data, size_t size) {
    const nlattr head{static_cast<uint16_t>(sizeof head + size), type};
    append(&head, sizeof head);
    append(data, size);
    bytes_.resize(MNL_ALIGN(bytes_.size()));
    return *this;
  }
  Attributes& u16(uint16_t type, uint16_t value) { return raw(type, &value, sizeof value); }
  Attributes& u32(uint16_t type, uint32_t value) { return raw(type, &value, sizeof value); }
  Attributes& u64(uint16_t type, uint64_t value) { return raw(type, &value, sizeof value); }
  Attributes& text(uint16_t type, const std::string& value) {
    return raw(type, value.c_str(), value.size() + 1);
  }
  Attributes& flag(uint16_t type) { return raw(type, nullptr, 0); }
  Attributes& nest(uint16_t type, const Attributes& inner) {
    return raw(type | NLA_F_NESTED, inner.bytes_.data(), inner.bytes_.size());
  }
  [[nodiscard]] const Bytes& bytes() const { return bytes_; }

 private:
  void append(const void* data, size_t size) {
    const auto* at = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), at, at + size);
  }

  Bytes bytes_;
};

inline Bytes message(uint16_t type, uint16_t flags, uint32_t sequence, const Bytes& payload) {
  const nlmsghdr head{static_cast<uint32_t>(sizeof head + payload.size()), type, flags, sequence,
                      0};
  Bytes bytes(sizeof head);
  std::memcpy(bytes.data(), &head, sizeof head);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  bytes.resize(MNL_ALIGN(bytes.size()));
  return bytes;
}

inline Bytes reply(uint32_t sequence, uint8_t command, const Attributes& attributes,
                   uint16_t flags = 0, uint16_t family = kFamily) {
  const genlmsghdr head{command, PCILEND_FAMILY_VERSION, 0};
  Bytes payload(sizeof head);
  std::memcpy(payload.data(), &head, sizeof head);
  payload.insert(payload.end(), attributes.bytes().begin(), attributes.bytes().end());
  return message(family, flags, sequence, payload);
}

// An acknowledgement; `error` is an errno, 0 for success.
inline Bytes acknowledge(uint32_t sequence, int error = 0, const std::string& text = {}) {
  nlmsgerr body{};
  body.error = -error;
  body.msg.nlmsg_seq = sequence;
  Bytes payload(sizeof body);
  std::memcpy(payload.data(), &body, sizeof body);
  uint16_t flags = NLM_F_CAPPED;
  if (!text.empty()) {
    flags |= NLM_F_ACK_TLVS;
    const Bytes tail = Attributes().text(NLMSGERR_ATTR_MSG, text).bytes();
    payload.insert(payload.end(), tail.begin(), tail.end());
  }
  return message(NLMSG_ERROR, flags, sequence, payload);
}

inline Bytes done(uint32_t sequence, int error = 0, const std::string& text = {}) {
  const int32_t code = -error;
  Bytes payload(sizeof code);
  std::memcpy(payload.data(), &code, sizeof code);
  uint16_t flags = NLM_F_MULTI;
  if (!text.empty()) {
    flags |= NLM_F_ACK_TLVS;
    const Bytes tail = Attributes().text(NLMSGERR_ATTR_MSG, text).bytes();
    payload.insert(payload.end(), tail.begin(), tail.end());
  }
  return message(NLMSG_DONE, flags, sequence, payload);
}

inline constexpr uint32_t kEventGroup = 0x33;

// How the kernel answers the look-up of the family, which is always the first request.
inline Bytes family_reply(uint32_t version = PCILEND_FAMILY_VERSION) {
  const Attributes group = Attributes()
                               .u32(CTRL_ATTR_MCAST_GRP_ID, kEventGroup)
                               .text(CTRL_ATTR_MCAST_GRP_NAME, PCILEND_MCGRP_EVENTS);
  return reply(1, CTRL_CMD_NEWFAMILY,
               Attributes()
                   .u16(CTRL_ATTR_FAMILY_ID, kFamily)
                   .u32(CTRL_ATTR_VERSION, version)
                   .nest(CTRL_ATTR_MCAST_GROUPS, Attributes().nest(1, group)),
               0, GENL_ID_CTRL);
}

// What the kernel tells all who listen.
inline Bytes notification(const Attributes& attributes) {
  return reply(0, PCILEND_CMD_EVENT, attributes);
}

inline Bytes join(std::initializer_list<Bytes> messages) {
  Bytes datagram;
  for (const auto& part : messages) datagram.insert(datagram.end(), part.begin(), part.end());
  return datagram;
}

// Plays datagrams in order and keeps the requests; silent when there are none left.
class ScriptedTransport final : public EventTransport {
 public:
  struct Log {
    std::vector<Bytes> requests;
    std::vector<uint32_t> groups;
  };

  ScriptedTransport(std::deque<Bytes> datagrams, Log* log)
      : datagrams_(std::move(datagrams)), log_(log) {}

  Result<> send(std::span<const std::byte> request) override {
    if (log_) log_->requests.emplace_back(request.begin(), request.end());
    return {};
  }

  Result<std::vector<std::byte>> receive() override {
    if (datagrams_.empty()) return fail(ErrorClass::Unreachable, "no answer");
    Bytes datagram = std::move(datagrams_.front());
    datagrams_.pop_front();
    return datagram;
  }

  Result<> join(uint32_t group) override {
    if (log_) log_->groups.push_back(group);
    return {};
  }

  Result<std::variant<std::vector<std::byte>, Wake>> wait(
      std::optional<std::chrono::milliseconds>) override {
    if (datagrams_.empty()) return Wake::Timeout;
    return receive().value();
  }

 private:
  std::deque<Bytes> datagrams_;
  Log* log_;
};

}  // namespace pcilend::test
