// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/events.h"

#include <deque>

#include "decode.h"
#include "genetlink.h"

namespace pcilend {
namespace {

class NetlinkEvents final : public EventStream {
 public:
  NetlinkEvents(std::unique_ptr<EventTransport> transport, uint16_t family)
      : transport_(std::move(transport)), family_(family) {}

  Result<std::variant<Event, Wake>> next(std::optional<std::chrono::milliseconds> limit) override {
    while (pending_.empty()) {
      auto got = transport_->wait(limit);
      if (!got) return tl::unexpected(std::move(got).error());
      if (const auto* const wake = std::get_if<Wake>(&*got)) return *wake;
      PCILEND_TRY(take(std::get<std::vector<std::byte>>(*got)));
    }
    Event event = std::move(pending_.front());
    pending_.pop_front();
    return event;
  }

 private:
  Result<> take(std::span<const std::byte> datagram) {
    auto messages = split_notifications(datagram, family_, PCILEND_CMD_EVENT);
    if (!messages) return tl::unexpected(std::move(messages).error());
    for (const auto& attributes : *messages) {
      auto event = decode_event(attributes);
      if (!event) return tl::unexpected(std::move(event).error());
      pending_.push_back(std::move(*event));
    }
    return {};
  }

  std::unique_ptr<EventTransport> transport_;
  uint16_t family_;
  std::deque<Event> pending_;
};

}  // namespace

Result<std::unique_ptr<EventStream>> open_events(std::unique_ptr<EventTransport> transport) {
  const auto family = find_family(*transport, PCILEND_FAMILY_NAME);
  if (!family && family.error().kind == ErrorClass::NotFound)
    return fail(ErrorClass::Unreachable, "pcilend.ko is not loaded: modprobe pcilend");
  if (!family) return tl::unexpected(family.error());
  const auto group = family->groups.find(PCILEND_MCGRP_EVENTS);
  if (group == family->groups.end())
    return fail(ErrorClass::Failure, "netlink: malformed answer: no group of events");
  PCILEND_TRY(transport->join(group->second));
  return std::make_unique<NetlinkEvents>(std::move(transport), family->id);
}

Result<std::unique_ptr<EventStream>> open_events(UniqueFd stop) {
  auto transport = open_event_socket(std::move(stop));
  if (!transport) return tl::unexpected(std::move(transport).error());
  return open_events(std::move(*transport));
}

}  // namespace pcilend
