// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>

namespace pcilend::lab {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// The fields of a stat line from the third on: those behind the command's name.
std::optional<std::string_view> fields_after_name(std::string_view stat) {
  const size_t end = stat.rfind(')');
  if (end == std::string_view::npos || end + 2 > stat.size()) return std::nullopt;
  return stat.substr(end + 2);
}

// A number in it; fields count from 1, and those before the third are no numbers.
std::optional<uint64_t> parse_field(std::string_view stat, int wanted) {
  auto fields = fields_after_name(stat);
  if (!fields) return std::nullopt;
  for (int field = 3; field < wanted; ++field) {
    const size_t space = fields->find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    fields->remove_prefix(space + 1);
  }
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(fields->begin(), fields->end(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::string proc_file(pid_t pid, const char* file) {
  return fmt::format("/proc/{}/{}", pid, file);
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& text : strings) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

UniqueFd open_log(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
}

// Runs in the forked process: only what is safe there. Waits for a byte from `permission`; without
// one, nobody would know of the process. No descriptor of the caller's gets into the program: a lab
// that stays would keep its pipes and locks.
[[noreturn]] void become(int permission, int output, int errors, char* const* argv,
                         char* const* environment) {
  ::setsid();
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  char byte = 0;
  if (permission >= 0 && ::read(permission, &byte, 1) != 1) ::_exit(126);
  const int null = ::open("/dev/null", O_RDONLY);
  ::dup2(null, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(errors, STDERR_FILENO);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execvpe(argv[0], argv, environment);
  const char* text = ::strerrordesc_np(errno);
  if (::write(STDERR_FILENO, text, ::strlen(text)) < 0 || ::write(STDERR_FILENO, "\n", 1) < 0)
    ::_exit(126);
  ::_exit(127);
}

std::string last_line(std::string_view text) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  const size_t at = text.rfind('\n');
  return std::string(at == std::string_view::npos ? text : text.substr(at + 1));
}

}  // namespace

std::optional<uint64_t> parse_start_time(std::string_view stat) {
  return parse_field(stat, 22);
}

std::optional<char> parse_process_state(std::string_view stat) {
  const auto fields = fields_after_name(stat);
  if (!fields || fields->empty()) return std::nullopt;
  return fields->front();
}

bool has_ended(std::string_view stat) {
  return parse_process_state(stat) == 'Z' && parse_field(stat, 20).value_or(0) <= 1;
}

std::optional<ProcessId> parse_pid_file(std::string_view text) {
  ProcessId process;
  const char* end = text.data() + text.size();
  const auto [space, error] = std::from_chars(text.data(), end, process.pid);
  if (error != std::errc() || space == end || *space != ' ') return std::nullopt;
  if (std::from_chars(space + 1, end, process.start).ec != std::errc()) return std::nullopt;
  return process;
}

Result<ProcessId> Processes::spawn(const SpawnRequest& request) const {
  const UniqueFd log = open_log(request.log);
  if (!log) return fail_errno(request.log);

  std::vector<std::string> arguments = request.argv;
  std::vector<std::string> variables = {fmt::format("{}={}", kMarkVariable, request.pid_file)};
  for (char** variable = environ; *variable; ++variable)
    if (!std::string_view(*variable).starts_with(kMarkVariable)) variables.emplace_back(*variable);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> environment = pointers(variables);

  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) < 0) return fail_errno("pipe");
  const UniqueFd permission(ends[0]);
  UniqueFd permit(ends[1]);
  // Closed by the child's exec: until then it can't be told from this process by its environment.
  if (::pipe2(ends, O_CLOEXEC) < 0) return fail_errno("pipe");
  const UniqueFd began(ends[0]);
  UniqueFd beginning(ends[1]);
  const int output = request.output >= 0 ? request.output : log.get();
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno("fork");
  if (pid == 0) {
    ::close(permit.release());
    become(permission.get(), output, log.get(), argv.data(), environment.data());
  }
  const auto id = identify(pid);
  if (!id) return fail(ErrorClass::Failure, "{} ended at once", request.argv.front());
  const std::string line = fmt::format("{} {}\n", id->pid, id->start);
  if (request.write_pid_file) PCILEND_TRY(environment_.replace_file(request.pid_file, line));
  PCILEND_TRY(write_all(permit.get(), std::as_bytes(std::span("g", 1))));
  beginning.reset();
  char byte = 0;
  while (::read(began.get(), &byte, 1) < 0 && errno == EINTR) continue;
  return *id;
}

std::optional<ProcessId> Processes::identify(pid_t pid) const {
  const auto stat = environment_.read(proc_file(pid, "stat"));
  if (!stat || has_ended(*stat)) return std::nullopt;
  const auto start = parse_start_time(*stat);
  if (!start) return std::nullopt;
  return ProcessId{pid, *start};
}

std::string Processes::mark_of(pid_t pid) const {
  const auto variables = environment_.read(proc_file(pid, "environ"));
  if (!variables) return {};
  const std::string name = fmt::format("{}=", kMarkVariable);
  std::string_view rest = *variables;
  while (!rest.empty()) {
    const std::string_view variable = rest.substr(0, rest.find('\0'));
    if (variable.starts_with(name)) return std::string(variable.substr(name.size()));
    rest.remove_prefix(std::min(rest.size(), variable.size() + 1));
  }
  return {};
}

std::optional<ProcessId> Processes::find(const std::string& pid_file) const {
  const auto text = environment_.read(pid_file);
  if (!text) return std::nullopt;
  const auto process = parse_pid_file(*text);
  if (!process || !alive(*process)) return std::nullopt;
  return process;
}

bool Processes::alive(const ProcessId& process) const {
  return identify(process.pid) == process;
}

void Processes::visit_marked(const std::string& dir,
                             const std::function<void(pid_t, const std::string&)>& visit) const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(environment_.path("/proc"), error)) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc()) continue;
    if (const std::string mark = mark_of(pid); mark.starts_with(dir + "/")) visit(pid, mark);
  }
}

