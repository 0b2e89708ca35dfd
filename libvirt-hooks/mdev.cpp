// SPDX-License-Identifier: GPL-2.0-or-later
#include "mdev.h"

namespace pcilend {
namespace {

std::string device(const Uuid& uuid) {
  return "/sys/bus/mdev/devices/" + to_string(uuid);
}

}  // namespace

bool mdev_exists(const Environment& environment, const Uuid& uuid) {
  return environment.exists(device(uuid));
}

bool mdev_is_defined(const Environment& environment, const Uuid& uuid) {
  std::error_code error;
  const std::filesystem::path directory = environment.path("/etc/mdevctl.d");
  for (std::filesystem::directory_iterator parent(directory, error), end; !error && parent != end;
       parent.increment(error)) {
    std::error_code missing;
    if (std::filesystem::exists(parent->path() / to_string(uuid), missing)) return true;
  }
  return false;
}

bool mdev_is_ready(const Environment& environment, const Uuid& uuid) {
  return environment.exists(device(uuid) + "/iommu_group");
}

Result<FunctionId> function_of_mdev(const Environment& environment, const Uuid& uuid) {
  const auto place = environment.resolve(device(uuid));
  if (!place) return tl::unexpected(place.error());
  return parse_function_id(place->parent_path().filename().native());
}

Result<> create_mdev(const Environment& environment, FunctionId function, const Uuid& uuid) {
  const std::string parent = "/sys/bus/pcilend/devices/" + to_string(function);
  if (environment.exists(parent) && !environment.exists(parent + "/mdev_supported_types"))
    return fail(ErrorClass::Unsupported,
                "{} can't be given to VMs: pcilend_mdev.ko is not loaded: modprobe pcilend_mdev",
                to_string(function));
  return environment.write_attribute(parent + "/mdev_supported_types/pcilend-function/create",
                                     to_string(uuid));
}

Result<> remove_mdev(const Environment& environment, const Uuid& uuid) {
  if (!mdev_exists(environment, uuid)) return {};
  auto removed = environment.write_attribute(device(uuid) + "/remove", "1");
  if (!removed && !mdev_exists(environment, uuid)) return {};
  return removed;
}

}  // namespace pcilend
