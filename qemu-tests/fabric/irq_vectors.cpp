// SPDX-License-Identifier: GPL-2.0-or-later
#include "irq_vectors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace pcilend::fabric {

void IrqVectors::raise(uint32_t vectors) {
  for (unsigned vector = 0; vector < fds_.size(); vector++) {
    if ((vectors >> vector & 1) == 0) continue;
    if (fds_[vector])
      signal(vector);
    else
      latched_ |= 1u << vector;
  }
}

void IrqVectors::signal(unsigned vector) {
  raised_++;
  const uint64_t one = 1;
  // A full counter means that the interrupt is pending already.
  [[maybe_unused]] const ssize_t n = ::write(fds_[vector].get(), &one, sizeof one);
}

Parsed<> IrqVectors::set(const IrqRequest& request, std::vector<UniqueFd> fds,
                         const std::function<bool(unsigned)>& stands) {
  const IrqSet& set = request.set;
  if ((set.flags & IrqSet::kActionTrigger) == 0) return tl::unexpected(EINVAL);
  if (set.start > fds_.size() || set.count > fds_.size() - set.start) return tl::unexpected(EINVAL);

  if ((set.flags & IrqSet::kDataEventfd) != 0) {
    if (!fds.empty() && fds.size() != set.count) return tl::unexpected(EINVAL);
    for (uint32_t i = 0; i < set.count; i++) {
      const unsigned vector = set.start + i;
      if (fds.empty()) {
        fds_[vector].reset();
        continue;
      }
      // A descriptor that could block us must not.
      const int flags = ::fcntl(fds[i].get(), F_GETFL);
      if ((flags & O_NONBLOCK) == 0) ::fcntl(fds[i].get(), F_SETFL, flags | O_NONBLOCK);
      fds_[vector] = std::move(fds[i]);
      if ((latched_ >> vector & 1) != 0) {
        latched_ &= ~(1u << vector);
        if (stands(vector)) signal(vector);
      }
    }
    return {};
  }
  if (!fds.empty()) return tl::unexpected(EINVAL);
  if ((set.flags & IrqSet::kDataNone) != 0 && set.count == 0) {
    for (UniqueFd& fd : fds_) fd.reset();
    return {};
  }
  for (uint32_t i = 0; i < set.count; i++) {
    if (request.data.empty() || request.data[i] != std::byte{0}) raise(1u << (set.start + i));
  }
  return {};
}

unsigned IrqVectors::enabled() const {
  return static_cast<unsigned>(
      std::count_if(fds_.begin(), fds_.end(), [](const UniqueFd& fd) { return bool(fd); }));
}

void IrqVectors::clear() {
  for (UniqueFd& fd : fds_) fd.reset();
  latched_ = 0;
}

}  // namespace pcilend::fabric
