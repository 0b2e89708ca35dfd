// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/agent/client.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "lab/unix_socket.h"

namespace pcilend::lab::agent {
namespace {

using namespace std::chrono_literals;

constexpr size_t kBacklog = 256 * 1024;
constexpr auto kHelloEvery = 100ms;

Error refused(const Refusal& refusal) {
  ErrorClass kind = ErrorClass::Failure;
  if (refusal.error == ENOENT) kind = ErrorClass::NotFound;
  if (refusal.error == EACCES || refusal.error == EPERM) kind = ErrorClass::Permission;
  return {kind, refusal.message};
}

tl::unexpected<Error> gone() {
  return fail(ErrorClass::Unreachable, "the connection to the agent ended");
}

}  // namespace

struct Session::Watch {
  int input = -1;
  int interrupt = -1;
  int resized = -1;
  std::function<Result<>()> on_interrupt;
  std::function<Result<>()> on_resize;
  std::optional<Deadline> total;
  Deadline::Clock::time_point next_obituary = Deadline::Clock::now() + 1s;
};

Session::Session(Connection connection)
    : stream_(std::move(connection.stream)),
      lock_(std::move(connection.lock)),
      last_word_(Deadline::Clock::now()) {
  ::fcntl(stream_.get(), F_SETFL, ::fcntl(stream_.get(), F_GETFL) | O_NONBLOCK);
}

Result<Connection> connect(const std::string& socket, const Deadline& deadline) {
  for (;;) {
    int ports = 0;
    for (std::string path = socket; ::access(path.c_str(), F_OK) == 0;
         path = fmt::format("{}.{}", socket, ports)) {
      ++ports;
      Connection connection;
      const std::string lock = path + ".lock";
      connection.lock.reset(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
      if (!connection.lock) return fail_errno(lock);
      if (::flock(connection.lock.get(), LOCK_EX | LOCK_NB) < 0) continue;
      auto stream = connect_unix(path);
      if (!stream) return tl::unexpected(stream.error());
      connection.stream = std::move(*stream);
      return connection;
    }
    if (ports == 0)
      return fail(ErrorClass::NotFound, "no agent socket {}: that machine is not running", socket);
    if (deadline.over())
      return fail(ErrorClass::State, "all {} agent ports of {} are in use", ports, socket);
    std::this_thread::sleep_for(50ms);
  }
}

Result<Session> Session::open(Connection connection, const Deadline& deadline,
                              const std::function<std::string()>& obituary) {
  Session session(std::move(connection));
  while (session.id_ == 0)
    if (::getrandom(&session.id_, sizeof session.id_, 0) < 0) return fail_errno("getrandom");
  // The zero byte ends whatever an earlier client left half sent.
  session.outgoing_.push_back('\0');

  for (;;) {
    if (session.outgoing_.size() <= 1) PCILEND_TRY(session.send(FrameType::Hello, Hello{}.body()));
    const Deadline again(kHelloEvery);
    while (!again.over()) {
      PCILEND_TRY(session.transmit());
      pollfd port{session.stream_.get(), POLLIN, 0};
      if (!session.outgoing_.empty()) port.events |= POLLOUT;
      ::poll(&port, 1, std::min(again.milliseconds(), deadline.milliseconds()));
      PCILEND_TRY(session.receive());
      bool restarted = false;
      for (auto frame = session.frames_.begin(); frame != session.frames_.end(); ++frame) {
        if (frame->type == FrameType::Restarted) restarted = true;
        if (frame->type != FrameType::Welcome || frame->session != session.id_) continue;
        const auto welcome = Welcome::parse(frame->body);
        if (!welcome || welcome->version != kVersion)
          return fail(ErrorClass::Unsupported,
                      "the agent speaks another version of the protocol than this program ({}): "
                      "start the lab again with one build's programs",
                      kVersion);
        session.boot_id_ = welcome->boot_id;
        session.frames_.erase(session.frames_.begin(), frame + 1);
        return session;
      }
      session.frames_.clear();
      if (restarted) break;
      if (deadline.over()) return fail(ErrorClass::Unreachable, "the agent does not answer");
    }
    if (obituary)
      if (std::string why = obituary(); !why.empty())
        return fail(ErrorClass::Unreachable, "{}", why);
  }
}

Result<> Session::send(FrameType type, std::string body) {
  if (body.size() > kMaxBody)
    return fail(ErrorClass::Usage, "the request is {} bytes long, at most {} are possible",
                body.size(), kMaxBody);
  outgoing_.append(encode({type, id_, std::move(body)}));
  return transmit();
}

Result<> Session::transmit() {
  while (!outgoing_.empty()) {
    const ssize_t n =
        ::send(stream_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return {};
    if (n < 0) return gone();
    outgoing_.erase(0, static_cast<size_t>(n));
  }
  return {};
}

Result<> Session::receive() {
  char bytes[64 * 1024];
  const ssize_t n = ::read(stream_.get(), bytes, sizeof bytes);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  if (n <= 0) return gone();
  reader_.feed({bytes, static_cast<size_t>(n)}, [this](Frame frame) {
    if (frame.session == id_) last_word_ = Deadline::Clock::now();
    if (frame.session == id_ || frame.type == FrameType::Restarted)
      frames_.push_back(std::move(frame));
  });
  return {};
}

// Waits for anything to do (at most a second), and does it; frames that came are in frames_.
Result<> Session::turn(Watch& watch, const Limits& limits) {
  enum { Port, Input, Interrupt, Resized };
  std::array<pollfd, 4> fds;
  fds.fill({-1, POLLIN, 0});
  fds[Port].fd = stream_.get();
  if (!outgoing_.empty()) fds[Port].events |= POLLOUT;
  if (outgoing_.size() < kBacklog) fds[Input].fd = watch.input;
  fds[Interrupt].fd = watch.interrupt;
  fds[Resized].fd = watch.resized;
  const int timeout = watch.total ? watch.total->milliseconds(1000) : 1000;
  if (::poll(fds.data(), fds.size(), timeout) < 0 && errno != EINTR) return fail_errno("poll");

  PCILEND_TRY(transmit());
  if (fds[Port].revents & ~POLLOUT) PCILEND_TRY(receive());
  if (fds[Input].revents) {
    std::string bytes(kMaxContent, '\0');
    const ssize_t n = ::read(watch.input, bytes.data(), bytes.size());
    if (n > 0) {
      bytes.resize(static_cast<size_t>(n));
      PCILEND_TRY(send(FrameType::Content, std::move(bytes)));
    } else if (n < 0 && errno != EINTR && errno != EAGAIN) {
      return fail_errno("read the input");
    } else if (n == 0) {
      watch.input = -1;
      PCILEND_TRY(send(FrameType::End, {}));
    }
  }
  if (fds[Interrupt].revents && watch.on_interrupt) PCILEND_TRY(watch.on_interrupt());
  if (fds[Resized].revents && watch.on_resize) PCILEND_TRY(watch.on_resize());

  const auto now = Deadline::Clock::now();
  if (watch.total && watch.total->over())
    return fail(ErrorClass::Unreachable, "not finished after {:.1f} s",
                std::chrono::duration<double>(*limits.total).count());
  if (limits.obituary && now >= watch.next_obituary && now - last_word_ >= 2s) {
    watch.next_obituary = now + 1s;
    if (std::string why = limits.obituary(); !why.empty())
      return fail(ErrorClass::Unreachable, "{}", why);
  }
  if (now - last_word_ > limits.silence * patience.load())
    return fail(ErrorClass::Unreachable, "no word from the agent for {:.1f} s",
                std::chrono::duration<double>(limits.silence).count());
  return {};
}

// A machine that dies under its command is known to be dead a little later.
Error Session::explained(Error error, const Limits& limits) {
  std::string why;
  const auto known = [&] { return !(why = limits.obituary()).empty(); };
  if (limits.obituary && wait_until(Deadline(1s), known)) return {ErrorClass::Unreachable, why};
  return error;
}

Result<> Session::begin(FrameType type, std::string body, const Limits& limits) {
  return send(type, std::move(body)).map_error([&](Error error) {
    return explained(std::move(error), limits);
  });
}

// Turns until the request is answered; hands every other frame to `deliver`.
Result<ExitStatus> Session::finish(Watch& watch, const Limits& limits,
                                   const std::function<Result<>(const Frame&)>& deliver) {
  if (limits.total) watch.total.emplace(*limits.total);
  last_word_ = Deadline::Clock::now();
  for (Result<> turned;; turned = turn(watch, limits)) {
    // What came before the stream ended still counts.
    for (const Frame& frame : std::exchange(frames_, {})) {
      switch (frame.type) {
        case FrameType::Done:
          if (const auto status = ExitStatus::parse(frame.body)) return *status;
          return fail(ErrorClass::Failure, "the agent's answer is malformed");
        case FrameType::Refused:
          if (const auto refusal = Refusal::parse(frame.body))
            return tl::unexpected(refused(*refusal));
          return fail(ErrorClass::Failure, "the agent's answer is malformed");
        case FrameType::Restarted:
          return fail(ErrorClass::Unreachable, "the agent was restarted in the meantime");
        default:
          PCILEND_TRY(deliver(frame));
      }
    }
    if (turned) continue;
    return tl::unexpected(explained(turned.error(), limits));
  }
}

Result<ExitStatus> Session::run(std::vector<std::string> argv, const RunStreams& streams,
                                const Limits& limits) {
  RunRequest request{std::move(argv), streams.input >= 0, streams.terminal, {}};
  if (streams.window) request.window = streams.window();
  PCILEND_TRY(begin(FrameType::Run, request.body(), limits));

  Watch watch;
  watch.input = streams.input;
  watch.interrupt = streams.interrupt;
  watch.resized = streams.resized;
  uint32_t next_signal = SIGINT;
  watch.on_interrupt = [&]() -> Result<> {
    char bytes[512];
    if (::read(streams.interrupt, bytes, sizeof bytes) < 0) return {};
    PCILEND_TRY(send(FrameType::Signal, signal_body(next_signal)));
    next_signal = SIGKILL;
    return {};
  };
  watch.on_resize = [&]() -> Result<> {
    char bytes[512];
    if (::read(streams.resized, bytes, sizeof bytes) < 0 || !streams.window) return {};
    return send(FrameType::Window, streams.window().body());
  };
  return finish(watch, limits, [&](const Frame& frame) -> Result<> {
    if (frame.type == FrameType::Content && streams.output) streams.output(frame.body);
    if (frame.type == FrameType::Errors && streams.errors) streams.errors(frame.body);
    return {};
  });
}

Result<> Session::put(int source, const FileRequest& to, const Limits& limits) {
  PCILEND_TRY(begin(FrameType::Put, to.body(), limits));
  Watch watch;
  watch.input = source;
  PCILEND_TRY(finish(watch, limits, [](const Frame&) -> Result<> { return {}; }));
  return {};
}

Result<uint32_t> Session::get(const std::string& path, int sink, const Limits& limits) {
  PCILEND_TRY(begin(FrameType::Get, FileRequest{path, {}, 0}.body(), limits));
  Watch watch;
  uint32_t mode = 0644;
  PCILEND_TRY(finish(watch, limits, [&](const Frame& frame) -> Result<> {
    if (frame.type == FrameType::FileInfo)
      if (const auto info = FileInfo::parse(frame.body)) mode = info->mode;
    if (frame.type == FrameType::Content)
      return write_all(sink, std::as_bytes(std::span(frame.body)));
    return {};
  }));
  return mode;
}

}  // namespace pcilend::lab::agent
