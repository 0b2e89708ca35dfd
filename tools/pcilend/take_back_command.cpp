// SPDX-License-Identifier: GPL-2.0-or-later
// unavailable: gives a function back to its driver here, whoever has it.
#include "commands.h"
#include "outcome.h"
#include "target.h"

namespace pcilend {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kGraceSecondsMax = 3600;
// Stopping and resetting it when the grace is over.
constexpr std::chrono::seconds kTakingLimit{60};
constexpr std::chrono::seconds kProgressStep{1};

std::string borrower_name(const Function& function) {
  return function.borrower ? fmt::format("node {}", *function.borrower) : "its borrower";
}

// How a recall ended, if `function` is past it.
std::optional<Result<Function>> outcome(const Function& function) {
  if (function.state == PCILEND_FUNCTION_ADDED) return function;
  if (function.state == PCILEND_FUNCTION_QUARANTINED)
    return fail(ErrorClass::State, "it was given back, but is quarantined: {}", function.reason);
  return std::nullopt;
}

// Shows how long is left, and waits for the function to come back.
Result<Function> wait_for_it(Session& session, EventStream& events, const Function& before,
                             std::chrono::seconds grace) {
  const auto address = parse_pci_address(before.bdf);
  if (!address) return tl::unexpected(address.error());
  const auto taken_at = session.now() + grace;
  bool look = true;
  for (;;) {
    if (look) {
      auto function = session.client.function(*address);
      if (!function) return function;
      if (auto end = outcome(*function)) return std::move(*end);
      look = false;
    }
    const auto left = taken_at - session.now();
    if (left <= -kTakingLimit)
      return fail(ErrorClass::Unreachable,
                  "it was to be taken {} s ago and still is not back: 'pcilend show {}' tells its "
                  "state",
                  kTakingLimit.count(), before.bdf);
    if (left > Clock::duration::zero()) {
      session.progress(fmt::format("{} has {} s left", borrower_name(before),
                                   std::chrono::ceil<std::chrono::seconds>(left).count()));
    } else {
      session.progress(fmt::format("taking it from {}", borrower_name(before)));
    }
    auto event = events.next(kProgressStep);
    if (!event) return tl::unexpected(std::move(event).error());
    if (const auto* const wake = std::get_if<Wake>(&*event)) {
      if (*wake == Wake::Stopped)
        return fail(
            ErrorClass::State,
            "not waited for: the recall goes on, and this host takes it from {} in {} s",
            borrower_name(before),
            std::max<int64_t>(
                0, std::chrono::ceil<std::chrono::seconds>(taken_at - session.now()).count()));
      look = *wake == Wake::Lost;
      continue;
    }
    const auto& function = std::get<Event>(*event).function;
    if (!function || function->id != before.id) continue;
    if (auto end = outcome(*function)) return std::move(*end);
  }
}

Result<Function> recall(Session& session, const LocalFunction& local, uint32_t seconds) {
  // From before the recall, so that its end is not missed.
  auto events = session.open_events();
  if (!events) return tl::unexpected(std::move(events).error());
  PCILEND_TRY(session.client.recall(local.address, seconds * 1000));
  return wait_for_it(session, **events, local.function, std::chrono::seconds(seconds));
}

}  // namespace

Result<Answer> command_unavailable(Session& session, const Options& options) {
  if (options.grace && options.force)
    return fail(ErrorClass::Usage, "--grace asks the borrower, --force does not: give one of them");
  if (options.grace.value_or(0) > kGraceSecondsMax)
    return fail(ErrorClass::Usage, "--grace: at most {} seconds", kGraceSecondsMax);
  return each_target(session, options, [&](const std::string& target) -> Result<Function> {
    const auto local = find_added(session, target);
    if (!local) return tl::unexpected(local.error());
    const std::string name = to_string(local->address);
    if (options.grace) return named(recall(session, *local, *options.grace), name);
    auto done = session.client.make_unavailable(local->address, options.force);
    if (!done) return tl::unexpected(std::move(done).error().in(name));
    auto function = session.client.function(local->address);
    if (!function) return tl::unexpected(after_change(std::move(function).error()).in(name));
    return function;
  });
}

}  // namespace pcilend
