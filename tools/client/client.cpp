// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/client.h"

#include <algorithm>

#include "decode.h"
#include "genetlink.h"

namespace pcilend {
namespace {

class NetlinkClient final : public Client {
 public:
  explicit NetlinkClient(GenericNetlink netlink) : netlink_(std::move(netlink)) {}

  Result<Node> node() override { return one(Request(PCILEND_CMD_NODE_GET), decode_node); }

  Result<std::vector<Link>> links() override {
    return all(Request(PCILEND_CMD_LINK_GET, Request::Kind::Dump), decode_link);
  }

  Result<std::vector<Function>> functions() override {
    auto functions = all(Request(PCILEND_CMD_FUNCTION_GET, Request::Kind::Dump), decode_function);
    if (functions)
      std::sort(functions->begin(), functions->end(),
                [](const Function& a, const Function& b) { return a.id.value < b.id.value; });
    return functions;
  }

  Result<Function> function(FunctionId id) override {
    return one(Request(PCILEND_CMD_FUNCTION_GET).put(PCILEND_A_ID, id.value), decode_function);
  }

  Result<Function> function(const PciAddress& local) override {
    return one(Request(PCILEND_CMD_FUNCTION_GET).put(PCILEND_A_BDF, to_string(local)),
               decode_function);
  }

  Result<> connect(uint32_t node, const std::string& adapter) override {
    Request request(PCILEND_CMD_CONNECT);
    request.put(PCILEND_A_NODE_ID, node);
    if (!adapter.empty()) request.put(PCILEND_A_ADAPTER, adapter);
    return change(request);
  }

  Result<> disconnect(uint32_t node) override {
    return change(Request(PCILEND_CMD_DISCONNECT).put(PCILEND_A_NODE_ID, node));
  }

  Result<Function> add(const PciAddress& local, const AddOptions& options) override {
    Request request(PCILEND_CMD_ADD);
    request.put(PCILEND_A_BDF, to_string(local));
    if (options.id) request.put(PCILEND_A_ID, options.id->value);
    if (!options.label.empty()) request.put(PCILEND_A_LABEL, options.label);
    if (options.nodes) request.put(PCILEND_A_NODES, *options.nodes);
    return changed(request, local);
  }

  Result<> remove(const PciAddress& local) override {
    return change(Request(PCILEND_CMD_REMOVE).put(PCILEND_A_BDF, to_string(local)));
  }

  Result<Function> make_available(const PciAddress& local, const Lend& how) override {
    Request request(PCILEND_CMD_AVAILABLE);
    request.put(PCILEND_A_BDF, to_string(local));
    if (how.direct) request.flag(PCILEND_A_DIRECT);
    if (how.sanitize) request.flag(PCILEND_A_SANITIZE);
    if (how.sanitized) request.flag(PCILEND_A_SANITIZED);
    if (how.near) request.put64(PCILEND_A_NEAR, *how.near);
    return changed(request, local);
  }

  Result<> make_unavailable(const PciAddress& local, bool force) override {
    Request request(PCILEND_CMD_UNAVAILABLE);
    request.put(PCILEND_A_BDF, to_string(local));
    if (force) request.flag(PCILEND_A_FORCE);
    return change(request);
  }

  Result<> recall(const PciAddress& local, uint32_t grace_ms) override {
    return change(Request(PCILEND_CMD_RECALL)
                      .put(PCILEND_A_BDF, to_string(local))
                      .put(PCILEND_A_GRACE_MS, grace_ms));
  }

  Result<Function> release_quarantine(const PciAddress& local) override {
    return changed(Request(PCILEND_CMD_RELEASE_QUARANTINE).put(PCILEND_A_BDF, to_string(local)),
                   local);
  }

