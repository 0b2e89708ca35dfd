// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/policy/restore.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "pcilend/policy/kinds.h"
#include "plan.h"

namespace pcilend::policy {
namespace {

constexpr uint64_t kNear = uint64_t{4} << 20;  // that pcilend.ko gives unless it is said

bool can_be_borrowed(uint32_t state) {
  return state == PCILEND_FUNCTION_AVAILABLE || state == PCILEND_FUNCTION_BORROWED ||
         state == PCILEND_FUNCTION_FENCING || state == PCILEND_FUNCTION_RESETTING;
}

std::optional<std::vector<uint32_t>> nodes_of(const std::optional<Audience>& audience) {
  if (!audience || audience->all) return std::nullopt;
  return audience->nodes;
}

Audience audience_of(const Function& function) {
  if (!function.allowed) return {};
  Audience audience{false, *function.allowed};
  std::sort(audience.nodes.begin(), audience.nodes.end());
  return audience;
}

// Carries the step out unless this is a dry run; true if it is done, or would be.
template <class Do>
bool carry_out(Step& step, bool dry_run, Do change) {
  if (dry_run) return true;
  const auto done = change();
  step.outcome = done ? Outcome::Done : Outcome::Failed;
  if (!done) step.reason = done.error().message;
  return done.has_value();
}

class Restore {
 public:
  Restore(const Host& host, bool dry_run) : host_(host), dry_run_(dry_run) {}

  // Nodes that have a pin are connected by it, or not at all.
  Result<> connect(const Config& config);
  // Added, labelled and allowed; false if it is to be left at that.
  bool show(const Goal& goal);
  void change_state(const Goal& goal);

  std::vector<Step> steps;

 private:
  Step& begin(Action action, const Goal& goal);
  template <class Do>
  bool carry_out(Step& step, Do change) {
    return policy::carry_out(step, dry_run_, change);
  }
  bool may_take(const Goal& goal, std::string* lost);
  bool stays_as_it_is(const Goal& goal, std::string reason);

