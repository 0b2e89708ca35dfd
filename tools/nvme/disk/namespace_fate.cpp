// SPDX-License-Identifier: GPL-2.0-or-later
#include "disk/namespace_fate.h"

#include "pcilend/result.h"

namespace pcilend::nvme {

NamespaceFate fate_of(const NamespaceInfo& known, uint64_t blocks,
                      const Result<NamespaceInfo>& now) {
  if (!now) {
    const ErrorClass kind = now.error().kind;
    const bool said = kind == ErrorClass::NotFound || kind == ErrorClass::Unsupported;
    return said ? NamespaceFate::Other : NamespaceFate::Unknown;
  }
  if (now->block_bytes != known.block_bytes || now->command_set != known.command_set ||
      now->blocks < blocks || differ(now->identity, known.identity))
    return NamespaceFate::Other;
  return now->blocks > blocks ? NamespaceFate::Grown : NamespaceFate::Same;
}

}  // namespace pcilend::nvme