  Result<> reserve(FunctionId id, const Reservation& reservation) override {
    Request request(PCILEND_CMD_RESERVE);
    request.put(PCILEND_A_ID, id.value);
    if (reservation.node) request.put(PCILEND_A_RESERVED_NODE, *reservation.node);
    if (reservation.uuid)
      request.put(PCILEND_A_RESERVED_UUID, std::as_bytes(std::span(reservation.uuid->bytes)));
    if (reservation.node || reservation.uuid) request.put(PCILEND_A_TTL_MS, reservation.ttl_ms);
    return change(request);
  }

  Result<> allow(const PciAddress& local,
                 const std::optional<std::vector<uint32_t>>& nodes) override {
    Request request(PCILEND_CMD_ALLOW);
    request.put(PCILEND_A_BDF, to_string(local));
    if (nodes) request.put(PCILEND_A_NODES, *nodes);
    return change(request);
  }

  Result<> label(const PciAddress& local, std::string_view text) override {
    return change(
        Request(PCILEND_CMD_LABEL).put(PCILEND_A_BDF, to_string(local)).put(PCILEND_A_LABEL, text));
  }

  Result<Function> borrow(FunctionId id, std::string_view frontend, std::string_view owner,
                          const std::string& adapter) override {
    Request request(PCILEND_CMD_BORROW);
    request.put(PCILEND_A_ID, id.value)
        .put(PCILEND_A_FRONTEND, frontend)
        .put(PCILEND_A_OWNER, owner);
    if (!adapter.empty()) request.put(PCILEND_A_ADAPTER, adapter);
    return changed(request, id);
  }

  Result<> give_back(FunctionId id, std::string_view owner) override {
    Request request(PCILEND_CMD_RETURN);
    request.put(PCILEND_A_ID, id.value);
    if (!owner.empty()) request.put(PCILEND_A_OWNER, owner);
    return change(request);
  }

  Result<Function> reach(FunctionId from, FunctionId to, bool on) override {
    Request request(PCILEND_CMD_P2P);
    request.put(PCILEND_A_ID, from.value).put(PCILEND_A_TARGET, to.value);
    if (!on) request.flag(PCILEND_A_END);
    return changed(request, from);
  }

  Result<std::vector<Segment>> segments() override {
    return all(Request(PCILEND_CMD_SEGMENT_GET, Request::Kind::Dump), decode_segment);
  }

  Result<std::vector<Segment>> offered_segments() override {
    return all(Request(PCILEND_CMD_SEGMENT_OFFERED_GET, Request::Kind::Dump), decode_segment);
  }

  Result<CreatedSegment> create_segment(int dma_buf, std::string_view name, int event) override {
    Request request(PCILEND_CMD_SEGMENT_CREATE);
    request.put(PCILEND_A_FD, static_cast<uint32_t>(dma_buf)).put(PCILEND_A_LABEL, name);
    if (event >= 0) request.put(PCILEND_A_EVENT_FD, static_cast<uint32_t>(event));
    return one(request, decode_created_segment);
  }

  Result<> offer_segment(FunctionId id, uint32_t node, bool read_only,
                         const std::string& adapter) override {
    Request request(PCILEND_CMD_SEGMENT_OFFER);
    request.put(PCILEND_A_ID, id.value).put(PCILEND_A_NODE_ID, node);
    if (read_only) request.flag(PCILEND_A_READ_ONLY);
    if (!adapter.empty()) request.put(PCILEND_A_ADAPTER, adapter);
    return change(request);
  }

  Result<> withdraw_segment(FunctionId id, std::optional<uint32_t> node) override {
    Request request(PCILEND_CMD_SEGMENT_WITHDRAW);
    request.put(PCILEND_A_ID, id.value);
    if (node) request.put(PCILEND_A_NODE_ID, *node);
    return change(request);
  }

  Result<ConnectedSegment> connect_segment(FunctionId id, const ConnectOptions& options) override {
    Request request(PCILEND_CMD_SEGMENT_CONNECT);
    request.put(PCILEND_A_ID, id.value);
    if (options.read_only) request.flag(PCILEND_A_READ_ONLY);
    if (options.write_combining) request.flag(PCILEND_A_WRITE_COMBINING);
    if (!options.adapter.empty()) request.put(PCILEND_A_ADAPTER, options.adapter);
    return one(request, decode_connected_segment);
  }

