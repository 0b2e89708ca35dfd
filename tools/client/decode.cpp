// SPDX-License-Identifier: GPL-2.0-or-later
#include "decode.h"

#include "attributes.h"

namespace pcilend {
namespace {

template <class T>
Result<> read_optional(const Attribute& attribute, std::optional<T>* value) {
  T read{};
  PCILEND_TRY(attribute.read(&read));
  *value = read;
  return {};
}

Result<> missing(std::string_view what) {
  return fail(ErrorClass::Failure, "malformed answer: no {}", what);
}

Result<Member> decode_member(const Attribute& nest) {
  Member member;
  PCILEND_TRY(for_each_attribute(nest.payload, [&](const Attribute& a) -> Result<> {
    switch (a.type) {
      case PCILEND_MEMBER_A_BDF:
        return a.read(&member.bdf);
      case PCILEND_MEMBER_A_ID:
        return a.read(&member.id.emplace().value);
      case PCILEND_MEMBER_A_STATE:
        return a.read(&member.state);
      default:
        return {};
    }
  }));
  if (member.bdf.empty()) PCILEND_TRY(missing("address of a function of its group"));
  return member;
}

Result<Bar> decode_bar(const Attribute& nest) {
  Bar bar;
  bool has_index = false;
  PCILEND_TRY(for_each_attribute(nest.payload, [&](const Attribute& a) -> Result<> {
    switch (a.type) {
      case PCILEND_BAR_A_INDEX:
        has_index = true;
        return a.read(&bar.index);
      case PCILEND_BAR_A_SIZE:
        return a.read(&bar.size);
      case PCILEND_BAR_A_FLAGS:
        return a.read(&bar.flags);
      default:
        return {};
    }
  }));
  if (!has_index) PCILEND_TRY(missing("BAR number"));
  return bar;
}

Result<ShareClient> decode_share_client(const Attribute& nest) {
  ShareClient client;
  PCILEND_TRY(for_each_attribute(nest.payload, [&](const Attribute& a) -> Result<> {
    switch (a.type) {
      case PCILEND_CLIENT_A_LEASE:
        return a.read(&client.lease);
      case PCILEND_CLIENT_A_NODE:
        return a.read(&client.node);
      case PCILEND_CLIENT_A_STATE:
        return a.read(&client.state);
      default:
        return {};
    }
  }));
  if (client.lease == 0) PCILEND_TRY(missing("lease of a client"));
  return client;
}

Result<BarRange> decode_range(const Attribute& nest) {
  BarRange range;
  uint32_t kind = PCILEND_RANGE_COMMON;
  PCILEND_TRY(for_each_attribute(nest.payload, [&](const Attribute& a) -> Result<> {
    switch (a.type) {
      case PCILEND_RANGE_A_BAR:
        return a.read(&range.bar);
      case PCILEND_RANGE_A_PAGE:
        return a.read(&range.page);
      case PCILEND_RANGE_A_PAGES:
        return a.read(&range.pages);
      case PCILEND_RANGE_A_KIND:
        return a.read(&kind);
      default:
        return {};
    }
  }));
  range.pool = kind == PCILEND_RANGE_POOL;
  return range;
}

Result<> read_client_attribute(const Attribute& a, ClientNotice* client,
                               std::vector<BarRange>* ranges) {
  switch (a.type) {
    case PCILEND_CLIENT_A_LEASE:
      return a.read(&client->lease);
    case PCILEND_CLIENT_A_NODE:
      return a.read(&client->node);
    case PCILEND_CLIENT_A_NEWS:
      return a.read(&client->news);
    case PCILEND_CLIENT_A_ROUND:
      return a.read(&client->round);
    case PCILEND_CLIENT_A_SLICE:
      return a.read(&client->slice);
    case PCILEND_CLIENT_A_SLICE_BYTES:
      return a.read(&client->slice_bytes);
    case PCILEND_CLIENT_A_VECTOR:
      return a.read(&client->vector);
    case PCILEND_CLIENT_A_VECTORS:
      return a.read(&client->vectors);
    case PCILEND_CLIENT_A_PIECE:
      return a.read(&client->piece);
    case PCILEND_CLIENT_A_RANGE: {
      auto range = decode_range(a);
      if (!range) return tl::unexpected(std::move(range).error());
      ranges->push_back(*range);
      return {};
    }
    default:
      return {};
  }
}

Result<> read_function_attribute(const Attribute& a, Function* function) {
  switch (a.type) {
    case PCILEND_FUNCTION_A_ID:
      return a.read(&function->id.value);
    case PCILEND_FUNCTION_A_UUID:
      return a.read(std::span<uint8_t>(function->uuid.bytes));
    case PCILEND_FUNCTION_A_LENDER:
      return a.read(&function->lender);
    case PCILEND_FUNCTION_A_BDF:
      return a.read(&function->bdf);
    case PCILEND_FUNCTION_A_STATE:
      return a.read(&function->state);
    case PCILEND_FUNCTION_A_VENDOR:
      return a.read(&function->vendor);
    case PCILEND_FUNCTION_A_DEVICE:
      return a.read(&function->device);
    case PCILEND_FUNCTION_A_SUBSYSTEM_VENDOR:
      return a.read(&function->subsystem_vendor);
    case PCILEND_FUNCTION_A_SUBSYSTEM_DEVICE:
      return a.read(&function->subsystem_device);
    case PCILEND_FUNCTION_A_CLASS:
      return a.read(&function->class_revision);
    case PCILEND_FUNCTION_A_BORROWER:
      return read_optional(a, &function->borrower);
    case PCILEND_FUNCTION_A_LEASE:
      return read_optional(a, &function->lease);
    case PCILEND_FUNCTION_A_FRONTEND:
      return a.read(&function->frontend);
    case PCILEND_FUNCTION_A_OWNER:
      return a.read(&function->owner);
    case PCILEND_FUNCTION_A_VIRTUAL:
      return a.read(&function->virtual_address);
    case PCILEND_FUNCTION_A_REASON:
      return a.read(&function->reason);
    case PCILEND_FUNCTION_A_BAR: {
      auto bar = decode_bar(a);
      if (!bar) return tl::unexpected(std::move(bar).error());
      function->bars.push_back(*bar);
      return {};
    }
    case PCILEND_FUNCTION_A_DRIVER:
      return a.read(&function->driver);
    case PCILEND_FUNCTION_A_GUEST_BYTES:
      return read_optional(a, &function->guest_bytes);
    case PCILEND_FUNCTION_A_RESETS:
      return read_optional(a, &function->resets);
    case PCILEND_FUNCTION_A_FAULTS:
      return read_optional(a, &function->faults);
    case PCILEND_FUNCTION_A_LABEL:
      return a.read(&function->label);
    case PCILEND_FUNCTION_A_ALLOWED:
      return a.read(&function->allowed.emplace());
    case PCILEND_FUNCTION_A_RESERVED_NODE:
      return read_optional(a, &function->reserved_node);
    case PCILEND_FUNCTION_A_RESERVED_UUID:
      return a.read(std::span<uint8_t>(function->reserved_uuid.emplace().bytes));
    case PCILEND_FUNCTION_A_RESERVED_MS:
      return read_optional(a, &function->reserved_ms);
    case PCILEND_FUNCTION_A_LEASE_MS:
      return read_optional(a, &function->lease_ms);
    case PCILEND_FUNCTION_A_LEASE_LEFT_MS:
      return read_optional(a, &function->lease_left_ms);
    case PCILEND_FUNCTION_A_RECALL_MS:
      return read_optional(a, &function->recall_ms);
    case PCILEND_FUNCTION_A_GROUP:
      return read_optional(a, &function->group);
    case PCILEND_FUNCTION_A_MEMBER: {
      auto member = decode_member(a);
      if (!member) return tl::unexpected(std::move(member).error());
      function->members.push_back(std::move(*member));
      return {};
    }
    case PCILEND_FUNCTION_A_ADAPTER:
      return a.read(&function->adapter);
    case PCILEND_FUNCTION_A_PATH:
      return a.read(&function->paths.emplace_back());
    case PCILEND_FUNCTION_A_REACHES:
      return a.read(&function->reaches);
    case PCILEND_FUNCTION_A_DIRECT:
      function->direct = true;
      return {};
    case PCILEND_FUNCTION_A_RELAYED:
      function->relayed = true;
      return {};
    case PCILEND_FUNCTION_A_SANITIZE:
      function->sanitize = true;
      return {};
    case PCILEND_FUNCTION_A_DIRTY:
      function->dirty = true;
      return {};
    case PCILEND_FUNCTION_A_NEAR:
      return a.read(&function->near.emplace());
    case PCILEND_FUNCTION_A_NEAR_USED:
      return a.read(&function->near_used);
    case PCILEND_FUNCTION_A_SHARED:
      function->shared = true;
      return {};
    case PCILEND_FUNCTION_A_CLIENT: {
      auto client = decode_share_client(a);
      if (!client) return tl::unexpected(std::move(client).error());
      function->clients.push_back(*client);
      return {};
    }
    default:
      return {};
  }
}

Result<> decode_window(const Attribute& nest, std::vector<Window>* windows) {
  Window window;
  bool has_index = false;
  PCILEND_TRY(for_each_attribute(nest.payload, [&](const Attribute& a) -> Result<> {
    switch (a.type) {
      case PCILEND_WINDOW_A_INDEX:
        has_index = true;
        return a.read(&window.index);
      case PCILEND_WINDOW_A_SIZE:
        return a.read(&window.size);
      case PCILEND_WINDOW_A_SIZE_MAX:
        return a.read(&window.size_max);
      case PCILEND_WINDOW_A_ADDRESS_ALIGN:
        return a.read(&window.address_align);
      case PCILEND_WINDOW_A_SIZE_ALIGN:
        return a.read(&window.size_align);
      default:
        return {};
    }
  }));
  if (!has_index) return missing("window number");
  windows->push_back(window);
  return {};
}

Result<> decode_region(const Attribute& nest, std::vector<Region>* regions) {
  Region region;
  bool has_kind = false;
  PCILEND_TRY(for_each_attribute(nest.payload, [&](const Attribute& a) -> Result<> {
    switch (a.type) {
      case PCILEND_REGION_A_KIND:
        has_kind = true;
        return a.read(&region.kind);
      case PCILEND_REGION_A_IOVA:
        return a.read(&region.iova);
      case PCILEND_REGION_A_SIZE:
        return a.read(&region.size);
      case PCILEND_REGION_A_WINDOW:
        return a.read(&region.window);
      case PCILEND_REGION_A_USED:
        return read_optional(a, &region.used);
      default:
        return {};
    }
  }));
  if (!has_kind) return missing("region kind");
  regions->push_back(region);
  return {};
}

Result<> read_link_attribute(const Attribute& a, Link* link) {
  switch (a.type) {
    case PCILEND_LINK_A_INDEX:
      return a.read(&link->index);
    case PCILEND_LINK_A_ADAPTER:
      return a.read(&link->adapter);
    case PCILEND_LINK_A_DRIVER:
      return a.read(&link->driver);
    case PCILEND_LINK_A_STATE:
      return a.read(&link->state);
    case PCILEND_LINK_A_REASON:
      return a.read(&link->reason);
    case PCILEND_LINK_A_PEER_NODE:
      return read_optional(a, &link->peer);
    case PCILEND_LINK_A_PEER_BOOT_ID:
      return read_optional(a, &link->peer_boot_id);
    case PCILEND_LINK_A_CONNECTED:
      link->connected = true;
      return {};
    case PCILEND_LINK_A_PEER_CONNECTED:
      link->peer_connected = true;
      return {};
    case PCILEND_LINK_A_TX_MESSAGES:
      return a.read(&link->tx_messages);
    case PCILEND_LINK_A_RX_MESSAGES:
      return a.read(&link->rx_messages);
    case PCILEND_LINK_A_BAD_MESSAGES:
      return a.read(&link->bad_messages);
    case PCILEND_LINK_A_TIMEOUTS:
      return a.read(&link->timeouts);
    case PCILEND_LINK_A_EXPORT_BYTES:
      return a.read(&link->export_bytes);
    case PCILEND_LINK_A_SLOT_BYTES:
      return a.read(&link->slot_bytes);
    case PCILEND_LINK_A_LEASE_MS:
      return read_optional(a, &link->lease_ms);
    case PCILEND_LINK_A_WINDOW:
      return decode_window(a, &link->windows);
    case PCILEND_LINK_A_REGION:
      return decode_region(a, &link->regions);
    case PCILEND_LINK_A_DEGRADED:
      return a.read(&link->degraded.emplace_back());
    case PCILEND_LINK_A_HOLE:
      return read_optional(a, &link->hole);
    case PCILEND_LINK_A_PEER_HOLE:
      return read_optional(a, &link->peer_hole);
    case PCILEND_LINK_A_DOWNS:
      return a.read(&link->downs);
    case PCILEND_LINK_A_PINNED:
      return read_optional(a, &link->pinned);
    case PCILEND_LINK_A_LEASES:
      return read_optional(a, &link->leases);
    case PCILEND_LINK_A_DIRECT:
      link->direct = true;
      return {};
    case PCILEND_LINK_A_REQUESTERS:
      return read_optional(a, &link->requesters);
    case PCILEND_LINK_A_REQUESTERS_USED:
      return read_optional(a, &link->requesters_used);
    case PCILEND_LINK_A_REQUESTERS_LENT:
      return read_optional(a, &link->requesters_lent);
    default:
      return {};
  }
}

Result<Link> link_of(const Attribute& nest) {
  Link link;
  PCILEND_TRY(for_each_attribute(
      nest.payload, [&](const Attribute& a) { return read_link_attribute(a, &link); }));
  return link;
}

Result<Function> function_of(const Attribute& nest) {
  Function function;
  PCILEND_TRY(for_each_attribute(
      nest.payload, [&](const Attribute& a) { return read_function_attribute(a, &function); }));
  if (function.id.value == 0) PCILEND_TRY(missing("function id"));
  return function;
}

Result<Counters> counters_of(const Attribute& nest) {
  Counters counters;
  PCILEND_TRY(for_each_attribute(nest.payload, [&](const Attribute& a) -> Result<> {
    switch (a.type) {
      case PCILEND_COUNTER_A_GRANTED:
        return a.read(&counters.granted);
      case PCILEND_COUNTER_A_RETURNED:
        return a.read(&counters.returned);
      case PCILEND_COUNTER_A_EXPIRED:
        return a.read(&counters.expired);
      case PCILEND_COUNTER_A_REVOKED:
        return a.read(&counters.revoked);
      case PCILEND_COUNTER_A_REFUSED:
        return a.read(&counters.refused);
      case PCILEND_COUNTER_A_RESETS:
        return a.read(&counters.resets);
      case PCILEND_COUNTER_A_RESET_FAILURES:
        return a.read(&counters.reset_failures);
      case PCILEND_COUNTER_A_FAULTS:
        return a.read(&counters.faults);
      case PCILEND_COUNTER_A_BORROWED:
        return a.read(&counters.borrowed);
      case PCILEND_COUNTER_A_LOST:
        return a.read(&counters.lost);
      case PCILEND_COUNTER_A_RELAYED:
        return a.read(&counters.relayed);
      case PCILEND_COUNTER_A_STRANGERS:
        return a.read(&counters.strangers);
      default:
        return {};
    }
  }));
  return counters;
}

Result<Audit> audit_of(const Attribute& nest) {
  Audit audit;
  PCILEND_TRY(for_each_attribute(nest.payload, [&](const Attribute& a) -> Result<> {
    switch (a.type) {
      case PCILEND_AUDIT_A_TIME:
        return a.read(&audit.time_ns);
      case PCILEND_AUDIT_A_UID:
        return read_optional(a, &audit.uid);
      case PCILEND_AUDIT_A_NODE:
        return read_optional(a, &audit.node);
      case PCILEND_AUDIT_A_ACTION:
        return a.read(&audit.action);
      case PCILEND_AUDIT_A_FUNCTION:
        return a.read(&audit.function.emplace().value);
      case PCILEND_AUDIT_A_TARGET_NODE:
        return read_optional(a, &audit.target_node);
      case PCILEND_AUDIT_A_TARGET:
        return a.read(&audit.target.emplace().value);
      case PCILEND_AUDIT_A_RESULT: {
        uint32_t bits = 0;
        PCILEND_TRY(a.read(&bits));
        audit.result = static_cast<int32_t>(bits);
        return {};
      }
      default:
        return {};
    }
  }));
  if (audit.action.empty()) PCILEND_TRY(missing("action"));
  return audit;
}

Result<SegmentOffer> offer_of(const Attribute& nest) {
  SegmentOffer offer;
  PCILEND_TRY(for_each_attribute(nest.payload, [&](const Attribute& a) -> Result<> {
    switch (a.type) {
      case PCILEND_OFFER_A_NODE:
        return a.read(&offer.node);
      case PCILEND_OFFER_A_ADAPTER:
        return a.read(&offer.adapter);
      case PCILEND_OFFER_A_READ_ONLY:
        offer.read_only = true;
        return {};
      case PCILEND_OFFER_A_WITHDRAWN:
        offer.withdrawn = true;
        return {};
      case PCILEND_OFFER_A_CONNECTIONS:
        return a.read(&offer.connections);
      default:
        return {};
    }
  }));
  if (offer.node == 0) PCILEND_TRY(missing("node of an offer"));
  return offer;
}

Result<Segment> segment_of(const Attribute& nest) {
  Segment segment;
  PCILEND_TRY(for_each_attribute(nest.payload, [&](const Attribute& a) -> Result<> {
    switch (a.type) {
      case PCILEND_SEGMENT_A_ID:
        return a.read(&segment.id.value);
      case PCILEND_SEGMENT_A_NAME:
        return a.read(&segment.name);
      case PCILEND_SEGMENT_A_SIZE:
        return a.read(&segment.size);
      case PCILEND_SEGMENT_A_STATE:
        return a.read(&segment.state);
      case PCILEND_SEGMENT_A_ADAPTER:
        return a.read(&segment.adapter);
      case PCILEND_SEGMENT_A_READ_ONLY:
        segment.read_only = true;
        return {};
      case PCILEND_SEGMENT_A_WRITE_COMBINING:
        segment.write_combining = true;
        return {};
      case PCILEND_SEGMENT_A_OFFER: {
        auto offer = offer_of(a);
        if (!offer) return tl::unexpected(std::move(offer).error());
        segment.offers.push_back(std::move(*offer));
        return {};
      }
      default:
        return {};
    }
  }));
  if (segment.id.value == 0) PCILEND_TRY(missing("segment id"));
  return segment;
}

Result<> read_fd(const Attribute& attribute, UniqueFd* fd) {
  uint32_t number = 0;
  PCILEND_TRY(attribute.read(&number));
  fd->reset(static_cast<int>(number));
  return {};
}

// The one nest of type `type` at the top, as `of` decodes it.
template <class T>
Result<T> one_nest(std::span<const std::byte> attributes, uint16_t type, std::string_view name,
                   Result<T> (*of)(const Attribute&)) {
  std::optional<Result<T>> thing;
  PCILEND_TRY(for_each_attribute(attributes, [&](const Attribute& top) -> Result<> {
    if (top.type == type) thing = of(top);
    return {};
  }));
  if (!thing) PCILEND_TRY(missing(name));
  return std::move(*thing);
}

}  // namespace

Result<Node> decode_node(std::span<const std::byte> attributes) {
  Node node;
  bool has_id = false;
  PCILEND_TRY(for_each_attribute(attributes, [&](const Attribute& a) -> Result<> {
    switch (a.type) {
      case PCILEND_A_NODE_ID:
        has_id = true;
        return a.read(&node.id);
      case PCILEND_A_BOOT_ID:
        return a.read(&node.boot_id);
      case PCILEND_A_ABI:
        return a.read(&node.abi);
      default:
        return {};
    }
  }));
  if (!has_id) PCILEND_TRY(missing("node id"));
  return node;
}

Result<Link> decode_link(std::span<const std::byte> attributes) {
  return one_nest(attributes, PCILEND_A_LINK, "link", link_of);
}

Result<Function> decode_function(std::span<const std::byte> attributes) {
  return one_nest(attributes, PCILEND_A_FUNCTION, "function", function_of);
}

Result<Counters> decode_counters(std::span<const std::byte> attributes) {
  return one_nest(attributes, PCILEND_A_COUNTERS, "counters", counters_of);
}

Result<Segment> decode_segment(std::span<const std::byte> attributes) {
  return one_nest(attributes, PCILEND_A_SEGMENT, "segment", segment_of);
}

Result<CreatedSegment> decode_created_segment(std::span<const std::byte> attributes) {
  CreatedSegment created;
  PCILEND_TRY(for_each_attribute(attributes, [&](const Attribute& a) -> Result<> {
    if (a.type == PCILEND_A_ID) return a.read(&created.id.value);
    return a.type == PCILEND_A_FD ? read_fd(a, &created.fd) : Result<>{};
  }));
  if (created.id.value == 0 || !created.fd) PCILEND_TRY(missing("segment id, or descriptor"));
  return created;
}

Result<ConnectedSegment> decode_connected_segment(std::span<const std::byte> attributes) {
  ConnectedSegment connected;
  PCILEND_TRY(for_each_attribute(attributes, [&](const Attribute& a) -> Result<> {
    if (a.type == PCILEND_A_FD) return read_fd(a, &connected.buffer);
    return a.type == PCILEND_A_CONTROL_FD ? read_fd(a, &connected.control) : Result<>{};
  }));
  if (!connected.buffer || !connected.control) PCILEND_TRY(missing("descriptors of the segment"));
  auto segment = decode_segment(attributes);
  if (!segment) return tl::unexpected(std::move(segment).error());
  connected.segment = std::move(*segment);
  return connected;
}

Result<LeasedFunction> decode_leased(std::span<const std::byte> attributes) {
  LeasedFunction leased;
  auto fd = decode_fd(attributes);
  if (!fd) return tl::unexpected(std::move(fd).error());
  leased.fd = std::move(*fd);
  auto function = decode_function(attributes);
  if (!function) return tl::unexpected(std::move(function).error());
  leased.function = std::move(*function);
  return leased;
}

Result<JoinedFunction> decode_joined(std::span<const std::byte> attributes) {
  JoinedFunction joined;
  auto leased = decode_leased(attributes);
  if (!leased) return tl::unexpected(std::move(leased).error());
  joined.leased = std::move(*leased);
  PCILEND_TRY(for_each_attribute(attributes, [&](const Attribute& top) -> Result<> {
    if (top.type != PCILEND_A_CLIENT) return {};
    return for_each_attribute(top.payload, [&](const Attribute& a) {
      return read_client_attribute(a, &joined.client, &joined.ranges);
    });
  }));
  if (joined.client.lease == 0) PCILEND_TRY(missing("lease of the client"));
  return joined;
}

Result<std::optional<ClientNotice>> decode_client_notice(std::span<const std::byte> attributes) {
  std::optional<ClientNotice> notice;
  std::vector<BarRange> none;
  PCILEND_TRY(for_each_attribute(attributes, [&](const Attribute& top) -> Result<> {
    if (top.type != PCILEND_A_CLIENT) return {};
    notice.emplace();
    return for_each_attribute(
        top.payload, [&](const Attribute& a) { return read_client_attribute(a, &*notice, &none); });
  }));
  if (notice && notice->lease == 0) PCILEND_TRY(missing("lease of a client"));
  return notice;
}

Result<std::optional<Mail>> decode_mail(std::span<const std::byte> attributes) {
  Mail mail;
  PCILEND_TRY(for_each_attribute(attributes, [&](const Attribute& a) -> Result<> {
    if (a.type == PCILEND_A_CLIENT_LEASE) return a.read(&mail.client);
    if (a.type == PCILEND_A_MAIL) mail.bytes.assign(a.payload.begin(), a.payload.end());
    return {};
  }));
  if (mail.bytes.size() > kMailMax)
    return fail(ErrorClass::Failure, "malformed answer: mail of {} bytes", mail.bytes.size());
  if (mail.bytes.empty()) return std::nullopt;
  return mail;
}

Result<UniqueFd> decode_fd(std::span<const std::byte> attributes) {
  UniqueFd fd;
  PCILEND_TRY(for_each_attribute(attributes, [&](const Attribute& a) -> Result<> {
    return a.type == PCILEND_A_FD ? read_fd(a, &fd) : Result<>{};
  }));
  if (!fd) PCILEND_TRY(missing("descriptor"));
  return fd;
}

Result<uint64_t> decode_address(std::span<const std::byte> attributes) {
  std::optional<uint64_t> address;
  PCILEND_TRY(for_each_attribute(attributes, [&](const Attribute& a) -> Result<> {
    return a.type == PCILEND_A_ADDRESS ? a.read(&address.emplace()) : Result<>{};
  }));
  if (!address) PCILEND_TRY(missing("address"));
  return *address;
}

Result<std::vector<uint8_t>> decode_config(std::span<const std::byte> attributes) {
  std::vector<uint8_t> config;
  PCILEND_TRY(for_each_attribute(attributes, [&](const Attribute& a) -> Result<> {
    if (a.type != PCILEND_A_CONFIG) return {};
    config.resize(a.payload.size());
    return a.read(std::span<uint8_t>(config));
  }));
  if (config.size() != 256 && config.size() != 4096)
    return fail(ErrorClass::Failure, "malformed answer: {} bytes of configuration space",
                config.size());
  return config;
}

Result<Event> decode_event(std::span<const std::byte> attributes) {
  Event event;
  PCILEND_TRY(for_each_attribute(attributes, [&](const Attribute& a) -> Result<> {
    return a.type == PCILEND_A_EVENT ? a.read(&event.kind) : Result<>{};
  }));
  switch (event.kind) {
    case 0:
      PCILEND_TRY(missing("event"));
      break;
    case PCILEND_EVENT_LINK: {
      auto link = decode_link(attributes);
      if (!link) return tl::unexpected(std::move(link).error());
      event.link = std::move(*link);
      break;
    }
    case PCILEND_EVENT_FUNCTION:
    case PCILEND_EVENT_FUNCTION_GONE:
    case PCILEND_EVENT_LEASE_LOST:
    case PCILEND_EVENT_RECALL:
    case PCILEND_EVENT_WAS_RESET: {
      auto function = decode_function(attributes);
      if (!function) return tl::unexpected(std::move(function).error());
      event.function = std::move(*function);
      break;
    }
    case PCILEND_EVENT_SEGMENT:
    case PCILEND_EVENT_SEGMENT_GONE: {
      auto segment = decode_segment(attributes);
      if (!segment) return tl::unexpected(std::move(segment).error());
      event.segment = std::move(*segment);
      break;
    }
    case PCILEND_EVENT_AUDIT: {
      auto audit = one_nest(attributes, PCILEND_A_AUDIT, "audit", audit_of);
      if (!audit) return tl::unexpected(std::move(audit).error());
      event.audit = std::move(*audit);
      break;
    }
    default:  // of a newer kernel
      break;
  }
  return event;
}

}  // namespace pcilend
