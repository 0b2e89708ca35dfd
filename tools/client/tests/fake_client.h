// SPDX-License-Identifier: GPL-2.0-or-later
// A host's pcilend.ko as its users see it, in memory.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "pcilend/client.h"
#include "pcilend/events.h"

namespace pcilend::test {

// State shared by all clients of one fake kernel, for tests to set up and look at.
struct FakeKernel {
  Node node_value{8, 0x1122334455667788, 1};
  std::vector<Link> links;
  std::vector<Function> functions;
  std::vector<Function> installed;  // what functions of this host are once they are added
  std::set<uint32_t> connected;
  std::vector<Segment> segments;
  bool segments_end = false;     // when they are withdrawn, as memory beside a function does
  std::vector<Segment> offered;  // by peers
  Counters counters;
  std::map<uint32_t, std::vector<uint8_t>> configs;  // by id
  std::map<uint32_t, std::vector<uint8_t>> emulated_configs;
  // Every change asked for: "borrow 40001 vfio OWNER".
  std::vector<std::string> log;
  // Called with the entry before it is carried out; an error is the kernel's refusal.
  std::function<Result<>(const std::string&)> refuse = [](const std::string&) {
    return Result<>();
  };
  // Called at every look at the functions, so that time may pass.
  std::function<void()> on_look = [] {};
  int opened = 0;
  // What its event streams say, in this order; afterwards the time runs out.
  std::deque<std::variant<Event, Wake>> events;
  std::chrono::steady_clock::time_point clock;

  Function* find(FunctionId id) {
    for (auto& f : functions)
      if (f.id == id) return &f;
    return nullptr;
  }
  Function* find(const PciAddress& local) {
    for (auto& f : functions)
      if (f.lender == node_value.id && f.bdf == to_string(local)) return &f;
    return nullptr;
  }
};

class FakeClient final : public Client {
 public:
  explicit FakeClient(FakeKernel& kernel) : kernel_(kernel) { ++kernel.opened; }

  Result<Node> node() override { return kernel_.node_value; }
  Result<std::vector<Link>> links() override {
    kernel_.on_look();
    return kernel_.links;
  }
  Result<std::vector<Function>> functions() override {
    kernel_.on_look();
    return kernel_.functions;
  }
  Result<Function> function(FunctionId id) override {
    kernel_.on_look();
    return copy(kernel_.find(id));
  }
  Result<Function> function(const PciAddress& local) override { return copy(kernel_.find(local)); }

