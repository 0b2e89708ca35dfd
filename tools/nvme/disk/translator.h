// SPDX-License-Identifier: GPL-2.0-or-later
// What the kernel asks of a disk, as what is asked of a drive. No system calls, no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tl/expected.hpp>

#include "disk/ublk_abi.h"
#include "pcilend/nvme/identify.h"
#include "pcilend/nvme/task.h"

namespace pcilend::nvme {

struct DiskTraits {
  NamespaceInfo name_space;
  size_t transfer = 0;  // bytes of a command, at most
  bool volatile_cache = false;
  bool deallocates = false;
  bool writes_zeroes = false;
  bool read_only = false;
};

class Translator {
 public:
  // Unsupported if the kernel has no disks like that.
  static Result<Translator> make(const DiskTraits& traits);

  [[nodiscard]] const DiskTraits& traits() const { return traits_; }
  // What the kernel is told of the disk.
  [[nodiscard]] ublk_params parameters() const;
  // A request, which is not taken to be one that parameters() allow; else what it is answered, a
  // negative errno.
  [[nodiscard]] tl::expected<Task, int> translate(const ublksrv_io_desc& request) const;

 private:
  explicit Translator(const DiskTraits& traits, unsigned shift) : traits_(traits), shift_(shift) {}

  DiskTraits traits_;
  unsigned shift_;  // of a block's bytes
};

// What a request is answered whose command has that status: 0, or a negative errno.
int answer_to(uint16_t status);

}  // namespace pcilend::nvme
