// SPDX-License-Identifier: GPL-2.0-or-later
#include "scenarios/faults/ledger.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

namespace pcilend::scenarios {
namespace {

// A short read is an error of the drive. Exit codes and sizes tell, never what dd prints. Without a
// drive, a shell would make a file of its name.
constexpr const char* kCommands = R"sh(
cd /tmp
[ -e /dev/nvme0n1 ] && exec 3<>/dev/nvme0n1 || exit 1
sum() { set -- $(sha256sum "$1"); echo "$1"; }
get() { # SLOT
	if dd if=/proc/self/fd/3 of=r bs=16k skip="$1" count=1 iflag=direct 2>/dev/null &&
		[ "$(stat -c %s r)" = 16384 ]; then
		echo "read $1 $(sum r)"
	else
		echo "error $1"
		return 1
	fi
}
put() { # SLOT
	head -c 16384 /dev/urandom >w
	s=$(sum w)
	echo "write $1 $s"
	if dd if=w of=/proc/self/fd/3 bs=16k seek="$1" conv=notrunc oflag=direct 2>/dev/null; then
		echo "wrote $1 $s"
	else
		echo "error $1"
		return 1
	fi
}
)sh";

}  // namespace

int Ledger::begin_run(int slots) {
  if (next_ + slots > kSlots) next_ = 0;
  const int first = next_;
  for (int slot = first; slot < first + slots; ++slot) known_.erase(slot);
  next_ += slots;
  return first;
}

Result<> Ledger::note(std::string_view line) {
  std::istringstream words{std::string(line)};
  std::string what;
  std::string sum;
  int slot = -1;
  words >> what >> slot >> sum;
  if (slot < 0 || slot >= kSlots || (sum.size() != 64 && what != "error"))
    return fail(ErrorClass::Failure, "the guest said '{}'", line);
  if (what == "write") {
    known_.erase(slot);
  } else if (what == "wrote") {
    known_[slot] = {sum, ++writes_};
  } else if (what == "error") {
    ++errors_;
  } else if (what == "read") {
    const auto at = known_.find(slot);
    if (at == known_.end()) return {};
    ++checked_;
    if (at->second.sum != sum)
      return fail(ErrorClass::Failure,
                  "WRONG DATA: slot {} reads as {} without an error, but {} was written", slot, sum,
                  at->second.sum);
  } else {
    return fail(ErrorClass::Failure, "the guest said '{}'", line);
  }
  return {};
}

Result<> Ledger::note_all(std::string_view lines) {
  for (size_t end = 0; (end = lines.find('\n')) != std::string_view::npos;
       lines.remove_prefix(end + 1))
    PCILEND_TRY(note(lines.substr(0, end)));
  return {};
}

std::vector<int> Ledger::latest(size_t most) const {
  std::vector<int> slots;
  for (const auto& [slot, content] : known_) slots.push_back(slot);
  std::sort(slots.begin(), slots.end(),
            [this](int a, int b) { return known_.at(a).written > known_.at(b).written; });
  slots.resize(std::min(slots.size(), most));
  return slots;
}

std::string write_script(int first, int slots) {
  return fmt::format(
      "{}rm -f stop\ni={}\n"
      "while [ $i -lt {} ] && [ ! -e stop ]; do\n"
      "\tput $i || exit 0\n"
      "\t[ $i = {} ] || get $((i - 1)) || exit 0\n"
      "\ti=$((i + 1))\n"
      "done\n",
      kCommands, first, first + slots, first);
}

std::string read_script(const std::vector<int>& slots) {
  return fmt::format("{}for i in {}; do get $i; done\ntrue\n", kCommands, fmt::join(slots, " "));
}

}  // namespace pcilend::scenarios
