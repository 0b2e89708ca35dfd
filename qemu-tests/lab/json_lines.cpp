// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/json_lines.h"

#include <sys/socket.h>

namespace pcilend::lab {

using nlohmann::json;

Result<> JsonLines::send(const json& message, const Deadline& deadline) {
  const std::string text = message.dump() + "\n";
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t n = ::send(stream_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      rest.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      if (!wait_for(stream_.get(), POLLOUT, deadline))
        return fail(ErrorClass::Unreachable, "it takes no commands");
    } else if (errno != EINTR) {
      return fail(ErrorClass::Unreachable, "the connection ended");
    }
  }
  return {};
}

Result<json> JsonLines::receive(const Deadline& deadline) {
  for (;;) {
    const size_t end = pending_.find('\n');
    if (end != std::string::npos) {
      json message = json::parse(pending_.substr(0, end), nullptr, false);
      pending_.erase(0, end + 1);
      if (!message.is_object()) return fail(ErrorClass::Failure, "the answer is not a JSON object");
      return message;
    }
    if (!wait_for(stream_.get(), POLLIN, deadline))
      return fail(ErrorClass::Unreachable, "no answer in time");
    char bytes[16 * 1024];
    const ssize_t n = ::recv(stream_.get(), bytes, sizeof bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail(ErrorClass::Unreachable, "the connection ended");
    pending_.append(bytes, static_cast<size_t>(n));
  }
}

}  // namespace pcilend::lab
