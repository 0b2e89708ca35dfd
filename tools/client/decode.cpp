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
    case PCILEND_FUNCTION_A_GUEST_MAP_US:
      return read_optional(a, &function->guest_map_us);
    case PCILEND_FUNCTION_A_RESETS:
      return read_optional(a, &function->resets);
    case PCILEND_FUNCTION_A_FAULTS:
      return read_optional(a, &function->faults);
    case PCILEND_FUNCTION_A_LABEL:
      return a.read(&function->label);
    case PCILEND_FUNCTION_A_ALLOWED:
      return a.read(&function->allowed.emplace());
    default:
      return {};
  }
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
    default:
      return {};
  }
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
  std::optional<Link> link;
  PCILEND_TRY(for_each_attribute(attributes, [&](const Attribute& top) -> Result<> {
    if (top.type != PCILEND_A_LINK) return {};
    link.emplace();
    return for_each_attribute(top.payload,
                              [&](const Attribute& a) { return read_link_attribute(a, &*link); });
  }));
  if (!link) PCILEND_TRY(missing("link"));
  return *link;
}

Result<Function> decode_function(std::span<const std::byte> attributes) {
  std::optional<Function> function;
  PCILEND_TRY(for_each_attribute(attributes, [&](const Attribute& top) -> Result<> {
    if (top.type != PCILEND_A_FUNCTION) return {};
    function.emplace();
    return for_each_attribute(
        top.payload, [&](const Attribute& a) { return read_function_attribute(a, &*function); });
  }));
  if (!function) PCILEND_TRY(missing("function"));
  if (function->id.value == 0) PCILEND_TRY(missing("function id"));
  return *function;
}

}  // namespace pcilend
