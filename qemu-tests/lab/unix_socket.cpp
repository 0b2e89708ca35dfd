// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/unix_socket.h"

#include <sys/socket.h>
#include <sys/un.h>

namespace pcilend::lab {

Result<UniqueFd> connect_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return fail(ErrorClass::Usage, "{}: longer than the {} characters a socket's path may have",
                path, sizeof address.sun_path - 1);
  path.copy(address.sun_path, path.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno("socket");
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0) {
    if (errno == ECONNREFUSED || errno == ENOENT)
      return fail(ErrorClass::Unreachable, "{}: {}", path, std::strerror(errno));
    return fail_errno(path);
  }
  return fd;
}

}  // namespace pcilend::lab
