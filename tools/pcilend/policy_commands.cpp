// SPDX-License-Identifier: GPL-2.0-or-later
// Commands for what is lent without anybody typing (docs/configuration.md).
#include <algorithm>
#include <filesystem>

#include "commands.h"
#include "device_use.h"
#include "pcilend/policy/files.h"
#include "print_policy.h"

namespace pcilend {
namespace {

using policy::FilterKind;
using policy::Outcome;
using policy::Pattern;

void warn_of_failures(Host& host, const std::vector<policy::Step>& steps) {
  for (const auto& step : steps)
    if (step.outcome == Outcome::Failed)
      host.warn(fmt::format("failed to {}: {}{}", describe(step), step.reason,
                            step.place.empty() ? "" : fmt::format(" ({})", step.place)));
}

Result<Answer> restore(Session& session, const policy::RestoreOptions& options) {
  const auto config = policy::load_config(session.environment);
  if (!config) return tl::unexpected(config.error());
  const policy::Host host{session.client, session.environment,
                          [&](const PciAddress& address) -> Result<policy::InUse> {
                            auto use = find_device_use(session.environment, address);
                            if (!use) return tl::unexpected(std::move(use).error());
                            use->block.insert(use->block.end(), use->vfio.begin(), use->vfio.end());
                            return policy::InUse{std::move(use->block), std::move(use->interfaces)};
                          }};
  auto steps = policy::restore(host, *config, options);
  if (!steps) return tl::unexpected(std::move(steps).error());
  warn_of_failures(session, *steps);
  return RestoreAnswer{std::move(*steps), options.dry_run};
}

Result<Answer> list_filters(Session& session, FilterKind kind) {
  auto config = policy::load_config(session.environment);
  if (!config) return tl::unexpected(std::move(config).error());
  std::erase_if(config->filters, [&](const policy::Filter& f) { return f.kind != kind; });
  return FiltersAnswer{std::move(config->filters)};
}

Result<policy::Filter> filter_of(const Options& options, FilterKind kind) {
  policy::Filter filter;
  filter.kind = kind;
  filter.pattern = {options.slot, options.device};
  filter.force = options.force;
  if (!options.label.empty()) filter.label = options.label;
  if (filter.pattern == Pattern{})
    return fail(ErrorClass::Usage,
                "nothing to match: give --device or --slot, or --list to see the filters");
  // What is written must be what is read: the reader checks it.
  policy::Config config;
  config.filters = {filter};
  if (auto checked = policy::parse_config("command line", policy::format_config(config)); !checked)
    return tl::unexpected(std::move(checked).error());
  return filter;
}

Result<Answer> change_filters(Session& session, const Options& options, FilterKind kind) {
  const bool described = !options.slot.empty() || !options.device.empty();
  if (options.list && (options.remove || options.force || described || !options.label.empty()))
    return fail(ErrorClass::Usage, "--list stands alone: it shows all filters");
  if (options.list) return list_filters(session, kind);
  const auto filter = filter_of(options, kind);
  if (!filter) return tl::unexpected(filter.error());

  const auto lock = policy::lock_policy(session.environment, session.sleep);
  if (!lock) return tl::unexpected(lock.error());
  if (options.remove) {
    PCILEND_TRY(policy::remove_filter(session.environment, kind, filter->pattern));
    return NothingAnswer{};
  }
  if (const auto config = policy::load_config(session.environment); !config)
    return tl::unexpected(config.error());
  PCILEND_TRY(policy::put_filter(session.environment, *filter));
  return restore(session, {.only = filter->pattern});
}

// As it will be read from the file: the reader checks it.
Result<policy::KindEntry> kind_of(const Options& options) {
  policy::KindEntry kind;
  kind.name = options.targets.front();
  kind.device = options.device;
  kind.function = options.function;
  kind.label = options.label;
  if (kind.device.empty() && kind.function.empty() && kind.label.empty())
    return fail(ErrorClass::Usage, "nothing to match: give --device, --function or --label");
  policy::Config config;
  config.kinds = {kind};
  auto checked = policy::parse_config("command line", policy::format_config(config));
  if (!checked) return tl::unexpected(std::move(checked).error());
  kind = std::move(checked->kinds.front());
  kind.place = policy::kKindsFile;
  return kind;
}

}  // namespace

Result<Answer> command_add_filter(Session& session, const Options& options) {
  return change_filters(session, options, FilterKind::Add);
}

Result<Answer> command_available_filter(Session& session, const Options& options) {
  return change_filters(session, options, FilterKind::Available);
}

Result<Answer> command_unavailable_filter(Session& session, const Options& options) {
  return change_filters(session, options, FilterKind::Unavailable);
}

Result<Answer> command_kinds(Host& host, const Options&) {
  auto kinds = policy::present_kinds(host.environment);
  if (!kinds) return tl::unexpected(std::move(kinds).error());
  return KindsAnswer{std::move(*kinds)};
}

Result<Answer> command_add_kind(Host& host, const Options& options) {
  const auto kind = kind_of(options);
  if (!kind) return tl::unexpected(kind.error());
  const auto lock = policy::lock_policy(host.environment, host.sleep);
  if (!lock) return tl::unexpected(lock.error());
  PCILEND_TRY(policy::put_kind(host.environment, *kind));
  auto steps = policy::restore_kinds(host.environment, {*kind}, false);
  warn_of_failures(host, steps);
  return RestoreAnswer{std::move(steps), false};
}

// First from the kernel: one that has mediated devices stays in the file, too.
Result<Answer> command_remove_kind(Host& host, const Options& options) {
  const std::string& name = options.targets.front();
  if (policy::is_fixed_kind(name))
    return fail(ErrorClass::Usage, "{} is always there: only kinds of add-kind are removed", name);
  const auto lock = policy::lock_policy(host.environment, host.sleep);
  if (!lock) return tl::unexpected(lock.error());
  const auto configured = policy::has_kind(host.environment, name);
  if (!configured) return tl::unexpected(configured.error());
  const auto present = policy::present_kinds(host.environment);
  if (!present && (!*configured || present.error().kind != ErrorClass::Unreachable))
    return tl::unexpected(present.error());
  bool found = *configured;
  for (const auto& kind : present.value_or(std::vector<policy::PresentKind>())) {
    if (kind.name != name) continue;
    found = true;
    if (auto ended = policy::end_kind(host.environment, kind); !ended)
      return tl::unexpected(std::move(ended).error().in(name));
  }
  if (!found) return fail(ErrorClass::NotFound, "no kind {}: 'pcilend kinds' lists them", name);
  if (*configured) PCILEND_TRY(policy::remove_kind(host.environment, name));
  return NothingAnswer{};
}

Result<Answer> command_restore(Session& session, const Options& options) {
  policy::RestoreOptions what;
  what.dry_run = options.dry_run;
  if (!options.device.empty()) {
    const auto address = parse_pci_address(options.device);
    if (!address) return tl::unexpected(address.error());
    what.device = *address;
  }
  if (what.dry_run) return restore(session, what);
  const auto lock = policy::lock_policy(session.environment, session.sleep);
  if (!lock) return tl::unexpected(lock.error());
  return restore(session, what);
}

Result<Answer> command_save(Session& session, const Options& options) {
  const auto lock = policy::lock_policy(session.environment, session.sleep);
  if (!lock) return tl::unexpected(lock.error());
  const auto configured = policy::load_config(session.environment);
  if (!configured) return tl::unexpected(configured.error());
  const auto state = policy::present_state(session.client, *configured);
  if (!state) return tl::unexpected(state.error());
  const std::string file =
      options.file.empty() ? policy::kSavedFile : std::filesystem::absolute(options.file).native();
  PCILEND_TRY(policy::write_config(session.environment, file, *state));
  return SavedAnswer{file, state->connections.size(), state->functions.size()};
}

}  // namespace pcilend
