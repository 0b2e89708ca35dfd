// SPDX-License-Identifier: GPL-2.0-or-later
// What the lab puts into its hosts on top of the image: programs, modules, the guest's initramfs.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "lab/layout.h"
#include "pcilend/result.h"

namespace pcilend::lab {

struct PayloadFile {
  std::string source;  // on the outside
  std::string path;    // absolute, in the host
  mode_t permissions = 0644;
};

// Programs and modules that are there; the agent always is. `release` is the kernel's (uname -r).
Result<std::vector<PayloadFile>> payload_files(const Artefacts& artefacts,
                                               const std::string& release);

// The guest's initramfs with the agent in it as /agent, and /bin/reach.
Result<std::string> guest_initrd(const Artefacts& artefacts);

// Writes the image's initramfs and the payload behind it (as /payload/…) to `path`.
Result<> write_initrd(const Artefacts& artefacts, const std::string& path);

// The release (uname -r) of the hosts' kernel, as the image says.
Result<std::string> kernel_release(const Artefacts& artefacts);

}  // namespace pcilend::lab
