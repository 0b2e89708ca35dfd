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

Result<Answer> restore(Session& session, const policy::RestoreOptions& options) {
  const auto config = policy::load_config(session.environment);
  if (!config) return tl::unexpected(config.error());
  const policy::Host host{session.client, session.environment,
                          [&](const PciAddress& address) -> Result<policy::InUse> {
                            auto use = find_device_use(session.environment, address);
                            if (!use) return tl::unexpected(std::move(use).error());
                            return policy::InUse{std::move(use->block), std::move(use->interfaces)};
                          }};
  auto steps = policy::restore(host, *config, options);
  if (!steps) return tl::unexpected(std::move(steps).error());
  for (const auto& step : *steps)
    if (step.outcome == Outcome::Failed)
      session.warn(fmt::format("failed to {}: {}{}", describe(step), step.reason,
                               step.place.empty() ? "" : fmt::format(" ({})", step.place)));
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
