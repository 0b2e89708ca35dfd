// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/attached.h"

#include <fmt/format.h>

#include <filesystem>

#include "lab/layout.h"

namespace pcilend::scenarios {

Result<> attach(lab::Options& options, int host, Attached disk, const std::string& device) {
  const auto artefacts = lab::Artefacts::find(options.kernel);
  if (!artefacts) return tl::unexpected(artefacts.error());
  const std::string file = disk == Attached::VfioUsers ? artefacts->vfio_users()
                           : disk == Attached::Cluster ? artefacts->cluster()
                                                       : artefacts->guest_disk();
  if (!std::filesystem::exists(file))
    return fail(ErrorClass::NotFound, "{} is not there: run 'qemu-tests/image/build --attached'",
                file);
  const std::string drive = fmt::format("attached{}", static_cast<int>(disk));
  auto& arguments = options.qemu_arguments[host];
  arguments.insert(
      arguments.end(),
      {"-drive", fmt::format("file={},if=none,id={},format=raw,snapshot=on,cache=unsafe",
                             std::filesystem::canonical(file).string(), drive)});
  return options.add_device(fmt::format("host{}:{},drive={}", host, device, drive));
}

}  // namespace pcilend::scenarios
