// SPDX-License-Identifier: GPL-2.0-or-later
// A remote command in the place of a local one: this process's streams, signals and terminal.
#pragma once

#include "lab/agent/client.h"

namespace pcilend::lab::agent {

struct Foreground {
  bool input = true;      // forward stdin, if it is a file or a pipe
  bool terminal = false;  // give the command a terminal, and this one to it
};

// What a program exits with if the command did not run to its end: as ssh.
inline constexpr int kNotRun = 255;

// Runs argv in the session. Its stdout and stderr come out here; SIGINT here interrupts it, the
// second one kills it. Returns its exit status.
Result<ExitStatus> run_in_foreground(Session& session, std::vector<std::string> argv,
                                     const Foreground& how, const Limits& limits);

// One argument is a line for the shell, several are a command and its arguments.
std::vector<std::string> command_line(std::vector<std::string> arguments);

// The exit code for a failed run: 127 no such command, 126 not executable, else kNotRun.
int exit_code(const Error& error);

}  // namespace pcilend::lab::agent
