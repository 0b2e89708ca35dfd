// SPDX-License-Identifier: GPL-2.0-or-later
#include "scenarios/faults/allocation_faults.h"

#include <utility>

namespace pcilend::scenarios {
namespace {

// Sets the same in both: small objects come from the one, whole pages from the other.
std::string set_both(const std::string& file, const std::string& value) {
  return fmt::format(
      "for d in failslab fail_page_alloc; do echo {} >/sys/kernel/debug/$d/{} || exit 1; done\n",
      value, file);
}

}  // namespace

Result<AllocationFaults> AllocationFaults::in(const lab::Host& host, const std::string& module,
                                              const std::string& first, const std::string& last) {
  std::string script = fmt::format(
      "set -- $(awk '$2 ~ /^[tT]$/ && $4 == \"[{}]\" {{ print $1 }}' /proc/kallsyms | sort | "
      "sed -n '1p;$p')\n"
      "set -- $* $(awk '$2 ~ /^[tT]$/ {{ print $1, $3 }}' /proc/kallsyms | sort | "
      "awk 'found {{ print $1; exit }} $2 == \"{}\" {{ print $1 }} $2 == \"{}\" {{ found = 1 }}')\n"
      "[ $# = 4 ] || exit 1\n"
      "echo 0 >/sys/kernel/debug/fail_page_alloc/min-order\n",
      module, first, last);
  script += set_both("probability", "0") + set_both("verbose", "1");
  // With what may sleep; and to the end of the last function's page.
  script += set_both("ignore-gfp-wait", "N") + set_both("require-start", "0x$1") +
            set_both("require-end", "0x${2%???}fff");
  // Of each slab cache but kmemleak's, which has every other allocation and makes do without.
  script +=
      "for f in /sys/kernel/slab/*/failslab; do echo 1 >$f || exit 1; done\n"
      "for f in /sys/kernel/slab/kmemleak_*/failslab; do echo 0 >$f || exit 1; done\n"
      "echo Y >/sys/kernel/debug/failslab/cache-filter || exit 1\n";
  // Not in ACPI's routing of interrupts, which uses freed memory after it has run out of it
  // (6.12.107, _PRT); or what else the caller names.
  script += set_both("reject-start", "0x$3") + set_both("reject-end", "0x$4");
  PCILEND_TRY(host.run(script));
  return AllocationFaults(host, 0);
}

AllocationFaults::AllocationFaults(AllocationFaults&& other) noexcept
    : host_(std::exchange(other.host_, nullptr)), times_(other.times_) {}

AllocationFaults::~AllocationFaults() {
  if (host_) (void)host_->exec(set_both("probability", "0"));
}

Result<lab::Output> AllocationFaults::run(const std::string& program, int nth) const {
  times_ = 1;
  return host_->exec(set_both("times", "1") +
                     fmt::format("echo {} >/proc/self/fail-nth && exec {}", nth, program));
}

Result<> AllocationFaults::every(int nth, int times) const {
  times_ = times;
  PCILEND_TRY(host_->run(set_both("times", fmt::format("{}", times)) +
                         set_both("interval", fmt::format("{}", nth)) +
                         set_both("probability", "100")));
  return {};
}

Result<int> AllocationFaults::failed() const {
  const auto left = host_->run(set_both("probability", "0") +
                               "read -r slab </sys/kernel/debug/failslab/times; "
                               "read -r page </sys/kernel/debug/fail_page_alloc/times; "
                               "echo $((slab + page))");
  if (!left) return tl::unexpected(left.error());
  return 2 * times_ - std::atoi(left->c_str());
}

}  // namespace pcilend::scenarios