  Result<LeasedFunction> lease(FunctionId id, std::string_view owner, uint64_t slice) override {
    Request request(PCILEND_CMD_BORROW);
    request.put(PCILEND_A_ID, id.value)
        .put(PCILEND_A_FRONTEND, "lease")
        .put(PCILEND_A_OWNER, owner)
        .put64(PCILEND_A_SIZE, slice);
    return one(request, decode_leased);
  }

  Result<UniqueFd> lease_bar(int lease, uint32_t bar, uint64_t offset, uint64_t size) override {
    return one(with_lease(PCILEND_CMD_BAR_GET, lease)
                   .put(PCILEND_A_BAR, bar)
                   .put64(PCILEND_A_OFFSET, offset)
                   .put64(PCILEND_A_SIZE, size),
               decode_fd);
  }

  Result<uint64_t> lease_map(int lease, int dma_buf, bool read_only) override {
    Request request = with_lease(PCILEND_CMD_SEGMENT_MAP, lease);
    request.put(PCILEND_A_FD, static_cast<uint32_t>(dma_buf));
    if (read_only) request.flag(PCILEND_A_READ_ONLY);
    return one(request, decode_address);
  }

  Result<ConnectedSegment> lease_near(int lease, uint64_t size, bool write_combining) override {
    Request request = with_lease(PCILEND_CMD_NEAR_GET, lease);
    request.put64(PCILEND_A_SIZE, size);
    if (write_combining) request.flag(PCILEND_A_WRITE_COMBINING);
    return one(request, decode_connected_segment);
  }

  Result<> lease_unmap(int lease, uint64_t address) override {
    return change(with_lease(PCILEND_CMD_SEGMENT_UNMAP, lease).put64(PCILEND_A_ADDRESS, address));
  }

  Result<> lease_interrupt(int lease, uint32_t vector, int event) override {
    Request request = with_lease(PCILEND_CMD_INTERRUPT_SET, lease);
    request.put(PCILEND_A_VECTOR, vector);
    if (event >= 0) request.put(PCILEND_A_EVENT_FD, static_cast<uint32_t>(event));
    return change(request);
  }

  Result<> lease_share(int lease, const SharePolicy& policy) override {
    Request request = with_lease(PCILEND_CMD_SHARE, lease);
    request.put(PCILEND_A_CLIENTS, policy.clients)
        .put(PCILEND_A_VECTORS, policy.vectors)
        .put64(PCILEND_A_SIZE, policy.slice);
    if (policy.nodes) request.put(PCILEND_A_NODES, *policy.nodes);
    for (const auto& range : policy.ranges) {
      const uint32_t kind = range.pool ? PCILEND_RANGE_POOL : PCILEND_RANGE_COMMON;
      request.nest(PCILEND_A_RANGE, {{PCILEND_RANGE_A_BAR, range.bar},
                                     {PCILEND_RANGE_A_PAGE, range.page},
                                     {PCILEND_RANGE_A_PAGES, range.pages},
                                     {PCILEND_RANGE_A_KIND, kind}});
    }
    return change(request);
  }

  Result<std::optional<ClientNotice>> lease_next_client(int lease) override {
    return one(with_lease(PCILEND_CMD_CLIENT_NEXT, lease), decode_client_notice);
  }

  Result<> lease_cleared(int lease, uint32_t client, uint32_t round) override {
    return change(with_lease(PCILEND_CMD_CLEARED, lease)
                      .put(PCILEND_A_CLIENT_LEASE, client)
                      .put(PCILEND_A_ROUND, round));
  }

