// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-lab-agent: runs commands inside the lab's hosts and guests for whoever is outside.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "lab/agent/foreground.h"
#include "lab/agent/ports.h"

namespace {

using namespace pcilend;
using namespace pcilend::lab;
using namespace std::chrono_literals;

constexpr char kUsage[] =
    "usage: pcilend-lab-agent serve --port /dev/virtio-ports/NAME\n"
    "         serves the virtio-serial ports NAME, NAME.1, NAME.2…\n"
    "       pcilend-lab-agent call [-n] [-t] [-w N] SOCKET -- CMD…\n"
    "         runs CMD behind the agent that SOCKET, SOCKET.1… lead to; its exit status is this\n"
    "         program's, 255 if it did not run to its end\n"
    "         -n  CMD's stdin is /dev/null    -t  give CMD a terminal\n"
    "         -w  wait N times as long as usual\n";

int say(const Error& error) {
  fmt::print(stderr, "pcilend-lab-agent: {}\n", error.message);
  return static_cast<int>(error.kind);
}

int usage() {
  std::fputs(kUsage, stderr);
  return static_cast<int>(ErrorClass::Usage);
}

int serve(const std::vector<std::string>& arguments) {
  if (arguments.size() != 2 || arguments[0] != "--port") return usage();
  const std::string& path = arguments[1];
  const auto served = agent::serve_ports(Environment(), path.substr(path.rfind('/') + 1));
  return served ? 0 : say(served.error());
}

int call(std::vector<std::string> arguments) {
  agent::Foreground how;
  size_t at = 0;
  for (; at < arguments.size() && arguments[at].starts_with("-"); ++at) {
    if (arguments[at] == "-n")
      how.input = false;
    else if (arguments[at] == "-t")
      how.terminal = true;
    else if (arguments[at] == "-w" && at + 1 < arguments.size())
      patience = std::max(1, std::atoi(arguments[++at].c_str()));
    else
      return usage();
  }
  if (at + 2 >= arguments.size() || arguments[at + 1] != "--") return usage();
  const std::string socket = arguments[at];
  arguments.erase(arguments.begin(), arguments.begin() + static_cast<ptrdiff_t>(at) + 2);

  const Deadline deadline(60s);
  auto connection = agent::connect(socket, deadline);
  if (!connection) return say(connection.error()), agent::kNotRun;
  auto session = agent::Session::open(std::move(*connection), deadline);
  if (!session) return say(std::move(session).error().in(socket)), agent::kNotRun;
  const auto status =
      agent::run_in_foreground(*session, agent::command_line(std::move(arguments)), how, {});
  if (!status) return say(status.error()), agent::exit_code(status.error());
  return status->code();
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) return usage();
  const std::string verb = arguments.front();
  arguments.erase(arguments.begin());
  if (verb == "serve") return serve(arguments);
  if (verb == "call") return call(std::move(arguments));
  if (verb == "--help" || verb == "help") return std::fputs(kUsage, stdout), 0;
  return usage();
}
