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

constexpr uint32_t kBorrowSeconds = 90;

using policy::FilterKind;
using policy::Outcome;
using policy::Pattern;

void warn_of_failures(Host& host, const std::vector<policy::Step>& steps) {
  for (const auto& step : steps)
    if (step.outcome == Outcome::Failed)
      host.warn(fmt::format("failed to {}: {}{}", describe(step), step.reason,
                            step.place.empty() ? "" : fmt::format(" ({})", step.place)));
}

policy::Host policy_host(Session& session) {
  return {session.client, session.environment,
          [&session](const PciAddress& address) -> Result<policy::InUse> {
            auto use = find_device_use(session.environment, address);
            if (!use) return tl::unexpected(std::move(use).error());
            std::move(use->programs.begin(), use->programs.end(), std::back_inserter(use->block));
            return policy::InUse{std::move(use->block), std::move(use->interfaces),
                                 std::move(use->vfio)};
          }};
}

Result<Answer> restore(Session& session, const policy::RestoreOptions& options) {
  const auto config = policy::load_config(session.environment);
  if (!config) return tl::unexpected(config.error());
  const policy::Host host = policy_host(session);
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

// Without the lock: it waits for other hosts, and changes no lending.
Result<Answer> restore_borrows(Session& session, const Options& options) {
  const auto config = policy::load_config(session.environment);
  if (!config) return tl::unexpected(config.error());
  const std::chrono::seconds limit(options.timeout.value_or(kBorrowSeconds));
  auto steps = policy::restore_borrows(session.client, config->borrow,
                                       {limit, session.sleep, session.now}, options.dry_run);
  if (!steps) return tl::unexpected(std::move(steps).error());
  warn_of_failures(session, *steps);
  return RestoreAnswer{std::move(*steps), options.dry_run};
}

Result<Answer> command_restore(Session& session, const Options& options) {
  if (options.borrows && !options.device.empty())
    return fail(ErrorClass::Usage, "--device is about functions of this host: give it alone");
  if (options.timeout && !options.borrows)
    return fail(ErrorClass::Usage, "--timeout says how long to wait to --borrow: give both");
  if (options.borrows) return restore_borrows(session, options);
  policy::RestoreOptions what;
  what.dry_run = options.dry_run;
  if (!options.device.empty()) {
    const auto address = parse_pci_address(options.device);
    if (!address) return tl::unexpected(address.error());
    what.device = *address;
    // Without the lock, which all the others want, too, when a host boots.
    const auto config = policy::load_config(session.environment);
    if (!config) return tl::unexpected(config.error());
    const auto concerned = policy::concerns(policy_host(session), *config, *address);
    if (!concerned) return tl::unexpected(concerned.error());
    if (!*concerned) return RestoreAnswer{{}, what.dry_run};
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
  std::string file = policy::kSavedFile;
  const bool to_stdout = options.file == "-";
  if (to_stdout) file = options.file;
  if (!options.file.empty() && !to_stdout) {
    std::error_code error;
    file = std::filesystem::absolute(options.file, error).native();
    if (error) return fail_errno(options.file, error.value());
  }
  SavedAnswer answer{file, state->connections.size(), state->functions.size(), {}};
  if (to_stdout)
    answer.text = policy::format_config(*state);
  else
    PCILEND_TRY(policy::write_config(session.environment, file, *state));
  return answer;
}

}  // namespace pcilend
