// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/agent/server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>

#include "lab/deadline.h"

namespace pcilend::lab::agent {
namespace {

// Above this much that waits for the port (or for a command's stdin), its source is not read.
constexpr size_t kBacklog = 256 * 1024;

constexpr std::chrono::milliseconds kTerminalRest{100};

Refusal refusal(int error, std::string_view what) {
  return Refusal{error, fmt::format("{}: {}", what, std::strerror(error))};
}

}  // namespace

tl::expected<IncomingFile, Refusal> IncomingFile::create(const FileRequest& request) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  fs::path path = request.path;
  if (fs::is_directory(path, ignored)) path /= request.name;
  std::string aside = path.native() + ".XXXXXX";
  UniqueFd fd(::mkostemp(aside.data(), O_CLOEXEC));
  if (!fd) return tl::unexpected(refusal(errno, path.native()));
  return IncomingFile(std::move(fd), aside, path, request.mode);
}

IncomingFile::~IncomingFile() {
  if (fd_) ::unlink(aside_.c_str());
}

tl::expected<void, Refusal> IncomingFile::append(std::string_view bytes) {
  if (auto written = write_all(fd_.get(), std::as_bytes(std::span(bytes))); !written)
    return tl::unexpected(refusal(errno, path_));
  return {};
}

tl::expected<void, Refusal> IncomingFile::finish() {
  if (::fchmod(fd_.get(), mode_) < 0 || ::rename(aside_.c_str(), path_.c_str()) < 0)
    return tl::unexpected(refusal(errno, path_));
  fd_.reset();
  return {};
}

PortServer::PortServer(UniqueFd port, ServerConfig config)
    : port_(std::move(port)), config_(std::move(config)) {
  if (!config_.reconnects) return;
  wakeups_.reset(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {}};
  ::epoll_ctl(wakeups_.get(), EPOLL_CTL_ADD, port_.get(), &event);
}

void PortServer::run() {
  outgoing_ = encode({FrameType::Restarted, 0, {}});
  while (port_) wait();
  end_session();
}

// One turn: waits for anything to do, and does it.
void PortServer::wait() {
  const bool room = outgoing_.size() < kBacklog;
  enum { Port, Ended, Output, Errors, Input };
  std::array<pollfd, 5> fds;
  fds.fill({-1, 0, 0});
  fds[Port] = {port_.get(), 0, 0};
  if (child_input_.size() < kBacklog) fds[Port].events |= POLLIN;
  if (!outgoing_.empty()) fds[Port].events |= POLLOUT;
  if (child_) {
    fds[Ended] = {child_->ended(), POLLIN, 0};
    if (room) fds[Output] = {child_->output.get(), POLLIN, 0};
    if (room) fds[Errors] = {child_->errors.get(), POLLIN, 0};
    if (!child_input_.empty()) fds[Input] = {child_->input.get(), POLLOUT, 0};
  }
  int timeout = -1;
  if (outgoing_file_ && room) {
    timeout = 0;
  } else if (child_ || incoming_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_alive_ - Clock::now());
    timeout = static_cast<int>(std::max<int64_t>(left.count(), 0));
  }
  if (::poll(fds.data(), fds.size(), timeout) < 0) {
    if (errno != EINTR) port_.reset();
    return;
  }

  if (fds[Port].revents & POLLOUT) transmit();
  if (fds[Port].revents & (POLLHUP | POLLERR | POLLNVAL)) {
    if (!receive()) hung_up();
    return;
  }
  gone_since_.reset();
  if ((fds[Port].revents & POLLIN) && !receive() && !config_.reconnects) return port_.reset();

  if (child_ && fds[Output].revents) forward(child_->output, FrameType::Content, kMaxContent);
  if (child_ && fds[Errors].revents) forward(child_->errors, FrameType::Errors, kMaxContent);
  if (child_ && fds[Input].revents) forward_input();
  if (child_ && fds[Ended].revents) {
    forward_rest();
    const ExitStatus status = child_->reap();
    send(FrameType::Done, status.body());
    end_session();
  }
  if ((child_ || incoming_) && Clock::now() >= next_alive_) {
    next_alive_ = Clock::now() + config_.alive_every;
    if (outgoing_.empty()) send(FrameType::Alive);
  }
  if (outgoing_file_ && outgoing_.size() < kBacklog &&
      forward(outgoing_file_, FrameType::Content, kMaxContent) < 0) {
    send(FrameType::Done, ExitStatus{}.body());
    end_session();
  }
}

// Reads once from the port; false if nothing can come any more (until the host connects again).
bool PortServer::receive() {
  char bytes[32 * 1024];
  const ssize_t n = ::read(port_.get(), bytes, sizeof bytes);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  reader_.feed({bytes, static_cast<size_t>(n)}, [this](Frame frame) { handle(std::move(frame)); });
  return true;
}

void PortServer::transmit() {
  const ssize_t n = ::write(port_.get(), outgoing_.data(), outgoing_.size());
  if (n > 0) outgoing_.erase(0, static_cast<size_t>(n));
}

// virtio_console learns from a queue of its own, in a work item, that a client has gone and the
// next one has come; so on a busy machine later than it has the next one's first bytes. That one's
// session goes on: it ends when nobody has come for a moment, or with the Hello of another.
void PortServer::hung_up() {
  if (!config_.reconnects) return port_.reset();
  const auto now = Clock::now();
  if (!gone_since_) gone_since_ = now;
  auto left = std::chrono::ceil<std::chrono::milliseconds>(*gone_since_ + config_.gone_after - now);
  if (left <= left.zero()) {
    end_session();
    outgoing_.clear();
    left = std::chrono::milliseconds(5000);
  }
  // poll() would return at once for ever; who connects wakes what waits for an edge.
  epoll_event event;
  ::epoll_wait(wakeups_.get(), &event, 1, static_cast<int>(left.count()));
}