  Result<> connect(uint32_t node, const std::string& adapter) override {
    PCILEND_TRY(enter(fmt::format("connect {}{}", node, adapter.empty() ? "" : " at " + adapter)));
    kernel_.connected.insert(node);
    return {};
  }
  Result<> disconnect(uint32_t node) override {
    PCILEND_TRY(enter(fmt::format("disconnect {}", node)));
    kernel_.connected.erase(node);
    return {};
  }
  Result<Function> add(const PciAddress& local, const AddOptions& options) override {
    PCILEND_TRY(
        enter("add " + to_string(local) + (options.id ? " as " + to_string(*options.id) : "") +
              (options.label.empty() ? "" : " label " + options.label) +
              (options.nodes ? fmt::format(" allow {}", fmt::join(*options.nodes, ",")) : "")));
    if (!kernel_.find(local)) {
      Function f;
      for (const auto& known : kernel_.installed)
        if (known.bdf == to_string(local)) f = known;
      f.lender = kernel_.node_value.id;
      f.id.value = f.lender << 16 | static_cast<uint32_t>(kernel_.functions.size() + 1);
      if (options.id) f.id = *options.id;
      f.label = options.label;
      f.allowed = options.nodes;
      f.bdf = to_string(local);
      f.state = PCILEND_FUNCTION_ADDED;
      kernel_.functions.push_back(f);
    }
    return *kernel_.find(local);
  }
  Result<> remove(const PciAddress& local) override {
    PCILEND_TRY(enter("remove " + to_string(local)));
    std::erase_if(kernel_.functions, [&](const Function& f) { return f.bdf == to_string(local); });
    return {};
  }
  Result<Function> make_available(const PciAddress& local, const Lend& how) override {
    std::string command = "available";
    if (how.direct) command += " direct";
    if (how.sanitize) command += " sanitize";
    if (how.sanitized) command += " sanitized";
    if (how.near) command += fmt::format(" near {}", *how.near);
    const auto f = set_state(command, local, PCILEND_FUNCTION_AVAILABLE);
    if (!f) return f;
    Function& function = *kernel_.find(local);
    function.direct = how.direct;
    function.sanitize = how.sanitize;
    function.near = how.near;
    if (how.sanitized) function.dirty = false;
    if (!function.dirty) return function;
    function.state = PCILEND_FUNCTION_QUARANTINED;
    return fail(ErrorClass::State, "what its last borrower left on it is not erased");
  }
  Result<> make_unavailable(const PciAddress& local, bool force) override {
    auto f = set_state(force ? "take" : "unavailable", local, PCILEND_FUNCTION_ADDED);
    if (!f) return tl::unexpected(f.error());
    return {};
  }
  Result<> recall(const PciAddress& local, uint32_t grace_ms) override {
    PCILEND_TRY(enter(fmt::format("recall {} {}", to_string(local), grace_ms)));
    Function* f = kernel_.find(local);
    if (!f) return tl::unexpected(missing().error());
    if (f->state == PCILEND_FUNCTION_BORROWED) {
      f->recall_ms = grace_ms;
    } else {
      f->state = PCILEND_FUNCTION_ADDED;
    }
    return {};
  }
  Result<Function> release_quarantine(const PciAddress& local) override {
    return set_state("release-quarantine", local, PCILEND_FUNCTION_AVAILABLE);
  }
  Result<> reserve(FunctionId id, const Reservation& reservation) override {
    PCILEND_TRY(enter(fmt::format(
        "reserve {}{}{} {}", to_string(id),
        reservation.node ? fmt::format(" node {}", *reservation.node) : "",
        reservation.uuid ? " domain " + to_string(*reservation.uuid) : "", reservation.ttl_ms)));
    Function* f = kernel_.find(id);
    if (!f) return tl::unexpected(missing().error());
    f->reserved_node = reservation.node;
    f->reserved_uuid = reservation.uuid;
    f->reserved_ms.reset();
    if (reservation.ttl_ms) f->reserved_ms = reservation.ttl_ms;
    return {};
  }
  Result<std::vector<Segment>> segments() override { return kernel_.segments; }
  Result<std::vector<Segment>> offered_segments() override {
    PCILEND_TRY(kernel_.refuse("segment offered"));
    return kernel_.offered;
  }
  Result<CreatedSegment> create_segment(int dma_buf, std::string_view name, int) override {
    PCILEND_TRY(enter(fmt::format("segment create {} {}", dma_buf >= 0 ? "memory" : "-", name)));
    Segment segment;
    segment.id.value =
        kernel_.node_value.id << 16 | static_cast<uint32_t>(kernel_.segments.size() + 1);
    segment.name = name;
    kernel_.segments.push_back(segment);
    return CreatedSegment{segment.id, UniqueFd()};
  }
  Result<> offer_segment(FunctionId id, uint32_t node, bool read_only,
                         const std::string& adapter) override {
    return enter(fmt::format("segment offer {} {}{}{}", to_string(id), node,
                             read_only ? " read-only" : "",
                             adapter.empty() ? "" : " over " + adapter));
  }
  Result<> withdraw_segment(FunctionId id, std::optional<uint32_t> node) override {
    PCILEND_TRY(enter(fmt::format("segment withdraw {}{}", to_string(id),
                                  node ? fmt::format(" {}", *node) : "")));
    if (kernel_.segments.empty()) return fail(ErrorClass::NotFound, "there is no such segment");
    if (kernel_.segments_end) kernel_.segments.clear();
    return {};
  }
  Result<ConnectedSegment> connect_segment(FunctionId id, const ConnectOptions& options) override {
    PCILEND_TRY(enter(fmt::format("segment connect {}{}{}", to_string(id),
                                  options.read_only ? " read-only" : "",
                                  options.write_combining ? " write-combining" : "")));
    return fail(ErrorClass::NotFound, "there is no such segment");
  }
  // Leases are a process's own: nothing that commands ask for.
  Result<LeasedFunction> lease(FunctionId id, std::string_view, uint64_t) override {
    return fail(ErrorClass::Unsupported, "{} can't be leased from a fake kernel", to_string(id));
  }
  Result<UniqueFd> lease_bar(int, uint32_t, uint64_t, uint64_t) override { return no_lease(); }
  Result<uint64_t> lease_map(int, int, bool) override { return no_lease(); }
  Result<> lease_unmap(int, uint64_t) override { return no_lease(); }
  Result<ConnectedSegment> lease_near(int, uint64_t, bool) override { return no_lease(); }
  Result<> lease_interrupt(int, uint32_t, int) override { return no_lease(); }
  Result<> lease_share(int, const SharePolicy&) override { return no_lease(); }
  Result<std::optional<ClientNotice>> lease_next_client(int) override { return no_lease(); }
  Result<> lease_cleared(int, uint32_t, uint32_t) override { return no_lease(); }
  Result<> lease_send_mail(int, const Mail&) override { return no_lease(); }
  Result<std::optional<Mail>> lease_next_mail(int) override { return no_lease(); }
  Result<JoinedFunction> join(FunctionId, std::string_view, uint64_t, uint32_t,
                              const std::string&) override {
    return no_lease();
  }
  Result<> check(const PciAddress& local) override {
    return kernel_.refuse("check " + to_string(local));
  }
  Result<std::vector<uint8_t>> config(FunctionId id, bool emulated) override {
    PCILEND_TRY(kernel_.refuse("config " + to_string(id)));
    const auto& known = emulated ? kernel_.emulated_configs : kernel_.configs;
    const auto found = known.find(id.value);
    if (found == known.end()) return fail(ErrorClass::NotFound, "there is no such function");
    return found->second;
  }
  Result<Counters> counters() override { return kernel_.counters; }
  Result<> allow(const PciAddress& local,
                 const std::optional<std::vector<uint32_t>>& nodes) override {
    PCILEND_TRY(enter(fmt::format("allow {} {}", to_string(local),
                                  nodes ? fmt::format("{}", fmt::join(*nodes, ",")) : "all")));
    Function* f = kernel_.find(local);
    if (!f) return tl::unexpected(missing().error());
    f->allowed = nodes;
    return {};
  }
  Result<> label(const PciAddress& local, std::string_view text) override {
    PCILEND_TRY(enter(fmt::format("label {} {}", to_string(local), text)));
    Function* f = kernel_.find(local);
    if (!f) return tl::unexpected(missing().error());
    f->label = text;
    return {};
  }
  Result<Function> borrow(FunctionId id, std::string_view frontend, std::string_view owner,
                          const std::string& adapter) override {
    PCILEND_TRY(enter(fmt::format("borrow {} {} {}{}", to_string(id), frontend, owner,
                                  adapter.empty() ? "" : " over " + adapter)));
    Function* f = kernel_.find(id);
    if (!f) return missing();
    if (f->state != PCILEND_FUNCTION_AVAILABLE && f->owner != owner)
      return fail(ErrorClass::State, "it is borrowed by somebody else");
    f->state = PCILEND_FUNCTION_BORROWED;
    f->borrower = kernel_.node_value.id;
    f->lease = 1;
    f->frontend = frontend;
    f->owner = owner;
    f->adapter = adapter;
    f->virtual_address = "1e000:00:00.0";
    return *f;
  }
  Result<> give_back(FunctionId id, std::string_view owner) override {
    PCILEND_TRY(enter(fmt::format("return {} {}", to_string(id), owner)));
    Function* f = kernel_.find(id);
    if (!f) return tl::unexpected(missing().error());
    if (!f->borrower) return {};
    if (!owner.empty() && f->owner != owner)
      return fail(ErrorClass::Permission, "another owner borrowed it");
    f->state = PCILEND_FUNCTION_AVAILABLE;
    f->borrower.reset();
    f->lease.reset();
    f->frontend.clear();
    f->owner.clear();
    f->virtual_address.clear();
    return {};
  }

