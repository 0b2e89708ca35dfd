// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/layout.h"

#include <cstdlib>

#include "lab/options.h"

namespace pcilend::lab {

namespace fs = std::filesystem;

namespace {

// An environment variable; empty if it is not set.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

fs::path Layout::base() {
  const std::string base = variable("PCILEND_LAB_DIR");
  return fs::absolute(base.empty() ? "/run/pcilend-lab" : base);
}

Layout Layout::of(const std::string& name) {
  return Layout(base() / name);
}

std::string Layout::of_host(int host, const char* what) const {
  return dir_ / fmt::format("{}.{}", host_name(host), what);
}

std::string Layout::adapter(int a, int b, int path) const {
  return fs::path(fabric_dir()) / fmt::format("{}-{}.sock", host_name(a), path_name(b, path));
}

std::string Layout::drive(int host, const std::string& device) const {
  return dir_ / fmt::format("{}.{}.img", host_name(host), device);
}

Result<Artefacts> Artefacts::find(const std::string& kernel) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return fail_errno("/proc/self/exe", error.value());
  return find(self, kernel);
}

Result<Artefacts> Artefacts::find(const fs::path& program, const std::string& kernel) {
  Artefacts found;
  found.bin = program.parent_path();
  found.kernel = kernel;

  fs::path build = variable("PCILEND_BUILD_DIR");
  if (build.empty()) {
    build = found.bin.parent_path();
    if (!fs::exists(build / "image") && fs::exists(build.parent_path() / "image"))
      build = build.parent_path();
  }
  found.image = build / "image";
  found.modules = build / "modules" / kernel;

  for (const std::string& file : {found.qemu(), found.qemu_img(), found.vmlinuz(), found.release(),
                                  found.initrd(), found.root(), found.guest_initrd()})
    if (!fs::exists(file))
      return fail(ErrorClass::NotFound,
                  "{} is not there: run 'make image KERNEL={}' (qemu-tests/image/build)", file,
                  kernel);
  for (const std::string& file : {found.lab(), found.agent(), found.peer(), found.reach()})
    if (!fs::exists(file))
      return fail(ErrorClass::NotFound, "{} is not there: run 'make build'", file);
  return found;
}

}  // namespace pcilend::lab