void PortServer::handle(Frame frame) {
  if (frame.type == FrameType::Hello) return begin(frame);
  if (frame.session != session_ || session_ == 0) return;
  switch (frame.type) {
    case FrameType::Run:
    case FrameType::Put:
    case FrameType::Get:
      return start(frame);
    case FrameType::Content:
      return accept_content(frame.body);
    case FrameType::End:
      return finish_input();
    case FrameType::Signal:
      if (const auto number = parse_signal(frame.body); number && child_)
        child_->signal(static_cast<int>(*number));
      return;
    case FrameType::Window:
      if (const auto window = WindowSize::parse(frame.body); window && child_)
        child_->resize(*window);
      return;
    default:
      return;
  }
}

// A client repeats its Hello until it has the answer: a repeated one changes nothing.
void PortServer::begin(const Frame& frame) {
  if (frame.session == 0 || !Hello::parse(frame.body)) return;
  if (frame.session != session_) {
    end_session();
    outgoing_.clear();
    session_ = frame.session;
    used_ = false;
  }
  if (!used_) send(FrameType::Welcome, Welcome{kVersion, config_.boot_id}.body());
}

void PortServer::start(const Frame& frame) {
  if (used_) return;
  used_ = true;
  next_alive_ = Clock::now() + config_.alive_every;
  const Refusal malformed{EBADMSG, "malformed request"};
  if (frame.type == FrameType::Run) {
    const auto request = RunRequest::parse(frame.body);
    if (!request) return refuse(malformed);
    auto child = Child::start(*request);
    if (!child) return refuse(child.error());
    child_.emplace(std::move(*child));
    return;
  }
  const auto request = FileRequest::parse(frame.body);
  if (!request) return refuse(malformed);
  if (frame.type == FrameType::Put) {
    auto file = IncomingFile::create(*request);
    if (!file) return refuse(file.error());
    incoming_.emplace(std::move(*file));
    return;
  }
  struct stat status {};
  outgoing_file_.reset(::open(request->path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!outgoing_file_ || ::fstat(outgoing_file_.get(), &status) < 0)
    return refuse(refusal(errno, request->path));
  if (S_ISDIR(status.st_mode)) return refuse(refusal(EISDIR, request->path));
  send(FrameType::FileInfo, FileInfo{status.st_mode & 07777U}.body());
}

void PortServer::accept_content(std::string_view bytes) {
  if (child_ && child_->input && !child_input_ends_) {
    child_input_.append(bytes);
    forward_input();
  } else if (incoming_) {
    if (auto done = incoming_->append(bytes); !done) refuse(done.error());
  }
}

void PortServer::finish_input() {
  if (child_) {
    child_input_ends_ = true;
    forward_input();
  } else if (incoming_) {
    if (auto done = incoming_->finish(); !done) return refuse(done.error());
    send(FrameType::Done, ExitStatus{}.body());
    end_session();
  }
}

void PortServer::send(FrameType type, std::string body) {
  outgoing_.append(encode({type, session_, std::move(body)}));
}

void PortServer::refuse(const Refusal& refusal) {
  send(FrameType::Refused, refusal.body());
  end_session();
}

// Ends whatever the session does; what waits to be sent stays. The session's number stays too, so
// that a late repetition of its Hello starts nothing.
void PortServer::end_session() {
  child_.reset();
  child_input_.clear();
  child_input_ends_ = false;
  incoming_.reset();
  outgoing_file_.reset();
}

// Sends up to `most` bytes of `from` on and says how many; at its end closes it and says -1.
ssize_t PortServer::forward(UniqueFd& from, FrameType type, size_t most) {
  std::string bytes(std::min(most, kMaxContent), '\0');
  const ssize_t n = ::read(from.get(), bytes.data(), bytes.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (n <= 0) {
    from.reset();
    return -1;
  }
  bytes.resize(static_cast<size_t>(n));
  send(type, std::move(bytes));
  return n;
}

void PortServer::forward_input() {
  while (!child_input_.empty()) {
    const ssize_t n = ::write(child_->input.get(), child_input_.data(), child_input_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) {
      child_input_.clear();
      child_->input.reset();
      return;
    }
    child_input_.erase(0, static_cast<size_t>(n));
  }
  if (child_input_ends_) child_->input.reset();
}

// The command has ended: what it wrote is in the pipes. What others that hold them open write from
// now on is not waited for. A terminal hands its bytes over a little later, and then reports EIO.
void PortServer::forward_rest() {
  if (child_->terminal()) {
    const Deadline deadline(kTerminalRest);
    while (child_->output && wait_for(child_->output.get(), POLLIN, deadline))
      forward(child_->output, FrameType::Content, kMaxContent);
    return;
  }
  const std::pair<UniqueFd*, FrameType> pipes[] = {{&child_->output, FrameType::Content},
                                                   {&child_->errors, FrameType::Errors}};
  for (const auto& [from, type] : pipes) {
    int left = 0;
    if (!*from || ::ioctl(from->get(), FIONREAD, &left) < 0) continue;
    while (left > 0) {
      const ssize_t n = forward(*from, type, static_cast<size_t>(left));
      if (n <= 0) break;
      left -= static_cast<int>(n);
    }
  }
}

}  // namespace pcilend::lab::agent