  Result<Function> reach(FunctionId from, FunctionId to, bool on) override {
    PCILEND_TRY(
        enter(fmt::format("p2p {} {}{}", to_string(from), to_string(to), on ? "" : " end")));
    Function* f = kernel_.find(from);
    if (!f) return missing();
    std::erase(f->reaches, to.value);
    if (on) f->reaches.push_back(to.value);
    return *f;
  }

 private:
  static tl::unexpected<Error> no_lease() {
    return fail(ErrorClass::Usage, "a fake kernel has no leases");
  }
  static Result<Function> missing() {
    return fail(ErrorClass::NotFound, "there is no such function");
  }
  static Result<Function> copy(const Function* f) {
    if (!f) return missing();
    return *f;
  }
  Result<> enter(const std::string& entry) {
    PCILEND_TRY(kernel_.refuse(entry));
    kernel_.log.push_back(entry);
    return {};
  }
  Result<Function> set_state(std::string_view verb, const PciAddress& local, uint32_t state) {
    PCILEND_TRY(enter(fmt::format("{} {}", verb, to_string(local))));
    Function* f = kernel_.find(local);
    if (!f) return missing();
    f->state = state;
    return *f;
  }

  FakeKernel& kernel_;
};

// Events of a fake kernel. Who waits without a limit when nothing is left to come is stopped.
class FakeEvents final : public EventStream {
 public:
  explicit FakeEvents(FakeKernel& kernel) : kernel_(kernel) {}

  Result<std::variant<Event, Wake>> next(std::optional<std::chrono::milliseconds> limit) override {
    if (kernel_.events.empty()) {
      if (!limit) return Wake::Stopped;
      kernel_.clock += *limit;
      return Wake::Timeout;
    }
    auto next = std::move(kernel_.events.front());
    kernel_.events.pop_front();
    if (limit && std::holds_alternative<Wake>(next) && std::get<Wake>(next) == Wake::Timeout)
      kernel_.clock += *limit;
    return next;
  }

 private:
  FakeKernel& kernel_;
};

}  // namespace pcilend::test
