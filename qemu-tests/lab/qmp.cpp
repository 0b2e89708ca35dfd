// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/qmp.h"

#include <fcntl.h>
#include <sys/file.h>

#include "lab/unix_socket.h"

namespace pcilend::lab {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

// QEMU answers at once unless its big lock is held by an access that the fabric answers late.
constexpr auto kAnswer = 60s;

}  // namespace

Result<Qmp> Qmp::connect(const std::string& socket, const Deadline& deadline) {
  const std::string lock_path = socket + ".lock";
  UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return fail_errno(lock_path);
  if (!wait_until(deadline, [&] { return ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0; }))
    return fail(ErrorClass::State, "{} is in use by another program", socket);

  auto stream = connect_unix(socket);
  if (!stream) return tl::unexpected(stream.error());
  Qmp qmp(std::move(*stream), std::move(lock));
  if (auto greeting = qmp.lines_.receive(deadline); !greeting)
    return tl::unexpected(std::move(greeting).error().in(socket));
  if (auto ready = qmp.execute("qmp_capabilities"); !ready) return tl::unexpected(ready.error());
  return qmp;
}

Result<json> Qmp::execute(const std::string& command, json arguments) {
  events_.clear();
  json message = {{"execute", command}};
  if (!arguments.is_null()) message["arguments"] = std::move(arguments);
  const Deadline deadline(kAnswer);
  const auto in = [&](Error error) {
    return tl::unexpected(std::move(error).in("QMP " + command));
  };
  if (auto sent = lines_.send(message, deadline); !sent) return in(sent.error());
  for (;;) {
    auto answer = lines_.receive(deadline);
    if (!answer) return in(answer.error());
    if (answer->contains("event")) {
      events_.push_back(std::move(*answer));
    } else if (answer->contains("return")) {
      return (*answer)["return"];
    } else {
      const json error = answer->value("error", json::object());
      return in({ErrorClass::Failure, error.value("desc", answer->dump())});
    }
  }
}

Result<> Qmp::wait_for_event(const std::string& name, const Deadline& deadline) {
  for (;;) {
    for (const json& event : events_)
      if (event.value("event", "") == name) return {};
    auto message = lines_.receive(deadline);
    if (!message) return tl::unexpected(std::move(message).error().in("QMP event " + name));
    if (message->contains("event")) events_.push_back(std::move(*message));
  }
}

}  // namespace pcilend::lab
