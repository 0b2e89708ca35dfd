// SPDX-License-Identifier: GPL-2.0-or-later
#include "plan.h"

#include <algorithm>
#include <set>

namespace pcilend::policy {
namespace {

constexpr uint32_t kIndexMax = 0xffff;

// What this host has, and what of it is added.
struct Inventory {
  uint32_t node = 0;
  std::vector<LocalFunction> locals;
  std::vector<Function> added;
};

// Can this configuration say something about the function? By address, UUID or filter.
bool may_concern(const Config& config, const LocalFunction& local) {
  return std::any_of(config.functions.begin(), config.functions.end(),
                     [&](const FunctionEntry& entry) {
                       return entry.address == local.address ||
                              (entry.uuid && (!local.uuid || entry.uuid == local.uuid));
                     }) ||
         std::any_of(config.filters.begin(), config.filters.end(),
                     [&](const Filter& filter) { return matches(filter.pattern, local); });
}

// Others may have the same UUID, and then the address decides: so who is named by UUID and is
// elsewhere is looked for among all.
bool needs_all(const Config& config, const LocalFunction& local) {
  return !local.uuid ||
         std::any_of(config.functions.begin(), config.functions.end(),
                     [&](const FunctionEntry& entry) {
                       return entry.uuid == local.uuid && entry.address != local.address;
                     });
}

Result<std::vector<LocalFunction>> look_at_functions(const Host& host, const Config& config,
                                                     uint32_t node,
                                                     const std::optional<PciAddress>& device) {
  if (!device) return local_functions(host.environment, node);
  auto local = local_function(host.environment, *device, node);
  if (!local)
    return fail(ErrorClass::NotFound, "no PCI function {} on this host: 'lspci -D' lists them",
                to_string(*device));
  if (needs_all(config, *local)) return local_functions(host.environment, node);
  return std::vector<LocalFunction>{std::move(*local)};
}

Result<Inventory> look(const Host& host, const Config& config,
                       const std::optional<PciAddress>& device) {
  const auto node = host.client.node();
  if (!node) return tl::unexpected(node.error());
  if (node->id == 0)
    return fail(ErrorClass::State,
                "this host has no node id: put 'options pcilend node=N' into "
                "/etc/modprobe.d/pcilend.conf and load pcilend again");
  Inventory inventory{node->id, {}, {}};
  auto functions = host.client.functions();
  if (!functions) return tl::unexpected(std::move(functions).error());
  std::copy_if(functions->begin(), functions->end(), std::back_inserter(inventory.added),
               [&](const Function& f) { return f.lender == node->id; });
  auto locals = look_at_functions(host, config, node->id, device);
  if (!locals) return tl::unexpected(std::move(locals).error());
  inventory.locals = std::move(*locals);
  for (auto& local : inventory.locals) {
    for (const auto& f : inventory.added)
      if (f.bdf == to_string(local.address)) local.uuid = f.uuid;
  }
  return inventory;
}

std::string ids_of(const LocalFunction& local) {
  return fmt::format("{:04x}:{:04x}", local.vendor, local.device);
}

const LocalFunction* at_address(const Inventory& inventory,
                                const std::optional<PciAddress>& address) {
  const auto found = std::find_if(inventory.locals.begin(), inventory.locals.end(),
                                  [&](const LocalFunction& f) { return f.address == address; });
  return found == inventory.locals.end() ? nullptr : &*found;
}

Result<LocalFunction> find_by_uuid(const Inventory& inventory, const FunctionEntry& entry) {
  std::vector<const LocalFunction*> found;
  const LocalFunction* unknown = nullptr;
  for (const auto& local : inventory.locals) {
    const bool may_be = !entry.device || *entry.device == DeviceIds{local.vendor, local.device};
    if (!local.uuid && !local.bridge && may_be && !unknown) unknown = &local;
    if (local.uuid == entry.uuid) found.push_back(&local);
  }
  if (found.size() > 1)
    std::erase_if(found, [&](const LocalFunction* f) { return f->address != entry.address; });
  if (found.size() == 1) return *found.front();
  if (unknown)
    return fail(ErrorClass::Permission,
                "it was not found; it may be {} ({}), whose serial number can't be read: run this "
                "as root, or see whether that device answers",
                to_string(unknown->address), ids_of(*unknown));
  if (const auto* const other = at_address(inventory, entry.address))
    return fail(ErrorClass::NotFound, "it is not in this host: {} is another function ({}{})",
                to_string(other->address), ids_of(*other),
                other->uuid ? fmt::format(", UUID {}", to_string(*other->uuid)) : "");
  return fail(ErrorClass::NotFound, "it is not in this host: plug it in, or remove the entry");
}

Result<LocalFunction> find_by_address(const Inventory& inventory, const FunctionEntry& entry) {
  const auto* const local = at_address(inventory, entry.address);
  if (!local) return fail(ErrorClass::NotFound, "there is no PCI function at this address");
  if (DeviceIds{local->vendor, local->device} != entry.device)
    return fail(ErrorClass::NotFound,
                "it is {}, not {:04x}:{:04x}: addresses have changed; write its 'uuid' instead",
                ids_of(*local), entry.device->vendor, entry.device->device);
  return *local;
}

Goal make_goal(const Inventory& inventory, const LocalFunction& local) {
  Goal goal;
  goal.local = local;
  for (const auto& f : inventory.added)
    if (f.bdf == to_string(local.address)) goal.present = f;
  return goal;
}

Goal goal_of_entry(const Inventory& inventory, const LocalFunction& local,
                   const FunctionEntry& entry) {
  Goal goal = make_goal(inventory, local);
  goal.add = true;
  goal.available = entry.available;
  goal.unavailable = !entry.available;
  goal.id = entry.id;
  goal.label = entry.label;
  goal.allow = entry.allow;
  goal.force = entry.force;
  goal.direct = entry.direct;
  goal.sanitize = entry.sanitize;
  goal.near = entry.near;
  goal.place = entry.place;
  return goal;
}

// The last filter that has something to say about a value says it.
void apply_filter(const Filter& filter, Goal* goal) {
  if (filter.kind == FilterKind::Unavailable) {
    goal->overruled |= goal->available && !goal->by_filter;
    goal->available = false;
    goal->unavailable = true;
    goal->excluded = filter.place;
    return;
  }
  if (!goal->by_filter) return;
  goal->place = filter.place;
  goal->add |= filter.kind == FilterKind::Add;
  goal->available |= filter.kind == FilterKind::Available;
  goal->force |= filter.force;
  if (filter.label) goal->label = filter.label;
  if (filter.allow) goal->allow = filter.allow;
}

void apply_filters(const std::vector<Filter>& filters, Goal* goal) {
  if (goal->local.bridge) return;
  for (const FilterKind kind : kFilterKinds) {
    for (const auto& filter : filters)
      if (filter.kind == kind && matches(filter.pattern, goal->local)) apply_filter(filter, goal);
  }
}

// Functions that have no id yet get the lowest that nobody has or is configured to have.
void choose_ids(const Inventory& inventory, const Config& config, std::vector<Goal>* goals) {
  std::set<uint32_t> taken;
  for (const auto& f : inventory.added) taken.insert(f.id.value);
  for (const auto& entry : config.functions)
    if (entry.id) taken.insert(entry.id->value);
  uint32_t id = inventory.node << 16 | 1;
  for (auto& goal : *goals) {
    if (goal.present || goal.id) continue;
    while (taken.contains(id)) ++id;
    if ((id & kIndexMax) == 0) return;  // all are taken: the kernel will say so
    goal.id = FunctionId{id};
    taken.insert(id);
  }
}

bool selected(const RestoreOptions& options, const LocalFunction& local) {
  return (!options.device || local.address == *options.device) &&
         (!options.only || matches(*options.only, local));
}

Step missing(const FunctionEntry& entry, const Error& error) {
  Step step;
  step.address = entry.address;
  step.uuid = entry.uuid;
  step.place = entry.place;
  step.outcome = Outcome::Failed;
  step.reason = error.message;
  return step;
}

}  // namespace

Result<bool> concerns(const Host& host, const Config& config, const PciAddress& device) {
  const auto node = host.client.node();
  if (!node) return tl::unexpected(node.error());
  const auto local = local_function(host.environment, device, node->id);
  return !local || node->id == 0 || may_concern(config, *local);
}

Result<Plan> make_plan(const Host& host, const Config& config, const RestoreOptions& options) {
  const auto inventory = look(host, config, options.device);
  if (!inventory) return tl::unexpected(inventory.error());
  const bool all = !options.device && !options.only;
  Plan plan;
  std::set<std::string> named;
  for (const auto& entry : config.functions) {
    const auto local =
        entry.uuid ? find_by_uuid(*inventory, entry) : find_by_address(*inventory, entry);
    if (!local) {
      if (all) plan.missing.push_back(missing(entry, local.error()));
      continue;
    }
    if (!named.insert(to_string(local->address)).second) {
      plan.missing.push_back(
          missing(entry, {ErrorClass::Usage, "another entry names this function: remove one"}));
      continue;
    }
    if (entry.id && entry.id->node() != inventory->node) {
      plan.missing.push_back(
          missing(entry, {ErrorClass::Usage,
                          fmt::format("id {} is of node {}, this is node {}: leave "
                                      "'id' out, or correct it",
                                      to_string(*entry.id), entry.id->node(), inventory->node)}));
      continue;
    }
    plan.goals.push_back(goal_of_entry(*inventory, *local, entry));
  }
  for (const auto& local : inventory->locals) {
    if (named.contains(to_string(local.address))) continue;
    Goal goal = make_goal(*inventory, local);
    goal.by_filter = true;
    plan.goals.push_back(std::move(goal));
  }
  for (auto& goal : plan.goals) apply_filters(config.filters, &goal);
  std::erase_if(plan.goals, [&](const Goal& goal) {
    const bool wanted = goal.add || goal.available || (goal.unavailable && goal.present);
    return !wanted || !selected(options, goal.local);
  });
  choose_ids(*inventory, config, &plan.goals);
  return plan;
}

}  // namespace pcilend::policy
