// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/stop_signals.h"

#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>

namespace pcilend {

Result<UniqueFd> open_stop_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);
  UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return fail_errno("signalfd");
  if (const int error = ::pthread_sigmask(SIG_BLOCK, &signals, nullptr))
    return fail_errno("pthread_sigmask", error);
  return fd;
}

}  // namespace pcilend
