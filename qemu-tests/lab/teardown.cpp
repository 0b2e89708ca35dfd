// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/teardown.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "lab/state.h"

namespace pcilend::lab {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kLock = 60s;
constexpr auto kWatcher = 20s;

// A lab's processes without its watcher.
std::vector<ProcessId> workers(const Layout& layout) {
  const Processes processes;
  std::vector<ProcessId> found = processes.in(layout.dir());
  if (const auto watcher = processes.find(layout.watcher_pid()))
    found.erase(std::remove(found.begin(), found.end(), *watcher), found.end());
  return found;
}

// What the lab's programs and consoles said goes to $PCILEND_LAB_LOGS/NAME, if that is set.
void save_logs(const Layout& layout) {
  const char* logs = std::getenv("PCILEND_LAB_LOGS");
  if (!logs || !*logs) return;
  std::error_code error;
  const fs::path to = fs::path(logs) / fs::path(layout.dir()).filename();
  for (const auto& entry : fs::directory_iterator(layout.dir(), error)) {
    const auto name = entry.path().filename();
    if (name.extension() != ".console" && name.extension() != ".log") continue;
    fs::create_directories(to, error);
    fs::copy_file(entry.path(), to / name, fs::copy_options::overwrite_existing, error);
  }
}

}  // namespace

Standing standing_of(const std::string& lab) {
  const Layout layout = Layout::of(lab);
  const bool running = !workers(layout).empty();
  if (!fs::exists(layout.dir()) && !running) return {};
  const auto state = load_state(lab, layout);
  if (!state) {
    if (!fs::exists(layout.state())) return {true, false, "half started"};
    return {true, running, "of another version of pcilend-lab"};
  }
  if (state->boot != boot_id()) return {true, false, "of an earlier boot of this machine"};
  if (!state->owner) return {true, true, "started by hand"};
  const bool lives = Processes().alive(state->owner->process);
  return {true, lives,
          fmt::format("of {} (process {}), which {}", state->owner->program,
                      state->owner->process.pid, lives ? "runs" : "is dead")};
}

std::vector<std::string> lab_names() {
  const fs::path base = Layout::base();
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(base, error)) {
    // The directory may hold what is not ours.
    const std::string name = entry.path().filename();
    const Layout layout(entry.path());
    if (check_lab_name(name) && entry.is_directory(error) &&
        (fs::exists(layout.state()) || fs::exists(layout.lock())))
      names.insert(name);
  }
  for (const std::string& mark : Processes().marks_in(base)) {
    const std::string below = mark.substr(base.native().size() + 1);
    const size_t end = below.find('/');
    if (end != std::string::npos && check_lab_name(below.substr(0, end)))
      names.insert(below.substr(0, end));
  }
  return {names.begin(), names.end()};
}

Result<bool> clear(const Layout& layout) {
  const auto left = workers(layout);
  PCILEND_TRY(Processes().kill(left));
  save_logs(layout);
  std::error_code error;
  const auto removed = fs::remove_all(layout.dir(), error);
  if (error) return fail_errno(layout.dir(), error.value());
  return removed > 0 || !left.empty();
}

Result<bool> end(const Layout& layout, LabLock lock) {
  const Processes processes;
  const auto watcher = processes.find(layout.watcher_pid());
  const auto cleared = clear(layout);
  if (!cleared) return cleared;
  lock.remove();
  // Only if no other lab is in it.
  ::rmdir(fs::path(layout.dir()).parent_path().c_str());
  // Last, so that it sees to what is left if this process dies meanwhile.
  if (watcher && watcher->pid != ::getpid())
    PCILEND_TRY(processes.end({*watcher}, Deadline(kWatcher)));
  return cleared;
}

Result<bool> end_lab(const std::string& lab) {
  PCILEND_TRY(check_lab_name(lab));
  const Layout layout = Layout::of(lab);
  const Deadline deadline(kLock);
  auto lock = LabLock::take(layout.lock(), Deadline(0s));
  // Whoever starts it may have cleared what was left of it by the time that the lock is free.
  bool killed = false;
  while (!lock && !deadline.over()) {
    const auto running = workers(layout);
    PCILEND_TRY(Processes().kill(running));
    killed = killed || !running.empty();
    lock = LabLock::take(layout.lock(), Deadline(100ms));
  }
  if (!lock) return tl::unexpected(lock.error());
  const auto ended = end(layout, std::move(*lock));
  if (!ended) return ended;
  return *ended || killed;
}

Result<bool> end_lab_of(const ProcessId& owner, const std::string& lab) {
  PCILEND_TRY(check_lab_name(lab));
  const Layout layout = Layout::of(lab);
  auto lock = LabLock::take(layout.lock(), Deadline(kLock));
  if (!lock) return tl::unexpected(lock.error());
  const auto state = load_state(lab, layout);
  const bool is_its = state ? state->owner && state->owner->process == owner
                            // It had only begun: nobody else has, with the lock free.
                            : !fs::exists(layout.state());
  if (!is_its) return false;
  return end(layout, std::move(*lock));
}

}  // namespace pcilend::lab
