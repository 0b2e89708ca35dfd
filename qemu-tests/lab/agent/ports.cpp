// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/agent/ports.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lab/agent/server.h"
#include "lab/deadline.h"

namespace pcilend::lab::agent {
namespace {

using namespace std::chrono_literals;

std::string trimmed(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text;
}

[[noreturn]] void work(const std::string& node, const std::string& boot_id) {
  // A worker that outlived its parent would keep the port from the next agent.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  UniqueFd port(::open(node.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!port) {
    fmt::print(stderr, "pcilend-lab-agent: {}: {}\n", node, std::strerror(errno));
    ::_exit(1);
  }
  ServerConfig config;
  config.boot_id = boot_id;
  config.reconnects = true;
  PortServer(std::move(port), config).run();
  ::_exit(1);
}

}  // namespace

std::map<std::string, std::string> find_ports(const Environment& environment,
                                              const std::string& name) {
  namespace fs = std::filesystem;
  const std::string ports = "/sys/class/virtio-ports";
  std::map<std::string, std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(environment.path(ports), error)) {
    const std::string node = entry.path().filename();
    const auto text = environment.read(ports + "/" + node + "/name");
    if (!text) continue;
    const std::string port = trimmed(*text);
    if (port == name || port.starts_with(name + ".")) found[port] = "/dev/" + node;
  }
  return found;
}

Result<> serve_ports(const Environment& environment, const std::string& name) {
  const std::string boot_id =
      trimmed(environment.read("/proc/sys/kernel/random/boot_id").value_or("unknown"));
  sigset_t children;
  ::sigemptyset(&children);
  ::sigaddset(&children, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &children, nullptr);
  ::signal(SIGPIPE, SIG_IGN);

  std::map<std::string, pid_t> workers;
  const Deadline first(10s);
  // Ports come one by one while the driver probes.
  const Deadline probing(3s);
  for (;;) {
    for (const auto& [port, node] : find_ports(environment, name)) {
      if (workers.contains(port)) continue;
      const pid_t pid = ::fork();
      if (pid < 0) return fail_errno("fork");
      if (pid == 0) work(node, boot_id);
      workers[port] = pid;
    }
    if (workers.empty() && first.over())
      return fail(ErrorClass::NotFound, "no virtio-serial port is named {}", name);

    const timespec pause = probing.over() ? timespec{1, 0} : timespec{0, 20'000'000};
    ::sigtimedwait(&children, nullptr, &pause);
    for (pid_t pid; (pid = ::waitpid(-1, nullptr, WNOHANG)) > 0;)
      std::erase_if(workers, [pid](const auto& worker) { return worker.second == pid; });
  }
}

}  // namespace pcilend::lab::agent
