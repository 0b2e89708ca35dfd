// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/agent/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "lab/deadline.h"

namespace pcilend::lab::agent {
namespace {

using namespace std::chrono_literals;

// The ends of a command's standard streams: `inner` for the command, `outer` for the agent.
struct Streams {
  UniqueFd inner_input, inner_output, inner_errors;
  UniqueFd outer_input, outer_output, outer_errors;
};

bool make_pipe(UniqueFd& read_end, UniqueFd& write_end) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) < 0) return false;
  read_end.reset(ends[0]);
  write_end.reset(ends[1]);
  return true;
}

bool duplicate(const UniqueFd& from, UniqueFd& to) {
  to.reset(::fcntl(from.get(), F_DUPFD_CLOEXEC, 3));
  return static_cast<bool>(to);
}

winsize kernel_size(const WindowSize& window) {
  winsize size{};
  size.ws_row = window.rows;
  size.ws_col = window.columns;
  return size;
}

bool make_pipes(bool with_input, Streams& streams) {
  if (with_input) {
    if (!make_pipe(streams.inner_input, streams.outer_input)) return false;
  } else {
    streams.inner_input.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!streams.inner_input) return false;
  }
  return make_pipe(streams.outer_output, streams.inner_output) &&
         make_pipe(streams.outer_errors, streams.inner_errors);
}

bool make_terminal(const WindowSize& window, Streams& streams) {
  char name[64];
  streams.outer_output.reset(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  const int master = streams.outer_output.get();
  if (master < 0 || ::grantpt(master) < 0 || ::unlockpt(master) < 0) return false;
  if (::ptsname_r(master, name, sizeof name) != 0) return false;
  const winsize size = kernel_size(window);
  if (::ioctl(master, TIOCSWINSZ, &size) < 0) return false;
  streams.inner_input.reset(::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  return streams.inner_input && duplicate(streams.inner_input, streams.inner_output) &&
         duplicate(streams.inner_input, streams.inner_errors) &&
         duplicate(streams.outer_output, streams.outer_input);
}

std::vector<std::string> command_environment(bool terminal) {
  std::vector<std::string> variables = {
      "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
      "HOME=/root",
      "USER=root",
      "LANG=C.UTF-8",
      terminal ? "TERM=xterm" : "TERM=dumb",
  };
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& text : strings) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// Runs in the forked process: only what is safe there.
[[noreturn]] void become(const Streams& streams, bool terminal, char* const* argv,
                         char* const* environment, int report) {
  ::setsid();
  if (terminal) ::ioctl(streams.inner_input.get(), TIOCSCTTY, 0);
  ::dup2(streams.inner_input.get(), STDIN_FILENO);
  ::dup2(streams.inner_output.get(), STDOUT_FILENO);
  ::dup2(streams.inner_errors.get(), STDERR_FILENO);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::chdir("/root") < 0 && ::chdir("/") < 0) ::_exit(127);
  ::execvpe(argv[0], argv, environment);
  const int error = errno;
  if (::write(report, &error, sizeof error) < 0) ::_exit(126);
  ::_exit(127);
}

void unblock(const UniqueFd& fd) {
  if (fd) ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

tl::unexpected<Refusal> refuse(int error, std::string_view what) {
  return tl::unexpected(Refusal{error, fmt::format("{}: {}", what, std::strerror(error))});
}

}  // namespace

Child::Child(Child&& other) noexcept
    : input(std::move(other.input)),
      output(std::move(other.output)),
      errors(std::move(other.errors)),
      pid_(std::exchange(other.pid_, -1)),
      terminal_(other.terminal_),
      ended_(std::move(other.ended_)) {}

Child::~Child() {
  if (pid_ < 0) return;
  for (const int number : {SIGHUP, SIGTERM, SIGKILL}) {
    ::kill(-pid_, number);
    if (number == SIGHUP) continue;
    if (wait_for(ended_.get(), POLLIN, Deadline(1s))) break;
  }
  ::waitpid(pid_, nullptr, WNOHANG);
  ::kill(-pid_, SIGKILL);
}

tl::expected<Child, Refusal> Child::start(const RunRequest& request) {
  Streams streams;
  if (!(request.terminal ? make_terminal(request.window, streams)
                         : make_pipes(request.input, streams)))
    return refuse(errno, request.terminal ? "open a terminal" : "make pipes");
  UniqueFd report, report_inner;
  if (!make_pipe(report, report_inner)) return refuse(errno, "make pipes");

  std::vector<std::string> arguments = request.argv;
  std::vector<std::string> variables = command_environment(request.terminal);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> environment = pointers(variables);

  const pid_t pid = ::fork();
  if (pid < 0) return refuse(errno, "fork");
  if (pid == 0)
    become(streams, request.terminal, argv.data(), environment.data(), report_inner.get());

  report_inner.reset();
  int error = 0;
  ssize_t n = 0;
  do n = ::read(report.get(), &error, sizeof error);
  while (n < 0 && errno == EINTR);
  if (n != 0) {
    ::waitpid(pid, nullptr, 0);
    return refuse(n == sizeof error ? error : EIO, request.argv.front());
  }

  Child child(pid, UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))));
  child.terminal_ = request.terminal;
  child.input = std::move(streams.outer_input);
  child.output = std::move(streams.outer_output);
  child.errors = std::move(streams.outer_errors);
  for (const UniqueFd* fd : {&child.input, &child.output, &child.errors}) unblock(*fd);
  if (!child.ended_) return refuse(errno, "pidfd_open");
  return child;
}

ExitStatus Child::reap() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (WIFSIGNALED(status)) return {true, WTERMSIG(status)};
  return {false, WEXITSTATUS(status)};
}

void Child::signal(int number) const {
  if (pid_ > 0) ::kill(-pid_, number);
}

void Child::resize(const WindowSize& window) const {
  const winsize size = kernel_size(window);
  if (terminal_) ::ioctl(output.get(), TIOCSWINSZ, &size);
}

}  // namespace pcilend::lab::agent
