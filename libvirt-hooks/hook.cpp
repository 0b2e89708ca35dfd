// SPDX-License-Identifier: GPL-2.0-or-later
#include "hook.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/file.h>

#include <algorithm>

#include "mdev.h"
#include "pcilend/fd.h"
#include "pcilend/open_devices.h"
#include "record.h"

namespace pcilend {
namespace {

constexpr std::string_view kFrontend = "vfio";

// Advice for steps that do not end.
constexpr std::string_view kSeeKernelLog = "see dmesg";
constexpr std::string_view kSeeLink = "see 'pcilend link' and dmesg";

// A function that was given up a moment ago is stopped and reset first; that takes its time.
constexpr std::chrono::milliseconds kSettleLimit{10000};
constexpr std::chrono::milliseconds kPollLeast{100};
constexpr std::chrono::milliseconds kPollMost{2000};

// A mediated device that waits for its function finds out by itself that it is borrowed.
constexpr std::chrono::milliseconds kNameLimit{5000};

// How long a phase waits for the end of the domain's former one; less than a step may take.
constexpr std::chrono::milliseconds kLockLimit{15000};

// So many are told of functions that can't be chosen.
constexpr size_t kReasons = 8;

std::string described(const HookContext& context, const Function& f) {
  return fmt::format("{} ({} {})", to_string(f.id), context.names.vendor(f.vendor),
                     context.names.device(f.vendor, f.device));
}

bool in_transition(const Function& f) {
  return f.state == PCILEND_FUNCTION_FENCING || f.state == PCILEND_FUNCTION_RESETTING;
}

constexpr std::string_view kDeviceOwner = "mdev:";

// Has the mediated device borrowed it, on this host?
bool is_held_by(const Function& f, const Uuid& mdev) {
  return f.owner == fmt::format("{}{}", kDeviceOwner, to_string(mdev));
}

// Borrowed for VFIO by somebody of this host, and for no domain and no mediated device: whoever
// opens it has it.
bool is_ready_for_anybody(const Function& f) {
  return f.frontend == kFrontend && !f.owner.empty() && !f.owner.starts_with(kDeviceOwner) &&
         !parse_uuid(f.owner);
}

// Who has it on this host, and the cure: a domain by name if the hook gave it to one.
std::string holder(const HookContext& context, const std::string& owner) {
  if (owner.starts_with(kDeviceOwner)) {
    const std::string mdev = owner.substr(kDeviceOwner.size());
    return fmt::format("mediated device {0}: stop it ('mdevctl stop -u {0}')", mdev);
  }
  if (const auto domain = parse_uuid(owner)) {
    const auto record = load_record(context.environment, *domain);
    if (record && *record) return fmt::format("domain '{}': end that first", (*record)->name);
  }
  return owner.empty() ? "another user: end that first"
                       : fmt::format("'{}': end that first", owner);
}

// A device of the domain that is to be a borrowed function: a PCI device at the place of one; or a
// mediated device: of the function with its UUID, or of any that matches its choice.
struct Wanted {
  std::optional<FunctionId> function;  // of a PCI device
  Uuid mdev;
  const Choice* choice = nullptr;  // of the domain, or null