  const Host& host_;
  bool dry_run_;
};

Step& Restore::begin(Action action, const Goal& goal) {
  Step& step = steps.emplace_back();
  step.action = action;
  step.address = goal.local.address;
  step.place = goal.place;
  return step;
}

Result<> Restore::connect(const Config& config) {
  const auto links = host_.client.links();
  if (!links) return tl::unexpected(links.error());
  for (const auto& pin : config.pins) {
    const std::string adapter = to_string(pin.adapter);
    if (std::any_of(links->begin(), links->end(),
                    [&](const Link& l) { return l.adapter == adapter && l.pinned == pin.node; }))
      continue;
    Step& step = steps.emplace_back();
    step.action = Action::Connect;
    step.node = pin.node;
    step.adapter = pin.adapter;
    step.place = pin.place;
    carry_out(step, [&] { return host_.client.connect(pin.node, adapter); });
  }
  for (const uint32_t node : config.connections) {
    if (std::any_of(links->begin(), links->end(),
                    [&](const Link& l) { return l.peer == node && l.connected; }) ||
        std::any_of(config.pins.begin(), config.pins.end(),
                    [&](const Pin& pin) { return pin.node == node; }))
      continue;
    Step& step = steps.emplace_back();
    step.action = Action::Connect;
    step.node = node;
    carry_out(step, [&] { return host_.client.connect(node); });
  }
  return {};
}

// What a filter says is left alone; what somebody named has failed.
bool Restore::stays_as_it_is(const Goal& goal, std::string reason) {
  Step& step = begin(Action::Available, goal);
  step.outcome = goal.by_filter ? Outcome::LeftAlone : Outcome::Failed;
  step.reason = std::move(reason);
  return false;
}

bool Restore::may_take(const Goal& goal, std::string* lost) {
  const auto use = host_.in_use(goal.local.address);
  if (!use) return stays_as_it_is(goal, use.error().message);
  if (use->vfio)
    return stays_as_it_is(
        goal, fmt::format("a VM or another user of VFIO has it ({}): end that", *use->vfio));
  if (goal.force) {
    *lost = fmt::format("{}", fmt::join(use->disks, "; "));
    return true;
  }
  if (!use->disks.empty())
    return stays_as_it_is(goal, use->disks.front() + ", or configure 'force'");
  if (!use->interfaces.empty() && goal.by_filter)
    return stays_as_it_is(goal, fmt::format("network interface {0} is up: run 'ip link set {0} "
                                            "down', or configure 'force'",
                                            use->interfaces.front()));
  return true;
}

bool Restore::show(const Goal& goal) {
  const auto& address = goal.local.address;
  if (!goal.present) {
    std::string lost;
    if (!goal.add && !may_take(goal, &lost)) return false;
    Step& step = begin(Action::Add, goal);
    step.id = goal.id;
    return carry_out(step, [&] {
      return host_.client.add(address, {goal.id, goal.label.value_or(""), nodes_of(goal.allow)});
    });
  }
  if (goal.id && goal.present->id != *goal.id) {
    Step& step = begin(Action::Add, goal);
    step.id = goal.id;
    step.outcome = Outcome::Failed;
    step.reason = fmt::format(
        "it has id {}: run 'pcilend remove {}' and restore again, or change "
        "the entry",
        pcilend::to_string(goal.present->id), pcilend::to_string(address));
  }
  bool good = true;
  if (goal.label && goal.present->label != *goal.label) {
    Step& step = begin(Action::Label, goal);
    step.label = *goal.label;
    good &= carry_out(step, [&] { return host_.client.label(address, *goal.label); });
  }
  if (goal.allow && audience_of(*goal.present) != *goal.allow) {
    Step& step = begin(Action::Allow, goal);
    step.allow = *goal.allow;
    good &= carry_out(step, [&] { return host_.client.allow(address, nodes_of(goal.allow)); });
  }
  return good;
}

void Restore::change_state(const Goal& goal) {
  const auto& address = goal.local.address;
  uint32_t state = PCILEND_FUNCTION_ADDED;
  if (goal.present) state = goal.present->state;
  if (goal.unavailable && can_be_borrowed(state)) {
    Step& step = begin(Action::Unavailable, goal);
    if (!goal.excluded.empty()) step.place = goal.excluded;
    carry_out(step, [&] { return host_.client.make_unavailable(address, false); });
  } else if (goal.overruled) {
    Step& step = begin(Action::Available, goal);
    step.outcome = Outcome::LeftAlone;
    step.reason = fmt::format("{} excludes it", goal.excluded);
  }
  if (!goal.available) return;
  if (can_be_borrowed(state)) {
    if (goal.by_filter) return;
    std::string how;
    if (goal.present->direct != goal.direct)
      how = goal.direct ? "with an IOMMU (direct)" : "without an IOMMU (direct)";
    else if (goal.present->sanitize != goal.sanitize)
      how = goal.sanitize ? "and not erased after a lease (sanitize)"
                          : "and erased after a lease (sanitize)";
    if (how.empty()) return;
    Step& step = begin(Action::Available, goal);
    step.outcome = Outcome::Failed;
    step.reason = fmt::format(
        "it is available {}: run 'pcilend unavailable {}' and restore again, or change the entry",
        how, pcilend::to_string(address));
    return;
  }
  std::string lost;
  if (!may_take(goal, &lost)) return;
  Step& step = begin(Action::Available, goal);
  step.reason = lost;
  carry_out(step, [&] {
    return host_.client.make_available(address, {goal.direct, goal.sanitize, false, goal.near});
  });
}

}  // namespace

std::string_view name_of(Action action) {
  switch (action) {
    case Action::Find:
      return "find";
    case Action::RemoveKind:
      return "remove-kind";
    case Action::AddKind:
      return "add-kind";
    case Action::Connect:
      return "connect";
    case Action::Add:
      return "add";
    case Action::Label:
      return "label";
    case Action::Allow:
      return "allow";
    case Action::Available:
      return "available";
    case Action::Borrow:
      return "borrow";
    case Action::Unavailable:
      break;
  }
  return "unavailable";
}

std::string_view name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::Done:
      return "done";
    case Outcome::Planned:
      return "planned";
    case Outcome::LeftAlone:
      return "left-alone";
    case Outcome::Failed:
      break;
  }
  return "failed";
}

