// SPDX-License-Identifier: GPL-2.0-or-later
#include "manager/change_log.h"

namespace pcilend::nvme {
namespace {

constexpr size_t kKeptMax = 1024;  // of what a drive says, which may be anything

}  // namespace

void ChangeLog::note(const NamespaceChanges& changes) {
  if (changes.empty()) return;
  ++now_;
  for (const uint32_t id : changes.ids) noted_[id] = now_;
  if (!changes.all && noted_.size() <= kKeptMax) return;
  all_ = now_;
  noted_.clear();
}

NamespaceChanges ChangeLog::since(uint64_t then) const {
  if (then > now_ || then < all_) return {.all = true, .ids = {}};
  NamespaceChanges changes;
  for (const auto& [id, when] : noted_)
    if (when > then) changes.ids.push_back(id);
  return changes;
}

}  // namespace pcilend::nvme