  [[nodiscard]] std::string name() const {
    return function ? to_string(*function) : to_string(mdev);
  }
  [[nodiscard]] bool is(const FunctionRecord& record) const {
    return function ? !record.mdev && record.id == *function : record.mdev == mdev;
  }
  // Does the domain's mediated device have it, since before the domain?
  [[nodiscard]] bool has(const Function& f) const { return !function && is_held_by(f, mdev); }
};

// Stays borrowed as it is, before, with and after the domain.
bool is_used_as_it_is(const Function& f, const Wanted& wanted) {
  return f.borrower && !wanted.choice && is_ready_for_anybody(f);
}

// Refuses a function this domain can't have now, with the reason and the cure.
Result<> check_free(const HookContext& context, const Function& f, const Wanted& wanted,
                    uint32_t this_node, const std::string& owner) {
  const std::string name = described(context, f);
  if (f.lender == this_node)
    return fail(ErrorClass::Usage,
                "{} is installed in this host at {}: pass it to the domain as a PCI hostdev", name,
                f.bdf);
  switch (f.state) {
    case PCILEND_FUNCTION_AVAILABLE:
      return {};
    case PCILEND_FUNCTION_BORROWED:
      if (f.borrower == this_node && (f.owner == owner || wanted.has(f))) return {};
      if (f.borrower == this_node && is_used_as_it_is(f, wanted)) {
        const auto user = vfio_user(context.environment, f.virtual_address);
        if (!user) return {};
        return fail(ErrorClass::State,
                    "{} is borrowed on this host for '{}', and {} has it: end that first", name,
                    f.owner, *user);
      }
      if (f.borrower == this_node)
        return fail(ErrorClass::State, "{} is in use on this host by {}", name,
                    holder(context, f.owner));
      return fail(ErrorClass::State, "{} is borrowed by node {}: end its use there first", name,
                  f.borrower.value_or(0));
    case PCILEND_FUNCTION_LOCAL:
    case PCILEND_FUNCTION_ADDED:
      return fail(ErrorClass::State, "{} is not available: on node {} run 'pcilend available {}'",
                  name, f.lender, f.bdf);
    case PCILEND_FUNCTION_QUARANTINED:
      return fail(ErrorClass::State,
                  "{0} is quarantined{1}{2}: on node {3} run 'pcilend show {4}'; if it waits to be "
                  "erased, 'pcilend sanitize {5}', else 'pcilend release-quarantine {5}'",
                  name, f.reason.empty() ? "" : ", ", f.reason, f.lender, to_string(f.id), f.bdf);
    default:
      return fail(ErrorClass::State, "{} is still {}: try again, or look at node {}", name,
                  function_state_name(f.state), f.lender);
  }
}

std::vector<Wanted> wanted_by(const Domain& domain) {
  std::vector<Wanted> wanted;
  for (const Uuid& mdev : domain.mdevs) {
    const Choice* choice = nullptr;
    if (domain.options)
      for (const Choice& candidate : domain.options->choices)
        if (candidate.mdev == mdev) choice = &candidate;
    if (choice || mdev.names_function()) wanted.push_back({{}, mdev, choice});
  }
  for (const FunctionId& function : domain.functions) wanted.push_back({function, {}, nullptr});
  return wanted;
}

// All that the device can become, whatever their state.
std::vector<Function> candidates(const HookContext& context, const std::vector<Function>& functions,
                                 const Wanted& wanted) {
  std::vector<Function> found;
  if (wanted.function) {
    for (const Function& f : functions)
      if (f.id == *wanted.function) found.push_back(f);
    return found;
  }
  // One that is there already is of one function, or of something else. Below a kind, only who
  // has borrowed it tells.
  const bool there = mdev_exists(context.environment, wanted.mdev);
  const auto parent = function_of_mdev(context.environment, wanted.mdev);
  for (const Function& f : functions) {
    const bool is_its = (parent && *parent == f.id) || wanted.has(f);
    if (wanted.choice ? wanted.choice->matches(f) && (!there || is_its) : f.uuid == wanted.mdev)
      found.push_back(f);
  }
  return found;
}

// Functions in use over the least used adapter that leads to it.
size_t load_on_the_way_to(const Function& f, const std::vector<Function>& functions) {
  size_t least = f.paths.empty() ? 0 : functions.size();
  for (const std::string& path : f.paths)
    least = std::min<size_t>(
        least, std::count_if(functions.begin(), functions.end(), [&](const Function& other) {
          return other.borrower && other.adapter == path;
        }));
  return least;
}

// Those of the candidates that can be borrowed now, best first: every function is one link away, so
// it is the least used link that counts.
Result<std::vector<Function>> free_ones(const HookContext& context,
                                        const std::vector<Function>& functions,
                                        const Wanted& wanted, uint32_t this_node,
                                        const std::string& owner) {
  const auto all = candidates(context, functions, wanted);
  std::vector<Function> free;
  std::vector<std::string> reasons;
  for (const Function& f : all) {
    const auto is_free = check_free(context, f, wanted, this_node, owner);
    if (!is_free && !wanted.choice) return tl::unexpected(is_free.error());
    if (is_free)
      free.push_back(f);
    else
      reasons.push_back(is_free.error().message);
  }
  if (!wanted.choice && free.empty())
    return fail(
        ErrorClass::NotFound,
        "no host offers function {} to this one: on its lender run 'pcilend connect {}' and "
        "'pcilend add' with its address; 'pcilend link' shows the hosts in reach",
        wanted.name(), this_node);
  if (wanted.choice && all.empty() && mdev_exists(context.environment, wanted.mdev))
    return fail(ErrorClass::State,
                "mediated device {} is there already, and not of a function of {}: give the "
                "<hostdev> another UUID, or stop it ('mdevctl stop -u {}')",
                to_string(wanted.mdev), wanted.choice->text(), to_string(wanted.mdev));
  if (free.empty() && reasons.empty())
    return fail(ErrorClass::NotFound, "no host offers a function of {}: 'pcilend list' shows all",
                wanted.choice->text());
  if (free.empty())
    return fail(
        ErrorClass::State, "no function of {} is free: {}{}", wanted.choice->text(),
        fmt::join(reasons.begin(), reasons.begin() + std::min(reasons.size(), kReasons), "; "),
        reasons.size() > kReasons
            ? fmt::format("; and {} more, see 'pcilend list'", reasons.size() - kReasons)
            : "");
  std::stable_sort(free.begin(), free.end(), [&](const Function& a, const Function& b) {
    return load_on_the_way_to(a, functions) < load_on_the_way_to(b, functions);
  });
  return free;
}

Result<> borrow(HookContext& context, Client& client, const Function& f, const Wanted& wanted,
                const Uuid& domain) {
  context.steps.begin(fmt::format("borrowing {} from node {}", to_string(f.id), f.lender),
                      kSeeLink);
  auto borrowed = client.borrow(f.id, kFrontend, to_string(domain));
  if (borrowed) return {};
  // A device that waits for it may have been faster.
  const auto now = client.function(f.id);
  if (now && wanted.has(*now)) return {};
  return tl::unexpected(std::move(borrowed).error().in(described(context, f)));
}

// Makes the mediated device, as a name of what the domain has borrowed.
Result<> make_mdev(HookContext& context, const Uuid& mdev, Record* record) {
  FunctionRecord& made = record->functions.back();
  made.created = true;
  PCILEND_TRY(save_record(context.environment, *record));
  context.steps.begin(fmt::format("creating the mediated device of {}", to_string(made.id)),
                      kSeeKernelLog);
  auto created = create_mdev(context.environment, made.id, mdev);
  if (created) return {};
  // Not made by us: not ours to remove.
  made.created = false;
  PCILEND_TRY(save_record(context.environment, *record));
  return mdev_exists(context.environment, mdev) ? Result<>() : created;
}

// One that somebody else has made is a name of the function, or is about to be.
Result<> await_mdev(HookContext& context, const Function& f, const Uuid& mdev) {
  const auto begin = context.now();
  while (!mdev_is_ready(context.environment, mdev)) {
    if (context.now() - begin >= kNameLimit)
      return fail(ErrorClass::State,
                  "mediated device {0} is there, but is not {1}: dmesg may say why; stop it "
                  "('mdevctl stop -u {0}')",
                  to_string(mdev), described(context, f));
    context.sleep(kPollLeast);
  }
  return {};
}

Result<> take(HookContext& context, Client& client, const Function& f, const Wanted& wanted,
              Record* record) {
  const Uuid& mdev = wanted.mdev;
  record->functions.push_back({f.id, wanted.function ? std::nullopt : std::optional(mdev)});
  PCILEND_TRY(save_record(context.environment, *record));
  if (!wanted.has(f) && !is_used_as_it_is(f, wanted))
    PCILEND_TRY(borrow(context, client, f, wanted, record->domain));
  if (wanted.function) return {};
  if (!mdev_exists(context.environment, mdev)) PCILEND_TRY(make_mdev(context, mdev, record));
  return record->functions.back().created ? Result<>() : await_mdev(context, f, mdev);
}

Result<> undo(HookContext& context, Client& client, const FunctionRecord& f,
              const std::string& owner) {
  if (f.created && f.mdev) {
    context.steps.begin(fmt::format("removing mediated device {}", to_string(*f.mdev)),
                        "a process still has it open, see dmesg");
    PCILEND_TRY(remove_mdev(context.environment, *f.mdev));
  }
  context.steps.begin(fmt::format("returning {}", to_string(f.id)), kSeeLink);
  const auto function = client.function(f.id);
  if (!function && function.error().kind == ErrorClass::NotFound) return {};  // withdrawn
  if (!function) return tl::unexpected(function.error());
  // The lease may be over already, and the function somebody else's, such as its device's.
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

// A device, and what it can become now.
struct Pick {
  Wanted wanted;
  std::vector<Function> free;
};

// A function is one device of a guest.
Result<> check_twice(const HookContext& context, const std::vector<Function>& functions,
                     const Domain& domain) {
  for (const Function& f : functions) {
    if (std::find(domain.functions.begin(), domain.functions.end(), f.id) !=
            domain.functions.end() &&
        std::find(domain.mdevs.begin(), domain.mdevs.end(), f.uuid) != domain.mdevs.end())
      return fail(ErrorClass::Usage,
                  "the domain has {} twice, as a PCI device and as mediated device {}: leave one",
                  described(context, f), to_string(f.uuid));
  }
  return {};
}

// What each can become. An error if one can become nothing.
Result<std::vector<Pick>> pick(const HookContext& context, const std::vector<Function>& functions,
                               const std::vector<Wanted>& wanted, uint32_t this_node,
                               const std::string& owner) {
  std::vector<Pick> picks;
  for (const Wanted& one : wanted) {
    auto free = free_ones(context, functions, one, this_node, owner);
    if (!free) return tl::unexpected(std::move(free).error());
    picks.push_back({one, std::move(*free)});
  }
  // Who has least to choose from chooses first.
  std::stable_sort(picks.begin(), picks.end(),
                   [](const Pick& a, const Pick& b) { return a.free.size() < b.free.size(); });
  return picks;
}

// The first that can be had and is none of the record's. If none can, the first one's error.
Result<> take_one(HookContext& context, Client& client, const Pick& pick, Record* record) {
  Result<> result = fail(ErrorClass::State, "the domain wants more functions than are free");
  bool tried = false;
  for (const Function& f : pick.free) {
    if (std::any_of(record->functions.begin(), record->functions.end(),
                    [&f](const FunctionRecord& taken) { return taken.id == f.id; }))
      continue;
    auto taken = take(context, client, f, pick.wanted, record);
    if (taken) return {};
    if (!tried) result = std::move(taken);
    tried = true;
    if (!undo(context, client, record->functions.back(), to_string(record->domain))) return result;
    record->functions.pop_back();
  }
  return result;
}

Result<> take_all(HookContext& context, Client& client, const std::vector<Pick>& picks,
                  Record record) {
  for (const Pick& pick : picks) {
    auto taken = take_one(context, client, pick, &record);
    if (taken) continue;
    (void)undo_all(context, client, record);  // what it can't undo stays recorded for release
    return taken;
  }
  return {};
}

// How long it may take until this one can be borrowed, `limit` at most.
std::chrono::milliseconds hope(const Function& f, uint32_t this_node,
                               std::chrono::milliseconds limit) {
  if (f.lender == this_node || f.state == PCILEND_FUNCTION_QUARANTINED) return {};
  // Its lender makes it available while it boots, or an administrator does, some day.
  if (f.state == PCILEND_FUNCTION_ADDED || f.state == PCILEND_FUNCTION_LOCAL)
    return std::min(limit, kSettleLimit);
  return limit;
}

// How long a refusal may still turn into its opposite.
std::chrono::milliseconds patience(const HookContext& context, const Domain& domain,
                                   const std::vector<Function>& functions,
                                   const std::vector<Wanted>& wanted, uint32_t this_node,
                                   const Error& error) {
  if (error.kind != ErrorClass::State && error.kind != ErrorClass::NotFound &&
      error.kind != ErrorClass::Unreachable)
    return {};
  std::chrono::milliseconds limit = domain.options->wait;
  for (const Wanted& one : wanted)
    for (const Function& f : candidates(context, functions, one))
      if (in_transition(f)) limit = std::max(limit, kSettleLimit);
  for (const Wanted& one : wanted) {
    const auto all = candidates(context, functions, one);
    // One that nobody offers may be of a host that boots; unless the device is something else.
    std::chrono::milliseconds best =
        all.empty() && !mdev_exists(context.environment, one.mdev) ? limit : limit.zero();
    for (const Function& f : all) best = std::max(best, hope(f, this_node, limit));
    limit = std::min(limit, best);
  }
  return limit;
}

// Where the record is lost: one that mdevctl knows is somebody else's.
bool is_ours_to_remove(const HookContext& context, const Uuid& mdev) {
  return mdev_exists(context.environment, mdev) && !mdev_is_defined(context.environment, mdev);
}

// Held as long as a phase of the domain runs, also by a step that hangs in the kernel after its
// hook is gone.
Result<UniqueFd> lock_domain(HookContext& context, const Uuid& domain) {
  const std::filesystem::path file =
      context.environment.path(fmt::format("/run/pcilend/locks/{}", to_string(domain)));
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  if (error) return fail_errno(file.parent_path().native(), error.value());
  UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno(file.native());
  context.steps.begin("waiting for the end of the domain's former start or stop", kSeeKernelLog);
  const auto begin = context.now();
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) < 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return fail_errno(file.native());
    if (context.now() - begin >= kLockLimit)
      return fail(ErrorClass::State,
                  "a hook of the domain's former start or stop is still at work: 'fuser {}' says "
                  "which; try again",
                  file.native());
    context.sleep(kPollLeast);
  }
  return fd;
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
  if (!domain.options) return tl::unexpected(domain.options.error());
  const auto wanted = wanted_by(domain);
  if (wanted.empty() && !*former) return {};
  if (!context.privileged)
    return fail(ErrorClass::Permission,
                "domains of users (qemu:///session) can't borrow functions: define it in "
                "qemu:///system");
  const auto lock = lock_domain(context, domain.uuid);
  if (!lock) return tl::unexpected(lock.error());
  context.steps.begin("asking pcilend.ko", kSeeKernelLog);
  const auto client = context.open_client();
  if (!client) return tl::unexpected(client.error());
  const auto node = (*client)->node();
  if (!node) return tl::unexpected(node.error());
  const auto begin = context.now();
  for (;;) {
    // The domain is about to start, so it does not run, and no other phase of it does, as we have
    // its lock: what is recorded was left behind, maybe by the last attempt.
    const auto left = load_record(context.environment, domain.uuid);
    if (!left) return tl::unexpected(left.error());
    if (*left) PCILEND_TRY(undo_all(context, **client, **left));
    context.steps.begin("looking for functions", kSeeKernelLog);
    const auto functions = (*client)->functions();
    if (!functions) return tl::unexpected(functions.error());
    PCILEND_TRY(check_twice(context, *functions, domain));
    const auto picks = pick(context, *functions, wanted, node->id, to_string(domain.uuid));
    const Result<> taken =
        picks ? take_all(context, **client, *picks, Record{domain.name, domain.uuid, {}})
              : tl::unexpected(picks.error());
    if (context.abandoned()) {
      const auto now = load_record(context.environment, domain.uuid);
      if (now && *now) PCILEND_TRY(undo_all(context, **client, **now));
      return fail(ErrorClass::State, "libvirtd is gone: the domain is not started");
    }
    if (taken) return {};
    const auto waited = context.now() - begin;
    if (waited >= patience(context, domain, *functions, wanted, node->id, taken.error()))
      return taken;
    // Refusals are written down on the lender, so they are not asked for too often.
    context.sleep(std::clamp(std::chrono::duration_cast<std::chrono::milliseconds>(waited / 8),
                             kPollLeast, kPollMost));
  }
}

Result<> release_domain(HookContext& context, const Domain& domain) {
  const auto before = load_record(context.environment, domain.uuid);
  if (!before) return tl::unexpected(before.error());
  if (!*before) return {};
  const auto lock = lock_domain(context, domain.uuid);
  if (!lock) return tl::unexpected(lock.error());
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
  const auto wanted = wanted_by(domain);
  if ((former && !known && wanted.empty()) || !context.privileged) return {};
  const auto lock = lock_domain(context, domain.uuid);
  if (!lock) return tl::unexpected(lock.error());
  context.steps.begin("asking pcilend.ko", kSeeKernelLog);
  const auto client = context.open_client();
  if (!client) return tl::unexpected(client.error());
  const auto functions = (*client)->functions();
  if (!functions) return tl::unexpected(functions.error());

  Record record{domain.name, domain.uuid, {}};
  if (known) record.functions = (*former)->functions;
  const std::string owner = to_string(domain.uuid);
  for (const Wanted& one : wanted) {
    if (std::any_of(record.functions.begin(), record.functions.end(),
                    [&one](const FunctionRecord& entry) { return one.is(entry); }))
      continue;
    for (const Function& f : candidates(context, *functions, one))
      if (f.owner == owner && one.function)
        record.functions.push_back({f.id, {}, false});
      else if (f.owner == owner)
        record.functions.push_back({f.id, one.mdev, is_ours_to_remove(context, one.mdev)});
  }
  return save_record(context.environment, record);
}

}  // namespace pcilend
