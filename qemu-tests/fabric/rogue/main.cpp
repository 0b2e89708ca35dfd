// SPDX-License-Identifier: GPL-2.0-or-later
// ntb-rogue: a node of the fabric that is no VM, and speaks the wire protocol badly on request.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "rogue/control.h"
#include "server.h"

namespace {

using namespace pcilend;
using namespace pcilend::rogue;

constexpr int kIdle = 10;  // ms
constexpr uint16_t kNodeStep = 4;

volatile sig_atomic_t ended = 0;

// One client at a time: a request after another, each answered when it is done.
class Client {
 public:
  explicit Client(UniqueFd fd) : fd_(std::move(fd)) {}
  [[nodiscard]] int fd() const { return fd_.get(); }

  // False when the client has gone.
  bool serve(Rogue& rogue) {
    char chunk[4096];
    const ssize_t n = ::recv(fd(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    input_.append(chunk, static_cast<size_t>(n));
    for (size_t end = input_.find('\n'); end != std::string::npos; end = input_.find('\n')) {
      const std::string line = input_.substr(0, end);
      input_.erase(0, end + 1);
      fmt::print(stderr, "{}\n", line);
      const std::string answer = rogue.carry_out(line).dump() + "\n";
      fmt::print(stderr, "  {}", answer);
      if (::send(fd(), answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return false;
    }
    return true;
  }

 private:
  UniqueFd fd_;
  std::string input_;
};

Result<> run(const std::string& directory, unsigned hosts) {
  Rogue rogue;
  const auto number = static_cast<uint16_t>(kNodeStep * (hosts + 1));
  for (unsigned host = 1; host <= hosts; host++)
    PCILEND_TRY(rogue.connect(fmt::format("host{}", host),
                              fmt::format("{}/host{}-host{}.sock", directory, hosts + 1, host),
                              number));
  auto listener = fabric::Listener::create(directory + "/rogue.sock");
  if (!listener) return tl::unexpected(listener.error());
  fmt::print("ready\n");
  std::fflush(stdout);

  std::vector<Client> clients;
  while (ended == 0) {
    if (!rogue.alive()) return fail(ErrorClass::Unreachable, "the fabric is gone");
    std::vector<pollfd> polls{{listener->fd(), POLLIN, 0}};
    for (const int fd : rogue.fds()) polls.push_back({fd, POLLIN, 0});
    for (const Client& client : clients) polls.push_back({client.fd(), POLLIN, 0});
    ::poll(polls.data(), polls.size(), kIdle);
    rogue.step();
    while (UniqueFd socket = listener->accept()) clients.emplace_back(std::move(socket));
    std::erase_if(clients, [&](Client& client) { return !client.serve(rogue); });
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "A node of the fabric that is no VM, and speaks the wire protocol badly on request."};
  std::string directory;
  unsigned hosts = 2;
  app.add_option("--dir", directory, "directory of the fabric's sockets; rogue.sock is made there")
      ->required();
  app.add_option("--hosts", hosts, "hosts of the lab; the rogue is the one after the last")
      ->required()
      ->check(CLI::Range(1, 15));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorClass::Usage);
  }
  ::signal(SIGPIPE, SIG_IGN);
  for (const int signal : {SIGTERM, SIGINT}) ::signal(signal, [](int) { ended = 1; });
  const auto done = run(directory, hosts);
  if (!done) {
    fmt::print(stderr, "ntb-rogue: {}\n", done.error().message);
    return static_cast<int>(done.error().kind);
  }
  return 0;
}
