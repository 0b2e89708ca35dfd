// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/watcher.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lab/teardown.h"

namespace pcilend::lab {
namespace {

using namespace std::chrono_literals;

constexpr auto kEnd = 20s;

// Returns when the process is gone.
Result<> await_end(const ProcessId& process) {
  const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  if (!handle && errno == ESRCH) return {};
  if (!handle) return fail_errno("pidfd_open");
  // Asked while the handle pins the pid: it may be another process's by now.
  if (!Processes().alive(process)) return {};
  pollfd one{handle.get(), POLLIN, 0};
  while (::poll(&one, 1, -1) < 0)
    if (errno != EINTR) return fail_errno("poll");
  return {};
}

}  // namespace

Result<Watcher> Watcher::start(const Artefacts& artefacts, const std::string& lab,
                               const ProcessId& owner) {
  SpawnRequest request;
  request.argv = {artefacts.lab(),
                  "--lab",
                  lab,
                  "watch",
                  fmt::format("{}", owner.pid),
                  fmt::format("{}", owner.start)};
  request.log = "/dev/null";
  // Not in the lab's directory yet: whoever ends an earlier lab of that name must not end it.
  request.pid_file = Layout::of(lab).lock();
  request.write_pid_file = false;
  const auto process = Processes().spawn(request);
  if (!process) return tl::unexpected(process.error());
  return Watcher(*process);
}

Watcher::~Watcher() {
  if (process_.pid != 0) (void)Processes().end({process_}, Deadline(kEnd));
}

Result<> Watcher::give_to(const Layout& layout) {
  PCILEND_TRY(Environment().replace_file(layout.watcher_pid(),
                                         fmt::format("{} {}\n", process_.pid, process_.start)));
  process_ = {};
  return {};
}

Result<> dismiss_watcher(const Layout& layout) {
  const Processes processes;
  const auto watcher = processes.find(layout.watcher_pid());
  if (!watcher) return {};
  PCILEND_TRY(processes.end({*watcher}, Deadline(kEnd)));
  return Environment().remove_file(layout.watcher_pid());
}

Result<> watch(const ProcessId& owner, const std::string& lab) {
  PCILEND_TRY(await_end(owner));
  // Whoever ends the watcher now waits until it has done its work.
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const auto ended = end_lab_of(owner, lab);
  if (ended) return {};
  const Layout layout = Layout::of(lab);
  if (std::filesystem::exists(layout.dir()))
    (void)Environment().replace_file(layout.watcher_log(), ended.error().message + "\n");
  return tl::unexpected(ended.error());
}

}  // namespace pcilend::lab