std::vector<ProcessId> Processes::in(const std::string& dir) const {
  std::vector<ProcessId> found;
  const auto add = [&](const std::optional<ProcessId>& id) {
    if (id && id->pid != ::getpid() && std::find(found.begin(), found.end(), *id) == found.end())
      found.push_back(*id);
  };
  visit_marked(dir, [&](pid_t pid, const std::string&) { add(identify(pid)); });
  // While a process becomes another program it has no environment for a moment.
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(environment_.path(dir), error))
    if (entry.path().extension() == ".pid") add(find(dir + "/" + entry.path().filename().native()));
  return found;
}

std::vector<std::string> Processes::marks_in(const std::string& dir) const {
  std::vector<std::string> marks;
  visit_marked(dir, [&](pid_t, const std::string& mark) { marks.push_back(mark); });
  return marks;
}

void Processes::signal(const std::vector<ProcessId>& processes, int number) const {
  for (const ProcessId& process : processes) {
    const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
    // Asked again while the handle pins the process: the pid can't have changed its owner.
    if (handle && alive(process))
      ::syscall(SYS_pidfd_send_signal, handle.get(), number, nullptr, 0);
  }
}

Result<> Processes::end(const std::vector<ProcessId>& processes, const Deadline& gently) const {
  signal(processes, SIGTERM);
  const auto gone = [&] {
    return std::none_of(processes.begin(), processes.end(), [this](const ProcessId& process) {
      ::waitpid(process.pid, nullptr, WNOHANG);
      return alive(process);
    });
  };
  if (wait_until(gently, gone, 5ms)) return {};
  return kill(processes);
}

Result<> Processes::kill(const std::vector<ProcessId>& processes) const {
  signal(processes, SIGKILL);
  for (const ProcessId& process : processes) {
    const auto gone = [&] {
      ::waitpid(process.pid, nullptr, WNOHANG);
      return !alive(process);
    };
    if (!wait_until(Deadline(20s), gone, 5ms))
      return fail(ErrorClass::Failure, "process {} does not end, though it was killed",
                  process.pid);
  }
  return {};
}

Result<std::string> run_program(const std::vector<std::string>& argv, const Deadline& deadline) {
  int output[2], errors[2];
  if (::pipe2(output, O_CLOEXEC) < 0) return fail_errno("pipe");
  UniqueFd from_output(output[0]), output_end(output[1]);
  if (::pipe2(errors, O_CLOEXEC) < 0) return fail_errno("pipe");
  UniqueFd from_errors(errors[0]), errors_end(errors[1]);

  std::vector<std::string> arguments = argv;
  const std::vector<char*> pointer = pointers(arguments);
  const pid_t caller = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno("fork");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != caller) ::_exit(126);
    become(-1, output_end.get(), errors_end.get(), pointer.data(), environ);
  }
  output_end.reset();
  errors_end.reset();

  std::string text, complaint;
  pollfd fds[] = {{from_output.get(), POLLIN, 0}, {from_errors.get(), POLLIN, 0}};
  std::string* const sinks[] = {&text, &complaint};
  while ((fds[0].fd >= 0 || fds[1].fd >= 0) && !deadline.over()) {
    if (::poll(fds, 2, deadline.milliseconds()) <= 0) continue;
    for (int i = 0; i < 2; ++i) {
      if (fds[i].revents == 0) continue;
      char bytes[4096];
      const ssize_t n = ::read(fds[i].fd, bytes, sizeof bytes);
      if (n > 0)
        sinks[i]->append(bytes, static_cast<size_t>(n));
      else
        fds[i].fd = -1;
    }
  }
  const bool late = fds[0].fd >= 0 || fds[1].fd >= 0;
  if (late) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (late) return fail(ErrorClass::Failure, "{} does not end", argv.front());
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return fail(ErrorClass::Failure, "{} failed: {}", argv.front(),
                complaint.empty() ? "no message" : last_line(complaint));
  return text;
}

}  // namespace pcilend::lab
