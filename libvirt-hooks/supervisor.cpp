// SPDX-License-Identifier: GPL-2.0-or-later
#include "supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "pcilend/fd.h"

namespace pcilend {
namespace {

using Clock = std::chrono::steady_clock;

// Lines from the child to the parent: a kind, and text behind it.
constexpr char kStep = 's';   // what it does, a tab, advice
constexpr char kError = 'e';  // then the error's class as a digit
constexpr char kDone = 'd';

void send_line(int pipe, std::string line) {
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  // A parent that is gone has no use for it, and this child is about to be killed.
  (void)write_all(pipe, std::as_bytes(std::span(line)));
}

class PipeSteps final : public Steps {
 public:
  explicit PipeSteps(int pipe) : pipe_(pipe) {}
  void begin(std::string_view what, std::string_view advice) override {
    send_line(pipe_, fmt::format("{}{}\t{}", kStep, what, advice));
  }

 private:
  int pipe_;
};

// Ends with `parent`, whose word on how it went is lost then: what is recorded tells the rest.
[[noreturn]] void run_child(pid_t parent, int pipe, const std::function<Result<>(Steps&)>& work) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  ::signal(SIGPIPE, SIG_IGN);
  // Whoever reads our standard streams waits for their end, also while this child hangs.
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, stream);
  PipeSteps steps(pipe);
  const auto done = work(steps);
  if (done)
    send_line(pipe, std::string(1, kDone));
  else
    send_line(pipe, fmt::format("{}{}{}", kError, static_cast<int>(done.error().kind),
                                done.error().message));
  ::_exit(0);
}

// One line of the child, without its end; nothing at the end of the stream or at the deadline.
class Lines {
 public:
  explicit Lines(UniqueFd pipe) : pipe_(std::move(pipe)) {}

  // False at the end of the stream, or at the deadline (then `*late`).
  bool next(Clock::time_point deadline, std::string* line, bool* late) {
    for (;;) {
      if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
        *line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return true;
      }
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd waiting{pipe_.get(), POLLIN, 0};
      const int ready = left > 0 ? ::poll(&waiting, 1, static_cast<int>(left)) : 0;
      if (ready < 0 && errno == EINTR) continue;
      if (ready == 0) *late = true;
      if (ready <= 0) return false;
      char chunk[512];
      const ssize_t n = ::read(pipe_.get(), chunk, sizeof chunk);
      if (n <= 0) return false;
      buffer_.append(chunk, static_cast<size_t>(n));
    }
  }

 private:
  UniqueFd pipe_;
  std::string buffer_;
};

Result<> watch(Lines& lines, std::chrono::milliseconds limit, bool* late) {
  std::string step = "starting";
  std::string advice = "is this host overloaded?";
  std::string line;
  while (lines.next(Clock::now() + limit, &line, late)) {
    if (line.empty()) break;
    if (line[0] == kStep) {
      const size_t tab = line.find('\t');
      step = line.substr(1, tab - 1);
      advice = line.substr(tab + 1);
    }
    if (line[0] == kDone) return {};
    if (line[0] == kError && line.size() > 1)
      return tl::unexpected(Error{static_cast<ErrorClass>(line[1] - '0'), line.substr(2)});
  }
  if (*late)
    return fail(ErrorClass::Unreachable, "{} took more than {:g} s: {}", step,
                std::chrono::duration<double>(limit).count(), advice);
  return fail(ErrorClass::Failure, "{} ended unexpectedly: see dmesg", step);
}

}  // namespace

Result<> supervise(std::chrono::milliseconds limit, const std::function<Result<>(Steps&)>& work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) < 0) return fail_errno("pipe");
  UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return fail_errno("fork");
  if (child == 0) {
    reader.reset();
    run_child(parent, writer.get(), work);
  }
  writer.reset();
  Lines lines(std::move(reader));
  bool late = false;
  auto result = watch(lines, limit, &late);
  if (late) ::kill(child, SIGKILL);
  // A child stuck in the kernel can't be waited for; init reaps it when the kernel lets go.
  ::waitpid(child, nullptr, late ? WNOHANG : 0);
  return result;
}

}  // namespace pcilend