std::vector<Step> restore_kinds(const Environment& environment, const std::vector<KindEntry>& kinds,
                                bool dry_run) {
  std::vector<Step> steps;
  if (kinds.empty()) return steps;
  const auto present = present_kinds(environment);
  const auto begin = [&](Action action, const KindEntry& entry, const std::string& text) -> Step& {
    Step& step = steps.emplace_back();
    step.action = action;
    step.kind = text;
    step.place = entry.place;
    return step;
  };
  for (const auto& entry : kinds) {
    if (!present) {
      Step& step = begin(Action::AddKind, entry, entry.text);
      step.outcome = Outcome::Failed;
      step.reason = present.error().message;
      continue;
    }
    const auto old = std::find_if(present->begin(), present->end(),
                                  [&](const PresentKind& k) { return k.name == entry.name; });
    if (old != present->end()) {
      if (old->text() == entry.text) continue;
      if (!carry_out(begin(Action::RemoveKind, entry, old->text()), dry_run,
                     [&] { return end_kind(environment, *old); }))
        continue;
    }
    carry_out(begin(Action::AddKind, entry, entry.text), dry_run,
              [&] { return make_kind(environment, entry.text); });
  }
  return steps;
}

Result<std::vector<Step>> restore(const Host& host, const Config& config,
                                  const RestoreOptions& options) {
  auto plan = make_plan(host, config, options);
  if (!plan) return tl::unexpected(std::move(plan).error());
  Restore restore(host, options.dry_run);
  if (!options.device && !options.only) {
    restore.steps = restore_kinds(host.environment, config.kinds, options.dry_run);
    PCILEND_TRY(restore.connect(config));
  }
  restore.steps.insert(restore.steps.end(), plan->missing.begin(), plan->missing.end());
  std::erase_if(plan->goals, [&](const Goal& goal) { return !restore.show(goal); });
  for (const auto& goal : plan->goals) restore.change_state(goal);
  return std::move(restore.steps);
}

namespace {

constexpr std::chrono::milliseconds kBorrowPoll{500};
constexpr std::string_view kShadow = "shadow";

// Does what is missing now. True when nothing is left to do or to wait for; else the step's reason
// says what is waited for.
bool try_borrow(Client& client, const BorrowEntry& entry, uint32_t this_node,
                const std::vector<Function>& functions, Step* step) {
  const auto found = std::find_if(functions.begin(), functions.end(),
                                  [&](const Function& f) { return f.uuid == entry.uuid; });
  if (found == functions.end()) {
    step->reason = "no host offers it: 'pcilend link' shows the hosts in reach";
    return false;
  }
  step->id = found->id;
  Function f = *found;
  if (f.borrower != this_node || f.frontend.empty()) {
    if (f.state != PCILEND_FUNCTION_AVAILABLE) {
      step->reason = f.borrower && f.borrower != this_node
                         ? fmt::format("it is borrowed by node {}", *f.borrower)
                         : fmt::format("it is {}", function_state_name(f.state));
      return false;
    }
    auto borrowed =
        client.borrow(f.id, entry.frontend, entry.owner,
                      entry.adapter ? pcilend::to_string(*entry.adapter) : std::string());
    if (!borrowed) {
      step->reason = borrowed.error().message;
      return false;
    }
    f = std::move(*borrowed);
  } else if (f.owner != entry.owner) {
    step->reason = fmt::format("this host has borrowed it for '{}'", f.owner);
    return false;
  }
  if (entry.frontend == kShadow && f.driver.empty()) {
    step->reason = fmt::format("it is borrowed, but no driver has bound to {}", f.virtual_address);
    return false;
  }
  step->outcome = Outcome::Done;
  step->reason.clear();
  return true;
}

}  // namespace

