// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/agent/foreground.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

namespace pcilend::lab::agent {
namespace {

// Blocks one signal and offers it as a descriptor, until it goes.
class SignalFd {
 public:
  explicit SignalFd(int number) {
    ::sigemptyset(&set_);
    ::sigaddset(&set_, number);
    ::sigprocmask(SIG_BLOCK, &set_, nullptr);
    fd_.reset(::signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  SignalFd(const SignalFd&) = delete;
  SignalFd& operator=(const SignalFd&) = delete;
  ~SignalFd() { ::sigprocmask(SIG_UNBLOCK, &set_, nullptr); }

  [[nodiscard]] int get() const { return fd_.get(); }

 private:
  sigset_t set_{};
  UniqueFd fd_;
};

// Puts the terminal into raw mode, until it goes.
class RawTerminal {
 public:
  RawTerminal() : changed_(::tcgetattr(STDIN_FILENO, &before_) == 0) {
    if (!changed_) return;
    termios raw = before_;
    ::cfmakeraw(&raw);
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  ~RawTerminal() {
    if (changed_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }

 private:
  termios before_{};
  bool changed_;
};

bool has_input() {
  struct stat status {};
  return ::fstat(STDIN_FILENO, &status) == 0 && !S_ISCHR(status.st_mode);
}

WindowSize window_size() {
  winsize size{};
  if (::ioctl(STDIN_FILENO, TIOCGWINSZ, &size) < 0) return {24, 80};
  return {size.ws_row, size.ws_col};
}

// Writes what comes to a descriptor of this process, which may be non-blocking. (A closed pipe ends
// this process by SIGPIPE, and that ends the command.)
class Writer {
 public:
  explicit Writer(int fd) : fd_(fd) {}

  void operator()(std::string_view bytes) {
    while (!bytes.empty() && error_ == 0) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n > 0)
        bytes.remove_prefix(static_cast<size_t>(n));
      else if (errno == EAGAIN)
        wait_for(fd_, POLLOUT, Deadline(std::chrono::hours(1)));
      else if (errno != EINTR)
        error_ = errno;
    }
  }
  [[nodiscard]] int error() const { return error_; }

 private:
  int fd_;
  int error_ = 0;
};

}  // namespace

Result<ExitStatus> run_in_foreground(Session& session, std::vector<std::string> argv,
                                     const Foreground& how, const Limits& limits) {
  Writer output(STDOUT_FILENO);
  Writer errors(STDERR_FILENO);
  RunStreams streams;
  streams.output = std::ref(output);
  streams.errors = std::ref(errors);
  Result<ExitStatus> status;
  if (how.terminal) {
    const SignalFd resized(SIGWINCH);
    streams.terminal = true;
    streams.input = STDIN_FILENO;
    streams.resized = resized.get();
    streams.window = window_size;
    const RawTerminal raw;
    status = session.run(std::move(argv), streams, limits);
  } else {
    if (how.input && has_input()) streams.input = STDIN_FILENO;
    const SignalFd interrupted(SIGINT);
    streams.interrupt = interrupted.get();
    status = session.run(std::move(argv), streams, limits);
  }
  for (const Writer* writer : {&output, &errors})
    if (status && writer->error() != 0)
      return fail(ErrorClass::Failure, "write: {}", std::strerror(writer->error()));
  return status;
}

std::vector<std::string> command_line(std::vector<std::string> arguments) {
  if (arguments.size() != 1) return arguments;
  return {"/bin/sh", "-c", std::move(arguments.front())};
}

int exit_code(const Error& error) {
  if (error.kind == ErrorClass::NotFound) return 127;
  if (error.kind == ErrorClass::Permission) return 126;
  return kNotRun;
}

}  // namespace pcilend::lab::agent
