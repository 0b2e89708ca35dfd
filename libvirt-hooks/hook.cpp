// SPDX-License-Identifier: GPL-2.0-or-later
#include "hook.h"

#include <algorithm>

#include "mdev.h"
#include "record.h"

namespace pcilend {
namespace {

constexpr std::string_view kFrontend = "mdev";

// Advice for steps that do not end.
constexpr std::string_view kSeeKernelLog = "see dmesg";
constexpr std::string_view kSeeLink = "see 'pcilend link' and dmesg";

// A function that was given up a moment ago is stopped and reset first; that takes its time.
constexpr std::chrono::milliseconds kSettleLimit{10000};
constexpr std::chrono::milliseconds kSettlePoll{100};

std::string described(const HookContext& context, const Function& f) {
  return fmt::format("{} ({} {})", to_string(f.id), context.names.vendor(f.vendor),
                     context.names.device(f.vendor, f.device));
}

bool in_transition(const Function& f) {
  return f.state == PCILEND_FUNCTION_FENCING || f.state == PCILEND_FUNCTION_RESETTING;
}

Result<Function> find(Client& client, const Uuid& uuid, uint32_t this_node) {
  auto functions = client.functions();
  if (!functions) return tl::unexpected(std::move(functions).error());
  const auto found = std::find_if(functions->begin(), functions->end(),
                                  [&](const Function& f) { return f.uuid == uuid; });
  if (found != functions->end()) return *found;
  return fail(ErrorClass::NotFound,
              "no host offers function {} to this one: on its lender run 'pcilend connect {}' and "
              "'pcilend add' with its address; 'pcilend link' shows the hosts in reach",
              to_string(uuid), this_node);
}

// Who has it on this host: a domain by name if the hook gave it to one.
std::string holder(const HookContext& context, const std::string& owner) {
  if (const auto domain = parse_uuid(owner)) {
    const auto record = load_record(context.environment, *domain);
    if (record && *record) return fmt::format("domain '{}'", (*record)->name);
  }
  return owner.empty() ? "another user" : fmt::format("'{}'", owner);
}

// Refuses a function this domain can't have now, with the reason and the cure.
Result<> check_free(const HookContext& context, const Function& f, uint32_t this_node,
                    const std::string& owner) {
  const std::string name = described(context, f);
  if (f.lender == this_node)
    return fail(ErrorClass::State,
                "{} is installed in this host at {}: pass it to the domain as a PCI hostdev", name,
                f.bdf);
  switch (f.state) {
    case PCILEND_FUNCTION_AVAILABLE:
      return {};
    case PCILEND_FUNCTION_BORROWED:
      if (f.borrower == this_node && f.owner == owner) return {};
      if (f.borrower == this_node)
        return fail(ErrorClass::State, "{} is in use on this host by {}: end that first", name,
                    holder(context, f.owner));
      return fail(ErrorClass::State, "{} is borrowed by node {}: end its use there first", name,
                  f.borrower.value_or(0));
    case PCILEND_FUNCTION_LOCAL:
    case PCILEND_FUNCTION_ADDED:
      return fail(ErrorClass::State, "{} is not available: on node {} run 'pcilend available {}'",
                  name, f.lender, f.bdf);
    case PCILEND_FUNCTION_QUARANTINED:
      return fail(ErrorClass::State,
                  "{} is quarantined{}{}: on node {} run 'pcilend unavailable {}', see to it, then "
                  "'pcilend available {}'",
                  name, f.reason.empty() ? "" : ", ", f.reason, f.lender, f.bdf, f.bdf);
    default:
      return fail(ErrorClass::State, "{} is still {}: try again, or look at node {}", name,
                  function_state_name(f.state), f.lender);
  }
}

// The function, once it may be borrowed by `owner`.
Result<Function> wait_until_free(HookContext& context, Client& client, const Uuid& uuid,
                                 uint32_t this_node, const std::string& owner) {
  context.steps.begin(fmt::format("looking up function {}", to_string(uuid)), kSeeKernelLog);
  auto function = find(client, uuid, this_node);
  for (auto waited = kSettleLimit.zero();
       function && in_transition(*function) && waited < kSettleLimit; waited += kSettlePoll) {
    context.sleep(kSettlePoll);
    function = find(client, uuid, this_node);
  }
  if (!function) return function;
  PCILEND_TRY(check_free(context, *function, this_node, owner));
  return function;
}

Result<> take(HookContext& context, Client& client, const Function& f, Record* record) {
  const Environment& environment = context.environment;
  record->functions.push_back({f.id, f.uuid});
  PCILEND_TRY(save_record(environment, *record));
  context.steps.begin(fmt::format("borrowing {} from node {}", to_string(f.id), f.lender),
                      kSeeLink);
  auto borrowed = client.borrow(f.id, kFrontend, to_string(record->domain));
  if (!borrowed) return tl::unexpected(std::move(borrowed).error().in(described(context, f)));
  if (mdev_exists(environment, f.uuid)) return {};

  record->functions.back().created = true;
  PCILEND_TRY(save_record(environment, *record));
  context.steps.begin(fmt::format("creating the mediated device of {}", to_string(f.id)),
                      kSeeKernelLog);
  auto created = create_mdev(environment, f.id, f.uuid);
  if (created) return {};
  // Not made by us: not ours to remove.
  record->functions.back().created = false;
  PCILEND_TRY(save_record(environment, *record));
  if (mdev_exists(environment, f.uuid)) return {};
  return created;
}

Result<> undo(HookContext& context, Client& client, const FunctionRecord& f,
              const std::string& owner) {
  if (f.created) {
    context.steps.begin(fmt::format("removing mediated device {}", to_string(f.uuid)),
                        "a process still has it open, see dmesg");
    PCILEND_TRY(remove_mdev(context.environment, f.uuid));
  }
  context.steps.begin(fmt::format("returning {}", to_string(f.id)), kSeeLink);
  const auto function = client.function(f.id);
  if (!function && function.error().kind == ErrorClass::NotFound) return {};  // withdrawn
  if (!function) return tl::unexpected(function.error());
  // The lease may be over already, and the function somebody else's.
  if (function->owner != owner) return {};
  return client.give_back(f.id, owner);
}

// Undoes what is recorded, last first; keeps what fails. The first error.
Result<> undo_all(HookContext& context, Client& client, Record record) {
  Result<> result;
  const std::string owner = to_string(record.domain);
  std::vector<FunctionRecord> left;
  while (!record.functions.empty()) {
    auto undone = undo(context, client, record.functions.back(), owner);
    if (!undone) {
      left.push_back(record.functions.back());
      if (result) result = std::move(undone);
    }
    record.functions.pop_back();
  }
  record.functions.assign(left.rbegin(), left.rend());
  const auto saved = save_record(context.environment, record);
  return result ? saved : result;
}

}  // namespace

Phase phase_of(std::string_view operation, std::string_view sub_operation) {
  if (operation == "prepare" && sub_operation == "begin") return Phase::Prepare;
  if ((operation == "stopped" || operation == "release") && sub_operation == "end")
    return Phase::Release;
  if (operation == "reconnect" && sub_operation == "begin") return Phase::Reconnect;
  return Phase::Other;
}

Result<> prepare_domain(HookContext& context, const Domain& domain) {
  const auto former = load_record(context.environment, domain.uuid);
  if (!former) return tl::unexpected(former.error());
  if (domain.functions.empty() && !*former) return {};
  context.steps.begin("asking pcilend.ko", kSeeKernelLog);
  const auto client = context.open_client();
  if (!client) return tl::unexpected(client.error());
  // The domain is about to start, so it does not run: what is recorded was left behind.
  if (*former) PCILEND_TRY(undo_all(context, **client, **former));

  const auto node = (*client)->node();
  if (!node) return tl::unexpected(node.error());
  Record record{domain.name, domain.uuid, {}};
  std::vector<Function> functions;
  for (const auto& uuid : domain.functions) {
    auto function = wait_until_free(context, **client, uuid, node->id, to_string(domain.uuid));
    if (!function) return tl::unexpected(std::move(function).error());
    functions.push_back(std::move(*function));
  }
  for (const auto& function : functions) {
    auto taken = take(context, **client, function, &record);
    if (taken) continue;
    (void)undo_all(context, **client, record);  // what it can't undo stays recorded for release
    return taken;
  }
  return {};
}

Result<> release_domain(HookContext& context, const Domain& domain) {
  const auto record = load_record(context.environment, domain.uuid);
  if (!record) return tl::unexpected(record.error());
  if (!*record) return {};
  // Without the module there are no leases and no mediated devices.
  if (!context.environment.exists("/sys/bus/pcilend"))
    return save_record(context.environment, Record{domain.name, domain.uuid, {}});
  context.steps.begin("asking pcilend.ko", kSeeKernelLog);
  const auto client = context.open_client();
  if (!client) return tl::unexpected(client.error());
  return undo_all(context, **client, **record);
}

Result<> reconcile_domain(HookContext& context, const Domain& domain) {
  const auto former = load_record(context.environment, domain.uuid);
  const bool known = former && *former;
  if (former && !known && domain.functions.empty()) return {};
  context.steps.begin("asking pcilend.ko", kSeeKernelLog);
  const auto client = context.open_client();
  if (!client) return tl::unexpected(client.error());
  const auto functions = (*client)->functions();
  if (!functions) return tl::unexpected(functions.error());

  Record record{domain.name, domain.uuid, {}};
  if (known) record.functions = (*former)->functions;
  const std::string owner = to_string(domain.uuid);
  for (const Function& f : *functions) {
    const auto names = [&](const auto& list, auto uuid_of) {
      return std::any_of(list.begin(), list.end(),
                         [&](const auto& entry) { return uuid_of(entry) == f.uuid; });
    };
    if (f.owner != owner || !names(domain.functions, [](const Uuid& uuid) { return uuid; }) ||
        names(record.functions, [](const FunctionRecord& entry) { return entry.uuid; }))
      continue;
    record.functions.push_back({f.id, f.uuid, mdev_exists(context.environment, f.uuid)});
  }
  return save_record(context.environment, record);
}

}  // namespace pcilend
