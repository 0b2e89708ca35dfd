// SPDX-License-Identifier: GPL-2.0-or-later
// The processes of a lab. They outlive the command that started them, so they are known by what the
// kernel says of them: a pid together with its start time, and a mark in their environment.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lab/deadline.h"
#include "pcilend/environment.h"
#include "pcilend/fd.h"
#include "pcilend/result.h"

namespace pcilend::lab {

// One process, told apart from a later one with the same pid.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start = 0;  // field 22 of /proc/PID/stat: clock ticks since boot

  bool operator==(const ProcessId&) const = default;
};

// Field 22 of a /proc/PID/stat line. The command's name in it may hold spaces and parentheses.
std::optional<uint64_t> parse_start_time(std::string_view stat);
// The state letter in it; 'Z' is a dead process that was not waited for.
std::optional<char> parse_process_state(std::string_view stat);

// A dead process, all of whose threads have ended: until then they keep its sockets open.
bool has_ended(std::string_view stat);

// "PID START", as a pid file has it.
std::optional<ProcessId> parse_pid_file(std::string_view text);

struct SpawnRequest {
  std::vector<std::string> argv;
  std::string log;             // takes stdout and stderr
  std::string pid_file;        // absolute; written before the process becomes argv[0]
  int output = -1;             // takes stdout instead, if not negative
  bool write_pid_file = true;  // false: pid_file is the process's mark only
};

class Processes {
 public:
  explicit Processes(Environment environment = Environment())
      : environment_(std::move(environment)) {}

  // Starts a process in a session of its own.
  Result<ProcessId> spawn(const SpawnRequest& request) const;

  // What a pid file names, if that process still lives.
  [[nodiscard]] std::optional<ProcessId> find(const std::string& pid_file) const;
  [[nodiscard]] bool alive(const ProcessId& process) const;
  // Nothing if no such process lives.
  [[nodiscard]] std::optional<ProcessId> identify(pid_t pid) const;

  // Every process whose pid file is, or was, below `dir`, but for the caller itself.
  [[nodiscard]] std::vector<ProcessId> in(const std::string& dir) const;
  // The marks of all processes that have one below `dir`.
  [[nodiscard]] std::vector<std::string> marks_in(const std::string& dir) const;

  // Ends processes: `gently` with SIGTERM, and what is left at the deadline with SIGKILL; else with
  // SIGKILL at once. Returns when they are gone.
  Result<> end(const std::vector<ProcessId>& processes, const Deadline& gently) const;
  Result<> kill(const std::vector<ProcessId>& processes) const;

 private:
  // Calls `visit` with each process that has a mark below `dir`, and the mark.
  void visit_marked(const std::string& dir,
                    const std::function<void(pid_t, const std::string&)>& visit) const;
  [[nodiscard]] std::string mark_of(pid_t pid) const;
  void signal(const std::vector<ProcessId>& processes, int number) const;

  Environment environment_;
};

// A process's mark: this variable in its environment is the path of its pid file.
inline constexpr const char* kMarkVariable = "PCILEND_LAB_PROCESS";

// Runs a short-lived program to its end; its stdout. Fails with its last line of stderr. The
// program dies with the thread that runs it.
Result<std::string> run_program(const std::vector<std::string>& argv, const Deadline& deadline);

}  // namespace pcilend::lab