Result<std::vector<Step>> restore_borrows(Client& client, const std::vector<BorrowEntry>& borrows,
                                          const Patience& patience, bool dry_run) {
  std::vector<Step> steps;
  if (borrows.empty()) return steps;
  const auto node = client.node();
  if (!node) return tl::unexpected(node.error());
  std::vector<const BorrowEntry*> pending;
  auto functions = client.functions();
  if (!functions) return tl::unexpected(std::move(functions).error());
  for (const auto& entry : borrows) {
    if (std::any_of(functions->begin(), functions->end(), [&](const Function& f) {
          return f.uuid == entry.uuid && f.borrower == node->id && f.owner == entry.owner &&
                 (entry.frontend != kShadow || !f.driver.empty());
        }))
      continue;
    pending.push_back(&entry);
    Step& step = steps.emplace_back();
    step.action = Action::Borrow;
    step.uuid = entry.uuid;
    step.place = entry.place;
    if (!dry_run) step.outcome = Outcome::Failed;
  }
  const auto begin = patience.now();
  while (!dry_run) {
    bool waiting = false;
    for (size_t i = 0; i < pending.size(); ++i)
      if (steps[i].outcome != Outcome::Done)
        waiting |= !try_borrow(client, *pending[i], node->id, *functions, &steps[i]);
    if (!waiting || patience.now() - begin >= patience.limit) break;
    patience.sleep(kBorrowPoll);
    functions = client.functions();
    if (!functions) return tl::unexpected(std::move(functions).error());
  }
  return steps;
}

Result<Config> present_state(Client& client, const Config& configured) {
  const auto node = client.node();
  if (!node) return tl::unexpected(node.error());
  const auto links = client.links();
  if (!links) return tl::unexpected(links.error());
  const auto functions = client.functions();
  if (!functions) return tl::unexpected(functions.error());

  Config state;
  for (const auto& link : *links) {
    if (link.peer && link.connected) state.connections.push_back(*link.peer);
    if (!link.pinned) continue;
    state.connections.push_back(*link.pinned);
    if (const auto adapter = parse_pci_address(link.adapter))
      state.pins.push_back({*adapter, *link.pinned, ""});
  }
  for (const auto& pin : configured.pins)
    if (std::none_of(links->begin(), links->end(),
                     [&](const Link& l) { return l.adapter == to_string(pin.adapter); }))
      state.pins.push_back(pin);
  for (const uint32_t known : configured.connections)
    if (std::none_of(links->begin(), links->end(), [&](const Link& l) { return l.peer == known; }))
      state.connections.push_back(known);
  std::sort(state.connections.begin(), state.connections.end());
  state.connections.erase(std::unique(state.connections.begin(), state.connections.end()),
                          state.connections.end());

  for (const auto& f : *functions) {
    if (f.lender != node->id) continue;
    FunctionEntry entry;
    entry.uuid = f.uuid;
    if (const auto address = parse_pci_address(f.bdf)) entry.address = *address;
    entry.device = DeviceIds{f.vendor, f.device};
    entry.id = f.id;
    entry.available = f.state != PCILEND_FUNCTION_ADDED;
    entry.label = f.label;
    entry.allow = audience_of(f);
    entry.direct = f.direct;
    entry.sanitize = f.sanitize;
    if (entry.available && f.near != kNear) entry.near = f.near;
    for (const auto& old : configured.functions)
      if (old.uuid ? *old.uuid == f.uuid : old.address == entry.address) entry.force |= old.force;
    state.functions.push_back(std::move(entry));
  }
  return state;
}

}  // namespace pcilend::policy