  Result<> lease_send_mail(int lease, const Mail& mail) override {
    Request request = with_lease(PCILEND_CMD_MAIL_SEND, lease);
    request.put(PCILEND_A_MAIL, std::span<const std::byte>(mail.bytes));
    if (mail.client != 0) request.put(PCILEND_A_CLIENT_LEASE, mail.client);
    return change(request);
  }

  Result<std::optional<Mail>> lease_next_mail(int lease) override {
    return one(with_lease(PCILEND_CMD_MAIL_NEXT, lease), decode_mail);
  }

  Result<JoinedFunction> join(FunctionId id, std::string_view owner, uint64_t slice,
                              uint32_t vectors, const std::string& adapter) override {
    Request request(PCILEND_CMD_JOIN);
    request.put(PCILEND_A_ID, id.value)
        .put(PCILEND_A_OWNER, owner)
        .put64(PCILEND_A_SIZE, slice)
        .put(PCILEND_A_VECTORS, vectors);
    if (!adapter.empty()) request.put(PCILEND_A_ADAPTER, adapter);
    return one(request, decode_joined);
  }

  Result<> check(const PciAddress& local) override {
    return change(Request(PCILEND_CMD_CHECK).put(PCILEND_A_BDF, to_string(local)));
  }

  Result<std::vector<uint8_t>> config(FunctionId id, bool emulated) override {
    Request request(PCILEND_CMD_CONFIG_GET);
    request.put(PCILEND_A_ID, id.value);
    if (emulated) request.flag(PCILEND_A_EMULATED);
    return one(request, decode_config);
  }

  Result<Counters> counters() override {
    return one(Request(PCILEND_CMD_COUNTERS_GET), decode_counters);
  }

 private:
  static Request with_lease(uint8_t command, int lease) {
    return Request(command).put(PCILEND_A_LEASE_FD, static_cast<uint32_t>(lease));
  }

  template <class T>
  Result<T> one(Request request, Result<T> (*decode)(std::span<const std::byte>)) {
    auto replies = netlink_.exchange(request);
    if (!replies) return tl::unexpected(std::move(replies).error().error);
    if (replies->size() != 1)
      return fail(ErrorClass::Failure, "netlink: {} answers to one question", replies->size());
    return decode(replies->front());
  }

  template <class T>
  Result<std::vector<T>> all(Request request, Result<T> (*decode)(std::span<const std::byte>)) {
    auto replies = netlink_.exchange(request);
    if (!replies) return tl::unexpected(std::move(replies).error().error);
    std::vector<T> things;
    for (const auto& reply : *replies) {
      auto thing = decode(reply);
      if (!thing) return tl::unexpected(std::move(thing).error());
      things.push_back(std::move(*thing));
    }
    return things;
  }

  Result<> change(Request request) {
    auto replies = netlink_.exchange(request);
    if (replies || replies.error().number == EALREADY) return {};
    return tl::unexpected(std::move(replies).error().error);
  }

  template <class Which>
  Result<Function> changed(const Request& request, const Which& which) {
    PCILEND_TRY(change(request));
    auto now = function(which);
    if (!now) return tl::unexpected(after_change(std::move(now).error()));
    return now;
  }

  GenericNetlink netlink_;
};

}  // namespace

Result<std::unique_ptr<Client>> open_client(std::unique_ptr<Transport> transport) {
  auto netlink =
      GenericNetlink::open(std::move(transport), PCILEND_FAMILY_NAME, PCILEND_FAMILY_VERSION);
  if (!netlink && netlink.error().kind == ErrorClass::NotFound)
    return fail(ErrorClass::Unreachable, "pcilend.ko is not loaded: modprobe pcilend");
  if (!netlink) return tl::unexpected(std::move(netlink).error());
  return std::make_unique<NetlinkClient>(std::move(*netlink));
}

Result<std::unique_ptr<Client>> open_client() {
  auto transport = open_netlink_socket();
  if (!transport) return tl::unexpected(std::move(transport).error());
  return open_client(std::move(*transport));
}

}  // namespace pcilend
