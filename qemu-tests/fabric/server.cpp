// SPDX-License-Identifier: GPL-2.0-or-later
#include "server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace pcilend::fabric {
namespace {

constexpr size_t kMaxRequest = 1 << 20;
// Buffers read from a host that seems to be replaced; more than a socket holds.
constexpr int kDrainRounds = 64;

Result<sockaddr_un> address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& name = path.native();
  if (name.size() >= sizeof address.sun_path)
    return fail(ErrorClass::Usage, "{}: a socket's path has at most {} bytes: use a shorter --dir",
                name, sizeof address.sun_path - 1);
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  return address;
}

UniqueFd make_socket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

Result<Listener> Listener::create(const std::filesystem::path& path) {
  const auto address = address_of(path);
  if (!address) return tl::unexpected(address.error());
  const auto* generic = reinterpret_cast<const sockaddr*>(&*address);
  const UniqueFd probe = make_socket();
  if (::connect(probe.get(), generic, sizeof *address) == 0 || errno == EAGAIN)
    return fail(ErrorClass::State, "{}: another fabric listens there", path.native());
  ::unlink(path.c_str());  // left by one that was killed

  UniqueFd fd = make_socket();
  if (!fd) return fail_errno("socket");
  if (::bind(fd.get(), generic, sizeof *address) < 0 || ::listen(fd.get(), 8) < 0)
    return fail_errno(path.native());
  return Listener(std::move(fd), path);
}

Listener::~Listener() {
  if (fd_) ::unlink(path_.c_str());
}

UniqueFd Listener::accept() const {
  return UniqueFd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

bool ControlClient::receive() {
  char chunk[4096];
  for (;;) {
    const ssize_t n = ::recv(fd(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) return false;
    if (n == 0) {
      ended_ = true;
      break;
    }
    input_.append(chunk, static_cast<size_t>(n));
    if (input_.size() > kMaxRequest) return false;
  }
  next_request();
  return flush();
}

void ControlClient::next_request() {
  while (!busy_) {
    const size_t end = input_.find('\n');
    if (end == std::string::npos) return;
    const std::string line = input_.substr(0, end);
    input_.erase(0, end + 1);
    busy_ = true;
    auto work = carry_out(fabric_, line, [this](const nlohmann::json& json) { answer(json); });
    if (busy_) work_ = std::move(work);
  }
}

void ControlClient::answer(const nlohmann::json& answer) {
  output_ += answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  output_ += '\n';
  busy_ = false;
}

bool ControlClient::flush() {
  // The work's own code answers, so it is let go of here and not there.
  if (!busy_ && work_) {
    work_.reset();
    next_request();
  }
  while (!output_.empty()) {
    const ssize_t n = ::send(fd(), output_.data(), output_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return true;
    if (n < 0) return false;
    output_.erase(0, static_cast<size_t>(n));
  }
  return !ended_ || busy_;
}

uint32_t ControlClient::interest() const {
  return (ended_ ? 0u : uint32_t{EPOLLIN}) | (output_.empty() ? 0u : uint32_t{EPOLLOUT});
}

Result<std::unique_ptr<Server>> Server::create(const std::filesystem::path& directory,
                                               Fabric& fabric, EventLoop& loop, Log& log) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return fail_errno(directory.native(), error.value());

  std::unique_ptr<Server> server(new Server(fabric, loop, log));
  Server* self = server.get();
  // First, as it tells whether another fabric is there before its other sockets are touched.
  PCILEND_TRY(server->listen(directory / "control.sock", [self](UniqueFd socket) {
    self->connect_control(std::move(socket));
  }));
  for (const auto& adapter : fabric.adapters()) {
    PCILEND_TRY(server->listen(directory / (adapter->name() + ".sock"),
                               [self, at = adapter.get()](UniqueFd socket) {
                                 self->connect_host(*at, std::move(socket));
                               }));
  }
  loop.set_epilogue([self] { self->flush(); });
  return server;
}

Server::~Server() {
  loop_.set_epilogue([] {});
  for (const Listener& listener : listeners_) loop_.remove(listener.fd());
  for (const auto& [fd, client] : clients_) loop_.remove(fd);
  for (const auto& adapter : fabric_.adapters()) {
    if (adapter->session() != nullptr) drop_host(*adapter, "the fabric ends");
  }
}

Result<> Server::listen(const std::filesystem::path& path, std::function<void(UniqueFd)> accepted) {
  auto listener = Listener::create(path);
  if (!listener) return tl::unexpected(listener.error());
  listeners_.push_back(std::move(*listener));
  const size_t index = listeners_.size() - 1;
  return loop_.add(listeners_[index].fd(), EPOLLIN,
                   [this, index, accepted = std::move(accepted)](uint32_t) {
                     while (UniqueFd socket = listeners_[index].accept())
                       accepted(std::move(socket));
                   });
}

void Server::connect_host(Adapter& adapter, UniqueFd socket) {
  // The one before may be gone already, and its end still unread behind what it sent.
  for (int round = 0; adapter.session() != nullptr && round < kDrainRounds; round++)
    on_host(adapter, EPOLLIN);
  if (adapter.session() != nullptr) {
    log_.artefact("second client", "{}: refused, one is connected", adapter.name());
    return;
  }
  const int fd = socket.get();
  const auto added =
      loop_.add(fd, EPOLLIN, [this, &adapter](uint32_t events) { on_host(adapter, events); });
  if (!added) {
    log_.info("{}: {}", adapter.name(), added.error().message);
    return;
  }
  fabric_.attach(adapter, std::move(socket));
}

void Server::on_host(Adapter& adapter, uint32_t events) {
  Connection& connection = adapter.session()->connection();
  if ((events & EPOLLOUT) != 0 && connection.flush() && !connection.has_output())
    loop_.change(connection.fd(), EPOLLIN);
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  if (connection.receive() == Connection::Progress::Closed) drop_host(adapter, connection.why());
}

void Server::drop_host(Adapter& adapter, const std::string& why) {
  loop_.remove(adapter.session()->connection().fd());
  fabric_.detach(adapter, std::string(why));
}

void Server::connect_control(UniqueFd socket) {
  const int fd = socket.get();
  const auto added =
      loop_.add(fd, EPOLLIN, [this, fd](uint32_t events) { on_control(fd, events); });
  if (!added) return;
  clients_.emplace(fd, std::make_unique<ControlClient>(std::move(socket), fabric_));
}

void Server::on_control(int fd, uint32_t events) {
  ControlClient& client = *clients_.at(fd);
  bool alive = true;
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) alive = client.receive();
  // Both directions are closed: what is still under way is for nobody.
  if (!alive || (events & (EPOLLHUP | EPOLLERR)) != 0) {
    loop_.remove(fd);
    clients_.erase(fd);
  }
}

void Server::flush() {
  for (const auto& adapter : fabric_.adapters()) {
    Session* session = adapter->session();
    if (session == nullptr || !session->connection().has_output()) continue;
    Connection& connection = session->connection();
    // A failed send is seen as a closed connection by the next receive.
    if (connection.flush() && connection.has_output())
      loop_.change(connection.fd(), EPOLLIN | EPOLLOUT);
  }
  for (auto at = clients_.begin(); at != clients_.end();) {
    ControlClient& client = *at->second;
    if (client.flush()) {
      loop_.change(client.fd(), client.interest());
      ++at;
    } else {
      loop_.remove(client.fd());
      at = clients_.erase(at);
    }
  }
}

}  // namespace pcilend::fabric
